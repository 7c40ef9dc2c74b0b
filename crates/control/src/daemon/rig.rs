//! One NIC as it runs: its soft NIC in the engine, and what is plugged in there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{Fabric, Hits, Plug, Port, Scene, SceneSpec, SoftNic, SwitchSpec};
use nic::{Budget, Capacity};
use port::capture::Capture;

use super::device::Identity;
use crate::compile::{Compiled, Owner, Target};
use crate::state::Attachment;

/// An attachment that is served.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) port: Arc<Port>,
    pub(super) token: u64,
    pub(super) spec: Attachment,
    pub(super) identity: Identity,
}

/// A file that gets copies of frames.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) port: Arc<Port>,
    /// Held while frames are to be written.
    pub(super) capture: Capture,
}

/// What a switch remembers, whatever its settings become.
#[derive(Debug)]
struct Memory {
    state: Arc<vswitch::State>,
    ageing: Duration,
    next_tick: Instant,
}

/// One NIC as it runs.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) soft: Arc<SoftNic>,
    pub(super) served: BTreeMap<Owner, Served>,
    pub(super) captures: BTreeMap<String, Captured>,
    memory: Option<Memory>,
    budget: Option<(Capacity, Arc<Mutex<Budget>>)>,
    /// What is in force.
    pub(super) compiled: Compiled,
    /// How often the rules of the switch's ACLs were met.
    pub(super) hits: Arc<Hits>,
}

/// Addresses that a switch can learn.
const LEARNED_MAX: usize = 16_384;

impl Rig {
    /// A NIC on which nothing is plugged in.
    pub(super) fn new(fabric: &mut Fabric, name: &str) -> Rig {
        Rig {
            soft: fabric.add_nic(name),
            served: BTreeMap::new(),
            captures: BTreeMap::new(),
            memory: None,
            budget: None,
            compiled: Compiled::default(),
            hits: Arc::default(),
        }
    }

    /// The port of an attachment or of a monitor.
    fn target(&self, target: &Target) -> Option<Arc<Port>> {
        match target {
            Target::Adapter(name) => {
                self.served.get(&Owner::Adapter(name.clone())).map(|served| served.port.clone())
            }
            Target::File(path) => self.captures.get(path).map(|captured| captured.port.clone()),
        }
    }

    /// Puts what was compiled in force, in one step; every port that it names is there.
    pub(super) fn put_in_force(&mut self, compiled: Compiled, tables: Tables) {
        let Tables { nic: table, switch } = tables;
        let plug = |plugged: &crate::compile::Plugged| {
            let port = self.served.get(&plugged.owner)?.port.clone();
            Some(Plug { port, place: plugged.place, share: plugged.share })
        };
        let plugs = compiled.plugs.iter().filter_map(plug).collect();
        let queue = |(id, adapter): &(nic::PortId, String)| {
            let served = self.served.get(&Owner::Adapter(adapter.clone()))?;
            Some((*id, served.port.clone()))
        };
        let queues = compiled.queues.iter().filter_map(queue).collect();
        let monitors = compiled.monitors.iter().filter_map(|target| self.target(target)).collect();
        let switch = switch.map(|table| self.switch(&compiled, table));
        let budget = self.budget(compiled.capacity);
        let spec = SceneSpec { table, switch, plugs, queues, monitors, budget };
        self.soft.set_scene(Scene::new(spec));
        self.compiled = compiled;
    }

    fn switch(&mut self, compiled: &Compiled, table: vswitch::Table) -> SwitchSpec {
        let ageing = Duration::from_secs(compiled.ageing_s.into());
        let memory = self.memory.get_or_insert_with(|| {
            let fdb = vswitch::Fdb::new(LEARNED_MAX, seed()).expect("an allowed number");
            let state = Arc::new(vswitch::State::new(fdb));
            Memory { state, ageing, next_tick: Instant::now() + ageing / 4 }
        });
        memory.ageing = ageing;
        forget_the_moved(&memory.state, &self.compiled, compiled);
        let same_rules = self.compiled.switch.as_ref().map(|switch| &switch.acls)
            == compiled.switch.as_ref().map(|switch| &switch.acls);
        if !same_rules || self.hits.len() != table.counters_len() {
            self.hits = Arc::new(Hits::new(table.counters_len()));
        }
        let monitors = compiled.switch_monitors.iter();
        let monitors = monitors.filter_map(|(id, target)| Some((*id, self.target(target)?)));
        SwitchSpec {
            table,
            state: memory.state.clone(),
            hits: self.hits.clone(),
            monitors: monitors.collect(),
        }
    }

    /// The card's budget; the same one as long as the capacity is.
    fn budget(&mut self, capacity: Option<Capacity>) -> Option<Arc<Mutex<Budget>>> {
        let known = self.budget.as_ref().map(|(known, _)| *known);
        if known != capacity {
            let anew = |capacity| (capacity, Arc::new(Mutex::new(Budget::new(capacity, 0))));
            self.budget = capacity.map(anew);
        }
        self.budget.as_ref().map(|(_, budget)| budget.clone())
    }

    /// Lets learned addresses age.
    pub(super) fn look(&mut self, now: Instant) {
        let Some(memory) = &mut self.memory else { return };
        if now >= memory.next_tick {
            memory.next_tick = now + memory.ageing / 4;
            memory.state.fdb.tick();
        }
    }
}

/// A NIC's tables, built of what was compiled.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) nic: nic::Table,
    pub(super) switch: Option<vswitch::Table>,
}

/// What was learned behind ports whose adapters are elsewhere now.
fn forget_the_moved(state: &vswitch::State, before: &Compiled, now: &Compiled) {
    let place = |compiled: &Compiled, owner: &Owner| {
        compiled.plugs.iter().find(|plug| plug.owner == *owner).map(|plug| plug.place)
    };
    for plug in &before.plugs {
        if let engine::Place::Switch(port) = plug.place
            && place(now, &plug.owner) != Some(plug.place)
        {
            state.fdb.flush(vswitch::Flush { port: Some(port), vid: None });
        }
    }
}

/// A number that guests cannot know.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The name of an attachment's counters: the NIC's, and that of the function or adapter. An adapter
/// that a file's `[[nic.vf]]` made is called by its VF.
pub(super) fn label(nic: &str, owner: &Owner) -> String {
    match owner {
        Owner::Uplink => format!("{nic}/uplink"),
        Owner::Pf => format!("{nic}/pf"),
        Owner::Adapter(name) => {
            let short = name.strip_prefix(nic).and_then(|rest| rest.strip_prefix('-'));
            format!("{nic}/{}", short.filter(|rest| rest.starts_with("vf")).unwrap_or(name))
        }
    }
}

/// The name of a capture's counters.
pub(super) fn capture_label(nic: &str, path: &str) -> String {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    format!("{nic}/capture:{}", name.chars().map(plain).collect::<String>())
}

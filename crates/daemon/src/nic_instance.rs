//! A NIC at run time: its soft NIC in the engine, and the ports attached to it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::compile::{self, MonitorTarget, PortOwner};
use api::fdb::{FdbEntry, FdbKind};
use api::stats::{OffloadStats, RuleStats};
use bridge::nic::{Budget, Capacity};
use engine::{
    AclHits, Fabric, ForwardingSnapshot, Plug, Port, RuleHits, SnapshotSpec, SoftNic, SwitchSpec,
};
use model::state::{UPLINK, port_of};
use port::capture::{Capture, CaptureBuffer, CaptureError, CaptureLimits};

use super::device::Identity;
use super::port_spec::PortSpec;
use super::vmq;

/// A served attachment.
#[derive(Debug, Clone)]
pub(super) struct ServedPort {
    pub(super) port: Arc<Port>,
    pub(super) backend: PortBackend,
    pub(super) spec: PortSpec,
    pub(super) identity: Identity,
    /// Ports for an uplink queue, once it had one.
    pub(super) vmq: Option<vmq::VmqPorts>,
}

impl ServedPort {
    /// All ports.
    pub(super) fn ports(&self) -> impl Iterator<Item = &Arc<Port>> {
        let more = self.vmq.iter().flat_map(|ports| [&ports.placed, &ports.copied]);
        std::iter::once(&self.port).chain(more)
    }
}

/// Backend of a port, by token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortBackend {
    /// A vhost-user socket.
    Socket(u64),
    /// A vDPA device.
    Vdpa(u64),
    /// Any other device.
    Device(u64),
}

/// A capture file, which receives copies of frames.
#[derive(Debug)]
pub(super) struct CaptureFile {
    pub(super) port: Arc<Port>,
    /// Held while frames are written; `None` until handed over.
    pub(super) capture: Option<Capture>,
    /// Buffer for the capture that [`resume`](Self::resume) starts: no process serves then, and
    /// allocating 32 MiB takes milliseconds.
    buffer: Option<CaptureBuffer>,
    /// A write error has been logged.
    error_logged: bool,
}

impl CaptureFile {
    pub(super) fn new(
        port: Arc<Port>,
        capture: Option<Capture>,
        buffer: Option<CaptureBuffer>,
    ) -> CaptureFile {
        CaptureFile { port, capture, buffer, error_logged: false }
    }

    /// Ends the capture and keeps its buffer; returns the file, and its bytes in whole blocks.
    pub(super) fn release(&mut self) -> Option<(Arc<OwnedFd>, u64)> {
        let mut capture = self.capture.take()?;
        capture.finish();
        let file = capture.file();
        self.buffer = capture.into_buffer();
        Some(file)
    }

    /// Appends to a file after its first bytes; without one creates it.
    pub(super) fn resume(
        &mut self,
        path: &str,
        interface: Option<&String>,
        file: Option<(OwnedFd, u64)>,
    ) -> Result<(), CaptureError> {
        let interface = interface.map_or("shunt", String::as_str);
        let limits = CaptureLimits::default();
        let (capture, receive) = match file {
            Some(file) => {
                let buffer = match self.buffer.take() {
                    Some(buffer) => buffer,
                    None => CaptureBuffer::new(limits)?,
                };
                Capture::resume(path.as_ref(), file, interface, limits, buffer)?
            }
            None => Capture::create(path.as_ref(), interface, limits)?,
        };
        self.port.attach_receive(0, receive);
        self.capture = Some(capture);
        Ok(())
    }
}

/// Rules in force, each with its counters.
#[derive(Debug)]
struct CountedRules<R, C>(Vec<(R, Arc<C>)>);

impl<R: PartialEq, C: Default> CountedRules<R, C> {
    /// Replaces the rules; unchanged rules keep their counters, at any position.
    fn update(&mut self, rules: impl Iterator<Item = R>) -> Vec<Arc<C>> {
        let mut old: VecDeque<_> = std::mem::take(&mut self.0).into();
        for rule in rules {
            // Most rules keep their position, so the first is nearly always the match.
            let known = old.iter().position(|(known, _)| *known == rule);
            let counters = known.and_then(|at| old.remove(at)).map(|(_, counters)| counters);
            self.0.push((rule, counters.unwrap_or_default()));
        }
        self.0.iter().map(|(_, counters)| counters.clone()).collect()
    }
}

/// Learned state of a switch; survives changes of its settings. Another switch on the NIC starts
/// without it, since its ports are different.
#[derive(Debug)]
struct SwitchMemory {
    /// The switch's name.
    switch: String,
    state: Arc<bridge::switch::State>,
    ageing: Duration,
    next_tick: Instant,
}

/// A NIC at run time.
#[derive(Debug)]
pub(super) struct NicInstance {
    pub(super) soft: Arc<SoftNic>,
    pub(super) served: BTreeMap<PortOwner, ServedPort>,
    pub(super) captures: BTreeMap<String, CaptureFile>,
    memory: Option<SwitchMemory>,
    budget: Option<(Capacity, Arc<Mutex<Budget>>)>,
    /// ACL rules of the switch, each with its port.
    acl: CountedRules<(String, bridge::switch::Rule), AtomicU64>,
    /// The same counters, by their number in the table.
    hits: Arc<AclHits>,
    /// Switchdev rules.
    offloads: CountedRules<bridge::nic::Rule, RuleHits>,
}

/// Maximum number of learned addresses.
const LEARNED_MAX: usize = 16_384;

impl NicInstance {
    /// A NIC without ports.
    pub(super) fn new(fabric: &mut Fabric, name: &str) -> NicInstance {
        NicInstance {
            soft: fabric.add_nic(name),
            served: BTreeMap::new(),
            captures: BTreeMap::new(),
            memory: None,
            budget: None,
            acl: CountedRules(Vec::new()),
            hits: Arc::default(),
            offloads: CountedRules(Vec::new()),
        }
    }

    /// Port of an attachment or of a capture file.
    fn target(&self, target: &MonitorTarget) -> Option<Arc<Port>> {
        match target {
            MonitorTarget::Adapter(name) => Some(self.adapter(name)?.port.clone()),
            MonitorTarget::File(path) => Some(self.captures.get(path)?.port.clone()),
        }
    }

    /// Served port of an adapter.
    pub(super) fn adapter(&self, name: &str) -> Option<&ServedPort> {
        self.served.get(&PortOwner::Adapter(name.to_owned()))
    }

    /// Installs the compiled tables in one step; all their ports exist.
    pub(super) fn put_in_force(&mut self, compiled: &compile::CompiledNic) {
        let mut queues = Vec::new();
        let mut plugs = Vec::new();
        for plug in &compiled.ports {
            let Some(served) = self.served.get(&plug.of) else { continue };
            let port = served.port.clone();
            queues.extend(plug.queue.map(|queue| (queue, port.clone())));
            plugs.push(Plug { port, location: plug.location, share: plug.share });
        }
        let monitors = compiled.monitors.iter().map(|monitor| self.target(&monitor.target));
        let monitors = monitors.collect();
        let name = compiled.switch.as_ref().map(|switch| &switch.name);
        self.memory = self.memory.take().filter(|memory| name == Some(&memory.switch));
        if self.memory.is_none() {
            self.acl = CountedRules(Vec::new()); // of another switch
        }
        let switch = compiled.switch.as_ref().map(|switch| self.switch(compiled, switch));
        let budget = self.budget(compiled.capacity);
        let table = compiled.table.clone();
        let vmqs = self.served.values().filter_map(|served| served.vmq.as_ref());
        let senders = vmqs.map(|ports| (bridge::PortId::UPLINK, ports.copied.clone())).collect();
        let rules = self.offloads.update(compiled.config.switchdev.iter().flatten().cloned());
        let spec = SnapshotSpec { table, switch, plugs, senders, queues, monitors, rules, budget };
        self.soft.set_snapshot(ForwardingSnapshot::new(spec));
        if let (Some(switch), Some(memory)) = (&compiled.switch, &self.memory)
            && !switch.left.is_empty()
        {
            // A burst under the old tables may still learn until it ends.
            self.soft.wait_grace_period();
            let is_known = |port: &&bridge::PortId| memory.state.fdb.len_of(**port) > 0;
            for port in switch.left.iter().filter(is_known) {
                memory.state.fdb.flush(bridge::switch::Flush { port: Some(*port), vid: None });
            }
        }
    }

    fn switch(
        &mut self,
        compiled: &compile::CompiledNic,
        switch: &compile::CompiledSwitch,
    ) -> SwitchSpec {
        let ageing = Duration::from_secs(switch.ageing_s.into());
        let memory = self.memory.get_or_insert_with(|| {
            let fdb = bridge::switch::Fdb::new(LEARNED_MAX, seed()).expect("an allowed number");
            let state = Arc::new(bridge::switch::State::new(fdb));
            let next_tick = Instant::now() + ageing / 4;
            SwitchMemory { switch: switch.name.clone(), state, ageing, next_tick }
        });
        if memory.ageing != ageing {
            memory.ageing = ageing;
            memory.next_tick = memory.next_tick.min(Instant::now() + ageing / 4);
        }
        let state = memory.state.clone();
        let lists = switch.config.acls.iter().zip(&switch.acls);
        let rules = lists.flat_map(|(list, port)| {
            list.rules.iter().map(move |rule| (port.clone(), rule.clone()))
        });
        self.hits = Arc::new(AclHits::of(self.acl.update(rules)));
        let tap = |(id, monitor): &(bridge::PortId, usize)| {
            Some((*id, self.target(&compiled.monitors.get(*monitor)?.target)?))
        };
        let monitors = switch.taps.iter().filter_map(tap).collect();
        SwitchSpec { table: switch.table.clone(), state, hits: self.hits.clone(), monitors }
    }

    /// Forwarding database of the switch, if there is one.
    pub(super) fn fdb(&self) -> Option<&bridge::switch::Fdb> {
        self.memory.as_ref().map(|memory| &memory.state.fdb)
    }

    /// Addresses that the switch knows, learned and static.
    pub(super) fn fdb_entries(&self, switch: &compile::CompiledSwitch) -> Vec<FdbEntry> {
        let name = |port: bridge::PortId| match port {
            bridge::PortId::UPLINK => UPLINK.to_owned(),
            _ => {
                let known = switch.numbers.all().find(|(_, number)| *number == port);
                // The name of a tunnel's port is "vxlan NAME".
                known.map_or("-", |(name, _)| name.rsplit(' ').next().unwrap_or(name)).to_owned()
            }
        };
        let quarter_s = switch.ageing_s / 4;
        let learned = self.fdb().into_iter().flat_map(bridge::switch::Fdb::entries);
        let learned = learned.map(|entry| FdbEntry {
            mac: entry.mac.to_string(),
            vlan: (entry.vid > 0).then_some(entry.vid),
            port: name(entry.port),
            kind: FdbKind::Learned,
            age_s: Some(u32::from(entry.ticks) * quarter_s),
        });
        let fixed = switch.config.statics.iter().map(|entry| FdbEntry {
            mac: entry.mac.to_string(),
            vlan: entry.vlan.map(|vlan| vlan.get()),
            port: name(entry.port),
            kind: FdbKind::Static,
            age_s: None,
        });
        learned.chain(fixed).collect()
    }

    /// Adds the rule counters of the previous process.
    pub(super) fn add_rule_counters(
        &self,
        switch: &compile::CompiledSwitch,
        counted: &[RuleStats],
    ) {
        let ports = switch.acls.iter().enumerate();
        for (acl, port) in ports {
            let same = |one: &&RuleStats| (&one.switch, &one.port) == (&switch.name, port);
            for RuleStats { rule, frames, .. } in counted.iter().filter(same) {
                if let Some(counter) = switch.table.counter(acl, *rule) {
                    self.hits.restore(counter, *frames);
                }
            }
        }
    }

    /// Counters of each switchdev rule, by its number in the document.
    pub(super) fn offloads(&self, compiled: &compile::CompiledNic) -> Vec<OffloadStats> {
        let counted = compiled.rules.iter().zip(&self.offloads.0);
        let stats = |(rule, (_, hits)): (&usize, &(bridge::nic::Rule, Arc<RuleHits>))| {
            let (frames, bytes) = hits.get();
            OffloadStats { nic: compiled.name.clone(), rule: *rule, frames, bytes }
        };
        let mut all: Vec<OffloadStats> = counted.map(stats).collect();
        all.sort_unstable_by_key(|stats| stats.rule);
        all
    }

    /// Adds the switchdev rule counters of the previous process.
    pub(super) fn add_offload_counters(
        &self,
        compiled: &compile::CompiledNic,
        counted: &[OffloadStats],
    ) {
        for (rule, (_, hits)) in compiled.rules.iter().zip(&self.offloads.0) {
            let same = |one: &&OffloadStats| (&one.nic, one.rule) == (&compiled.name, *rule);
            if let Some(OffloadStats { frames, bytes, .. }) = counted.iter().find(same) {
                hits.restore(*frames, *bytes);
            }
        }
    }

    /// Hit counters of each rule of the switch in force.
    pub(super) fn rules(&self, switch: &compile::CompiledSwitch) -> Vec<RuleStats> {
        let of_list = |(acl, (list, port)): (usize, (&bridge::switch::Acl, &String))| {
            let rules = (0..list.rules.len()).filter_map(|rule| {
                let frames = self.hits.get(switch.table.counter(acl, rule)?);
                Some(RuleStats { switch: switch.name.clone(), port: port.clone(), rule, frames })
            });
            rules.collect::<Vec<_>>()
        };
        switch.config.acls.iter().zip(&switch.acls).enumerate().flat_map(of_list).collect()
    }

    /// Frame budget of the card; unchanged as long as the capacity is.
    fn budget(&mut self, capacity: Option<Capacity>) -> Option<Arc<Mutex<Budget>>> {
        let known = self.budget.as_ref().map(|(known, _)| *known);
        if known != capacity {
            let new = |capacity| (capacity, Arc::new(Mutex::new(Budget::new(capacity, 0))));
            self.budget = capacity.map(new);
        }
        self.budget.as_ref().map(|(_, budget)| budget.clone())
    }

    /// Ages learned addresses, and logs failed captures.
    pub(super) fn housekeep(&mut self, now: Instant) {
        for captured in self.captures.values_mut().filter(|captured| !captured.error_logged) {
            if let Some(error) = captured.capture.as_ref().and_then(Capture::error) {
                captured.error_logged = true;
                tracing::warn!("{}: frames are lost: {error}", captured.port.label);
            }
        }
        let Some(memory) = &mut self.memory else { return };
        if now >= memory.next_tick {
            memory.next_tick = now + memory.ageing / 4;
            memory.state.fdb.tick();
        }
    }
}

/// A number unknown to guests.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Label of an attachment's counters: NIC, and function or adapter. Labels are unique: a document
/// with two equal ones is rejected.
pub(super) fn label(nic: &str, of: &PortOwner) -> String {
    match of {
        PortOwner::Uplink => format!("{nic}/uplink"),
        PortOwner::Pf => format!("{nic}/pf"),
        PortOwner::Adapter(name) => port_of(nic, name),
        PortOwner::Tunnel(name) => format!("{nic}/vxlan:{name}"),
        PortOwner::Representor(of) => format!("{nic}/{}", of.port_name()),
    }
}

/// Label of a capture's counters.
pub(super) fn capture_label(nic: &str, path: &str) -> String {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    format!("{nic}/capture:{}", name.chars().map(plain).collect::<String>())
}

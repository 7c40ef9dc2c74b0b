//! The data plane as control changes it: NICs, their ports, and the sockets on them.
//!
//! # How a change is made
//! 1. What is to be is worked out, without touching anything: who gets which path, and tables.
//! 2. What is missing is added: sockets, ports, files. If something of that fails, it is taken
//!    back, and nothing has changed.
//! 3. Each NIC gets its new scene, in one step. From then on nothing can fail.
//! 4. What is not needed any more is removed.
//!
//! So whoever moves from one path to another is on the new one before the old one goes.

mod actual;
mod announce;
mod handover;
mod keeping;
mod links;
mod pipes;
mod serve;
mod shared;
mod stage;
mod steer;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::compile::{self, Compiled, LiveLinks, MonitorTarget, PortOwner};
use api::log_limiter::RepeatFilter;
use api::plane::PlaneError;
use api::{Cause, Events};
use engine::{Fabric, Port, SoftNic};
use guestmem::Quota;
use model::state::{Allocation, Facts, State, WantedPath, allocate};

use super::devices::Devices;
use super::faults::FaultLog;
use super::following::Following;
use super::kept;
use super::nic_instance::{End, NicInstance};
use super::sockets::Sockets;
use super::vdpa::{Records, Vdpas};
use announce::Announcing;
use keeping::Keeping;
use stage::{Ready, Staged};
use wanted::{Wanted, wanted};

pub(super) use handover::Handover;
pub(super) use shared::Shared;
pub(super) use wanted::Spec;

/// All NICs of the daemon.
#[derive(Debug)]
pub(super) struct DataPlane {
    pub(super) sockets: Sockets,
    pub(super) devices: Devices,
    vdpas: Vdpas,
    instances: BTreeMap<String, NicInstance>,
    compiled: Compiled,
    /// What was known of links when that was compiled.
    live: LiveLinks,
    /// Why links were last not followed, if they were not.
    unfollowed: RepeatFilter,
    state: State,
    given: Vec<Allocation>,
    /// The VFs that adapters had before this daemon started, until the first change.
    held: BTreeMap<String, u16>,
    faults: FaultLog,
    /// Dropped log lines that are already in the counter file.
    unlogged: u64,
    following: Following,
    keeping: Keeping,
    announcing: Announcing,
    /// Events, recorded when they happen.
    events: Events,
    /// Whether guests that were here before have had time to come back.
    settled: bool,
    /// What is to be taken up instead of opened.
    handover: Option<Handover>,
    /// Where devices keep what their next daemon needs.
    run_dir: PathBuf,
    /// What guests may have mapped.
    quota: Arc<Quota>,
    /// Dropped last: the lanes run while guests detach.
    pub(super) fabric: Fabric,
}

impl DataPlane {
    pub(super) fn new(
        fabric: Fabric,
        epoll: Arc<OwnedFd>,
        run_dir: PathBuf,
        quota: Arc<Quota>,
    ) -> DataPlane {
        DataPlane {
            sockets: Sockets::new(epoll),
            devices: Devices::default(),
            vdpas: Vdpas::new(Records::new(&run_dir), quota.clone()),
            run_dir,
            quota,
            instances: BTreeMap::new(),
            compiled: Compiled::default(),
            live: LiveLinks::default(),
            unfollowed: RepeatFilter::default(),
            state: State::default(),
            given: Vec::new(),
            held: BTreeMap::new(),
            faults: FaultLog::default(),
            unlogged: 0,
            following: Following::default(),
            keeping: Keeping::default(),
            announcing: Announcing::default(),
            events: Events::default(),
            settled: false,
            handover: None,
            fabric,
        }
    }

    /// Whether all guests may send.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether no state was brought into force yet, and none is handed over.
    fn is_empty(&self) -> bool {
        self.state == State::default() && self.handover.is_none()
    }

    /// Lets all guests send.
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.fabric.resume_tx();
    }

    /// Does what is due by the clock.
    pub(super) fn look(&mut self, now: Instant) {
        self.sockets.look(now);
        if self.devices.look(now) {
            self.follow_links();
            self.tell_guests();
            self.steer();
        }
        self.faults.look(&self.fabric, &self.events, now);
        let dropped = crate::log::dropped();
        self.fabric.count_log_lines_dropped(dropped - self.unlogged);
        self.unlogged = dropped;
        self.keeping.look(now);
        self.announce_more(now);
        self.instances.values_mut().for_each(|instance| instance.look(now));
        if self.following.is_due(now) {
            self.follow(now);
        }
    }

    /// Whether a guest is behind every socket and every vDPA device.
    pub(super) fn are_attached(&self) -> bool {
        self.sockets.are_attached() && self.vdpas.are_running()
    }

    /// How long until something is due, `most` at the most.
    pub(super) fn wait(&self, now: Instant, most: Duration) -> Duration {
        let due = [
            self.sockets.wait(now),
            self.devices.wait(now),
            self.keeping.wait(),
            self.announcing.wait(now),
        ];
        due.into_iter().flatten().fold(most, Duration::min)
    }

    /// Lets adapters with `path = "auto"` go where their traffic suits them.
    fn follow(&mut self, now: Instant) {
        let auto = self.state.adapters.iter().filter(|adapter| adapter.path == WantedPath::Auto);
        let counted = auto.filter_map(|adapter| {
            let served = self.served(&adapter.name)?;
            let ports = served.ports().filter(|port| port.label == served.port.label);
            Some((adapter.name.clone(), ports.map(|port| port.traffic()).sum()))
        });
        let counted = counted.collect();
        if self.following.look(now, counted, &self.events) {
            let (state, before) = (self.state.clone(), self.given.clone());
            match self.change(&state) {
                Ok(()) => self.events.paths(&before, &self.given, Cause::Others),
                Err(refused) => tracing::error!("paths stay as they are: {refused}"),
            }
        }
    }

    /// Ends the lanes, and then lets the guests go.
    pub(super) fn stop(&mut self) {
        self.fabric.stop_lanes();
        self.sockets.clear();
        self.devices.clear();
        self.vdpas.clear();
    }

    fn change(&mut self, to: &State) -> Result<(), PlaneError> {
        let mut facts = Facts { suited: self.following.suited(), ..Facts::of(&self.actual()) };
        facts.vfs.extend(self.held.clone());
        if let Some(handover) = &self.handover {
            facts.vfs.extend(handover.vfs.clone());
            facts.queues.extend(handover.queues.clone());
        }
        let given = allocate(to, &facts);
        let live = self.live();
        let compiled = compile::compile(to, &given, &live, Some(&self.compiled));
        let compiled = compiled.map_err(PlaneError)?;
        if live != LiveLinks::default() {
            // It has to hold with every link, too: links come and go.
            compile::compile(to, &given, &LiveLinks::default(), None).map_err(PlaneError)?;
        }
        let wanted = wanted(to);
        let mut staged = Staged::default();
        if let Err(problem) = self.stage(&wanted, &compiled, &mut staged) {
            self.take_back(staged);
            return Err(PlaneError(problem.into()));
        }
        let before = self.labels();
        self.put_in_force(wanted, compiled, staged);
        kept::remove(&self.run_dir, before.difference(&self.labels()));
        self.state = to.clone();
        self.live = live;
        self.given = given;
        self.held.clear(); // what is in force says it from now on
        self.keep();
        self.tell_guests();
        self.steer();
        Ok(())
    }

    /// Labels of all that is served.
    fn labels(&self) -> BTreeSet<String> {
        let served = self.instances.values().flat_map(|instance| instance.served.values());
        served.map(|served| served.port.label.to_string()).collect()
    }

    fn take_back(&mut self, staged: Staged) {
        for (nic, _, port, _) in &staged.ports {
            self.fabric.remove_port(&self.instances[nic].soft, port);
        }
        for (nic, _, captured) in &staged.captures {
            self.fabric.remove_port(&self.instances[nic].soft, &captured.port);
        }
        for nic in &staged.nics {
            if let Some(instance) = self.instances.remove(nic) {
                self.fabric.remove_nic(&instance.soft);
            }
        }
        let Staged { ports, suspended, .. } = staged;
        drop(ports); // what is open there has the places of the others
        if !suspended.is_empty() {
            suspended.into_iter().for_each(|token| self.devices.resume(token));
            self.steer();
        }
    }

    /// Makes the change: scenes first, then what is behind them goes.
    fn put_in_force(&mut self, wanted: Vec<Wanted>, compiled: Compiled, staged: Staged) {
        for (nic, path, captured) in staged.captures {
            if let Some(instance) = self.instances.get_mut(&nic) {
                instance.captures.insert(path, captured);
            }
        }
        let mut old: Vec<(Arc<SoftNic>, Arc<Port>)> = Vec::new();
        let mut new: BTreeMap<(String, PortOwner), (Arc<Port>, Ready)> = BTreeMap::new();
        new.extend(
            staged.ports.into_iter().map(|(nic, owner, port, ready)| ((nic, owner), (port, ready))),
        );
        let mut keep: BTreeSet<(String, PortOwner)> = BTreeSet::new();
        for wish in wanted {
            let key = (wish.nic.clone(), wish.owner.clone());
            match new.remove(&key) {
                Some((port, ready)) => {
                    let addresses = compiled.nic(&wish.nic).map_or_else(Vec::new, stage::addresses);
                    old.extend(self.serve(wish, port, ready, addresses));
                }
                None => self.identify(wish),
            }
            keep.insert(key);
        }
        self.install_snapshots(compiled);
        self.devices.plug();
        self.remove_all_but(&keep, old);
    }

    /// Gives each NIC its scene; the ports that it names are there.
    fn install_snapshots(&mut self, compiled: Compiled) {
        for nic in &compiled.nics {
            self.add_queue_ports(nic);
            if let Some(instance) = self.instances.get_mut(&nic.name) {
                instance.put_in_force(nic);
                if let Some(End::Device(token)) =
                    instance.served.get(&PortOwner::Uplink).map(|it| it.end)
                {
                    self.devices.set_addresses(token, stage::addresses(nic));
                }
            }
        }
        self.compiled = compiled;
    }

    /// Removes what is not needed any more; no scene names it.
    fn remove_all_but(
        &mut self,
        keep: &BTreeSet<(String, PortOwner)>,
        mut old: Vec<(Arc<SoftNic>, Arc<Port>)>,
    ) {
        let mut ends = Vec::new();
        for (name, instance) in &mut self.instances {
            instance.served.retain(|owner, served| {
                let stays = keep.contains(&(name.clone(), owner.clone()));
                if !stays {
                    ends.push(served.end);
                    old.extend(served.ports().map(|port| (instance.soft.clone(), port.clone())));
                }
                stays
            });
            let compiled = self.compiled.nic(name);
            let named: BTreeSet<&str> =
                compiled.into_iter().flat_map(files).map(|(path, _)| path).collect();
            instance.captures.retain(|path, captured| {
                let stays = named.contains(path.as_str());
                if !stays {
                    old.push((instance.soft.clone(), captured.port.clone()));
                }
                stays
            });
        }
        ends.into_iter().for_each(|it| self.let_end(it));
        for (soft, port) in old {
            self.fabric.remove_port(&soft, &port);
        }
        let compiled = &self.compiled;
        self.instances.retain(|name, instance| {
            let stays = compiled.nic(name).is_some();
            if !stays {
                self.fabric.remove_nic(&instance.soft);
            }
            stays
        });
    }

    /// Ends what is behind a port.
    fn let_end(&mut self, end: End) {
        match end {
            End::Socket(token) => self.sockets.remove(token),
            End::Device(token) => self.devices.remove(token),
            End::Vdpa(token) => self.vdpas.remove(token),
        }
    }
}

/// What each file that gets copies calls the interface, by its path.
fn labels(compiled: &Compiled, nic: &str) -> BTreeMap<String, String> {
    let files = compiled.nic(nic).into_iter().flat_map(files);
    files.map(|(path, label)| (path.to_owned(), label.to_owned())).collect()
}

/// The files that get copies, and of whose frames.
fn files(compiled: &compile::CompiledNic) -> impl Iterator<Item = (&str, &str)> {
    compiled.monitors.iter().filter_map(|monitor| match &monitor.target {
        MonitorTarget::File(path) => Some((path.as_str(), monitor.label.as_str())),
        MonitorTarget::Adapter(_) => None,
    })
}

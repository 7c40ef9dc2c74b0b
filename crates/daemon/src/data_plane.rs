//! Data plane as changed by control: NICs, their ports, and the attachments on them.
//!
//! # Order of a change
//! 1. Compute the new state without changing anything: paths and tables.
//! 2. Add what is missing: sockets, ports, files; then change cards. If any of it fails, undo it;
//!    nothing has changed.
//! 3. Replace the forwarding snapshot of each NIC, in one step. From here on nothing can fail.
//! 4. Remove what is no longer needed.
//!
//! So an adapter is on its new path before the old one goes.

mod actual;
mod announce;
mod handover;
mod links;
mod parked_frames;
mod pipes;
mod serve;
mod shared;
mod stage;
mod steer;
mod wanted_ports;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::compile::{self, Compiled, LiveLinks, Monitor, MonitorTarget, PortOwner};
use api::log_limiter::RepeatFilter;
use api::plane::PlaneError;
use api::{Cause, EventKind, Events};
use engine::limits::Limit;
use engine::{Fabric, Port, SoftNic};
use guestmem::Quota;
use model::state::{Allocation, Facts, State, WantedPath, allocate};

use super::auto_paths::AutoPaths;
use super::cards::Cards;
use super::devices::Devices;
use super::faults::FaultLog;
use super::forbidden_calls::ForbiddenCalls;
use super::kept_taps::KeptTaps;
use super::limits::{self, Amounts, LimitGauges};
use super::nic_instance::{NicInstance, PortBackend};
use super::saved_rings;
use super::socket_access::DefaultAccess;
use super::sockets::Sockets;
use super::vdpa::{DeviceRecords, Vdpas};
use announce::AnnouncementQueue;
use parked_frames::FrameParking;
use stage::{PreparedBackend, StagedChange};
pub(super) use wanted_ports::wanted_ports;
use wanted_ports::{WantedPort, kept_taps};

pub(super) use handover::PendingHandover;
pub(super) use shared::SharedDataPlane;

/// All NICs of the daemon.
#[derive(Debug)]
pub(super) struct DataPlane {
    pub(super) sockets: Sockets,
    pub(super) devices: Devices,
    vdpas: Vdpas,
    kept_taps: KeptTaps,
    cards: Cards,
    instances: BTreeMap<String, NicInstance>,
    compiled: Compiled,
    /// State of links when `compiled` was made.
    live: LiveLinks,
    /// Last error of following links.
    unfollowed: RepeatFilter,
    state: State,
    allocations: Vec<Allocation>,
    /// VFs that adapters had before this daemon started; cleared by the first change.
    vfs_before: BTreeMap<String, u16>,
    faults: FaultLog,
    /// Dropped log lines already in the counter file.
    unlogged: u64,
    /// System calls that the sandbox refused.
    forbidden: ForbiddenCalls,
    /// Shows the use of limited resources.
    limit_gauges: LimitGauges,
    /// Limits that guests could exceed, by the last check: a warning is logged once.
    exceedable: Vec<Limit>,
    auto_paths: AutoPaths,
    parked_frames: FrameParking,
    announcements: AnnouncementQueue,
    /// Events, recorded when they happen.
    events: Events,
    /// Guests may send: those of the previous daemon have had time to return.
    tx_resumed: bool,
    /// Resources of the previous process, to adopt instead of opening new ones.
    handover: Option<PendingHandover>,
    /// Run directory, for state that the next daemon needs.
    run_dir: PathBuf,
    /// Memory quota of all guests.
    quota: Arc<Quota>,
    /// Users that may connect to sockets of attachments without settings of their own.
    pub(super) access: DefaultAccess,
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
            vdpas: Vdpas::new(DeviceRecords::new(&run_dir), quota.clone()),
            kept_taps: KeptTaps::new(&run_dir),
            cards: Cards::new(&run_dir),
            run_dir,
            quota,
            instances: BTreeMap::new(),
            compiled: Compiled::default(),
            live: LiveLinks::default(),
            unfollowed: RepeatFilter::default(),
            state: State::default(),
            allocations: Vec::new(),
            vfs_before: BTreeMap::new(),
            faults: FaultLog::default(),
            unlogged: 0,
            forbidden: ForbiddenCalls::default(),
            limit_gauges: LimitGauges::default(),
            exceedable: Vec::new(),
            auto_paths: AutoPaths::default(),
            parked_frames: FrameParking::default(),
            announcements: AnnouncementQueue::default(),
            events: Events::default(),
            tx_resumed: false,
            handover: None,
            access: DefaultAccess::default(),
            fabric,
        }
    }

    /// Returns `true` once guests may send.
    pub(super) fn is_tx_resumed(&self) -> bool {
        self.tx_resumed
    }

    /// Returns `true` before the first state is applied or handed over.
    fn is_empty(&self) -> bool {
        self.state == State::default() && self.handover.is_none()
    }

    /// Lets all guests send.
    pub(super) fn resume_tx(&mut self) {
        self.tx_resumed = true;
        self.fabric.resume_tx();
        self.retain_taps();
        self.cards.release_leftovers();
    }

    /// Tries again to set up cards that failed.
    pub(super) fn retry_cards(&mut self) {
        self.cards.retry();
    }

    /// Deletes the taps of a previous daemon or state. Not before the start is complete: until then
    /// a state is applied in parts.
    fn retain_taps(&mut self) {
        if self.tx_resumed {
            let taps = kept_taps(&wanted_ports(&self.state));
            self.kept_taps.retain(taps);
        }
    }

    /// Housekeeping.
    pub(super) fn housekeep(&mut self, now: Instant) {
        self.sockets.poll(now);
        if self.devices.poll(now) {
            self.follow_links();
            self.tell_guests();
            self.steer();
        }
        self.faults.poll(&self.fabric, &self.events, now);
        let dropped = crate::log::dropped();
        self.fabric.count_log_lines_dropped(dropped - self.unlogged);
        self.unlogged = dropped;
        self.fabric.count_forbidden_calls(self.forbidden.poll(&self.events, now));
        if self.limit_gauges.is_due(now) {
            let largest = self.sockets.largest_session();
            let (limits, quota) = (self.fabric.limits(), &self.quota);
            self.limit_gauges.update(limits, quota, &largest, &self.events, now);
        }
        self.cards.poll(&self.events, now);
        self.parked_frames.poll(now);
        self.send_due_announcements(now);
        self.instances.values_mut().for_each(|instance| instance.housekeep(now));
        if self.auto_paths.is_due(now) {
            self.update_auto_paths(now);
        }
    }

    /// Returns `true` if every socket and every vDPA device has a guest.
    pub(super) fn are_attached(&self) -> bool {
        self.sockets.are_attached() && self.vdpas.are_running()
    }

    /// Time until the next housekeeping, at most `most`.
    pub(super) fn wait(&self, now: Instant, most: Duration) -> Duration {
        let due = [
            self.sockets.wait(now),
            self.devices.wait(now),
            self.cards.wait(now),
            self.parked_frames.wait(),
            self.announcements.wait(now),
        ];
        due.into_iter().flatten().fold(most, Duration::min)
    }

    /// Changes the paths of adapters with `path = "auto"` to suit their traffic.
    fn update_auto_paths(&mut self, now: Instant) {
        let auto = self.state.adapters.iter().filter(|adapter| adapter.path == WantedPath::Auto);
        let counted = auto.filter_map(|adapter| {
            let served = self.served(&adapter.name)?;
            let ports = served.ports().filter(|port| port.label == served.port.label);
            Some((adapter.name.clone(), ports.map(|port| port.traffic()).sum()))
        });
        let counted = counted.collect();
        if self.auto_paths.sample(now, counted, &self.events) {
            let (state, before) = (self.state.clone(), self.allocations.clone());
            match self.change(&state) {
                Ok(()) => self.events.paths(&before, &self.allocations, Cause::Others),
                Err(refused) => tracing::error!("paths stay as they are: {refused}"),
            }
        }
    }

    /// Stops the lanes, then detaches the guests.
    pub(super) fn stop(&mut self) {
        self.fabric.stop_lanes();
        self.sockets.clear();
        self.devices.clear();
        self.vdpas.clear();
    }

    fn change(&mut self, to: &State) -> Result<(), PlaneError> {
        let mut facts = Facts { suited: self.auto_paths.suited(), ..Facts::of(&self.actual()) };
        facts.vfs.extend(self.vfs_before.clone());
        if let Some(handover) = &self.handover {
            facts.vfs.extend(handover.vfs.clone());
            facts.queues.extend(handover.queues.clone());
        }
        let allocations = allocate(to, &facts);
        let live = self.live();
        let compiled = compile::compile(to, &allocations, &live, Some(&self.compiled));
        let compiled = compiled.map_err(PlaneError)?;
        if live != LiveLinks::default() {
            // Must also hold with all links up: links come and go.
            compile::compile(to, &allocations, &LiveLinks::default(), None).map_err(PlaneError)?;
        }
        let wanted = wanted_ports(to);
        let lanes = self.fabric.lanes().len();
        let check = || limits::check(to, lanes, Amounts::allowed()).map_err(PlaneError);
        let warnings = (*to != self.state).then(check).transpose()?;
        let mut staged = StagedChange::default();
        let prepared = self.stage(&wanted, &compiled, &mut staged);
        // Last, since it is undone by further changes of the cards.
        let change_cards = |()| self.cards.change(to, &allocations, !self.tx_resumed);
        if let Err(problems) = prepared.and_then(change_cards) {
            self.take_back(staged);
            return Err(PlaneError(problems));
        }
        if self.handover.is_none() {
            self.kept_taps.record(kept_taps(&wanted));
        }
        let returned = self.returned(to, &allocations);
        let before = self.labels();
        self.put_in_force(wanted, compiled, staged);
        saved_rings::remove(&self.run_dir, before.difference(&self.labels()));
        self.state = to.clone();
        warnings.into_iter().for_each(|warnings| self.warn_of_limits(warnings));
        self.retain_taps();
        self.live = live;
        self.allocations = allocations;
        self.vfs_before.clear(); // the state in force has them from now on
        self.update_parked();
        self.tell_guests();
        self.steer();
        for name in &returned {
            self.announce(name);
        }
        Ok(())
    }

    /// Logs the warnings about a new state: of each limit once, until a state is within it.
    fn warn_of_limits(&mut self, warnings: Vec<(Limit, String)>) {
        for (_, warning) in warnings.iter().filter(|(limit, _)| !self.exceedable.contains(limit)) {
            tracing::warn!("{warning}");
            self.events.add(EventKind::Limit, String::new(), warning.clone());
        }
        self.exceedable = warnings.into_iter().map(|(limit, _)| limit).collect();
    }

    /// Labels of all served ports.
    fn labels(&self) -> BTreeSet<String> {
        let served = self.instances.values().flat_map(|instance| instance.served.values());
        served.map(|served| served.port.label.to_string()).collect()
    }

    fn take_back(&mut self, staged: StagedChange) {
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
        let StagedChange { ports, suspended, access, .. } = staged;
        for (token, before) in access {
            // A failure leaves the socket to its owner, or with the new access.
            let _ = self.sockets.set_access(token, before);
        }
        drop(ports); // open devices hold the resources of the suspended ones
        if !suspended.is_empty() {
            suspended.into_iter().for_each(|token| self.devices.resume(token));
            self.steer();
        }
    }

    /// Applies the change: snapshots first, then removal of old ports.
    fn put_in_force(&mut self, wanted: Vec<WantedPort>, compiled: Compiled, staged: StagedChange) {
        // A session ends before the next can begin.
        staged.released.into_iter().for_each(|it| self.close_backend(it));
        for (nic, path, captured) in staged.captures {
            if let Some(instance) = self.instances.get_mut(&nic) {
                instance.captures.insert(path, captured);
            }
        }
        let mut old: Vec<(Arc<SoftNic>, Arc<Port>)> = Vec::new();
        let mut new: BTreeMap<(String, PortOwner), (Arc<Port>, PreparedBackend)> = BTreeMap::new();
        new.extend(
            staged
                .ports
                .into_iter()
                .map(|(nic, owner, port, prepared)| ((nic, owner), (port, prepared))),
        );
        let is_new = |want: &&WantedPort| new.contains_key(&(want.nic.clone(), want.owner.clone()));
        let new_taps = wanted.iter().filter(is_new).filter_map(WantedPort::kept_tap);
        if self.tx_resumed && new_taps.count() > 0 {
            // A tap under its former name may have the default route of the new one.
            self.kept_taps.delete_replaced();
        }
        let mut keep: BTreeSet<(String, PortOwner)> = BTreeSet::new();
        for want in wanted {
            let key = (want.nic.clone(), want.owner.clone());
            match new.remove(&key) {
                Some((port, prepared)) => {
                    let addresses = compiled.nic(&want.nic).map_or_else(Vec::new, stage::addresses);
                    old.extend(self.serve(want, port, prepared, addresses));
                }
                None => self.identify(want),
            }
            keep.insert(key);
        }
        self.install_snapshots(compiled);
        self.devices.attach();
        self.remove_all_but(&keep, old);
    }

    /// Installs the snapshot of each NIC; all its ports exist.
    fn install_snapshots(&mut self, compiled: Compiled) {
        for nic in &compiled.nics {
            self.add_queue_ports(nic);
            if let Some(instance) = self.instances.get_mut(&nic.name) {
                instance.put_in_force(nic);
                if let Some(PortBackend::Device(token)) =
                    instance.served.get(&PortOwner::Uplink).map(|it| it.backend)
                {
                    self.devices.set_addresses(token, stage::addresses(nic));
                }
            }
        }
        self.compiled = compiled;
    }

    /// Removes what is no longer needed; no snapshot names it.
    fn remove_all_but(
        &mut self,
        keep: &BTreeSet<(String, PortOwner)>,
        mut old: Vec<(Arc<SoftNic>, Arc<Port>)>,
    ) {
        let mut backends = Vec::new();
        for (name, instance) in &mut self.instances {
            instance.served.retain(|owner, served| {
                let stays = keep.contains(&(name.clone(), owner.clone()));
                if !stays {
                    backends.push(served.backend);
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
        backends.into_iter().for_each(|it| self.close_backend(it));
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

    /// Closes the backend of a port.
    fn close_backend(&mut self, backend: PortBackend) {
        match backend {
            PortBackend::Socket(token) => self.sockets.remove(token),
            PortBackend::Device(token) => self.devices.remove(token),
            PortBackend::Vdpa(token) => self.vdpas.remove(token),
        }
    }
}

/// Interface names for capture files, by path.
fn labels(compiled: &Compiled, nic: &str) -> BTreeMap<String, String> {
    let files = compiled.nic(nic).into_iter().flat_map(files);
    files.map(|(path, monitor)| (path.to_owned(), monitor.label.clone())).collect()
}

/// Capture files, with the label of the captured port.
fn files(compiled: &compile::CompiledNic) -> impl Iterator<Item = (&str, &Monitor)> {
    compiled.monitors.iter().filter_map(|monitor| match &monitor.target {
        MonitorTarget::File(path) => Some((path.as_str(), monitor)),
        MonitorTarget::Adapter(_) => None,
    })
}

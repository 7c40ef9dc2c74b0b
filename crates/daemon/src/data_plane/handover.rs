//! Handover of the data plane from one process to the next.
//!
//! # Order
//! The old process hands over [`sockets`](DataPlane::sockets_handover) while its lanes run, and
//! does slow work in advance ([`prepare`](DataPlane::prepare)). Then it
//! [suspends](DataPlane::suspend): transmit halves first, so that no frame is in flight, then
//! receive halves. The [final state](DataPlane::final_state) is valid from then on; the old process
//! can still [resume](DataPlane::resume).
//!
//! The new process applies the state with a [`PendingHandover`], which adopts sockets and leaves
//! devices out; with the final state it [resumes](DataPlane::adopt). It notifies no guest and
//! steers no queue before it [begins](DataPlane::begin).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::hex::{from_hex, to_hex};
use bridge::PortId;
use bridge::switch::Entry;
use model::state::{Allocation, PathInForce, VhostUser};
use port::PortHandover;
use port::capture::Capture;
use vhost_user::SocketAccess;
use vhost_user::backend::RingDirection;
use wire::Mac;

use super::super::attachment::SocketEndpoint;
use super::super::handover::{
    CaptureHandover, DeviceHandover, FinalState, LearnedAddresses, OutgoingFds, PortKey,
    ReceivedFds, SessionHandover, SocketHandover,
};
use super::super::nic_instance::PortBackend;
use super::DataPlane;

/// Time for lanes to finish their current round. A hypervisor can deschedule a lane's CPU for some
/// tens of milliseconds, and a longer gap is better than lost frames.
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);
/// Bytes of a learned address in the handover.
const ENTRY_BYTES: usize = 11;

/// A number for each adapter.
type AdapterNumbers = Vec<(String, u16)>;

/// Resources of the previous process, to adopt instead of opening new ones.
#[derive(Debug)]
pub(in super::super) struct PendingHandover {
    pub(in super::super) sockets: BTreeMap<PortKey, SocketHandover>,
    pub(in super::super) fds: ReceivedFds,
    /// VF of each adapter.
    pub(in super::super) vfs: BTreeMap<String, u16>,
    /// Queue of each adapter.
    pub(in super::super) queues: BTreeMap<String, u16>,
}

impl PendingHandover {
    /// Socket of an attachment, if it was handed over; its session is adopted later.
    pub(super) fn endpoint(
        &mut self,
        location: &PortKey,
        spec: &VhostUser,
        access: Option<SocketAccess>,
    ) -> Result<Option<SocketEndpoint>> {
        let Some(socket) = self.sockets.get_mut(location) else { return Ok(None) };
        SocketEndpoint::inherit(spec, access, socket.listening.take(), &mut self.fds).map(Some)
    }

    /// Session of a socket, and the remaining time of its attach ban in milliseconds.
    pub(super) fn session(
        &mut self,
        location: &PortKey,
    ) -> Option<(Option<SessionHandover>, Option<u64>)> {
        let SocketHandover { listening: _, session, banned_ms } = self.sockets.remove(location)?;
        Some((session, banned_ms))
    }
}

/// Unique descriptor of a capture's file.
fn own(file: Option<(Arc<OwnedFd>, u64)>) -> Result<Option<(OwnedFd, u64)>> {
    let Some((file, bytes)) = file else { return Ok(None) };
    let file = Arc::try_unwrap(file).or_else(|file| file.try_clone())?;
    Ok(Some((file, bytes)))
}

impl DataPlane {
    /// Sets the resources to adopt when the first state is applied.
    pub(in super::super) fn expect(
        &mut self,
        handover: PendingHandover,
        suited: impl IntoIterator<Item = (String, PathInForce)>,
    ) {
        suited.into_iter().for_each(|(name, path)| self.auto_paths.resume(&name, path));
        self.handover = Some(handover);
    }

    /// Adopts all sessions; their rings stay stopped until [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// The handover is incomplete, or a front-end uses a feature that is not offered here.
    pub(in super::super) fn adopt_sessions(&mut self) -> Result<()> {
        let Some(mut handover) = self.handover.take() else { return Ok(()) };
        for (location, backend) in self.backends() {
            if let PortBackend::Socket(token) = backend
                && let Some(session) = handover.session(&location)
            {
                let taken = self.sockets.inherit(token, session, &mut handover.fds);
                let shown = || format!("cannot resume the session of {location}");
                taken.with_context(shown)?;
            }
        }
        self.handover = Some(handover);
        Ok(())
    }

    /// Path suited to each adapter with `path = "auto"`.
    pub(in super::super) fn suited(&self) -> Vec<(String, PathInForce)> {
        self.auto_paths.suited().into_iter().collect()
    }

    /// VFs and queues of adapters.
    pub(in super::super) fn allocated(&self) -> [AdapterNumbers; 2] {
        let of = |what: fn(&Allocation) -> Option<u16>| {
            let given = self.allocations.iter();
            given.filter_map(|given| Some((given.adapter.clone(), what(given)?))).collect()
        };
        [of(|given| given.vf), of(|given| given.queue)]
    }

    /// Backend of every port.
    fn backends(&self) -> Vec<(PortKey, PortBackend)> {
        let of = |(nic, instance): (&String, &super::NicInstance)| {
            let nic = nic.clone();
            let served = instance.served.iter();
            let backends = served.map(|(owner, served)| (PortKey::of(&nic, owner), served.backend));
            backends.collect::<Vec<_>>()
        };
        self.instances.iter().flat_map(of).collect()
    }

    /// Starts the lanes in place of the old process; returns the number of sessions that could not
    /// be resumed and were ended.
    pub(in super::super) fn begin(&mut self) -> usize {
        self.sockets.adopt();
        self.devices.adopt();
        self.tx_resumed = true;
        self.faults.mark_logged(&self.fabric);
        self.fabric.go();
        // Slow work, and messages to guests, wait for the first housekeeping.
        self.handover = None;
        self.sockets.end_unresumable()
    }

    /// Hands over all vhost-user sockets.
    pub(in super::super) fn sockets_handover(
        &self,
        outgoing: &mut OutgoingFds,
    ) -> Result<Vec<(PortKey, SocketHandover)>> {
        let now = Instant::now();
        let mut sockets = Vec::new();
        for (location, backend) in self.backends() {
            if let PortBackend::Socket(token) = backend
                && let Some(socket) = self.sockets.handover(token, outgoing, now)?
            {
                sockets.push((location, socket));
            }
        }
        Ok(sockets)
    }

    /// Does slow work before [`suspend`](Self::suspend), while lanes run: closes sockets of steered
    /// queues, ends threads that write captures, and stops opening devices.
    ///
    /// # Errors
    /// A vDPA device is busy, or a device state is being transferred; nothing has changed.
    pub(in super::super) fn prepare(&mut self) -> Result<()> {
        if let Some(label) = self.sockets.transferring_label(Instant::now()) {
            bail!("{label}: the state of its device is being transferred; try again in a moment");
        }
        if !self.vdpas.prepare() {
            self.vdpas.resume();
            bail!("a vDPA device waits for the kernel; try again in a moment");
        }
        for nic in self.instances.keys().cloned().collect::<Vec<_>>() {
            self.leave_queues(&nic);
        }
        let captures =
            self.instances.values_mut().flat_map(|instance| instance.captures.values_mut());
        captures.filter_map(|captured| captured.capture.as_mut()).for_each(Capture::pause);
        Ok(())
    }

    /// Releases all rings and devices: no lane touches them after this call.
    pub(in super::super) fn suspend(&mut self) {
        // No frame is in flight to the half released first, unless a lane is stuck.
        self.fabric.pause_tx();
        if !self.fabric.wait_tx_paused(IDLE_TIMEOUT) {
            let ms = IDLE_TIMEOUT.as_millis();
            tracing::warn!("a lane did not go idle within {ms} ms: a burst may be dropped");
        }
        for half in [RingDirection::Transmit, RingDirection::Receive] {
            self.sockets.suspend(half);
            self.devices.detach(half);
        }
        self.vdpas.suspend();
        for captured in
            self.instances.values_mut().flat_map(|instance| instance.captures.values_mut())
        {
            captured.port.detach_all();
            if let Some(capture) = &mut captured.capture {
                capture.finish();
            }
        }
    }

    /// State that is final once everything is released.
    pub(in super::super) fn final_state(
        &mut self,
        outgoing: &mut OutgoingFds,
    ) -> Result<FinalState> {
        let mut final_state = FinalState::default();
        for (location, backend) in self.backends() {
            match backend {
                // The next process finds all of it in the run directory.
                PortBackend::Vdpa(_) => {}
                PortBackend::Socket(token) => {
                    let positions = self.sockets.positions(token);
                    final_state.positions.extend(positions.map(|positions| (location, positions)));
                }
                PortBackend::Device(token) => {
                    let Some(PortHandover { fds, state: words }) = self.devices.handover(token)
                    else {
                        continue;
                    };
                    let fds = fds.into_iter().map(|fd| outgoing.put_shared(fd)).collect();
                    final_state
                        .devices
                        .push((location, DeviceHandover { fds, words: to_hex(&words) }));
                }
            }
        }
        for (nic, instance) in &self.instances {
            for (path, captured) in &instance.captures {
                let Some(capture) = &captured.capture else { continue };
                let (file, bytes) = capture.file();
                let (nic, path) = (nic.clone(), path.clone());
                final_state.captures.push(CaptureHandover {
                    nic,
                    path,
                    file: outgoing.put_shared(file),
                    bytes,
                });
            }
        }
        final_state.learned = self.learned();
        final_state.rules = self.rules();
        final_state.offloads = self.offloads();
        Ok(final_state)
    }

    fn learned(&self) -> Vec<LearnedAddresses> {
        let of = |nic: &api::compile::CompiledNic| {
            let switch = nic.switch.as_ref()?;
            let memory = self.instances.get(&nic.name)?.fdb()?;
            let mut entries = Vec::new();
            for entry in memory.entries() {
                entries.extend(entry.mac.0);
                entries.extend(entry.vid.to_be_bytes());
                entries.extend(entry.port.0.to_be_bytes());
                entries.push(entry.ticks);
            }
            let ports = switch.numbers.all().map(|(name, number)| (number.0, name.to_owned()));
            let (nic, switch) = (nic.name.clone(), switch.name.clone());
            Some(LearnedAddresses {
                nic,
                switch,
                ports: ports.collect(),
                entries: to_hex(&entries),
            })
        };
        self.compiled.nics.iter().filter_map(of).collect()
    }

    /// Resumes after [`suspend`](Self::suspend) in the old process.
    pub(in super::super) fn resume(&mut self) {
        for (_, backend) in self.backends() {
            match backend {
                PortBackend::Socket(token) => {
                    let positions = self.sockets.positions(token).unwrap_or_default();
                    if let Err(error) = self.sockets.resume(token, &positions) {
                        tracing::error!("{error:#}");
                    }
                }
                PortBackend::Device(token) => self.devices.resume(token),
                PortBackend::Vdpa(_) => {} // all at once, below
            }
        }
        self.vdpas.resume();
        for (nic, instance) in &mut self.instances {
            let labels = super::labels(&self.compiled, nic);
            for (path, captured) in &mut instance.captures {
                let resumed = own(captured.release())
                    .and_then(|file| Ok(captured.resume(path, labels.get(path), file)?));
                if let Err(error) = resumed {
                    tracing::error!("mirror to {path} has stopped: {error:#}");
                }
            }
        }
        self.sockets.end_unresumable();
        self.fabric.resume_tx(); // all rings are back
        self.steer();
    }

    /// Adopts the final state, in a data plane that has the desired state. The lanes have not
    /// started.
    ///
    /// # Errors
    /// A device cannot be adopted.
    pub(in super::super) fn adopt(
        &mut self,
        final_state: FinalState,
        received: &mut ReceivedFds,
    ) -> Result<()> {
        let FinalState { positions, devices, captures, learned, rules, offloads } = final_state;
        self.restore_learned(learned)?;
        for nic in &self.compiled.nics {
            if let (Some(instance), Some(switch)) = (self.instances.get(&nic.name), &nic.switch) {
                instance.add_rule_counters(switch, &rules);
            }
            if let Some(instance) = self.instances.get(&nic.name) {
                instance.add_offload_counters(nic, &offloads);
            }
        }
        self.resume_captures(captures, received)?;
        let mut devices: BTreeMap<PortKey, _> = devices.into_iter().collect();
        let mut positions: BTreeMap<PortKey, _> = positions.into_iter().collect();
        for (location, backend) in self.backends() {
            match backend {
                PortBackend::Socket(token) => {
                    let positions = positions.remove(&location).context("positions are missing")?;
                    self.sockets.resume(token, &positions)?;
                }
                PortBackend::Vdpa(_) => {} // all at once, below
                PortBackend::Device(token) => match devices.remove(&location) {
                    Some(device) => self.devices.inherit(token, legacy(device, received)?)?,
                    None => self.devices.resume(token),
                },
            }
        }
        self.vdpas.resume();
        self.follow_links();
        Ok(())
    }

    /// Resumes captures; those that were not handed over start again.
    fn resume_captures(
        &mut self,
        captures: Vec<CaptureHandover>,
        received: &mut ReceivedFds,
    ) -> Result<()> {
        let mut files = BTreeMap::new();
        for CaptureHandover { nic, path, file, bytes } in captures {
            let fd = received.take(file).context("the file of a capture is missing")?;
            files.insert((nic, path), (fd, bytes));
        }
        for (nic, instance) in &mut self.instances {
            let labels = super::labels(&self.compiled, nic);
            for (path, captured) in &mut instance.captures {
                let file = files.remove(&(nic.clone(), path.clone()));
                captured.resume(path, labels.get(path), file)?;
            }
        }
        Ok(())
    }

    /// Restores the learned addresses of the old process's switches.
    fn restore_learned(&self, learned: Vec<LearnedAddresses>) -> Result<()> {
        for LearnedAddresses { nic, switch: name, ports, entries } in learned {
            let switch = self.compiled.nic(&nic).and_then(|nic| nic.switch.as_ref());
            let fdb = self.instances.get(&nic).and_then(|instance| instance.fdb());
            let (Some(switch), Some(fdb)) = (switch.filter(|it| it.name == name), fdb) else {
                continue;
            };
            let number = |(old, name): (u16, String)| Some((old, switch.numbers.get(&name)?));
            let mut numbers: BTreeMap<u16, PortId> = ports.into_iter().filter_map(number).collect();
            numbers.insert(PortId::UPLINK.0, PortId::UPLINK);
            let entries = from_hex(&entries).context("invalid learned addresses")?;
            for entry in entries.as_chunks::<ENTRY_BYTES>().0 {
                let [a, b, c, d, e, f, vid @ .., p, q, ticks] = *entry;
                if let Some(port) = numbers.get(&u16::from_be_bytes([p, q])) {
                    let (mac, vid) = (Mac([a, b, c, d, e, f]), u16::from_be_bytes(vid));
                    fdb.recall(Entry { mac, vid, port: *port, ticks });
                }
            }
        }
        Ok(())
    }
}

fn legacy(device: DeviceHandover, received: &mut ReceivedFds) -> Result<PortHandover> {
    let fds = device.fds.iter().map(|fd| received.take(*fd).map(Arc::new));
    let fds = fds.collect::<Option<_>>().context("a descriptor of a device is missing")?;
    let words = from_hex(&device.words).context("invalid device state")?;
    Ok(PortHandover { fds, state: words })
}

//! The data plane in two processes: the one that hands it over, and the one that takes it up.
//!
//! # Order
//! The old one gives [`sockets`](DataPlane::sockets_handover) while its lanes run, and does what
//! takes time ([`prepare`](DataPlane::prepare)). Then it [lets go](DataPlane::suspend): of all that
//! sends first, so that no frame is on its way, and then of all that receives. What is left to say
//! ([`rest`](DataPlane::rest)) is true from then on, and the old one can still go on by itself
//! ([`resume`](DataPlane::resume)).
//!
//! The new one is brought to the state with a [`Handover`], by which sockets are taken up and
//! devices left out; with the rest it [goes on](DataPlane::go_on). It tells nobody anything, and
//! steers no queue, before it [begins](DataPlane::begin).

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
use port::capture::Capture as Writing;
use vhost_user::backend::Half;
use wire::Mac;

use super::super::attachment::Way;
use super::super::nic_instance::End;
use super::super::upgrade::{
    Capture, Device, Given, Giving, Learned, Place, Rest, Session, Socket,
};
use super::DataPlane;

/// How long lanes may take to end the round that they are in.
const REST: Duration = Duration::from_millis(30);
/// Bytes of a learned address in the hand-over.
const ENTRY: usize = 11;

/// What each adapter has of a kind.
type Held = Vec<(String, u16)>;

/// What a data plane is to take up instead of opening it.
#[derive(Debug)]
pub(in super::super) struct Handover {
    pub(in super::super) sockets: BTreeMap<Place, Socket>,
    pub(in super::super) given: Given,
    /// The VF that each adapter had.
    pub(in super::super) vfs: BTreeMap<String, u16>,
    /// The queue that each adapter had.
    pub(in super::super) queues: BTreeMap<String, u16>,
}

impl Handover {
    /// The socket of an attachment, if one was handed over; its session stays.
    pub(super) fn way(&mut self, place: &Place, spec: &VhostUser) -> Result<Option<Way>> {
        let Some(socket) = self.sockets.get_mut(place) else { return Ok(None) };
        Way::inherit(spec, socket.listening.take(), &mut self.given).map(Some)
    }

    /// The session on it, and for how long nobody may attach.
    pub(super) fn session(&mut self, place: &Place) -> Option<(Option<Session>, Option<u64>)> {
        let Socket { listening: _, session, banned_ms } = self.sockets.remove(place)?;
        Some((session, banned_ms))
    }
}

/// A capture's file, which nobody else needs.
fn own(file: Option<(Arc<OwnedFd>, u64)>) -> Result<Option<(OwnedFd, u64)>> {
    let Some((file, bytes)) = file else { return Ok(None) };
    let file = Arc::try_unwrap(file).or_else(|file| file.try_clone())?;
    Ok(Some((file, bytes)))
}

impl DataPlane {
    /// Takes up what is said here as it is brought to its first state.
    pub(in super::super) fn expect(
        &mut self,
        handover: Handover,
        suited: impl IntoIterator<Item = (String, PathInForce)>,
    ) {
        suited.into_iter().for_each(|(name, path)| self.following.resume(&name, path));
        self.handover = Some(handover);
    }

    /// Takes up all sessions; their rings stand until [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// What was handed over is not whole, or a front-end uses what is not offered here.
    pub(in super::super) fn take_up_sessions(&mut self) -> Result<()> {
        let Some(mut handover) = self.handover.take() else { return Ok(()) };
        for (place, end) in self.ends() {
            if let End::Socket(token) = end
                && let Some(session) = handover.session(&place)
            {
                let taken = self.sockets.inherit(token, session, &mut handover.given);
                let shown = || format!("the session of {place} cannot be taken up");
                taken.with_context(shown)?;
            }
        }
        self.handover = Some(handover);
        Ok(())
    }

    /// Which path suits adapters that follow their traffic.
    pub(in super::super) fn suited(&self) -> Vec<(String, PathInForce)> {
        self.following.suited().into_iter().collect()
    }

    /// The VFs and the queues that adapters have.
    pub(in super::super) fn held(&self) -> [Held; 2] {
        let of = |what: fn(&Allocation) -> Option<u16>| {
            let given = self.given.iter();
            given.filter_map(|given| Some((given.adapter.clone(), what(given)?))).collect()
        };
        [of(|given| given.vf), of(|given| given.queue)]
    }

    /// What is behind every port.
    fn ends(&self) -> Vec<(Place, End)> {
        let of = |(nic, instance): (&String, &super::NicInstance)| {
            let nic = nic.clone();
            let served = instance.served.iter();
            let ends = served.map(|(owner, served)| (Place::of(&nic, owner), served.end));
            ends.collect::<Vec<_>>()
        };
        self.instances.iter().flat_map(of).collect()
    }

    /// Lets the lanes begin, in the place of another process's; says how many sessions could not be
    /// taken up, and were ended.
    pub(in super::super) fn begin(&mut self) -> usize {
        self.sockets.adopt();
        self.devices.adopt();
        self.settled = true;
        self.faults.remember(&self.fabric);
        self.fabric.go();
        // What takes time, or is for guests to hear, is due when this daemon first looks.
        self.handover = None;
        self.sockets.end_unfit()
    }

    /// All vhost-user sockets.
    pub(in super::super) fn sockets_handover(
        &self,
        giving: &mut Giving,
    ) -> Result<Vec<(Place, Socket)>> {
        let now = Instant::now();
        let mut sockets = Vec::new();
        for (place, end) in self.ends() {
            if let End::Socket(token) = end
                && let Some(socket) = self.sockets.handover(token, giving, now)?
            {
                sockets.push((place, socket));
            }
        }
        Ok(sockets)
    }

    /// Does all that takes time before [`suspend`](Self::suspend), while lanes run: sockets of
    /// steered queues are closed, threads that write captures end, and nothing is opened any more.
    ///
    /// # Errors
    /// A vDPA device is busy, or a device's state is on its way; everything is as it was.
    pub(in super::super) fn prepare(&mut self) -> Result<()> {
        if let Some(label) = self.sockets.moves_state(Instant::now()) {
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
        captures.filter_map(|captured| captured.capture.as_mut()).for_each(Writing::pause);
        Ok(())
    }

    /// Lets go of everything: no lane touches a ring or a device when this returns.
    pub(in super::super) fn suspend(&mut self) {
        // No frame is on its way to what is let go of first, if no lane is stuck.
        self.fabric.pause_tx();
        if !self.fabric.wait_tx_paused(REST) {
            let ms = REST.as_millis();
            tracing::warn!("a lane did not rest within {ms} ms: a burst may be dropped");
        }
        for half in [Half::Transmit, Half::Receive] {
            self.sockets.suspend(half);
            self.devices.let_go(half);
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

    /// All that is true once everything was let go of.
    pub(in super::super) fn rest(&mut self, giving: &mut Giving) -> Result<Rest> {
        let mut rest = Rest::default();
        for (place, end) in self.ends() {
            match end {
                // Whatever there is to know of it the next one finds in the run directory.
                End::Vdpa(_) => {}
                End::Socket(token) => {
                    let positions = self.sockets.positions(token);
                    rest.positions.extend(positions.map(|positions| (place, positions)));
                }
                End::Device(token) => {
                    let Some(PortHandover { fds, state: words }) = self.devices.legacy(token)
                    else {
                        continue;
                    };
                    let fds = fds.into_iter().map(|fd| giving.put_shared(fd)).collect();
                    rest.devices.push((place, Device { fds, words: to_hex(&words) }));
                }
            }
        }
        for (nic, instance) in &self.instances {
            for (path, captured) in &instance.captures {
                let Some(capture) = &captured.capture else { continue };
                let (file, bytes) = capture.file();
                let (nic, path) = (nic.clone(), path.clone());
                rest.captures.push(Capture { nic, path, file: giving.put_shared(file), bytes });
            }
        }
        rest.learned = self.learned();
        rest.rules = self.rules();
        rest.offloads = self.offloads();
        Ok(rest)
    }

    fn learned(&self) -> Vec<Learned> {
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
            Some(Learned { nic, switch, ports: ports.collect(), entries: to_hex(&entries) })
        };
        self.compiled.nics.iter().filter_map(of).collect()
    }

    /// Goes on after [`suspend`](Self::suspend), as if it had not been.
    pub(in super::super) fn resume(&mut self) {
        for (_, end) in self.ends() {
            match end {
                End::Socket(token) => {
                    let positions = self.sockets.positions(token).unwrap_or_default();
                    if let Err(error) = self.sockets.resume(token, &positions) {
                        tracing::error!("{error:#}");
                    }
                }
                End::Device(token) => self.devices.resume(token),
                End::Vdpa(_) => {} // all at once
            }
        }
        self.vdpas.resume();
        for (nic, instance) in &mut self.instances {
            let labels = super::labels(&self.compiled, nic);
            for (path, captured) in &mut instance.captures {
                let gone_on = own(captured.let_go())
                    .and_then(|file| Ok(captured.go_on(path, labels.get(path), file)?));
                if let Err(error) = gone_on {
                    tracing::error!("mirror to {path} is not written any more: {error:#}");
                }
            }
        }
        self.sockets.end_unfit();
        self.fabric.resume_tx(); // nobody sends before everybody is back
        self.steer();
    }

    /// Takes up what is left, in a data plane that is in the state. The lanes have not begun.
    ///
    /// # Errors
    /// A device cannot be taken up.
    pub(in super::super) fn go_on(&mut self, rest: Rest, given: &mut Given) -> Result<()> {
        let Rest { positions, devices, captures, learned, rules, offloads } = rest;
        self.recall_learned(learned)?;
        for nic in &self.compiled.nics {
            if let (Some(instance), Some(switch)) = (self.instances.get(&nic.name), &nic.switch) {
                instance.go_on_from(switch, &rules);
            }
            if let Some(instance) = self.instances.get(&nic.name) {
                instance.go_on_offloading(nic, &offloads);
            }
        }
        self.go_on_capturing(captures, given)?;
        let mut devices: BTreeMap<Place, _> = devices.into_iter().collect();
        let mut positions: BTreeMap<Place, _> = positions.into_iter().collect();
        for (place, end) in self.ends() {
            match end {
                End::Socket(token) => {
                    let positions = positions.remove(&place).context("positions are missing")?;
                    self.sockets.resume(token, &positions)?;
                }
                End::Vdpa(_) => {} // all at once
                End::Device(token) => match devices.remove(&place) {
                    Some(device) => self.devices.inherit(token, legacy(device, given)?)?,
                    None => self.devices.resume(token),
                },
            }
        }
        self.vdpas.resume();
        self.follow_links();
        Ok(())
    }

    /// Goes on with files that get copies of frames; those that were not handed over begin anew.
    fn go_on_capturing(&mut self, captures: Vec<Capture>, given: &mut Given) -> Result<()> {
        let mut files = BTreeMap::new();
        for Capture { nic, path, file, bytes } in captures {
            let fd = given.take(file).context("the file of a capture is missing")?;
            files.insert((nic, path), (fd, bytes));
        }
        for (nic, instance) in &mut self.instances {
            let labels = super::labels(&self.compiled, nic);
            for (path, captured) in &mut instance.captures {
                let file = files.remove(&(nic.clone(), path.clone()));
                captured.go_on(path, labels.get(path), file)?;
            }
        }
        Ok(())
    }

    /// Knows what the switches of another process had learned.
    fn recall_learned(&self, learned: Vec<Learned>) -> Result<()> {
        for Learned { nic, switch: name, ports, entries } in learned {
            let switch = self.compiled.nic(&nic).and_then(|nic| nic.switch.as_ref());
            let fdb = self.instances.get(&nic).and_then(|instance| instance.fdb());
            let (Some(switch), Some(fdb)) = (switch.filter(|it| it.name == name), fdb) else {
                continue;
            };
            let number = |(old, name): (u16, String)| Some((old, switch.numbers.get(&name)?));
            let mut numbers: BTreeMap<u16, PortId> = ports.into_iter().filter_map(number).collect();
            numbers.insert(PortId::UPLINK.0, PortId::UPLINK);
            let entries = from_hex(&entries).context("learned addresses are none")?;
            for entry in entries.as_chunks::<ENTRY>().0 {
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

fn legacy(device: Device, given: &mut Given) -> Result<PortHandover> {
    let fds = device.fds.iter().map(|fd| given.take(*fd).map(Arc::new));
    let fds = fds.collect::<Option<_>>().context("a descriptor of a device is missing")?;
    let words = from_hex(&device.words).context("what is said of a device is nothing")?;
    Ok(PortHandover { fds, state: words })
}

//! Session of a hostile front-end on one VF, which reconnects whenever the daemon closes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use report::statistics::random::Random;
use rustix::event::{EventfdFlags, eventfd};
use vhost_user::{Connector, Features, Request};

use super::bursts;
use super::connection::{self, Disconnected, RawConnection};
use super::frames::{self, GuestAddresses};
use super::memory::{BurstTarget, Memory, RawRing, SEND_SLOTS};
use crate::protocol::hostile::HostileResult;

/// Longest time that the daemon may refuse connections.
const ATTACH: Duration = Duration::from_secs(60);
/// Frames rewritten for each volley.
const FRESH: u64 = 4;

/// Longest wait for a volley: a multiple of the lane's need, unless it has no CPU.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

/// Eventfds of a ring.
#[derive(Debug)]
struct Events {
    kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
}

impl Events {
    fn new() -> Result<Events> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Events { kick: event()?, call: event()?, error: event()? })
    }
}

/// Hostile guest of one VF.
#[derive(Debug)]
pub(super) struct Session {
    socket: PathBuf,
    pub(super) memory: Memory,
    pub(super) rings: Vec<RawRing>,
    pub(super) connection: Option<RawConnection>,
    pub(super) cast: GuestAddresses,
    pub(super) features: u64,
    events: Vec<Events>,
    ring_max: u16,
    /// Bytes of the frame in each slot, with its header.
    lens: Vec<u32>,
    pub(super) restarts: u64,
    pub(super) connects: u64,
}

impl Session {
    pub(super) fn new(
        socket: &Path,
        pairs: u16,
        ring_max: u16,
        cast: GuestAddresses,
    ) -> Result<Session> {
        let rings = 2 * pairs as u8;
        let events = (0..rings).map(|_| Events::new()).collect::<Result<_>>()?;
        Ok(Session {
            socket: socket.to_path_buf(),
            memory: Memory::new()?,
            rings: (0..rings).map(|index| RawRing::new(index, ring_max.min(256))).collect(),
            connection: None,
            cast,
            features: 0,
            events,
            ring_max,
            lens: vec![0; SEND_SLOTS as usize],
            restarts: 0,
            connects: 0,
        })
    }

    /// Connects and starts all rings, if there is no session.
    pub(super) fn attach(&mut self, random: &mut Random) -> Result<()> {
        let begin = Instant::now();
        while self.connection.is_none() {
            if begin.elapsed() > ATTACH {
                bail!("the daemon accepts no connection at {}", self.socket.display());
            }
            let connected = Connector::new(&self.socket).poll(Instant::now());
            let Some(stream) = connected.context("a hostile guest cannot connect")? else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            self.connection = Some(RawConnection::new(stream));
            if self.set_up(random).is_err() {
                self.connection = None;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Negotiates and starts all rings; ends with a query, so that the daemon has processed all
    /// requests.
    fn set_up(&mut self, random: &mut Random) -> Result<(), Disconnected> {
        self.connects += 1;
        for slot in 0..SEND_SLOTS {
            let (place, _) = self.memory.slot(slot);
            self.lens[slot as usize] = frames::write(random, &self.cast, place);
        }
        let link = self.connection.as_mut().ok_or(Disconnected)?;
        link.send(Request::SetOwner, Vec::new(), &[])?;
        let offered = link.query(Request::GetFeatures)?;
        let protocol = link.query(Request::GetProtocolFeatures)?;
        link.send(Request::SetProtocolFeatures, protocol.to_ne_bytes().to_vec(), &[])?;
        let optional = Features::INDIRECT_DESC | Features::EVENT_IDX | Features::MRG_RXBUF;
        let mut left_out = random.bits() & optional.bits();
        // The rings are split: read as packed rings they are noise, and a ring that must log waits
        // for a log. Both are worth a rare try.
        let rare =
            [(Features::VERSION_1, random.one_in(8)), (Features::RING_PACKED, !random.one_in(8))];
        let rare = rare.into_iter().chain([(Features::LOG_ALL, !random.one_in(16))]);
        left_out |= rare.filter(|(_, out)| *out).map(|(feature, _)| feature.bits()).sum::<u64>();
        self.features = offered & !left_out;
        link.send(Request::SetFeatures, self.features.to_ne_bytes().to_vec(), &[])?;
        let fds = [self.memory.fd(), self.memory.fd()];
        link.send(Request::SetMemTable, connection::table(2, &Memory::regions()), &fds)?;
        for at in 0..self.rings.len() {
            self.set_up_ring(at, random)?;
        }
        self.connection.as_mut().ok_or(Disconnected)?.query(Request::GetFeatures).map(drop)
    }

    /// Sets up a ring except for its kick descriptor, which would start it.
    fn set_up_ring(&mut self, at: usize, random: &mut Random) -> Result<(), Disconnected> {
        let (ring, events) = (&mut self.rings[at], &self.events[at]);
        let link = self.connection.as_mut().ok_or(Disconnected)?;
        ring.runs = false;
        ring.reset(&self.memory, random.bits() as u16);
        let index = u64::from(ring.index).to_ne_bytes().to_vec();
        link.send(Request::SetVringCall, index.clone(), &[events.call.as_fd()])?;
        link.send(Request::SetVringErr, index, &[events.error.as_fd()])?;
        link.send(Request::SetVringEnable, connection::state(ring.index, 1), &[])?;
        self.place_ring(at)
    }

    /// Sends size and addresses of a stopped ring.
    fn place_ring(&mut self, at: usize) -> Result<(), Disconnected> {
        let ring = &self.rings[at];
        let link = self.connection.as_mut().ok_or(Disconnected)?;
        let addresses = ring.parts().map(|part| super::memory::USER + part);
        link.send(Request::SetVringNum, connection::state(ring.index, ring.size.into()), &[])?;
        link.send(Request::SetVringAddr, connection::addresses(ring.index, 0, addresses), &[])
    }

    /// Starts a ring that is set up and stopped.
    pub(super) fn start_ring(
        &mut self,
        at: usize,
        random: &mut Random,
    ) -> Result<(), Disconnected> {
        let _ = self.is_stopped_by_daemon(at); // clears the event of the previous ring
        let (ring, events) = (&mut self.rings[at], &self.events[at]);
        let link = self.connection.as_mut().ok_or(Disconnected)?;
        let start = random.bits() as u16;
        ring.reset(&self.memory, start);
        // The daemon reads the used index; a wrong base must do no harm.
        let base = if random.one_in(16) { random.bits() as u16 } else { start };
        link.send(Request::SetVringBase, connection::state(ring.index, base.into()), &[])?;
        let index = u64::from(ring.index).to_ne_bytes().to_vec();
        link.send(Request::SetVringKick, index, &[events.kick.as_fd()])?;
        ring.runs = true;
        Ok(())
    }

    /// Publishes a burst on every running ring; returns their indices.
    pub(super) fn volley(&mut self, random: &mut Random, result: &mut HostileResult) -> Vec<usize> {
        for _ in 0..FRESH {
            let slot = random.below(SEND_SLOTS);
            let (place, _) = self.memory.slot(slot);
            self.lens[slot as usize] = frames::write(random, &self.cast, place);
        }
        let mut sent = Vec::new();
        for at in 0..self.rings.len() {
            if !self.rings[at].runs && self.start_ring(at, random).is_err() {
                self.connection = None;
                return sent;
            }
            self.burst(at, random, result);
            sent.push(at);
        }
        sent
    }

    /// Publishes one burst on a running ring.
    pub(super) fn burst(&mut self, at: usize, random: &mut Random, result: &mut HostileResult) {
        let place = BurstTarget { memory: &self.memory, lens: &self.lens, ring: self.rings[at] };
        let style = bursts::write(&place, random, &mut self.rings[at]);
        count(result, style.name());
        result.bursts += 1;
        // Mostly with a kick, so that a sleeping lane reads it at once.
        if !random.one_in(16) {
            self.kick(at);
        }
        bursts::race(style, &place, random);
    }

    pub(super) fn kick(&self, at: usize) {
        // a full counter is already signalled
        let _ = rustix::io::write(&self.events[at].kick, &1u64.to_ne_bytes());
    }

    /// Waits until the daemon has consumed or stopped the transmit rings among `rings`, at most
    /// `patience`; returns the number of those it has not.
    pub(super) fn wait(&mut self, rings: &[usize], patience: Duration) -> u64 {
        let mut waiting: Vec<usize> =
            rings.iter().copied().filter(|at| !self.rings[*at].receives()).collect();
        let begin = Instant::now();
        loop {
            waiting.retain(|at| !self.is_done(*at));
            if waiting.is_empty() || begin.elapsed() > patience {
                return waiting.len() as u64;
            }
            for at in &waiting {
                self.kick(*at); // some bursts were not kicked, and a lane may sleep
            }
            std::thread::yield_now();
        }
    }

    fn is_done(&mut self, at: usize) -> bool {
        let ring = &self.rings[at];
        if !ring.runs || ring.used(&self.memory) == ring.avail {
            return true;
        }
        if self.is_stopped_by_daemon(at) {
            self.rings[at].runs = false;
        }
        !self.rings[at].runs
    }

    /// Returns `true` if the daemon has signalled an error of the ring since the last call.
    fn is_stopped_by_daemon(&self, at: usize) -> bool {
        rustix::io::read(&self.events[at].error, &mut [0; 8]).is_ok()
    }

    /// Restarts the rings that the daemon stopped, and sometimes others.
    pub(super) fn start_stopped_rings(&mut self, random: &mut Random) {
        let mut stopped = Vec::new();
        for at in 0..self.rings.len() {
            let _ = self.is_done(at);
            let ring = &self.rings[at];
            // A transmit ring that is neither finished nor stopped has lost its head. The state of
            // a receive ring is unknown.
            let lost = !ring.receives() && ring.used(&self.memory) != ring.avail;
            if !ring.runs || lost || random.one_in(8) || self.is_stopped_by_daemon(at) {
                stopped.push(at);
            }
        }
        if self.restart(&stopped, random).is_err() {
            self.connection = None;
        }
    }

    /// Restarts rings, sometimes at another address or with another size.
    pub(super) fn restart(
        &mut self,
        rings: &[usize],
        random: &mut Random,
    ) -> Result<(), Disconnected> {
        self.stop(rings)?;
        for &at in rings {
            if random.one_in(8) {
                let most = u64::from(self.ring_max.ilog2());
                self.rings[at].size = 1 << random.between(0, most);
                self.rings[at].shift = random.below(4096) * 16;
                self.place_ring(at)?;
            }
            self.start_ring(at, random)?;
        }
        Ok(())
    }

    /// Stops rings, and waits until the daemon has done so.
    pub(super) fn stop(&mut self, rings: &[usize]) -> Result<(), Disconnected> {
        let link = self.connection.as_mut().ok_or(Disconnected)?;
        for &at in rings {
            let state = connection::state(self.rings[at].index, 0);
            link.send(Request::GetVringBase, state, &[])?;
        }
        for &at in rings {
            link.receive_reply(Request::GetVringBase)?;
            self.rings[at].runs = false;
            self.restarts += 1;
        }
        Ok(())
    }

    /// Replaces unusable memory; the session starts over with it.
    pub(super) fn renew_memory(&mut self) -> Result<()> {
        self.connection = None;
        self.memory = Memory::new()?;
        Ok(())
    }

    /// The open connection.
    pub(super) fn connection(&mut self) -> Result<&mut RawConnection, Disconnected> {
        self.connection.as_mut().ok_or(Disconnected)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn kick_fd(&self, at: usize) -> BorrowedFd<'_> {
        self.events[at].kick.as_fd()
    }
}

/// Counts a mutation by name.
pub(super) fn count(result: &mut HostileResult, name: &str) {
    match result.mutations.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(result.mutations.insert(name.to_owned(), 1)),
    }
}

//! A lane: one thread that polls transmit rings, and sleeps when they are silent.
//!
//! After the last frame a lane goes on polling for [`IdlePolicy::poll`], then polls and yields its
//! CPU in turn for [`IdlePolicy::yielding`], then asks every guest for a kick, looks once more, and
//! sleeps on the eventfds. While it is awake guests are asked not to kick. A ring that was silent
//! for [`COLD_AFTER`] rounds is looked at every [`COLD_STRIDE`]th round only, so that silent guests
//! cost the busy ones little.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use host::tsc;
use nic::{Budget, PortId, Schedule, Share};
use port::Polled;

use crate::clock::Clock;
use crate::counters::Block;
use crate::fabric::{SoftNic, StartError};
use crate::forward::{Scratch, Sender, forward};
use crate::port::{Port, word};
use crate::roster::{Ring, Roster};
use crate::wake::Wake;

const COLD_AFTER: u32 = 1024;
const COLD_STRIDE: u64 = 8;
/// The longest sleep while frames wait for their sender's limit, which others may change.
const REST_MAX: Duration = Duration::from_millis(10);

/// When a lane stops polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// How long it polls after the last frame.
    pub poll: Duration,
    /// How long it then polls and yields.
    pub yielding: Duration,
    /// Whether it then sleeps.
    pub sleep: bool,
}

/// How a lane is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// The CPU it is pinned to, if it is.
    pub cpu: Option<usize>,
    /// When it sleeps.
    pub idle: IdlePolicy,
}

mod slot {
    pub(super) const ROUNDS: usize = 0;
    pub(super) const BUSY_ROUNDS: usize = 1;
    pub(super) const BUSY_CYCLES: usize = 2;
    pub(super) const IDLE_CYCLES: usize = 3;
    pub(super) const FRAMES: usize = 4;
    pub(super) const BURSTS: usize = 5;
    pub(super) const BACKLOG_BURSTS: usize = 6;
    pub(super) const SLEEPS: usize = 7;
    pub(super) const THREAD_ID: usize = 8;
    pub(super) const TSC_HZ: usize = 9;
    pub(super) const BURST_LOG2: usize = 16;
    pub(super) const BURST_BUCKETS: usize = 8;
    pub(super) const ROUND_LOG2: usize = BURST_LOG2 + BURST_BUCKETS;
    pub(super) const ROUND_BUCKETS: usize = 32;
    pub(super) const END: usize = ROUND_LOG2 + ROUND_BUCKETS;
}

/// The names of a lane's words, in order.
pub(crate) fn schema() -> Vec<String> {
    let mut names: Vec<String> = vec!["-".into(); slot::END];
    for (at, name) in [
        (slot::ROUNDS, "rounds"),
        (slot::BUSY_ROUNDS, "busy_rounds"),
        (slot::BUSY_CYCLES, "busy_cycles"),
        (slot::IDLE_CYCLES, "idle_cycles"),
        (slot::FRAMES, "frames"),
        (slot::BURSTS, "bursts"),
        (slot::BACKLOG_BURSTS, "backlog_bursts"),
        (slot::SLEEPS, "sleeps"),
        (slot::THREAD_ID, "thread_id"),
        (slot::TSC_HZ, "tsc_hz"),
    ] {
        names[at] = name.into();
    }
    for i in 0..slot::BURST_BUCKETS {
        names[slot::BURST_LOG2 + i] = format!("burst_frames_log2_{i}");
    }
    for i in 0..slot::ROUND_BUCKETS {
        names[slot::ROUND_LOG2 + i] = format!("busy_round_cycles_log2_{i}");
    }
    names
}

/// A transmit ring's place in a lane.
struct Poll {
    ring: Ring,
    /// Its NIC's place in [`Worker::nics`].
    nic: usize,
    /// Where its frames enter the NIC.
    enters: PortId,
    silent_rounds: u32,
    sender: Sender,
    /// Whether it had frames when the lane last wanted to sleep.
    waits: bool,
}

impl Poll {
    fn new(ring: Ring) -> Poll {
        let (enters, sender) = (PortId::PF, Sender::new());
        Poll { ring, nic: 0, enters, silent_rounds: 0, sender, waits: false }
    }
}

/// A running lane. It stops when dropped.
#[derive(Debug)]
pub struct Lane {
    /// Where it is pinned, if it is.
    pub cpu: Option<usize>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) roster: Arc<Roster>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts lane `number` on `cpu`; returns when it runs there.
    pub(crate) fn start(
        cpu: Option<usize>,
        number: usize,
        worker: Worker,
    ) -> Result<Lane, StartError> {
        let (stop, wake) = (worker.stop.clone(), worker.wake.clone());
        let roster = worker.roster.clone();
        let (said, heard) = std::sync::mpsc::channel();
        let body = move || {
            let pinned = cpu.map_or(Ok(()), host::cpu::pin_this_thread);
            let go = pinned.is_ok();
            let _ = said.send(pinned); // the starter waits for it
            if go {
                worker.run();
            }
        };
        let thread = std::thread::Builder::new().name(format!("lane{number}")).spawn(body);
        let thread = thread.map_err(|source| StartError::Lane { lane: number, source })?;
        if let Ok(Err(source)) = heard.recv() {
            return Err(StartError::Pin { lane: number, source });
        }
        Ok(Lane { cpu, wake, roster, stop, thread: Some(thread) })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a lane that panicked has said so on standard error
        }
    }
}

/// What a lane's thread works on.
pub(crate) struct Worker {
    idle: IdlePolicy,
    roster: Arc<Roster>,
    /// The roster's version that `rings` is of.
    roster_version: u64,
    rings: Vec<Poll>,
    block: Block,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    scratch: Scratch,
    round: u64,
    /// The NICs of this lane's ports.
    nics: Vec<Served>,
    /// The ports of this lane, by their numbers in the schedule.
    ports: Vec<Scheduled>,
    schedule: Schedule,
    /// When the first budget opens that kept a ring from being polled, in ns.
    closed_ns: u64,
}

/// A NIC of which this lane has ports, and what was taken from its scene.
struct Served {
    nic: Arc<SoftNic>,
    /// The scene's number; 0 for none yet.
    scene: u64,
    budget: Option<Arc<Mutex<Budget>>>,
}

impl Served {
    /// Asks the budget, if there is one, whether a burst that enters there may go now.
    ///
    /// # Errors
    /// The time at which to ask again, in ns.
    #[inline]
    fn may_send(&self, enters: PortId, now_ns: u64) -> Result<(), u64> {
        let Some(budget) = &self.budget else { return Ok(()) };
        budget.lock().unwrap_or_else(PoisonError::into_inner).open(enters, now_ns)
    }
}

/// A port as a sender of this lane's schedule.
struct Scheduled {
    /// Its NIC's place in [`Worker::nics`].
    nic: usize,
    port: Arc<Port>,
    /// Its rings on this lane: where they begin, and how many.
    first: usize,
    rings: usize,
    /// What was set last: tokens start anew when rates are set, and scenes change often.
    share: Option<Share>,
}

impl Scheduled {
    /// What this lane grants of the port's share: its part of the rates, by rings.
    fn part_of(&self, share: Share) -> Share {
        let part = |mbit: u32| {
            let mbit = u64::from(mbit) * self.rings as u64;
            mbit.div_ceil(self.port.pairs() as u64) as u32
        };
        Share {
            weight: share.weight,
            min_mbit: part(share.min_mbit),
            max_mbit: part(share.max_mbit),
        }
    }
}

impl Worker {
    pub(crate) fn new(
        idle: IdlePolicy,
        roster: Arc<Roster>,
        block: Block,
        wake: Arc<Wake>,
        held: Arc<AtomicBool>,
    ) -> Worker {
        Worker {
            idle,
            roster,
            roster_version: 0,
            rings: Vec::new(),
            block,
            wake,
            stop: Arc::new(AtomicBool::new(false)),
            held,
            scratch: Scratch::new(),
            round: 0,
            nics: Vec::new(),
            ports: Vec::new(),
            schedule: Schedule::new(),
            closed_ns: u64::MAX,
        }
    }

    fn run(mut self) {
        let poll = tsc::duration_to_cycles(self.idle.poll);
        let sleep_after = poll + tsc::duration_to_cycles(self.idle.yielding);
        self.block.set(slot::THREAD_ID, rustix::thread::gettid().as_raw_nonzero().get() as u64);
        self.block.set(slot::TSC_HZ, tsc::hz() as u64);
        let clock = Clock::get();
        let start = tsc::now();
        let (mut last_frame, mut begin) = (start, start);
        while !self.stop.load(Ordering::Relaxed) {
            let held = self.held.load(Ordering::Relaxed);
            let frames = if held { 0 } else { self.poll_all(clock.at(begin)) };
            let end = tsc::now();
            self.account(frames, end.wrapping_sub(begin));
            begin = end;
            if frames > 0 {
                last_frame = end;
                continue;
            }
            let silent = end.wrapping_sub(last_frame);
            if silent > sleep_after && self.idle.sleep {
                self.sleep(held);
                begin = tsc::now();
                last_frame = begin;
            } else if silent > poll {
                self.scratch.switch.flush();
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// One round: each port in turn is given what the schedule grants it. Says how many frames there
    /// were.
    fn poll_all(&mut self, now_ns: u64) -> u64 {
        self.round += 1;
        self.follow_roster(now_ns);
        self.follow_scenes(now_ns);
        let mut frames = 0;
        for _ in 0..self.schedule.len() {
            let Some(turn) = self.schedule.next(now_ns) else {
                continue;
            };
            let polled = self.poll(turn.ring as usize, now_ns);
            self.schedule.took(polled.bytes, polled.backlog);
            frames += u64::from(polled.frames);
        }
        frames
    }

    /// Takes up ports that came, and lets go of those that went.
    fn follow_roster(&mut self, now_ns: u64) {
        let Some(rings) = self.roster.changed(&mut self.roster_version) else {
            return;
        };
        let mut before = std::mem::take(&mut self.rings);
        let poll = |ring: Ring| match before.iter().position(|poll| poll.ring.is(&ring)) {
            Some(known) => before.swap_remove(known),
            None => Poll::new(ring),
        };
        self.rings = rings.into_iter().map(poll).collect();
        self.nics.clear();
        self.ports.clear();
        self.schedule = Schedule::new();
        let mut first = 0;
        for group in self.rings.chunk_by_mut(|a, b| Arc::ptr_eq(&a.ring.port, &b.ring.port)) {
            let Ring { nic, port, .. } = group[0].ring.clone();
            let known = self.nics.iter().position(|other| Arc::ptr_eq(&other.nic, &nic));
            let nic = known.unwrap_or_else(|| {
                self.nics.push(Served { nic, scene: 0, budget: None });
                self.nics.len() - 1
            });
            group.iter_mut().for_each(|poll| poll.nic = nic);
            let own = first as u32..(first + group.len()) as u32;
            self.schedule.add(Share::default(), own, now_ns);
            self.ports.push(Scheduled { nic, port, first, rings: group.len(), share: None });
            first += group.len();
        }
    }

    /// Takes shares, limits and budgets from scenes that are new.
    fn follow_scenes(&mut self, now_ns: u64) {
        for (nic, served) in self.nics.iter_mut().enumerate() {
            let scene = served.nic.scene();
            if scene.number() == served.scene {
                continue;
            }
            served.scene = scene.number();
            served.budget = scene.budget.clone();
            for (sender, scheduled) in self.ports.iter_mut().enumerate() {
                if scheduled.nic != nic {
                    continue;
                }
                let share = scheduled.part_of(scene.share(&scheduled.port));
                if scheduled.share != Some(share) {
                    scheduled.share = Some(share);
                    self.schedule.set(sender, share, now_ns);
                }
                let limit = scene.storm_limit(&scheduled.port);
                let enters = scene.enters(&scheduled.port);
                for poll in &mut self.rings[scheduled.first..][..scheduled.rings] {
                    poll.sender.limit_storms(limit, now_ns);
                    poll.enters = enters;
                }
            }
        }
    }

    /// Takes a burst of one ring and forwards it.
    fn poll(&mut self, ring: usize, now_ns: u64) -> Polled {
        let poll = &mut self.rings[ring];
        let cold = poll.silent_rounds >= COLD_AFTER;
        if cold && !(self.round + ring as u64).is_multiple_of(COLD_STRIDE) {
            return Polled::default();
        }
        let Ring { port, pair, .. } = &poll.ring;
        let Some(mut half) = port.transmit(*pair) else {
            return Polled::default();
        };
        let Some(attached) = half.as_mut() else {
            return Polled::default();
        };
        if let Err(open_ns) = self.nics[poll.nic].may_send(poll.enters, now_ns) {
            self.closed_ns = self.closed_ns.min(open_ns);
            return Polled::default();
        }
        poll.sender.now_ns = now_ns;
        let transmit = attached.ring.as_mut();
        let polled = forward(&poll.ring, transmit, &mut poll.sender, &mut self.scratch);
        if let Some(fault) = polled.fault
            && !attached.fault_seen
        {
            attached.fault_seen = true;
            attached.ring.raise_error();
            port.block(*pair).add(word::TX_FAULTS + fault as usize, 1);
        }
        if polled.frames == 0 {
            poll.silent_rounds = poll.silent_rounds.saturating_add(1);
            return polled;
        }
        poll.silent_rounds = 0;
        self.block.add(slot::BURSTS, 1);
        self.block.add(slot::BACKLOG_BURSTS, u64::from(polled.backlog));
        self.block.count_log2(slot::BURST_LOG2, slot::BURST_BUCKETS, u64::from(polled.frames));
        polled
    }

    fn account(&mut self, frames: u64, cycles: u64) {
        self.block.add(slot::ROUNDS, 1);
        if frames > 0 {
            self.block.add(slot::BUSY_ROUNDS, 1);
            self.block.add(slot::BUSY_CYCLES, cycles);
            self.block.add(slot::FRAMES, frames);
            self.block.count_log2(slot::ROUND_LOG2, slot::ROUND_BUCKETS, cycles);
        } else {
            self.block.add(slot::IDLE_CYCLES, cycles);
        }
    }

    /// Asks every guest for a kick, looks once more, and sleeps if no frame may be sent now.
    fn sleep(&mut self, held: bool) {
        self.scratch.switch.flush();
        let longest = match self.arm() {
            Armed::Silent => Some(None),
            Armed::Waiting if !held => self.rest().map(Some),
            Armed::Waiting | Armed::Unkickable => None,
        };
        if let Some(longest) = longest
            && !self.stop.load(Ordering::Acquire)
        {
            self.block.add(slot::SLEEPS, 1);
            self.wake.sleep(longest);
        }
        self.rings.iter().for_each(|poll| poll.ring.with(|attached| attached.ring.disarm()));
    }

    /// Asks every guest for a kick at its next frame, and says whether there are any.
    fn arm(&mut self) -> Armed {
        let mut armed = Armed::Silent;
        for poll in &mut self.rings {
            poll.silent_rounds = 0;
            poll.waits = false;
            poll.ring.with(|attached| {
                poll.waits = attached.ring.arm();
                // Who cannot kick must be polled; a broken ring has nothing more to say.
                if attached.ring.kick().is_none() && !attached.fault_seen {
                    armed = Armed::Unkickable;
                } else if poll.waits && armed == Armed::Silent {
                    armed = Armed::Waiting;
                }
            });
        }
        armed
    }

    /// Gives every sender that has leave a turn; says for how long nobody will have leave if none
    /// of these has frames: those that wait are over their limit.
    fn rest(&mut self) -> Option<Duration> {
        let begin = tsc::now();
        let now_ns = Clock::get().at(begin);
        self.closed_ns = u64::MAX;
        // As many turns as two passes take, so that one of them is whole.
        for _ in 0..2 * self.rings.len() {
            let Some(turn) = self.schedule.next(now_ns) else {
                continue;
            };
            let polled = self.poll(turn.ring as usize, now_ns);
            self.schedule.took(polled.bytes, polled.backlog);
            if polled.frames > 0 {
                self.account(u64::from(polled.frames), tsc::now().wrapping_sub(begin));
                return None;
            }
        }
        let ready_ns = self.schedule.wake_ns().unwrap_or(u64::MAX).min(self.closed_ns);
        if !self.schedule.is_silent() || ready_ns == u64::MAX {
            return None;
        }
        // Of rings whose frames must wait, more frames are no news.
        let waiting = self.rings.iter().filter(|poll| poll.waits);
        waiting.for_each(|poll| poll.ring.with(|attached| attached.ring.disarm()));
        Some(Duration::from_nanos(ready_ns.saturating_sub(now_ns)).min(REST_MAX))
    }
}

/// What there was when guests were asked for kicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    /// No frame.
    Silent,
    /// Frames.
    Waiting,
    /// Somebody who cannot kick.
    Unkickable,
}

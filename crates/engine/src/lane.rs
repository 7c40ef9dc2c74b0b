//! A lane: one thread that polls transmit rings, and sleeps when they are silent.
//!
//! After the last frame a lane goes on polling for [`IdlePolicy::poll`], then polls and yields its
//! CPU in turn for [`IdlePolicy::yielding`], then asks every guest for a kick, looks once more, and
//! sleeps on the eventfds. While it is awake guests are asked not to kick. A ring that was silent
//! for [`COLD_AFTER`] rounds is looked at every [`COLD_STRIDE`]th round only, so that silent guests
//! cost the busy ones little.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use host::tsc;
use nic::{Schedule, Share};
use port::Polled;
use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;

use crate::counters::Block;
use crate::fabric::{Port, SoftNic, StartError, word};
use crate::forward::{Scratch, Sender, Source, forward};

const COLD_AFTER: u32 = 1024;
const COLD_STRIDE: u64 = 8;

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
pub(crate) struct Poll {
    pub(crate) nic: Arc<SoftNic>,
    pub(crate) port: Arc<Port>,
    pub(crate) pair: usize,
    silent_rounds: u32,
    sender: Sender,
}

impl Poll {
    pub(crate) fn new(nic: Arc<SoftNic>, port: Arc<Port>, pair: usize) -> Poll {
        Poll { nic, port, pair, silent_rounds: 0, sender: Sender::new() }
    }
}

/// What wakes a sleeping lane.
#[derive(Debug)]
pub(crate) struct Wake {
    epoll: OwnedFd,
    event: OwnedFd,
}

/// Epoll's data for the lane's own eventfd, and for guests' kicks, which need not be told apart.
const OWN: u64 = 1;
const KICK: u64 = 0;

impl Wake {
    pub(crate) fn new() -> Result<Wake, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(OWN), epoll::EventFlags::IN)?;
        Ok(Wake { epoll, event })
    }

    /// Wakes the lane, or lets it not fall asleep.
    pub(crate) fn wake(&self) {
        // The only failure is a full counter, which wakes as well.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Watches a guest's kicks: each write wakes once, so nobody needs to read them.
    pub(crate) fn watch(&self, kick: BorrowedFd<'_>) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // A front-end may hand over a file that cannot be watched: its ring is then polled when
        // another one wakes the lane, and it has harmed only itself.
        let _ = epoll::add(&self.epoll, kick, epoll::EventData::new_u64(KICK), flags);
    }

    /// Stops watching: others may hold the same file open, so dropping ours is not enough.
    pub(crate) fn forget(&self, kick: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, kick);
    }

    fn sleep(&self) {
        let none = epoll::EventFlags::empty();
        let data = epoll::EventData::new_u64(KICK);
        let mut events = [epoll::Event { flags: none, data }; 16];
        // An interrupted or failed wait is a wake-up like any other.
        let Ok(n) = epoll::wait(&self.epoll, &mut events[..], None) else {
            return;
        };
        if events[..n].iter().any(|event| event.data.u64() == OWN) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }
}

/// A running lane. It stops when dropped.
#[derive(Debug)]
pub struct Lane {
    /// Where it is pinned, if it is.
    pub cpu: Option<usize>,
    pub(crate) wake: Arc<Wake>,
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
        Ok(Lane { cpu, wake, stop, thread: Some(thread) })
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

/// The ports of a lane's rings, which stand together, and a schedule of them. What they may send is
/// filled in by the first round.
fn schedule(rings: &[Poll]) -> (Vec<Scheduled>, Schedule) {
    let mut ports: Vec<Scheduled> = Vec::new();
    let mut schedule = Schedule::new();
    let mut first = 0;
    for group in rings.chunk_by(|a, b| Arc::ptr_eq(&a.port, &b.port)) {
        let (nic, port) = (group[0].nic.clone(), group[0].port.clone());
        let own = first as u32..(first + group.len()) as u32;
        schedule.add(Share::default(), own, 0);
        ports.push(Scheduled { nic, port, table: 0, first, rings: group.len() });
        first += group.len();
    }
    (ports, schedule)
}

/// What a lane's thread works on.
pub(crate) struct Worker {
    idle: IdlePolicy,
    rings: Vec<Poll>,
    block: Block,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    scratch: Scratch,
    round: u64,
    /// The ports of this lane, by their numbers in the schedule.
    ports: Vec<Scheduled>,
    schedule: Schedule,
}

/// A port as a sender of this lane's schedule.
struct Scheduled {
    nic: Arc<SoftNic>,
    port: Arc<Port>,
    /// The table that its share was taken from.
    table: u64,
    /// Its rings on this lane: where they begin, and how many.
    first: usize,
    rings: usize,
}

impl Scheduled {
    /// What this lane grants of the port's share: its part of the rates, by rings.
    fn share(&self, share: Share) -> Share {
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
        rings: Vec<Poll>,
        block: Block,
        wake: Arc<Wake>,
        held: Arc<AtomicBool>,
    ) -> Worker {
        let stop = Arc::new(AtomicBool::new(false));
        let (ports, schedule) = schedule(&rings);
        let scratch = Scratch::new();
        Worker { idle, rings, block, wake, stop, held, scratch, round: 0, ports, schedule }
    }

    fn run(mut self) {
        let poll = tsc::duration_to_cycles(self.idle.poll);
        let sleep_after = poll + tsc::duration_to_cycles(self.idle.yielding);
        self.block.set(slot::THREAD_ID, rustix::thread::gettid().as_raw_nonzero().get() as u64);
        self.block.set(slot::TSC_HZ, tsc::hz() as u64);
        let ns_per_cycle = 1e9 / tsc::hz();
        let start = tsc::now();
        let (mut last_frame, mut begin) = (start, start);
        while !self.stop.load(Ordering::Relaxed) {
            let held = self.held.load(Ordering::Relaxed);
            let frames = if held {
                0
            } else {
                self.poll_all((begin.wrapping_sub(start) as f64 * ns_per_cycle) as u64)
            };
            let end = tsc::now();
            self.account(frames, end.wrapping_sub(begin));
            begin = end;
            if frames > 0 {
                last_frame = end;
                continue;
            }
            let silent = end.wrapping_sub(last_frame);
            if silent > sleep_after && self.idle.sleep {
                self.sleep();
                begin = tsc::now();
                last_frame = begin;
            } else if silent > poll {
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
        self.follow_settings(now_ns);
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

    /// Takes shares and limits from tables that are new.
    fn follow_settings(&mut self, now_ns: u64) {
        for (sender, scheduled) in self.ports.iter_mut().enumerate() {
            let table = scheduled.nic.table();
            if table.number() == scheduled.table {
                continue;
            }
            scheduled.table = table.number();
            let id = scheduled.port.id;
            self.schedule.set(sender, scheduled.share(table.share(id)), now_ns);
            for poll in &mut self.rings[scheduled.first..][..scheduled.rings] {
                poll.sender.limit_storms(table.storm_limit(id), now_ns);
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
        let Some(mut half) = poll.port.transmit(poll.pair) else {
            return Polled::default();
        };
        let Some(attached) = half.as_mut() else {
            return Polled::default();
        };
        let transmit = attached.ring.as_mut();
        let source = Source { nic: &poll.nic, port: &poll.port, pair: poll.pair };
        poll.sender.now_ns = now_ns;
        let polled = forward(source, transmit, &mut poll.sender, &mut self.scratch);
        if let Some(fault) = polled.fault
            && !attached.fault_seen
        {
            attached.fault_seen = true;
            attached.ring.raise_error();
            poll.port.block(poll.pair).add(word::TX_FAULTS + fault as usize, 1);
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

    fn sleep(&mut self) {
        let mut found = false;
        for poll in &mut self.rings {
            if let Some(mut half) = poll.port.transmit(poll.pair)
                && let Some(attached) = half.as_mut()
            {
                // Who cannot kick must be polled; a broken ring has nothing more to say.
                let polled = attached.ring.kick().is_none() && !attached.fault_seen;
                found |= polled || attached.ring.arm();
                poll.silent_rounds = 0;
            }
        }
        if !found && !self.stop.load(Ordering::Acquire) {
            self.block.add(slot::SLEEPS, 1);
            self.wake.sleep();
        }
        for poll in &mut self.rings {
            if let Some(mut half) = poll.port.transmit(poll.pair)
                && let Some(attached) = half.as_mut()
            {
                attached.ring.disarm();
            }
        }
    }
}

//! What a lane's thread does: round after round, a burst of each ring that may send.
//!
//! A ring that was [silent](silence) for long is looked at in some of its visits only, so that
//! silent guests cost the busy ones little.

mod follow;
pub(crate) mod off_lane;
mod silence;
mod sleep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use host::standing::Standing;
use host::tsc;
use nic::{PortId, Schedule};
use port::Polled;
use port::bounce::Bounced;

use self::follow::{Scheduled, Served};
use self::off_lane::OffLane;
use self::silence::Silence;
use crate::clock::Clock;
use crate::counters::Block;
use crate::fabric::Held;
use crate::forward::{Scratch, Sender, forward};
use crate::lane::{IdlePolicy, slot};
use crate::port::word;
use crate::quarantine::{LaneReport, Quarantine};
use crate::queue_list::{QueueList, Ring};
use crate::stages::{Stage, StageClock};
use crate::wake::Wake;

/// A transmit ring's place in a lane.
struct Poll {
    ring: Ring,
    /// Its NIC's place in [`Worker::nics`].
    nic: usize,
    /// Where its frames enter the NIC.
    enters: PortId,
    silence: Silence,
    sender: Sender,
    /// Whether it had frames when the lane last wanted to sleep.
    waits: bool,
}

impl Poll {
    fn new(ring: Ring) -> Poll {
        let (enters, sender) = (PortId::PF, Sender::new());
        Poll { ring, nic: 0, enters, silence: Silence::default(), sender, waits: false }
    }
}

/// What a lane's thread works on.
pub(crate) struct Worker {
    idle: IdlePolicy,
    pub(crate) queue_list: Arc<QueueList>,
    /// The queue_list's version that `rings` is of.
    roster_version: u64,
    rings: Vec<Poll>,
    block: Block,
    pub(crate) wake: Arc<Wake>,
    pub(crate) stop: Arc<AtomicBool>,
    held: Arc<Held>,
    /// Where it says whose memory it touches.
    standing: Arc<Standing>,
    quarantine: Arc<Quarantine>,
    /// What only the quarantine lane has.
    off_lane: Option<OffLane>,
    /// What this lane has seen of it.
    pub(crate) knows: Arc<AtomicU32>,
    known: u32,
    scratch: Scratch,
    stages: StageClock,
    /// Longest time between two rounds while awake, in cycles.
    longest_gap: u64,
    /// The NICs of this lane's ports.
    nics: Vec<Served>,
    /// The ports of this lane, by their numbers in the schedule.
    ports: Vec<Scheduled>,
    schedule: Schedule,
    /// When the first budget opens that kept a ring from being polled, in ns.
    closed_ns: u64,
}

impl Worker {
    pub(crate) fn new(
        idle: IdlePolicy,
        queue_list: Arc<QueueList>,
        block: Block,
        wake: Arc<Wake>,
        held: Arc<Held>,
        quarantine: Arc<Quarantine>,
    ) -> Worker {
        Worker {
            idle,
            queue_list,
            roster_version: 0,
            rings: Vec::new(),
            block,
            wake,
            stop: Arc::new(AtomicBool::new(false)),
            held,
            standing: Arc::default(),
            quarantine,
            off_lane: None,
            knows: Arc::default(),
            known: 0,
            scratch: Scratch::new(),
            stages: StageClock::off(),
            longest_gap: 0,
            nics: Vec::new(),
            ports: Vec::new(),
            schedule: Schedule::new(),
            closed_ns: u64::MAX,
        }
    }

    /// A worker that serves the ports in quarantine.
    pub(crate) fn off_lane(self, off_lane: OffLane) -> Worker {
        Worker { off_lane: Some(off_lane), ..self }
    }

    pub(crate) fn run(mut self, name: &str) {
        self.block.set(slot::THREAD_ID, rustix::thread::gettid().as_raw_nonzero().get() as u64);
        self.block.set(slot::TSC_HZ, tsc::hz() as u64);
        self.stages = StageClock::start();
        let (quarantine, off_lane) = (self.quarantine.clone(), self.off_lane.is_some());
        let report = Arc::new(LaneReport { quarantine, lane: name.to_owned(), off_lane });
        // Without `/proc` a guest's memory may hold up the lane again and again; it serves all the
        // same.
        let _watching = host::standing::watch(self.standing.clone(), report);
        match off_lane {
            true => self.run_off_lane(),
            false => self.run_lane(),
        }
    }

    /// Acknowledges a change of [`Held`].
    fn acknowledge(&mut self, change: u32) {
        if change != self.known {
            self.known = change;
            self.knows.store(change, Ordering::Release);
        }
    }

    fn run_lane(mut self) {
        let poll = tsc::duration_to_cycles(self.idle.poll);
        let sleep_after = poll + tsc::duration_to_cycles(self.idle.yielding);
        let clock = Clock::get();
        let start = tsc::now();
        let (mut last_frame, mut begin) = (start, start);
        while !self.stop.load(Ordering::Relaxed) {
            let (change, held) = self.held.get();
            self.acknowledge(change);
            let frames = if held { 0 } else { self.poll_all::<false>(clock.at(begin)) };
            let end = tsc::now();
            self.account(frames, end.wrapping_sub(begin));
            begin = end;
            if frames > 0 {
                last_frame = end;
                continue;
            }
            let silent = end.wrapping_sub(last_frame);
            if silent > sleep_after && self.idle.sleep {
                begin = self.sleep(held, begin);
                last_frame = begin;
            } else if silent > poll {
                self.scratch.switch.flush();
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// One round: each port in turn is given what the schedule grants it. Says how many frames
    /// there were.
    fn poll_all<const OFF_LANE: bool>(&mut self, now_ns: u64) -> u64 {
        self.follow_roster(now_ns);
        self.follow_scenes(now_ns);
        let mut frames = 0;
        for _ in 0..self.schedule.len() {
            self.stages.begin();
            let Some(turn) = self.schedule.next(now_ns) else {
                continue;
            };
            let polled = self.poll::<OFF_LANE>(turn.ring as usize, now_ns);
            self.stages.end(Stage::Publish); // the sender's lock is released
            let (taken, bytes) = polled.work();
            self.schedule.took(bytes, polled.backlog);
            if taken > 0 {
                frames += u64::from(taken);
                self.stages.finish(taken, bytes, &self.block);
            }
        }
        // What follows, such as to yield the CPU, is no guest's doing.
        self.standing.rest();
        frames
    }

    /// Takes a burst of one ring and forwards it.
    fn poll<const OFF_LANE: bool>(&mut self, ring: usize, now_ns: u64) -> Polled {
        let poll = &mut self.rings[ring];
        if !poll.silence.visit() {
            return Polled::default();
        }
        let Ring { port, pair, .. } = &poll.ring;
        let half = if OFF_LANE { port.transmit_detoured(*pair) } else { port.transmit(*pair) };
        let Some(mut half) = half else {
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
        let (sender, scratch) = (&mut poll.sender, &mut self.scratch);
        let (standing, stages) = (&*self.standing, &self.stages);
        standing.begin(port.id);
        let polled = match &mut self.off_lane {
            Some(OffLane { room, .. }) if OFF_LANE => {
                let mut bounced = Bounced::new(transmit, room);
                forward(&poll.ring, &mut bounced, sender, scratch, standing, stages)
            }
            _ => forward(&poll.ring, transmit, sender, scratch, standing, stages),
        };
        if let Some(fault) = polled.fault
            && !attached.fault_seen
        {
            attached.fault_seen = true;
            attached.ring.raise_error();
            let faults = if polled.placed.is_some() { word::RX_FAULTS } else { word::TX_FAULTS };
            port.block(*pair).add(faults + fault as usize, 1);
        }
        let (frames, _) = polled.work();
        if frames == 0 {
            poll.silence.lasts(ring);
            return polled;
        }
        poll.silence.ends();
        self.block.add(slot::BURSTS, 1);
        self.block.add(slot::BACKLOG_BURSTS, u64::from(polled.backlog));
        self.block.count_log2(slot::BURST_LOG2, slot::BURST_BUCKETS, u64::from(frames));
        polled
    }

    fn account(&mut self, frames: u64, cycles: u64) {
        self.note_gap(cycles);
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

    /// Notes how long no ring was polled, if it is the longest such time so far.
    #[inline]
    fn note_gap(&mut self, cycles: u64) {
        if cycles > self.longest_gap {
            self.longest_gap = cycles;
            self.block.set(slot::POLL_GAP_NS_MAX, tsc::cycles_to_ns(cycles) as u64);
        }
    }
}

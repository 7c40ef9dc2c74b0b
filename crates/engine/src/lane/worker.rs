//! The work of a lane's thread: round after round, a burst of each ring that may send.
//!
//! A ring that was [silent](silence) for long is polled in some of its visits only, so that silent
//! guests cost the busy ones little.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bridge::nic::Schedule;
use guestmem::CacheLine;
use host::stall::BurstMarker;
use host::tsc;
use port::Polled;
use port::bounce::BouncedTransmit;
use port::virtio_net::NextLines;

use super::bounce_buffers::BounceBuffers;
use super::lane_ports::{LaneNic, LanePort, LaneRing};
use crate::counters::CounterBlock;
use crate::forward::forward;
use crate::lane::clock::Clock;
use crate::lane::counter;
use crate::lane::queue_list::{QueueList, TxRing};
use crate::lane::spec::IdlePolicy;
use crate::lane::stage_clock::StageClock;
use crate::lane::stages::Stage;
use crate::lane::tx_pause::TxPause;
use crate::lane::wake::Wake;
use crate::port::counter as port_counter;
use crate::quarantine::{LaneReport, Quarantine};
use crate::slow::scratch::Scratch;

/// Most that a turn is charged, or a cycle for each byte copied if that is more: the system may
/// take the CPU away within it. A burst of 64 small broadcasts to 255 functions takes a quarter of
/// it; slow interrupts add to that.
const DEAREST: Duration = Duration::from_millis(4);

/// State of a lane's thread.
pub(crate) struct Worker {
    pub(super) idle: IdlePolicy,
    pub(crate) queue_list: Arc<QueueList>,
    /// Version of the queue list that `rings` is from.
    pub(super) queue_list_version: u64,
    pub(super) rings: Vec<LaneRing>,
    pub(crate) block: CounterBlock,
    pub(crate) wake: Arc<Wake>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(super) pause: Arc<TxPause>,
    /// Record of the memory that the lane touches.
    pub(super) marker: Arc<BurstMarker>,
    pub(super) quarantine: Arc<Quarantine>,
    /// Bounce buffers of the quarantine lane; `None` on other lanes.
    pub(super) bounce: Option<BounceBuffers>,
    /// Last change of `pause` that this lane has seen.
    pub(crate) acknowledged: Arc<AtomicU32>,
    pub(super) seen_pause: u32,
    pub(super) scratch: Scratch,
    pub(super) stages: StageClock,
    /// End of the last visit, in cycles, if it found frames; else 0.
    pub(super) busy_until: u64,
    /// Cycles of this round's visits that found frames.
    pub(super) busy: u64,
    /// [`DEAREST`] in cycles.
    pub(super) dearest: u64,
    /// Longest time between two rounds while awake, in cycles.
    pub(super) longest_gap: u64,
    /// The NICs of this lane's ports.
    pub(super) nics: Vec<LaneNic>,
    /// The ports of this lane, by their numbers in the schedule.
    pub(super) ports: Vec<LanePort>,
    pub(super) schedule: Schedule,
    /// Earliest time at which an exhausted budget opens, ns.
    pub(super) closed_ns: u64,
}

impl Worker {
    pub(crate) fn new(
        idle: IdlePolicy,
        queue_list: Arc<QueueList>,
        block: CounterBlock,
        wake: Arc<Wake>,
        pause: Arc<TxPause>,
        quarantine: Arc<Quarantine>,
    ) -> Worker {
        Worker {
            idle,
            queue_list,
            queue_list_version: 0,
            rings: Vec::new(),
            block,
            wake,
            stop: Arc::new(AtomicBool::new(false)),
            pause,
            marker: Arc::default(),
            quarantine,
            bounce: None,
            acknowledged: Arc::default(),
            seen_pause: 0,
            scratch: Scratch::new(),
            stages: StageClock::off(),
            busy_until: 0,
            busy: 0,
            dearest: tsc::duration_to_cycles(DEAREST),
            longest_gap: 0,
            nics: Vec::new(),
            ports: Vec::new(),
            schedule: Schedule::new(),
            closed_ns: u64::MAX,
        }
    }

    /// A worker that serves the ports in quarantine.
    pub(crate) fn for_quarantine(self, bounce: BounceBuffers) -> Worker {
        Worker { bounce: Some(bounce), ..self }
    }

    pub(crate) fn run(mut self, name: &str) {
        self.block.set(counter::THREAD_ID, rustix::thread::gettid().as_raw_nonzero().get() as u64);
        self.block.set(counter::TSC_HZ, tsc::hz() as u64);
        self.stages = StageClock::start();
        let (quarantine, in_quarantine) = (self.quarantine.clone(), self.bounce.is_some());
        let report = Arc::new(LaneReport { quarantine, lane: name.to_owned(), in_quarantine });
        // Without `/proc` a guest's memory may stall the lane repeatedly; it works all the same.
        let _watching = host::stall::watch(self.marker.clone(), report);
        host::sandbox::confine_lane();
        match in_quarantine {
            true => self.run_quarantine_lane(),
            false => self.run_lane(),
        }
    }

    /// Acknowledges a change of [`TxPause`].
    pub(super) fn acknowledge(&mut self, change: u32) {
        if change != self.seen_pause {
            self.seen_pause = change;
            self.acknowledged.store(change, Ordering::Release);
        }
    }

    fn run_lane(mut self) {
        let poll = tsc::duration_to_cycles(self.idle.poll);
        let sleep_after = poll + tsc::duration_to_cycles(self.idle.yielding);
        let clock = Clock::get();
        let start = tsc::now();
        let (mut last_frame, mut begin) = (start, start);
        while !self.stop.load(Ordering::Relaxed) {
            let (change, is_paused) = self.pause.get();
            self.acknowledge(change);
            let frames = if is_paused { 0 } else { self.poll_all::<false>(begin, clock.at(begin)) };
            let silent = begin.wrapping_sub(last_frame);
            let sleeps = frames == 0 && silent > sleep_after && self.idle.sleep;
            // Before the reading of the counter: pauses are idle time.
            if frames == 0 && silent > poll && !sleeps {
                self.scratch.switch.flush();
                std::thread::yield_now();
            } else if frames == 0 {
                std::hint::spin_loop();
            }
            let end = tsc::now();
            self.account(frames, end.wrapping_sub(begin));
            begin = end;
            if frames > 0 {
                last_frame = end;
            } else if sleeps {
                begin = self.sleep(is_paused, begin);
                last_frame = begin;
            }
        }
    }

    /// One round, which begins at `begin`, in cycles: each port in turn gets the burst that the
    /// schedule grants. Returns the number of frames.
    pub(crate) fn poll_all<const QUARANTINE: bool>(&mut self, begin: u64, now_ns: u64) -> u64 {
        self.busy_until = begin;
        if self.queue_list.version() != self.queue_list_version {
            self.follow_queue_list(now_ns);
        }
        if self.nics.iter_mut().any(LaneNic::is_changed) {
            self.follow_snapshots(now_ns);
        }
        let mut frames = 0;
        for _ in 0..self.schedule.len() {
            frames += self.turn::<QUARANTINE>(now_ns);
        }
        // The rest, such as yielding the CPU, touches no guest's memory.
        self.marker.rest();
        frames
    }

    /// One turn of the schedule: a burst of the next ring, if its sender may send. Returns the
    /// number of frames.
    #[inline(always)]
    pub(super) fn turn<const QUARANTINE: bool>(&mut self, now_ns: u64) -> u64 {
        self.stages.begin();
        let Some(ring) = self.schedule.next(now_ns) else { return 0 };
        // Time is read only around visits that find frames; those in a row share a reading.
        self.scratch.transmit.began = std::mem::take(&mut self.busy_until);
        let polled = self.poll::<QUARANTINE>(ring as usize, now_ns);
        self.stages.end(Stage::Publish); // the sender's lock is released
        let (frames, bytes) = polled.work();
        let mut cycles = 0;
        if frames > 0 {
            self.stages.finish(frames, bytes, &self.block);
            self.busy_until = tsc::now();
            cycles = self.busy_until.wrapping_sub(self.scratch.transmit.began);
            self.busy += cycles;
            let TxRing { port, pair, .. } = &self.rings[ring as usize].ring;
            let block = port.block(*pair);
            block.add(port_counter::TX_CYCLES, cycles);
            block.add(port_counter::TX_BURSTS, 1);
            block.add(port_counter::TX_BACKLOG_BURSTS, u64::from(polled.backlog));
        }
        self.schedule.took(bytes, cycles.min(self.dearest.max(bytes)), polled.backlog);
        u64::from(frames)
    }

    /// Prefetches what the next turn touches first, which is usually one of the ring behind
    /// `number`; they arrive while this one is served. With many rings each turn finds the caches
    /// full of the others' frames.
    #[inline(always)]
    fn prefetch_behind(&self, number: usize) {
        let behind =
            |n| number + n - if number + n >= self.rings.len() { self.rings.len() } else { 0 };
        if let Some(after) = self.rings.get(behind(2)) {
            CacheLine::of(after).prefetch_run(size_of::<LaneRing>());
        }
        if let Some(next) = self.rings.get(behind(1)).filter(|next| !next.silence.is_cold()) {
            next.sender.next.iter().flatten().for_each(NextLines::prefetch);
        }
    }

    /// Takes a burst of one ring and forwards it.
    fn poll<const QUARANTINE: bool>(&mut self, number: usize, now_ns: u64) -> Polled {
        self.prefetch_behind(number);
        let poll = &mut self.rings[number];
        if !poll.silence.visit() {
            return Polled::default();
        }
        let TxRing { port, pair, .. } = &poll.ring;
        let half = if QUARANTINE { port.transmit_detoured(*pair) } else { port.transmit(*pair) };
        let Some(mut half) = half else {
            return Polled::default();
        };
        let Some(attached) = half.as_mut() else {
            return Polled::default();
        };
        let nic = &mut self.nics[poll.nic];
        if let Err(open_ns) = nic.may_send(poll.enters, now_ns) {
            self.closed_ns = self.closed_ns.min(open_ns);
            return Polled::default();
        }
        poll.sender.now_ns = now_ns;
        let transmit = attached.ring.as_mut();
        let (ring, snapshot) = (&poll.ring, &mut nic.snapshot);
        let (sender, scratch) = (&mut poll.sender, &mut self.scratch);
        let (marker, stages) = (&*self.marker, &self.stages);
        marker.begin(port.id);
        let polled = match &mut self.bounce {
            Some(BounceBuffers { room, .. }) if QUARANTINE => {
                let mut bounced = BouncedTransmit::new(transmit, room);
                forward(ring, snapshot, &mut bounced, sender, scratch, marker, stages)
            }
            _ => forward(ring, snapshot, transmit, sender, scratch, marker, stages),
        };
        if let Some(fault) = polled.fault
            && !attached.fault_seen
        {
            attached.fault_seen = true;
            if let Some(ring) = attached.ring.guest_ring() {
                ring.events().raise_error();
            }
            let faults = if polled.placed.is_some() {
                port_counter::RX_FAULTS
            } else {
                port_counter::TX_FAULTS
            };
            port.block(*pair).add(faults + fault as usize, 1);
        }
        let (frames, _) = polled.work();
        if frames == 0 {
            poll.silence.lasts(number);
            return polled;
        }
        let [from, to] = [&mut self.scratch.transmit.next, &mut self.scratch.receive.next];
        if let Some(next) = from {
            next.owner = CacheLine::of(attached);
        }
        poll.sender.next = [from.take(), to.take()];
        poll.silence.ends();
        self.block.add(counter::BURSTS, 1);
        self.block.add(counter::BACKLOG_BURSTS, u64::from(polled.backlog));
        self.block.count_log2(counter::BURST_LOG2, counter::BURST_BUCKETS, u64::from(frames));
        polled
    }

    /// Counts a round of `cycles`.
    pub(crate) fn account(&mut self, frames: u64, cycles: u64) {
        self.note_gap(cycles);
        self.block.add(counter::ROUNDS, 1);
        let busy = std::mem::take(&mut self.busy).min(cycles);
        self.block.add(counter::IDLE_CYCLES, cycles - busy);
        if frames > 0 {
            self.block.add(counter::BUSY_ROUNDS, 1);
            self.block.add(counter::BUSY_CYCLES, busy);
            self.block.add(counter::FRAMES, frames);
            self.block.count_log2(counter::ROUND_LOG2, counter::ROUND_BUCKETS, cycles);
        }
    }

    /// Records the longest time without a poll.
    #[inline]
    pub(super) fn note_gap(&mut self, cycles: u64) {
        if cycles > self.longest_gap {
            self.longest_gap = cycles;
            self.block.set(counter::POLL_GAP_NS_MAX, tsc::cycles_to_ns(cycles) as u64);
        }
    }
}

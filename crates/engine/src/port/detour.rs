//! Detour of a port in quarantine: its rings are served off the lanes.
//!
//! Only the quarantine lane polls what its guest sends. Frames for the guest wait in the daemon's
//! memory; the quarantine lane delivers them, so that no other lane touches this guest's memory. No
//! frame overtakes an earlier one of its sender. The number of waiting frames is limited as in
//! [`port::parked`]; beyond it frames are dropped as for lack of a buffer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, TryLockError};

use port::parked::FrameArena;
use port::{BurstBuffers, Receive, Transmit};

use super::parked::PARKING_PAIR;
use super::{Port, counter};
use crate::counters::CounterBlock;
use crate::lane::stage_clock::StageClock;
use crate::queue_pair::{AttachedRing, DETOURED, QueuePair};

/// Counters of all detours, never read: a port's own are written under the lock of its ring.
static UNSEEN: CounterBlock = CounterBlock::new(&UNSEEN_WORDS);
static UNSEEN_WORDS: [AtomicU64; counter::END] = [const { AtomicU64::new(0) }; counter::END];

impl Port {
    /// Counts that the guest's interrupts were moved off the lanes.
    pub fn count_moved_notifies(&self) {
        self.pairs[PARKING_PAIR].block.add_shared(counter::NOTIFIER, 1);
    }

    /// Counts that the port was taken off the lanes.
    pub(crate) fn count_quarantine(&self) {
        self.pairs[PARKING_PAIR].block.add_shared(counter::QUARANTINES, 1);
    }

    /// Returns `true` if the port touches a guest's memory.
    pub(crate) fn touches_guest(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Takes the port off the lanes, or keeps it off: a session may have started rings meanwhile.
    /// Waits for no lane; one with a ring locked finishes its burst.
    pub(crate) fn take_off_lanes(&self) {
        self.quarantined.store(true, Ordering::Release);
        for pair in &self.pairs {
            if pair.transmit.attached.swap(false, Ordering::AcqRel) {
                pair.transmit.detoured.store(true, Ordering::Release);
            }
        }
        if self.receiving.load(Ordering::Acquire) == DETOURED {
            return; // a lane may hold the detour's lock and stall
        }
        let mut detour = self.detour();
        detour.get_or_insert_with(|| AttachedRing::receiving(self.waiting.parking_half()));
        self.count_receiving();
    }

    /// Redirects frames to the detour, if there is one, before a ring is attached that they must
    /// not reach.
    pub(crate) fn lead_to_detour(&self) {
        if !self.quarantined.load(Ordering::Acquire) {
            return;
        }
        let mut detour = self.detour();
        if self.quarantined.load(Ordering::Acquire) {
            detour.get_or_insert_with(|| AttachedRing::receiving(self.waiting.parking_half()));
            self.receiving.store(DETOURED, Ordering::Release);
        }
    }

    /// Returns the port to the lanes; `false` if that must wait: for waiting frames, or for a lane
    /// that holds the detour's lock.
    pub(crate) fn put_on_lanes(&self) -> bool {
        let detour = match self.detour.try_lock() {
            Ok(detour) => detour,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if self.waiting.is_waiting() {
            return false;
        }
        self.quarantined.store(false, Ordering::Release);
        self.count_receiving();
        drop(detour);
        for pair in &self.pairs {
            let half = pair.transmit.lock();
            if pair.transmit.detoured.swap(false, Ordering::AcqRel) && half.is_some() {
                pair.transmit.attached.store(true, Ordering::Release);
            }
            drop(half);
            if let Some(wake) = pair.wake.get() {
                wake.wake();
            }
        }
        true
    }

    /// Ends the detour of a port that is removed.
    pub(super) fn close_detour(&self) {
        let mut detour = self.detour();
        self.quarantined.store(false, Ordering::Release);
        *detour = None;
        self.count_receiving();
        drop(self.waiting.take());
    }

    /// Locks the detour. A lane holds it while it copies a sender's frame into the daemon's memory,
    /// and may stall on the sender's memory. So neither the watchdog nor the quarantine lane waits
    /// for it.
    fn detour(&self) -> MutexGuard<'_, Option<AttachedRing<dyn Receive>>> {
        self.detour.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts the pairs that receive. Call it under the lock of the detour.
    fn count_receiving(&self) {
        let attached = |pair: &&QueuePair| pair.receive.attached.load(Ordering::Acquire);
        let receiving = match self.pairs.iter().take_while(attached).count() {
            1.. if self.quarantined.load(Ordering::Acquire) => DETOURED,
            receiving => receiving,
        };
        self.receiving.store(receiving, Ordering::Release);
    }

    /// Counts the pairs that receive, after a change.
    pub(crate) fn recount_receiving(&self) {
        let detour = self.detour();
        self.count_receiving();
        drop(detour);
    }

    /// The receive half during quarantine. Its frames are counted when they are delivered to the
    /// guest.
    #[cold]
    pub(crate) fn receive_detoured(
        &self,
        pair: usize,
    ) -> (MutexGuard<'_, Option<AttachedRing<dyn Receive>>>, &CounterBlock) {
        let detour = self.detour();
        if self.receiving.load(Ordering::Acquire) == DETOURED {
            return (detour, &UNSEEN);
        }
        drop(detour);
        self.receive(pair)
    }

    /// A transmit half that the quarantine lane polls.
    pub(crate) fn transmit_detoured(
        &self,
        pair: usize,
    ) -> Option<MutexGuard<'_, Option<AttachedRing<dyn Transmit>>>> {
        let half = &self.pairs[pair].transmit;
        half.detoured.load(Ordering::Relaxed).then(|| half.lock())
    }

    /// Delivers waiting frames to the guest; drops those without a buffer, as on a lane. For the
    /// quarantine lane.
    pub(crate) fn deliver_detoured(&self, arena: &FrameArena, buffers: &mut BurstBuffers) {
        let lost = self.waiting.take_lost();
        if lost == 0 && !self.waiting.is_waiting() {
            return;
        }
        let (frames, _) = self.waiting.take();
        let (mut left, stages) = (&frames[..], StageClock::off());
        let QueuePair { receive, block, .. } = &self.pairs[PARKING_PAIR];
        let half = receive.lock();
        if !self.is_gone() {
            block.add(counter::RX_NO_BUFFER, lost);
        }
        drop(half);
        while !left.is_empty() {
            let mut half = receive.lock();
            if self.is_gone() {
                return;
            }
            let Some(attached) = half.as_mut() else {
                block.add(counter::RX_DOWN, left.len() as u64);
                return;
            };
            let mut tried = 0;
            attached.fill(block, buffers, &stages, |ring, buffers| {
                let delivered;
                (tried, delivered) = arena.deliver(ring, left, buffers);
                delivered
            });
            left = &left[tried.max(1)..];
        }
    }
}

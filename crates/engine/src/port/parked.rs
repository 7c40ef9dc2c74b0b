//! Frames parked while a guest has no receive ring: it migrates, or has not connected yet.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use port::BurstBuffers;
use port::parked::{self, ParkedFrames};

use super::Port;
use crate::lane::stage_clock::StageClock;
use crate::queue_pair::AttachedRing;

/// The pair whose receive ring has frames parked: without rings, frames go to the first.
pub(super) const PARKING_PAIR: usize = 0;
/// Maximum number of bursts delivered from parked frames at a time.
const PARKED_BURSTS_MAX: usize = parked::FRAMES_MAX / port::BURST;

impl Port {
    /// Parked frames of a pair, if frames are parked there.
    pub(crate) fn parked_of(&self, pair: usize) -> Option<ParkedFrames> {
        let parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.clone().filter(|_| pair == PARKING_PAIR)
    }

    /// Parks frames while the guest's first receive ring does not run. With `None` they are dropped
    /// as usual, and parked frames with them.
    pub fn park_frames(&self, parked: Option<ParkedFrames>) {
        let mut now = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut *now, parked.clone());
        drop(now);
        let Some(pair) = self.pairs.get(PARKING_PAIR) else { return };
        let mut half = pair.receive.lock();
        // A ring behind an empty list works like any other.
        drop(former.map(|former| former.take()));
        if !pair.receive.attached.load(Ordering::Acquire) {
            let half_of = |parked: ParkedFrames| AttachedRing::receiving(parked.parking_half());
            *half = parked.map(half_of);
        }
    }

    /// Delivers parked frames as far as the guest has buffers; returns `true` if some still wait
    /// for a guest that runs.
    pub fn deliver_parked(&self) -> bool {
        let Some(parked) = self.parked_of(PARKING_PAIR) else { return false };
        let mut buffers = BurstBuffers::default();
        // One burst per lock, so that a lane with frames for the ring waits no longer than for
        // another lane.
        for _ in 0..PARKED_BURSTS_MAX {
            if !parked.is_waiting() {
                return false;
            }
            match self.deliver_parked_burst(&mut buffers) {
                None => return false,
                Some(0) => break,
                Some(_) => {}
            }
        }
        parked.is_waiting()
    }

    /// Delivers a burst of parked frames; returns their number, or `None` without a working ring.
    fn deliver_parked_burst(&self, buffers: &mut BurstBuffers) -> Option<u32> {
        let pair = &self.pairs[PARKING_PAIR];
        let mut half = pair.receive.lock();
        let is_ring = pair.receive.attached.load(Ordering::Acquire);
        let attached = half.as_mut().filter(|_| is_ring)?;
        let off = StageClock::off();
        let delivered =
            attached.fill(&pair.block, buffers, &off, |ring, buffers| ring.drain_parked(buffers));
        delivered.fault.is_none().then_some(delivered.frames + delivered.too_small)
    }
}

//! Queue pairs of a port: slots for a guest's rings, their locks, attachment and detachment.
//!
//! # Model
//! Each half of a pair has a slot with one lock, which is the whole protocol between lanes and
//! sessions: a lane holds it for a burst, a session for a change. A ring that was taken out under
//! its lock is used by no lane any more. Flags beside the lock tell a lane without it whether there
//! is a ring to poll.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use port::parked::ParkedFrames;
use port::{Receive, RingEvents, Transmit};

use crate::counters::CounterBlock;
use crate::lane::wake::Wake;
use crate::port::{Port, counter};

/// Slot for one half of a queue pair, with its ring while one is attached.
pub(crate) struct RingSlot<T: ?Sized> {
    /// Hint that saves the lock of an empty slot.
    pub(crate) attached: AtomicBool,
    /// The attached ring is paused; lanes see an empty slot.
    pub(crate) waiting: AtomicBool,
    /// The quarantine lane serves the ring; lanes see an empty slot.
    pub(crate) detoured: AtomicBool,
    pub(crate) ring: Mutex<Option<AttachedRing<T>>>,
}

pub(crate) struct AttachedRing<T: ?Sized> {
    pub(crate) fault_seen: bool,
    /// [`Receive::replicates`], in the cache line that a delivery reads anyway.
    pub(crate) replicates: bool,
    pub(crate) ring: Box<T>,
}

impl AttachedRing<dyn Transmit> {
    pub(crate) fn sending(ring: Box<dyn Transmit>) -> Self {
        AttachedRing { fault_seen: false, replicates: false, ring }
    }
}

impl<T: ?Sized> RingSlot<T> {
    pub(crate) fn new() -> RingSlot<T> {
        let no = || AtomicBool::new(false);
        RingSlot { attached: no(), waiting: no(), detoured: no(), ring: Mutex::new(None) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<AttachedRing<T>>> {
        // A panic under the lock is a bug, but leaves the ring usable.
        self.ring.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl AttachedRing<dyn Receive> {
    pub(crate) fn receiving(ring: Box<dyn Receive>) -> Self {
        AttachedRing { fault_seen: false, replicates: ring.replicates(), ring }
    }
}

/// A receive ring, behind the parked frames of its guest, if frames may be parked.
fn behind(parked: Option<ParkedFrames>, ring: Box<dyn Receive>) -> Box<dyn Receive> {
    match parked {
        Some(parked) => parked.draining_half(ring),
        None => ring,
    }
}

/// A half of a queue pair, seen from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Frames from the guest.
    Transmit,
    /// Frames to the guest.
    Receive,
}

/// In place of the number of receiving pairs: frames take the [detour](Port::take_off_lanes).
pub(crate) const DETOURED: usize = usize::MAX;

/// One queue pair of a port.
pub(crate) struct QueuePair {
    pub(crate) transmit: RingSlot<dyn Transmit>,
    pub(crate) receive: RingSlot<dyn Receive>,
    /// Each pair has its own counters: two lanes may forward for two pairs of a port at a time.
    pub(crate) block: CounterBlock,
    /// The lane that polls the transmit half, once lanes run.
    pub(crate) wake: OnceLock<Arc<Wake>>,
}

impl Port {
    /// Attaches a transmit ring; its lane begins to poll it.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn attach_transmit(&self, pair: usize, mut ring: Box<dyn Transmit>) {
        let queue_pair = &self.pairs[pair];
        drop(self.detach_transmit(pair));
        if let (Some(wake), Some(kick)) = (queue_pair.wake.get(), ring.kick()) {
            wake.watch(kick);
        }
        if ring.guest_ring().is_some() {
            self.foreign.store(true, Ordering::Relaxed);
        }
        {
            let mut half = queue_pair.transmit.lock();
            *half = Some(AttachedRing::sending(ring));
            let shown = match self.tx_paused.load(Ordering::Acquire) {
                true => &queue_pair.transmit.waiting,
                false => self.shown(&queue_pair.transmit),
            };
            shown.store(true, Ordering::Release);
        }
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1);
        if let Some(wake) = queue_pair.wake.get() {
            wake.wake();
        }
    }

    /// Detaches a transmit ring: no lane touches it when this returns.
    pub fn detach_transmit(&self, pair: usize) -> Option<Box<dyn Transmit>> {
        let queue_pair = &self.pairs[pair];
        let hide = || {
            let RingSlot { attached, waiting, detoured, .. } = &queue_pair.transmit;
            for shown in [attached, waiting, detoured] {
                shown.store(false, Ordering::Release);
            }
        };
        hide();
        let mut half = queue_pair.transmit.lock();
        hide(); // quarantine may have begun or ended since
        let ring = half.take()?.ring;
        drop(half);
        if let (Some(wake), Some(kick)) = (queue_pair.wake.get(), ring.kick()) {
            wake.forget(kick);
        }
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1u64.wrapping_neg());
        Some(ring)
    }

    /// Flag by which pollers see a transmit half.
    pub(crate) fn shown<'a>(&self, half: &'a RingSlot<dyn Transmit>) -> &'a AtomicBool {
        match self.quarantined.load(Ordering::Acquire) {
            true => &half.detoured,
            false => &half.attached,
        }
    }

    /// Attaches a receive ring.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn attach_receive(&self, pair: usize, mut ring: Box<dyn Receive>) {
        drop(self.detach_receive(pair));
        if ring.guest_ring().is_some() {
            self.foreign.store(true, Ordering::Relaxed);
        }
        let ring = behind(self.parked_of(pair), ring);
        self.lead_to_detour();
        let slot = &self.pairs[pair].receive;
        *slot.lock() = Some(AttachedRing::receiving(ring));
        slot.attached.store(true, Ordering::Release);
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1);
        self.recount_receiving();
    }

    /// Detaches a receive ring: no lane touches it when this returns.
    pub fn detach_receive(&self, pair: usize) -> Option<Box<dyn Receive>> {
        let keeper = self.parked_of(pair).map(|parked| parked.parking_half());
        let slot = &self.pairs[pair].receive;
        let mut half = slot.lock();
        if !slot.attached.swap(false, Ordering::AcqRel) {
            return None; // no ring, or only parked frames
        }
        let keeper = keeper.map(AttachedRing::receiving);
        let ring = std::mem::replace(&mut *half, keeper)?.ring;
        drop(half);
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1u64.wrapping_neg());
        self.recount_receiving();
        Some(ring)
    }

    /// Replaces the transmit ring by the result of `renew` under its lock; no lane finds the slot
    /// empty. Returns `false` if there was no ring.
    ///
    /// # Errors
    /// Those of `renew`; the ring stays unchanged.
    pub fn renew_transmit<E>(
        &self,
        pair: usize,
        renew: impl FnOnce(&mut dyn Transmit) -> Result<Box<dyn Transmit>, E>,
    ) -> Result<bool, E> {
        let queue_pair = &self.pairs[pair];
        let mut half = queue_pair.transmit.lock();
        let Some(attached) = half.as_mut() else { return Ok(false) };
        // The kick is the same, and is watched already.
        let ring = renew(&mut *attached.ring)?;
        let former = std::mem::replace(attached, AttachedRing::sending(ring));
        drop(half);
        drop(former); // outside the lock: this may unmap a memory
        // The lane may sleep, and the new ring has notifications disabled.
        if let Some(wake) = queue_pair.wake.get() {
            wake.wake();
        }
        Ok(true)
    }

    /// Like [`renew_transmit`](Self::renew_transmit), for the receive ring.
    ///
    /// # Errors
    /// Those of `renew`; the ring stays unchanged.
    pub fn renew_receive<E>(
        &self,
        pair: usize,
        renew: impl FnOnce(&mut dyn Receive) -> Result<Box<dyn Receive>, E>,
    ) -> Result<bool, E> {
        let parked = self.parked_of(pair);
        let slot = &self.pairs[pair].receive;
        let mut half = slot.lock();
        // Parked frames are no ring.
        let is_ring = slot.attached.load(Ordering::Acquire);
        let Some(attached) = half.as_mut().filter(|_| is_ring) else { return Ok(false) };
        let ring = renew(&mut *attached.ring)?;
        let ring = behind(parked, ring);
        let former = std::mem::replace(attached, AttachedRing::receiving(ring));
        drop(half);
        drop(former);
        Ok(true)
    }

    /// Changes the event descriptors of a guest's ring, if there is one, under its lock.
    pub fn change_events(&self, half: Half, pair: usize, change: impl FnOnce(&mut RingEvents)) {
        let QueuePair { transmit, receive, .. } = &self.pairs[pair];
        let (mut transmit, mut receive) = match half {
            Half::Transmit => (Some(transmit.lock()), None),
            Half::Receive => (None, Some(receive.lock())),
        };
        let transmit = transmit.as_mut().and_then(|slot| slot.as_mut()?.ring.guest_ring());
        let receive = receive.as_mut().and_then(|slot| slot.as_mut()?.ring.guest_ring());
        if let Some(ring) = transmit.or(receive) {
            change(ring.events());
        }
    }

    #[inline]
    pub(crate) fn transmit(
        &self,
        pair: usize,
    ) -> Option<MutexGuard<'_, Option<AttachedRing<dyn Transmit>>>> {
        let half = &self.pairs[pair].transmit;
        half.attached.load(Ordering::Relaxed).then(|| half.lock())
    }

    /// Keeps the lane of a pair from sending on behalf of this port while the guard is held.
    pub(crate) fn lock_transmit(
        &self,
        pair: usize,
    ) -> MutexGuard<'_, Option<AttachedRing<dyn Transmit>>> {
        self.pairs[pair].transmit.lock()
    }

    /// Receive ring for frames of the source's queue pair `pair`, and its counters: a flow stays on
    /// one ring.
    #[inline(always)]
    pub(crate) fn receive(
        &self,
        pair: usize,
    ) -> (MutexGuard<'_, Option<AttachedRing<dyn Receive>>>, &CounterBlock) {
        let receiving = self.receiving.load(Ordering::Relaxed);
        if receiving <= 1 {
            let pair = &self.pairs[0];
            return (pair.receive.lock(), &pair.block);
        }
        if receiving == DETOURED {
            return self.receive_detoured(pair);
        }
        let pair = &self.pairs[pair % receiving];
        (pair.receive.lock(), &pair.block)
    }
}

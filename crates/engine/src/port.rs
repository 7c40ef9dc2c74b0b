//! Ports: slots for guests' rings, and their counters.

pub(crate) mod counter;
mod detour;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use port::parked::{self, ParkedFrames};
use port::{BurstBuffers, Delivered, ForeignFd, Receive, Transmit};
use virtq::Fault;

use crate::counters::CounterBlock;
use crate::stage_clock::StageClock;
use crate::traffic::PortTraffic;
use crate::wake::Wake;

/// Slot for one half of a queue pair, with its ring while one is attached.
struct RingSlot<T: ?Sized> {
    /// Hint that saves the lock of an empty slot.
    attached: AtomicBool,
    /// The attached ring is paused; lanes see an empty slot.
    waiting: AtomicBool,
    /// The quarantine lane serves the ring; lanes see an empty slot.
    detoured: AtomicBool,
    ring: Mutex<Option<AttachedRing<T>>>,
}

pub(crate) struct AttachedRing<T: ?Sized> {
    pub(crate) fault_seen: bool,
    /// [`Receive::makes_copies`], in the cache line that a delivery reads anyway.
    pub(crate) makes_copies: bool,
    pub(crate) ring: Box<T>,
}

impl AttachedRing<dyn Transmit> {
    fn sending(ring: Box<dyn Transmit>) -> Self {
        AttachedRing { fault_seen: false, makes_copies: false, ring }
    }
}

impl<T: ?Sized> RingSlot<T> {
    fn new() -> RingSlot<T> {
        let no = || AtomicBool::new(false);
        RingSlot { attached: no(), waiting: no(), detoured: no(), ring: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<AttachedRing<T>>> {
        // A panic under the lock is a bug, but leaves the ring usable.
        self.ring.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl AttachedRing<dyn Receive> {
    fn receiving(ring: Box<dyn Receive>) -> Self {
        AttachedRing { fault_seen: false, makes_copies: ring.makes_copies(), ring }
    }

    /// Delivers frames into the ring by `deliver`, publishes and counts them. The caller holds the
    /// ring's lock.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        block: &CounterBlock,
        buffers: &mut BurstBuffers,
        stages: &StageClock,
        deliver: impl FnOnce(&mut dyn Receive) -> Delivered,
    ) -> Delivered {
        self.ring.swap(buffers);
        let delivered = deliver(&mut *self.ring);
        let notified = stages.publish(&mut *self.ring);
        self.ring.swap(buffers);
        block.add(counter::RX_FRAMES, u64::from(delivered.frames));
        block.add(counter::RX_BYTES, delivered.bytes);
        block.add(counter::RX_NOTIFIES, u64::from(notified));
        let Delivered { no_buffer, too_small, fault, .. } = delivered;
        if no_buffer + too_small > 0 {
            block.add(counter::RX_NO_BUFFER, u64::from(no_buffer));
            block.add(counter::RX_TOO_SMALL, u64::from(too_small));
        }
        if let Some(fault) = fault
            && !self.fault_seen
        {
            self.fault_seen = true;
            self.ring.raise_error();
            block.add(counter::RX_FAULTS + fault as usize, 1);
        }
        delivered
    }
}

/// A receive ring, behind the parked frames of its guest, if frames may be parked.
fn behind(parked: Option<ParkedFrames>, ring: Box<dyn Receive>) -> Box<dyn Receive> {
    match parked {
        Some(parked) => parked.draining_half(ring),
        None => ring,
    }
}

/// The pair whose receive ring has frames parked: without rings, frames go to the first.
const PARKING_PAIR: usize = 0;
/// Maximum number of bursts delivered from parked frames at a time.
const PARKED_BURSTS_MAX: usize = parked::FRAMES_MAX / port::BURST;

/// In place of the number of receiving pairs: frames take the [detour](Port::take_off_lanes).
const DETOURED: usize = usize::MAX;

/// One queue pair of a port.
struct Pair {
    transmit: RingSlot<dyn Transmit>,
    receive: RingSlot<dyn Receive>,
    /// Each pair has its own counters: two lanes may forward for two pairs of a port at a time.
    block: CounterBlock,
    /// The lane that polls the transmit half, once lanes run.
    wake: OnceLock<Arc<Wake>>,
}

/// The data plane's end of an attachment: a guest's adapter, an uplink, or a monitor that receives
/// copies. The [`ForwardingSnapshot`](crate::ForwardingSnapshot) decides where its frames go; the
/// port does not know.
pub struct Port {
    /// Name in the counters.
    pub label: String,
    /// Index among the ports of its NIC; reused after removal.
    pub(crate) number: usize,
    pairs: Vec<Pair>,
    receiving: AtomicUsize,
    /// The port was removed: its counters may belong to another port.
    gone: AtomicBool,
    /// Transmit rings that start are paused.
    tx_paused: AtomicBool,
    /// Frames parked while the guest's first receive ring does not run.
    parked: Mutex<Option<ParkedFrames>>,
    /// Id in [`host::stall`]; unique in the process.
    pub(crate) id: u32,
    /// The port touches a guest's memory.
    foreign: AtomicBool,
    /// The quarantine lane serves its rings.
    quarantined: AtomicBool,
    /// Receive half during quarantine, and the frames that wait there.
    detour: Mutex<Option<AttachedRing<dyn Receive>>>,
    waiting: ParkedFrames,
}

/// Next [`Port::id`]; 0 is none.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("label", &self.label).finish_non_exhaustive()
    }
}

impl Port {
    /// Number of queue pairs.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// A port without rings, with a block of counters for each of its queue pairs.
    pub(crate) fn new(label: String, number: usize, blocks: Vec<CounterBlock>) -> Port {
        let pair = |block| Pair {
            transmit: RingSlot::new(),
            receive: RingSlot::new(),
            block,
            wake: OnceLock::new(),
        };
        let pairs = blocks.into_iter().map(pair).collect();
        let (receiving, gone) = (AtomicUsize::new(0), AtomicBool::new(false));
        Port {
            label,
            number,
            pairs,
            receiving,
            gone,
            tx_paused: AtomicBool::new(false),
            parked: Mutex::default(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            foreign: AtomicBool::new(false),
            quarantined: AtomicBool::new(false),
            detour: Mutex::new(None),
            waiting: ParkedFrames::default(),
        }
    }

    /// Sets the lane that polls a pair's transmit half; once.
    pub(crate) fn set_lane(&self, pair: usize, wake: Arc<Wake>) {
        // Set once, when the port is made.
        let _ = self.pairs[pair].wake.set(wake);
    }

    /// Takes all rings out for good. Nothing is counted here after it returns: a lane with an older
    /// snapshot counts under the locks that are taken here.
    pub(crate) fn retire(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.park_frames(None);
        self.detach_all();
        self.close_detour();
    }

    /// Returns `true` if the port was removed. Call it under a lock of one of its halves.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Takes all rings out.
    pub fn detach_all(&self) {
        for pair in 0..self.pairs.len() {
            drop(self.detach_transmit(pair));
            drop(self.detach_receive(pair));
        }
    }

    /// Sum of a counter over all pairs.
    fn sum(&self, counter: usize) -> u64 {
        self.pairs.iter().fold(0, |sum: u64, pair| sum.wrapping_add(pair.block.get(counter)))
    }

    /// Frames and bytes that the guest has sent and received so far.
    pub fn traffic(&self) -> PortTraffic {
        PortTraffic {
            tx_frames: self.sum(counter::TX_FRAMES),
            tx_bytes: self.sum(counter::TX_BYTES),
            tx_uplink_frames: self.sum(counter::TX_UPLINK_FRAMES),
            tx_uplink_bytes: self.sum(counter::TX_UPLINK_BYTES),
            rx_frames: self.sum(counter::RX_FRAMES),
            rx_bytes: self.sum(counter::RX_BYTES),
            rx_uplink_frames: self.sum(counter::RX_UPLINK_FRAMES),
            rx_uplink_bytes: self.sum(counter::RX_UPLINK_BYTES),
        }
    }

    /// Attaches a transmit ring; its lane begins to poll it.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn attach_transmit(&self, pair: usize, ring: Box<dyn Transmit>) {
        let place = &self.pairs[pair];
        drop(self.detach_transmit(pair));
        if let (Some(wake), Some(kick)) = (place.wake.get(), ring.kick()) {
            wake.watch(kick);
        }
        if ring.touches_guest() {
            self.foreign.store(true, Ordering::Relaxed);
        }
        {
            let mut half = place.transmit.lock();
            *half = Some(AttachedRing::sending(ring));
            let shown = match self.tx_paused.load(Ordering::Acquire) {
                true => &place.transmit.waiting,
                false => self.shown(&place.transmit),
            };
            shown.store(true, Ordering::Release);
        }
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1);
        if let Some(wake) = place.wake.get() {
            wake.wake();
        }
    }

    /// Detaches a transmit ring: no lane touches it when this returns.
    pub fn detach_transmit(&self, pair: usize) -> Option<Box<dyn Transmit>> {
        let place = &self.pairs[pair];
        let hide = || {
            let RingSlot { attached, waiting, detoured, .. } = &place.transmit;
            for shown in [attached, waiting, detoured] {
                shown.store(false, Ordering::Release);
            }
        };
        hide();
        let mut half = place.transmit.lock();
        hide(); // quarantine may have begun or ended since
        let ring = half.take()?.ring;
        drop(half);
        if let (Some(wake), Some(kick)) = (place.wake.get(), ring.kick()) {
            wake.forget(kick);
        }
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1u64.wrapping_neg());
        Some(ring)
    }

    /// Flag by which pollers see a transmit half.
    fn shown<'a>(&self, half: &'a RingSlot<dyn Transmit>) -> &'a AtomicBool {
        match self.quarantined.load(Ordering::Acquire) {
            true => &half.detoured,
            false => &half.attached,
        }
    }

    /// Pauses transmit rings that start from now on: frames stay in the ring. For a guest that may
    /// not have arrived and has no location: its frames would be dropped. Rings that run already
    /// continue.
    pub fn pause_tx(&self) {
        self.tx_paused.store(true, Ordering::Release);
    }

    /// Resumes transmit rings after [`pause_tx`](Self::pause_tx).
    pub fn resume_tx(&self) {
        self.tx_paused.store(false, Ordering::Release);
        for pair in &self.pairs {
            let half = pair.transmit.lock();
            if pair.transmit.waiting.swap(false, Ordering::AcqRel) {
                self.shown(&pair.transmit).store(true, Ordering::Release);
            }
            drop(half);
            if let Some(wake) = pair.wake.get() {
                wake.wake();
            }
        }
    }

    /// Attaches a receive ring.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn attach_receive(&self, pair: usize, ring: Box<dyn Receive>) {
        drop(self.detach_receive(pair));
        if ring.touches_guest() {
            self.foreign.store(true, Ordering::Relaxed);
        }
        let ring = behind(self.parked_of(pair), ring);
        self.lead_to_detour();
        let place = &self.pairs[pair].receive;
        *place.lock() = Some(AttachedRing::receiving(ring));
        place.attached.store(true, Ordering::Release);
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1);
        self.recount_receiving();
    }

    /// Detaches a receive ring: no lane touches it when this returns.
    pub fn detach_receive(&self, pair: usize) -> Option<Box<dyn Receive>> {
        let keeper = self.parked_of(pair).map(|parked| parked.parking_half());
        let place = &self.pairs[pair].receive;
        let mut half = place.lock();
        if !place.attached.swap(false, Ordering::AcqRel) {
            return None; // no ring, or only parked frames
        }
        let keeper = keeper.map(AttachedRing::receiving);
        let ring = std::mem::replace(&mut *half, keeper)?.ring;
        drop(half);
        self.pairs[pair].block.add_shared(counter::ATTACHED, 1u64.wrapping_neg());
        self.recount_receiving();
        Some(ring)
    }

    /// Parked frames of a pair, if frames are parked there.
    fn parked_of(&self, pair: usize) -> Option<ParkedFrames> {
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
        let delivered =
            attached.fill(&pair.block, buffers, &StageClock::off(), |ring| ring.drain_parked());
        delivered.fault.is_none().then_some(delivered.frames + delivered.too_small)
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
        let place = &self.pairs[pair];
        let mut half = place.transmit.lock();
        let Some(attached) = half.as_mut() else { return Ok(false) };
        // The kick is the same, and is watched already.
        let ring = renew(&mut *attached.ring)?;
        let former = std::mem::replace(attached, AttachedRing::sending(ring));
        drop(half);
        drop(former); // outside the lock: this may unmap a memory
        // The lane may sleep, and the new ring has notifications disabled.
        if let Some(wake) = place.wake.get() {
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
        let place = &self.pairs[pair].receive;
        let mut half = place.lock();
        // Parked frames are no ring.
        let is_ring = place.attached.load(Ordering::Acquire);
        let Some(attached) = half.as_mut().filter(|_| is_ring) else { return Ok(false) };
        let ring = renew(&mut *attached.ring)?;
        let ring = behind(parked, ring);
        let former = std::mem::replace(attached, AttachedRing::receiving(ring));
        drop(half);
        drop(former);
        Ok(true)
    }

    /// Replaces the call eventfd of the transmit ring.
    pub fn set_transmit_call(&self, pair: usize, call: Option<Arc<ForeignFd>>) {
        if let Some(attached) = self.pairs[pair].transmit.lock().as_mut() {
            attached.ring.set_call(call);
        }
    }

    /// Replaces the call eventfd of the receive ring.
    pub fn set_receive_call(&self, pair: usize, call: Option<Arc<ForeignFd>>) {
        if let Some(attached) = self.pairs[pair].receive.lock().as_mut() {
            attached.ring.set_call(call);
        }
    }

    /// Replaces the error eventfd of the transmit ring.
    pub fn set_transmit_error(&self, pair: usize, error: Option<Arc<ForeignFd>>) {
        if let Some(attached) = self.pairs[pair].transmit.lock().as_mut() {
            attached.ring.set_error(error);
        }
    }

    /// Replaces the error eventfd of the receive ring.
    pub fn set_receive_error(&self, pair: usize, error: Option<Arc<ForeignFd>>) {
        if let Some(attached) = self.pairs[pair].receive.lock().as_mut() {
            attached.ring.set_error(error);
        }
    }

    /// Faults of this port's rings by direction and rule; counts above zero only.
    pub fn faults(&self) -> Vec<(&'static str, Fault, u64)> {
        let directions = [("transmit", counter::TX_FAULTS), ("receive", counter::RX_FAULTS)];
        let of = |(name, base)| {
            let counts = Fault::ALL.iter().enumerate();
            counts.map(move |(i, fault)| (name, *fault, self.sum(base + i)))
        };
        directions.into_iter().flat_map(of).filter(|(_, _, count)| *count > 0).collect()
    }

    /// Returns `true` if a guest has rings here in both directions.
    pub fn is_attached(&self) -> bool {
        let attached = |pair: &Pair| {
            let transmit = &pair.transmit;
            let shown = [&transmit.attached, &transmit.waiting, &transmit.detoured];
            shown.iter().any(|shown| shown.load(Ordering::Acquire))
                && pair.receive.attached.load(Ordering::Acquire)
        };
        self.pairs.iter().any(attached)
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
    #[inline]
    pub(crate) fn receive(
        &self,
        pair: usize,
    ) -> (MutexGuard<'_, Option<AttachedRing<dyn Receive>>>, &CounterBlock) {
        let pair = match self.receiving.load(Ordering::Relaxed) {
            0 | 1 => 0,
            DETOURED => return self.receive_detoured(pair),
            receiving => pair % receiving,
        };
        let pair = &self.pairs[pair];
        (pair.receive.lock(), &pair.block)
    }

    /// Blocks of counters.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = CounterBlock> + '_ {
        self.pairs.iter().map(|pair| pair.block)
    }

    /// Counters of a pair. Those of the transmit half are written under its lock only.
    #[inline]
    pub(crate) fn block(&self, pair: usize) -> &CounterBlock {
        &self.pairs[pair].block
    }
}

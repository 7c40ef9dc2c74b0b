//! Ports: the data plane's end of attachments and uplinks, with their counters.

pub(crate) mod counter;
mod detour;
mod parked;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::Duration;

use port::parked::ParkedFrames;
use port::{FrameRules, Receive};
use virtq::Fault;

use crate::counters::CounterBlock;
use crate::lane::wake::Wake;
use crate::queue_pair::{AttachedRing, DETOURED, QueuePair, RingSlot};
use crate::traffic::PortTraffic;

/// The data plane's end of an attachment: a guest's adapter, an uplink, or a monitor that receives
/// copies. The [`ForwardingSnapshot`](crate::ForwardingSnapshot) decides where its frames go; the
/// port does not know.
pub struct Port {
    /// Name in the counters.
    pub label: String,
    /// Index among the ports of its NIC; reused after removal.
    pub(crate) number: usize,
    pub(crate) pairs: Vec<QueuePair>,
    pub(crate) receiving: AtomicUsize,
    /// The port was removed: its counters may belong to another port.
    gone: AtomicBool,
    /// Transmit rings that start are paused.
    pub(crate) tx_paused: AtomicBool,
    /// Frames parked while the guest's first receive ring does not run.
    parked: Mutex<Option<ParkedFrames>>,
    /// Id in [`host::stall`]; unique in the process.
    pub(crate) id: u32,
    /// The port touches a guest's memory.
    pub(crate) foreign: AtomicBool,
    /// The quarantine lane serves its rings.
    pub(crate) quarantined: AtomicBool,
    /// Receive half during quarantine, and the frames that wait there.
    detour: Mutex<Option<AttachedRing<dyn Receive>>>,
    waiting: ParkedFrames,
}

/// Result for a frame that arrives at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A ring takes it, if the guest has posted a buffer.
    Delivered,
    /// It waits in the daemon: the guest migrates, or is in quarantine.
    Waits,
    /// No ring runs; it is dropped.
    Lost,
}

/// Attempts to lock a transmit ring for its limits, 100 us apart.
const RULES_ATTEMPTS: u32 = 100;

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
        let pair = |block| QueuePair {
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

    /// A port for a trace in place of this one: same label and number, one queue pair, no rings.
    pub(crate) fn shadow(&self, block: CounterBlock) -> Port {
        Port::new(self.label.clone(), self.number, vec![block])
    }

    /// Result for frames of the first queue pair that arrive now.
    pub(crate) fn arrival(&self) -> Arrival {
        let is_attached = |pair: &QueuePair| pair.receive.attached.load(Ordering::Acquire);
        if self.receiving.load(Ordering::Acquire) == DETOURED {
            Arrival::Waits
        } else if self.pairs.first().is_some_and(is_attached) {
            Arrival::Delivered
        } else if self.parked_of(0).is_some() {
            Arrival::Waits
        } else {
            Arrival::Lost
        }
    }

    /// Limits of the frames that the first transmit ring takes; `None` without a ring, or if its
    /// lane does not release it: a guest's memory blocks.
    pub(crate) fn frame_rules(&self) -> Option<FrameRules> {
        let ring = &self.pairs.first()?.transmit.ring;
        for _ in 0..RULES_ATTEMPTS {
            match ring.try_lock() {
                Ok(half) => return half.as_ref().map(|attached| attached.ring.frame_rules()),
                Err(TryLockError::Poisoned(poisoned)) => {
                    let half = poisoned.into_inner();
                    return half.as_ref().map(|attached| attached.ring.frame_rules());
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        None
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

    /// Adds the counters of a retired port: the attachment behind a label was replaced.
    pub(crate) fn continue_counters(&self, before: &Port) {
        let Some(pair) = self.pairs.first() else { return };
        // Under both locks there is no other writer.
        let _halves = (pair.transmit.lock(), pair.receive.lock());
        for counter in (0..counter::END).filter(|counter| *counter != counter::ATTACHED) {
            pair.block.add(counter, before.sum(counter));
        }
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
        let attached = |pair: &QueuePair| {
            let transmit = &pair.transmit;
            let shown = [&transmit.attached, &transmit.waiting, &transmit.detoured];
            shown.iter().any(|shown| shown.load(Ordering::Acquire))
                && pair.receive.attached.load(Ordering::Acquire)
        };
        self.pairs.iter().any(attached)
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

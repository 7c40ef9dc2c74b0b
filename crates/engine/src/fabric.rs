//! Soft NICs and their ports, as lanes see them.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use arc_swap::ArcSwap;
use nic::{DropReason, PortId, Table};
use port::{Receive, Transmit};
use virtq::Fault;

use crate::counters::{self, Block, BlockSpec, CountersError};
use crate::lane::{self, LaneSpec, Wake};

/// Words of a port's block. The transmit half's and the receive half's writers differ, so they
/// are kept on different cache lines.
pub(crate) mod word {
    use super::{DropReason, Fault};
    pub(crate) const TX_FRAMES: usize = 0;
    pub(crate) const TX_BYTES: usize = 1;
    pub(crate) const TX_NOTIFIES: usize = 2;
    pub(crate) const TX_RUNT: usize = 3;
    pub(crate) const TX_OVERSIZE: usize = 4;
    /// One word a reason of the NIC's classifier.
    pub(crate) const TX_DROPS: usize = 5;
    /// One word a fault of the transmit ring.
    pub(crate) const TX_FAULTS: usize = TX_DROPS + DropReason::ALL.len();
    const TX_END: usize = TX_FAULTS + Fault::ALL.len();
    pub(crate) const RX_FRAMES: usize = TX_END.next_multiple_of(16);
    pub(crate) const RX_BYTES: usize = RX_FRAMES + 1;
    pub(crate) const RX_NOTIFIES: usize = RX_FRAMES + 2;
    pub(crate) const RX_NO_BUFFER: usize = RX_FRAMES + 3;
    pub(crate) const RX_TOO_SMALL: usize = RX_FRAMES + 4;
    pub(crate) const RX_DOWN: usize = RX_FRAMES + 5;
    pub(crate) const RX_FAULTS: usize = RX_FRAMES + 6;
    pub(crate) const ATTACHED: usize = RX_FAULTS + Fault::ALL.len();
    pub(crate) const END: usize = ATTACHED + 1;
}

/// The names of a port's words, in order.
fn port_schema() -> Vec<String> {
    let mut names: Vec<String> = vec!["-".into(); word::END];
    let mut name = |at: usize, name: &str| names[at] = name.replace([' ', '-'], "_");
    name(word::TX_FRAMES, "tx_frames");
    name(word::TX_BYTES, "tx_bytes");
    name(word::TX_NOTIFIES, "tx_notifies");
    name(word::TX_RUNT, "tx_drop_runt");
    name(word::TX_OVERSIZE, "tx_drop_oversize");
    for (i, reason) in DropReason::ALL.iter().enumerate() {
        name(word::TX_DROPS + i, &format!("tx_drop_{}", reason.name()));
    }
    name(word::RX_FRAMES, "rx_frames");
    name(word::RX_BYTES, "rx_bytes");
    name(word::RX_NOTIFIES, "rx_notifies");
    name(word::RX_NO_BUFFER, "rx_drop_no_buffer");
    name(word::RX_TOO_SMALL, "rx_drop_too_small");
    name(word::RX_DOWN, "rx_drop_down");
    for (i, fault) in Fault::ALL.iter().enumerate() {
        name(word::TX_FAULTS + i, &format!("tx_fault_{}", fault.name()));
        name(word::RX_FAULTS + i, &format!("rx_fault_{}", fault.name()));
    }
    name(word::ATTACHED, "rings_attached");
    names
}

/// A half of a queue pair: where a ring is, while there is one.
struct Half<T: ?Sized> {
    /// A hint that saves the lock of an empty place.
    attached: AtomicBool,
    ring: Mutex<Option<Attached<T>>>,
}

pub(crate) struct Attached<T: ?Sized> {
    pub(crate) fault_seen: bool,
    pub(crate) ring: Box<T>,
}

impl<T: ?Sized> Half<T> {
    fn new() -> Half<T> {
        Half { attached: AtomicBool::new(false), ring: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attached<T>>> {
        // A panic under the lock is a bug; the ring is then as good or bad as without it.
        self.ring.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// One queue pair of a port.
struct Pair {
    transmit: Half<dyn Transmit>,
    receive: Half<dyn Receive>,
    /// Counters: each pair has its own, for two lanes may have two pairs of a port in hand.
    block: Block,
    /// The lane that polls the transmit half, once lanes run.
    wake: OnceLock<Arc<Wake>>,
}

/// A port of a soft NIC.
pub struct Port {
    /// Its place in the NIC.
    pub id: PortId,
    /// `NIC/function`.
    pub label: String,
    pairs: Vec<Pair>,
    receiving: AtomicUsize,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("label", &self.label).finish_non_exhaustive()
    }
}

impl Port {
    /// Queue pairs that it may have.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Puts a transmit ring in place; its lane begins to poll it.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn attach_transmit(&self, pair: usize, ring: Box<dyn Transmit>) {
        let place = &self.pairs[pair];
        drop(self.detach_transmit(pair));
        if let (Some(wake), Some(kick)) = (place.wake.get(), ring.kick()) {
            wake.watch(kick);
        }
        *place.transmit.lock() = Some(Attached { fault_seen: false, ring });
        place.transmit.attached.store(true, Ordering::Release);
        self.pairs[pair].block.add_shared(word::ATTACHED, 1);
        if let Some(wake) = place.wake.get() {
            wake.wake();
        }
    }

    /// Takes a transmit ring out: no lane touches it when this returns.
    pub fn detach_transmit(&self, pair: usize) -> Option<Box<dyn Transmit>> {
        let place = &self.pairs[pair];
        place.transmit.attached.store(false, Ordering::Release);
        let ring = place.transmit.lock().take()?.ring;
        if let (Some(wake), Some(kick)) = (place.wake.get(), ring.kick()) {
            wake.forget(kick);
        }
        self.pairs[pair].block.add_shared(word::ATTACHED, 1u64.wrapping_neg());
        Some(ring)
    }

    /// Puts a receive ring in place.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn attach_receive(&self, pair: usize, ring: Box<dyn Receive>) {
        drop(self.detach_receive(pair));
        let place = &self.pairs[pair].receive;
        *place.lock() = Some(Attached { fault_seen: false, ring });
        place.attached.store(true, Ordering::Release);
        self.pairs[pair].block.add_shared(word::ATTACHED, 1);
        self.count_receiving();
    }

    /// Takes a receive ring out: no lane touches it when this returns.
    pub fn detach_receive(&self, pair: usize) -> Option<Box<dyn Receive>> {
        let place = &self.pairs[pair].receive;
        place.attached.store(false, Ordering::Release);
        let ring = place.lock().take()?.ring;
        self.pairs[pair].block.add_shared(word::ATTACHED, 1u64.wrapping_neg());
        self.count_receiving();
        Some(ring)
    }

    /// Replaces the descriptor that interrupts the guest for its transmit ring.
    pub fn set_transmit_call(&self, pair: usize, call: Option<Arc<OwnedFd>>) {
        if let Some(attached) = self.pairs[pair].transmit.lock().as_mut() {
            attached.ring.set_call(call);
        }
    }

    /// Replaces the descriptor that interrupts the guest for its receive ring.
    pub fn set_receive_call(&self, pair: usize, call: Option<Arc<OwnedFd>>) {
        if let Some(attached) = self.pairs[pair].receive.lock().as_mut() {
            attached.ring.set_call(call);
        }
    }

    /// Replaces the descriptor that says that the guest's transmit ring is broken.
    pub fn set_transmit_error(&self, pair: usize, error: Option<Arc<OwnedFd>>) {
        if let Some(attached) = self.pairs[pair].transmit.lock().as_mut() {
            attached.ring.set_error(error);
        }
    }

    /// Replaces the descriptor that says that the guest's receive ring is broken.
    pub fn set_receive_error(&self, pair: usize, error: Option<Arc<OwnedFd>>) {
        if let Some(attached) = self.pairs[pair].receive.lock().as_mut() {
            attached.ring.set_error(error);
        }
    }

    /// How often guests broke rings of this port, by direction and rule; only what happened.
    pub fn faults(&self) -> Vec<(&'static str, Fault, u64)> {
        let directions = [("transmit", word::TX_FAULTS), ("receive", word::RX_FAULTS)];
        let of = |(name, base)| {
            let counts = Fault::ALL.iter().enumerate();
            let sum = |word| self.pairs.iter().map(|pair| pair.block.get(word)).sum();
            counts.map(move |(i, fault)| (name, *fault, sum(base + i)))
        };
        directions.into_iter().flat_map(of).filter(|(_, _, count)| *count > 0).collect()
    }

    /// Whether a guest has rings here in both directions.
    pub fn is_attached(&self) -> bool {
        let attached = |pair: &Pair| {
            pair.transmit.attached.load(Ordering::Acquire)
                && pair.receive.attached.load(Ordering::Acquire)
        };
        self.pairs.iter().any(attached)
    }

    fn count_receiving(&self) {
        let attached = |pair: &&Pair| pair.receive.attached.load(Ordering::Acquire);
        self.receiving.store(self.pairs.iter().take_while(attached).count(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn transmit(
        &self,
        pair: usize,
    ) -> Option<MutexGuard<'_, Option<Attached<dyn Transmit>>>> {
        let half = &self.pairs[pair].transmit;
        half.attached.load(Ordering::Relaxed).then(|| half.lock())
    }

    /// The receive ring for frames of the source's queue pair `pair`, and its counters: a flow
    /// keeps to one ring.
    #[inline]
    pub(crate) fn receive(
        &self,
        pair: usize,
    ) -> (MutexGuard<'_, Option<Attached<dyn Receive>>>, &Block) {
        let pair = match self.receiving.load(Ordering::Relaxed) {
            0 | 1 => 0,
            receiving => pair % receiving,
        };
        let pair = &self.pairs[pair];
        (pair.receive.lock(), &pair.block)
    }

    /// The counters of a pair; the transmit half's are written under its lock only.
    #[inline]
    pub(crate) fn block(&self, pair: usize) -> &Block {
        &self.pairs[pair].block
    }
}

/// One soft NIC.
pub struct SoftNic {
    /// Its name.
    pub name: String,
    table: ArcSwap<Table>,
    /// By [`PortId`]; `None` where there is no such function.
    ports: Vec<Option<Arc<Port>>>,
}

impl fmt::Debug for SoftNic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftNic").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SoftNic {
    /// The classifier in force.
    #[inline]
    pub fn table(&self) -> arc_swap::Guard<Arc<Table>> {
        self.table.load()
    }

    /// Puts another classifier in force: a burst sees the old or the new, never a mixture.
    pub fn set_table(&self, table: Table) {
        self.table.store(Arc::new(table));
    }

    /// All ports.
    pub fn ports(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.ports.iter().flatten()
    }

    /// Sends a frame of ours as if the guest at `from` had, without its checks, to all members of
    /// its VLAN; says how many received it. Not for the way of a frame: it allocates.
    pub fn inject(&self, from: PortId, frame: &[u8]) -> usize {
        crate::forward::inject(self, from, frame)
    }

    /// The port at `id`, if there is one.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&Arc<Port>> {
        self.ports.get(id.index())?.as_ref()
    }
}

/// What a NIC is made of.
#[derive(Debug)]
pub struct NicSpec {
    /// Its name.
    pub name: String,
    /// Its classifier.
    pub table: Table,
    /// Its ports: place, name (`uplink`, `pf`, `vf3`), queue pairs.
    pub ports: Vec<(PortId, String, usize)>,
}

/// All soft NICs of a daemon, and the lanes that serve them.
#[derive(Debug)]
pub struct Fabric {
    nics: Vec<Arc<SoftNic>>,
    lanes: Vec<lane::Lane>,
    held: Arc<AtomicBool>,
}

impl Fabric {
    /// Makes NICs and counters (in the file `counters`, or in memory), and starts the lanes.
    pub fn start(
        nics: Vec<NicSpec>,
        lanes: &[LaneSpec],
        counters: Option<&Path>,
    ) -> Result<Fabric, StartError> {
        let label = |nic: &NicSpec, name: &str| format!("{}/{}", nic.name, name);
        let ports = nics.iter().flat_map(|nic| {
            let specs = move |(_, name, pairs): &(PortId, String, usize)| {
                let spec = BlockSpec { kind: "port", label: label(nic, name) };
                std::iter::repeat_n(spec, *pairs)
            };
            nic.ports.iter().flat_map(specs)
        });
        let lane_blocks =
            (0..lanes.len()).map(|i| BlockSpec { kind: "lane", label: i.to_string() });
        let specs: Vec<BlockSpec> = ports.chain(lane_blocks).collect();
        let schemas = [("port", port_schema()), ("lane", lane::schema())];
        host::brief::start().map_err(StartError::Watch)?;
        let mut blocks = counters::create(counters, &schemas, &specs)?.into_iter();

        let nics: Vec<Arc<SoftNic>> =
            nics.into_iter().map(|spec| Arc::new(soft_nic(spec, &mut blocks))).collect();
        let mut rings: Vec<Vec<lane::Poll>> = lanes.iter().map(|_| Vec::new()).collect();
        let all_pairs = nics.iter().flat_map(|nic| {
            let ports = nic.ports.iter().flatten();
            ports.flat_map(move |port| (0..port.pairs.len()).map(move |pair| (nic, port, pair)))
        });
        for (i, (nic, port, pair)) in all_pairs.enumerate() {
            rings[i % lanes.len()].push(lane::Poll::new(nic.clone(), port.clone(), pair));
        }
        let mut started = Vec::new();
        let held = Arc::new(AtomicBool::new(false));
        for ((spec, rings), block) in lanes.iter().zip(rings).zip(blocks) {
            let wake = Arc::new(Wake::new()?);
            for poll in &rings {
                let place = &poll.port.pairs[poll.pair].wake;
                place.set(wake.clone()).expect("each ring has one lane");
            }
            let worker = lane::Worker::new(spec.idle, rings, block, wake, held.clone());
            started.push(lane::Lane::start(spec.cpu, started.len(), worker)?);
        }
        Ok(Fabric { nics, lanes: started, held })
    }

    /// Whether transmit rings wait: their frames stay where the guests posted them. After a restart
    /// guests come back one by one, and a frame must not be dropped because its receiver is later
    /// than its sender.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    /// Ends the lanes, each after the burst in its hands: no frame is on its way any more, and
    /// those not yet taken stay posted. For good.
    pub fn stop_lanes(&mut self) {
        self.lanes.clear();
    }

    /// The NICs.
    pub fn nics(&self) -> &[Arc<SoftNic>] {
        &self.nics
    }

    /// The NIC of this name.
    pub fn nic(&self, name: &str) -> Option<&Arc<SoftNic>> {
        self.nics.iter().find(|nic| nic.name == name)
    }

    /// The lanes.
    pub fn lanes(&self) -> &[lane::Lane] {
        &self.lanes
    }
}

fn soft_nic(spec: NicSpec, blocks: &mut impl Iterator<Item = Block>) -> SoftNic {
    let mut ports = Vec::new();
    for (id, name, pairs) in spec.ports {
        let mut pair = || Pair {
            transmit: Half::new(),
            receive: Half::new(),
            block: blocks.next().expect("a block was made for each pair"),
            wake: OnceLock::new(),
        };
        let port = Port {
            id,
            label: format!("{}/{}", spec.name, name),
            pairs: (0..pairs).map(|_| pair()).collect(),
            receiving: AtomicUsize::new(0),
        };
        if ports.len() <= id.index() {
            ports.resize(id.index() + 1, None);
        }
        ports[id.index()] = Some(Arc::new(port));
    }
    SoftNic { name: spec.name, table: ArcSwap::from_pointee(spec.table), ports }
}

/// Why the data plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No counter file.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// No lane.
    #[error("cannot start lane {lane}")]
    Lane {
        /// Its number.
        lane: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A lane cannot be pinned as configured.
    #[error("cannot pin lane {lane}")]
    Pin {
        /// Its number.
        lane: usize,
        /// Why, and the remedy.
        #[source]
        source: host::cpu::PinError,
    },
    /// No thread that keeps front-ends from holding up lanes.
    #[error("cannot start the thread that watches over the lanes")]
    Watch(#[source] std::io::Error),
    /// No epoll or eventfd.
    #[error("cannot make the lane's wake-up")]
    Wake(#[from] rustix::io::Errno),
}

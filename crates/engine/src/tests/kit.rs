//! Guests in this process, on the ports of a fabric whose lanes run.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guestmem::{GuestMemory, Pages, SharedFile};
use nic::{Function, NicConfig, PortId, Table};
use port::virtio_net::{Events, HEADER_LEN, ReceiveRing, TransmitRing};
use rustix::event::{EventfdFlags, eventfd};
use virtq::{Content, DeviceQueue, DriverQueue, Features, Segment, Used};

use crate::counters::Reader;
use crate::{Fabric, IdlePolicy, LaneSpec, NicSpec, Port};

const BASE: u64 = 1 << 32;
/// Entries of each ring, and so buffers of each direction.
pub(super) const RING: u16 = 256;
/// Bytes between the beginnings of two buffers.
const STRIDE: u32 = 4096;
/// Longest frame that a port of these tests takes.
pub(super) const FRAME_MAX: u32 = 1522;
/// Waits are for what must happen: only a bug makes them last.
const WAIT: Duration = Duration::from_secs(20);

/// How a guest receives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) features: Features,
    /// Bytes of a receive buffer, header included.
    pub(super) buffer: u32,
    pub(super) mergeable: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { features: Features::all(), buffer: 2048, mergeable: true }
    }
}

/// A guest with one queue pair.
pub(super) struct Guest {
    pub(super) tx: DriverQueue,
    pub(super) rx: DriverQueue,
    memory: Arc<GuestMemory>,
    shape: Shape,
    pub(super) kick: Arc<OwnedFd>,
    pub(super) error: Arc<OwnedFd>,
    /// Addresses of buffers that are not posted.
    tx_free: Vec<u64>,
    rx_free: Vec<u64>,
    /// Addresses of posted buffers, by descriptor.
    tx_at: Vec<u64>,
    rx_at: Vec<u64>,
}

fn event() -> Arc<OwnedFd> {
    Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
}

impl Guest {
    pub(super) fn new() -> Guest {
        Guest::with(Shape::default())
    }

    /// A guest whose receive ring is full of empty buffers.
    pub(super) fn with(shape: Shape) -> Guest {
        let mut guest = Guest::empty(shape);
        guest.refill();
        guest
    }

    /// A guest that has posted nothing to receive into.
    pub(super) fn empty(shape: Shape) -> Guest {
        let rings = 2 * DriverQueue::bytes(RING);
        let size = rings + 2 * u64::from(RING) * u64::from(STRIDE);
        let file = SharedFile::create("guest", size, Pages::Ordinary).unwrap();
        let memory = virtq::guest_memory(&file, BASE).unwrap();
        let ring = |at| DriverQueue::new(memory.clone(), at, RING, shape.features).unwrap();
        let (tx, rx) = (ring(BASE), ring(BASE + DriverQueue::bytes(RING)));
        let buffers = |from: u16| {
            let index = move |i: u16| u64::from(from) + u64::from(i);
            (0..RING).map(move |i| BASE + rings + index(i) * u64::from(STRIDE))
        };
        Guest {
            tx,
            rx,
            memory,
            shape,
            kick: event(),
            error: event(),
            tx_free: buffers(0).collect(),
            rx_free: buffers(RING).collect(),
            tx_at: vec![0; RING.into()],
            rx_at: vec![0; RING.into()],
        }
    }

    fn device(&self, driver: &DriverQueue, content: Content) -> DeviceQueue {
        let (memory, at) = (self.memory.clone(), driver.addresses());
        DeviceQueue::new(memory, &at, RING, self.shape.features, content).unwrap()
    }

    pub(super) fn attach_transmit(&self, port: &Port, pair: usize) {
        let header = HEADER_LEN;
        let queue = self.device(&self.tx, Content::Readable { header });
        let events =
            Events { kick: Some(self.kick.clone()), call: None, error: Some(self.error.clone()) };
        port.attach_transmit(pair, Box::new(TransmitRing::new(queue, events, FRAME_MAX)));
    }

    pub(super) fn attach_receive(&self, port: &Port, pair: usize) {
        let queue = self.device(&self.rx, Content::Writable);
        let events = Events { error: Some(self.error.clone()), ..Events::default() };
        let ring = ReceiveRing::new(queue, events, HEADER_LEN, self.shape.mergeable);
        port.attach_receive(pair, Box::new(ring));
    }

    pub(super) fn attach(&self, port: &Port) {
        self.attach_receive(port, 0);
        self.attach_transmit(port, 0);
    }

    /// Posts a frame and kicks if that is asked for; says whether it was.
    pub(super) fn send(&mut self, frame: &[u8]) -> bool {
        self.post(frame);
        self.flush()
    }

    /// Posts a frame; the NIC does not see it before [`flush`](Self::flush).
    pub(super) fn post(&mut self, frame: &[u8]) {
        self.reap_transmit();
        let addr = self.tx_free.pop().expect("more frames in flight than fit");
        let mut bytes = vec![0xee; HEADER_LEN as usize];
        bytes.extend_from_slice(frame);
        let len = bytes.len() as u32;
        assert!(len <= STRIDE);
        self.memory.slice(addr, len).unwrap().write_bytes(&bytes);
        let id = self.tx.post(Segment { addr, len, writable: false });
        self.tx_at[usize::from(id.unwrap())] = addr;
    }

    /// Sends a buffer that breaks the ring's rules: it is outside the memory.
    pub(super) fn break_transmit(&mut self) {
        self.tx.post(outside(false)).unwrap();
        self.flush();
    }

    /// Posts a receive buffer that breaks the ring's rules.
    pub(super) fn break_receive(&mut self) {
        self.rx.post(outside(true)).unwrap();
        self.rx.publish();
    }

    pub(super) fn flush(&mut self) -> bool {
        let kick = self.tx.publish();
        if kick {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
        }
        kick
    }

    /// Frames sent whose buffers have not come back.
    pub(super) fn in_flight(&mut self) -> usize {
        self.reap_transmit();
        usize::from(RING) - self.tx_free.len()
    }

    fn reap_transmit(&mut self) {
        for used in reap(&mut self.tx) {
            self.tx_free.push(self.tx_at[usize::from(used.id)]);
        }
    }

    /// Posts every free receive buffer.
    pub(super) fn refill(&mut self) {
        self.refill_with(usize::from(RING));
    }

    /// Posts up to `n` receive buffers.
    pub(super) fn refill_with(&mut self, n: usize) {
        let keep = self.rx_free.len().saturating_sub(n);
        for addr in self.rx_free.drain(keep..) {
            let id = self.rx.post(Segment { addr, len: self.shape.buffer, writable: true });
            self.rx_at[usize::from(id.unwrap())] = addr;
        }
        self.rx.publish();
    }

    /// The frames that arrived, headers cut off; the buffers are not posted again.
    pub(super) fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut used = reap(&mut self.rx).into_iter();
        let mut frames = Vec::new();
        while let Some(first) = used.next() {
            let mut bytes = self.take(first);
            let header: Vec<u8> = bytes.drain(..HEADER_LEN as usize).collect();
            assert_eq!(header[..10], [0; 10], "the sender's header must not pass");
            let buffers = u16::from_le_bytes([header[10], header[11]]);
            for _ in 1..buffers {
                let more = used.next().expect("a frame's buffers are shown together");
                bytes.extend(self.take(more));
            }
            frames.push(bytes);
        }
        frames
    }

    /// The frames that arrived; their buffers are posted again.
    pub(super) fn receive(&mut self) -> Vec<Vec<u8>> {
        let frames = self.frames();
        self.refill();
        frames
    }

    fn take(&mut self, used: Used) -> Vec<u8> {
        let addr = self.rx_at[usize::from(used.id)];
        let mut bytes = vec![0; used.len as usize];
        let slice = self.memory.slice(addr, used.len).unwrap();
        slice.read_bytes(&mut bytes);
        self.rx_free.push(addr);
        bytes
    }

    /// Waits for exactly `n` frames.
    pub(super) fn wait_for(&mut self, n: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        until("frames to arrive", || {
            frames.extend(self.receive());
            frames.len() >= n
        });
        assert_eq!(frames.len(), n);
        frames
    }

    /// Waits until the NIC has dealt with every frame sent: those it delivered have arrived.
    pub(super) fn settle(&mut self) {
        until("sent buffers to come back", || self.in_flight() == 0);
    }
}

fn reap(queue: &mut DriverQueue) -> Vec<Used> {
    let mut used = vec![Used::default(); RING.into()];
    let n = queue.reap(&mut used);
    assert_eq!(queue.strays(), 0, "a buffer came back that was not in flight");
    used.truncate(n);
    used
}

/// A buffer that no guest of these tests has.
fn outside(writable: bool) -> Segment {
    Segment { addr: 0x1000, len: 100, writable }
}

/// Waits for `what`.
pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !done() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Whether the guest's broken ring was reported to its front-end.
pub(super) fn is_signalled(event: &OwnedFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

/// One soft NIC `n` with lanes of its own, and the counter file.
pub(super) struct Bench {
    pub(super) fabric: Fabric,
    reader: Reader,
    _dir: tempfile::TempDir,
}

/// Polls shortly, then sleeps: every test goes through all states of a lane.
const IDLE: IdlePolicy = IdlePolicy {
    poll: Duration::from_micros(20),
    yielding: Duration::from_micros(20),
    sleep: true,
};

impl Bench {
    /// An uplink, and VFs with these functions, of one queue pair each.
    pub(super) fn new(vfs: Vec<Function>, lanes: usize) -> Bench {
        let vfs = vfs.into_iter().map(Some).collect();
        Bench::of(NicConfig { pf: None, vfs }, lanes, 1)
    }

    pub(super) fn of(config: NicConfig, lanes: usize, pairs: usize) -> Bench {
        let mut ports = vec![(PortId::UPLINK, "uplink".to_string(), pairs)];
        if config.pf.is_some() {
            ports.push((PortId::PF, "pf".into(), pairs));
        }
        for (i, vf) in config.vfs.iter().enumerate() {
            if vf.is_some() {
                ports.push((PortId::vf(i as u8), format!("vf{i}"), pairs));
            }
        }
        let spec = NicSpec { name: "n".into(), table: Table::build(&config).unwrap(), ports };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counters");
        let lanes = vec![LaneSpec { cpu: None, idle: IDLE }; lanes];
        let fabric = Fabric::start(vec![spec], &lanes, Some(&path)).unwrap();
        Bench { fabric, reader: Reader::open(&path).unwrap(), _dir: dir }
    }

    pub(super) fn port(&self, id: PortId) -> &Arc<Port> {
        self.fabric.nics()[0].port(id).unwrap()
    }

    pub(super) fn vf(&self, n: u8) -> &Arc<Port> {
        self.port(PortId::vf(n))
    }

    pub(super) fn uplink(&self) -> &Arc<Port> {
        self.port(PortId::UPLINK)
    }

    /// A new guest on each of these ports.
    pub(super) fn guests<const N: usize>(&self, ids: [PortId; N]) -> [Guest; N] {
        ids.map(|id| {
            let guest = Guest::new();
            guest.attach(self.port(id));
            guest
        })
    }

    /// A counter of the port or lane with this label.
    pub(super) fn count(&self, label: &str, name: &str) -> u64 {
        let blocks = self.reader.read();
        let block = blocks.iter().find(|block| block.label == label);
        block.expect("a block of this label").values[name]
    }

    /// Waits until a counter has this value: some are written after the frames were shown.
    pub(super) fn expect(&self, label: &str, name: &str, value: u64) {
        let what = format!("{name} of {label} to become {value}");
        until(&what, || self.count(label, name) == value);
    }

    /// Sums a counter over all lanes.
    pub(super) fn lanes(&self, name: &str) -> u64 {
        let lanes = self.reader.read().into_iter();
        let lanes = lanes.filter(|block| block.kind == "lane");
        lanes.map(|block| block.values[name]).sum()
    }

    /// Waits until every lane, woken if need be, has begun `n` rounds more.
    pub(super) fn wait_for_rounds(&self, n: u64) {
        let lanes = self.fabric.lanes().len();
        let rounds = |lane: usize| self.count(&lane.to_string(), "rounds");
        let target: Vec<u64> = (0..lanes).map(|lane| rounds(lane) + n + 1).collect();
        until("rounds of every lane", || {
            self.fabric.lanes().iter().for_each(|lane| lane.wake.wake());
            (0..lanes).all(|lane| rounds(lane) >= target[lane])
        });
    }

    /// Waits until no lane does anything.
    pub(super) fn wait_for_sleep(&self) {
        until("the lanes to sleep", || {
            let before = (self.lanes("rounds"), self.lanes("sleeps"));
            std::thread::sleep(Duration::from_millis(10));
            before == (self.lanes("rounds"), self.lanes("sleeps"))
        });
    }
}

/// The MAC of VF `n`.
pub(super) fn mac(n: u8) -> wire::Mac {
    wire::Mac([2, 0, 0, 0, 0, n + 1])
}

/// The MAC of a machine out on the wire.
pub(super) const OUTSIDE: wire::Mac = wire::Mac([2, 0xff, 0, 0, 0, 1]);

/// Untagged VF `n`.
pub(super) fn plain(n: u8) -> Function {
    Function::new(mac(n))
}

/// VF `n` as access port of a VLAN.
pub(super) fn access(n: u8, vid: u16) -> Function {
    Function { vlan: Some(wire::Vid::new(vid).unwrap()), ..plain(n) }
}

/// A frame of `len` bytes that says its number.
pub(super) fn frame(dst: wire::Mac, src: wire::Mac, number: u32, len: usize) -> Vec<u8> {
    let mut bytes = [dst.0, src.0].concat();
    bytes.extend([0x88, 0xb5]); // for local experiments
    bytes.extend(number.to_be_bytes());
    let seed = number.wrapping_mul(0x9e37_79b9);
    let rest = (bytes.len()..len).map(|i| (seed >> (i % 24)).wrapping_add(i as u32) as u8);
    bytes.extend(rest);
    bytes.truncate(len);
    bytes
}

/// The number of an untagged frame.
pub(super) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// The frame with a tag behind its addresses.
pub(super) fn tagged(frame: &[u8], tpid: u16, tci: u16) -> Vec<u8> {
    let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

//! A guest with one queue pair, both ends of whose rings are in this process.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use guestmem::{GuestMemory, Mapping, Pages, SharedFile};
use port::virtio_net::{HEADER_LEN, ReceiveLayout, ReceiveRing, RingEvents, TransmitRing};
use port::{Burst, BurstBuffers, ForeignFd, OffloadSet, Polled, Transmit};
use rustix::event::{EventfdFlags, eventfd};
use virtq::{Content, DeviceQueue, DriverQueue, Features, Inflight, Segment, Start, Used};

use super::until;
use crate::Port;

const BASE: u64 = 1 << 32;
/// Entries of each ring, and so buffers of each direction.
pub(crate) const RING: u16 = 256;
/// Bytes between the beginnings of two buffers.
const STRIDE: u32 = 4096;
/// Byte that a treacherous guest writes over its frames.
pub(crate) const TREASON: u8 = 0x35;
/// Longest frame that a port of these tests takes.
pub(crate) const FRAME_MAX: u32 = 1522;
/// Receive settings of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) features: Features,
    /// Bytes of a receive buffer, header included.
    pub(crate) buffer: u32,
    pub(crate) mergeable: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        let features = Features::all().difference(Features::PACKED);
        Shape { features, buffer: 2048, mergeable: true }
    }
}

/// A guest with one queue pair.
pub(crate) struct Guest {
    pub(crate) tx: DriverQueue,
    pub(crate) rx: DriverQueue,
    memory: Arc<GuestMemory>,
    shape: Shape,
    /// Records of its rings, transmit and receive: tests detach and attach them at will.
    records: [Inflight; 2],
    pub(crate) kick: Arc<ForeignFd>,
    pub(crate) error: Arc<ForeignFd>,
    /// Addresses of buffers that are not posted.
    tx_free: Vec<u64>,
    rx_free: Vec<u64>,
    /// Addresses of posted buffers, by descriptor.
    tx_at: Vec<u64>,
    rx_at: Vec<u64>,
}

fn event() -> Arc<ForeignFd> {
    Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap().into())
}

/// Empty records of two rings.
fn records() -> [Inflight; 2] {
    let bytes = Inflight::bytes(RING);
    let file = SharedFile::create("records", 2 * bytes, Pages::Ordinary).unwrap();
    let mapping = Arc::new(Mapping::new(file.fd(), 2 * bytes, 0).unwrap());
    [0, bytes].map(|at| Inflight::new(mapping.clone(), at, RING).unwrap())
}

impl Guest {
    pub(crate) fn new() -> Guest {
        Guest::with(Shape::default())
    }

    /// A guest whose receive ring is full of empty buffers.
    pub(crate) fn with(shape: Shape) -> Guest {
        let mut guest = Guest::empty(shape);
        guest.refill();
        guest
    }

    /// A guest without posted receive buffers.
    pub(crate) fn empty(shape: Shape) -> Guest {
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
            records: records(),
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
        let record = &self.records[usize::from(content == Content::Writable)];
        let start = Start { inflight: Some(record.clone()), ..Start::at(driver.first_position()) };
        DeviceQueue::new(memory, &at, RING, self.shape.features, content, start).unwrap()
    }

    pub(crate) fn attach_transmit(&self, port: &Port, pair: usize) {
        self.attach_transmit_with(port, pair, Some(self.kick.clone()));
    }

    pub(crate) fn attach_transmit_with(
        &self,
        port: &Port,
        pair: usize,
        kick: Option<Arc<ForeignFd>>,
    ) {
        let header = HEADER_LEN;
        let queue = self.device(&self.tx, Content::Readable { header, keep: false });
        let events = RingEvents { kick, error: Some(self.error.clone()), ..RingEvents::default() };
        let ring = TransmitRing::new(queue, events, FRAME_MAX, OffloadSet::empty());
        port.attach_transmit(pair, Box::new(ring));
    }

    /// Its transmit ring, not attached, with checksum and segmentation offload.
    pub(crate) fn leaving(&self) -> TransmitRing {
        let queue = self.device(&self.tx, Content::Readable { header: HEADER_LEN, keep: true });
        TransmitRing::new(queue, RingEvents::default(), FRAME_MAX, OffloadSet::all())
    }

    /// As [`attach_transmit`](Self::attach_transmit), by a guest that overwrites its frames right
    /// after classification.
    pub(crate) fn attach_treacherous(&self, port: &Port, pair: usize) {
        let queue = self.device(&self.tx, Content::Readable { header: HEADER_LEN, keep: false });
        let events = RingEvents { kick: Some(self.kick.clone()), ..RingEvents::default() };
        let ring = TransmitRing::new(queue, events, FRAME_MAX, OffloadSet::empty());
        let (memory, at) = (self.memory.clone(), BASE + 2 * DriverQueue::bytes(RING));
        port.attach_transmit(pair, Box::new(Treacherous { ring, memory, at }));
    }

    pub(crate) fn attach_receive(&self, port: &Port, pair: usize) {
        let queue = self.device(&self.rx, Content::Writable);
        let events = RingEvents { error: Some(self.error.clone()), ..RingEvents::default() };
        let layout = ReceiveLayout { header: HEADER_LEN, mergeable: self.shape.mergeable };
        let ring = ReceiveRing::new(queue, events, layout, OffloadSet::empty());
        port.attach_receive(pair, Box::new(ring));
    }

    pub(crate) fn attach(&self, port: &Port) {
        self.attach_receive(port, 0);
        self.attach_transmit(port, 0);
    }

    /// Posts a frame and kicks if the device wants it; returns `true` if it kicked.
    pub(crate) fn send(&mut self, frame: &[u8]) -> bool {
        self.post(frame);
        self.flush()
    }

    /// Posts a frame; the NIC does not see it before [`flush`](Self::flush).
    pub(crate) fn post(&mut self, frame: &[u8]) {
        self.post_with([0xee; HEADER_LEN as usize], frame);
    }

    /// The same behind a header, which only [`leaving`](Self::leaving) rings read.
    pub(crate) fn post_with(&mut self, header: [u8; HEADER_LEN as usize], frame: &[u8]) {
        self.reap_transmit();
        let addr = self.tx_free.pop().expect("more frames in flight than fit");
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(frame);
        let len = bytes.len() as u32;
        assert!(len <= STRIDE);
        self.memory.slice(addr, len).unwrap().write_bytes(&bytes);
        let id = self.tx.post(Segment { addr, len, writable: false });
        self.tx_at[usize::from(id.unwrap())] = addr;
    }

    /// Sends a buffer that breaks the ring's rules: it is outside the memory.
    pub(crate) fn break_transmit(&mut self) {
        self.tx.post(outside(false)).unwrap();
        self.flush();
    }

    /// Posts a receive buffer that breaks the ring's rules.
    pub(crate) fn break_receive(&mut self) {
        self.rx.post(outside(true)).unwrap();
        self.rx.publish();
    }

    pub(crate) fn flush(&mut self) -> bool {
        let kick = self.tx.publish();
        if kick {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
        }
        kick
    }

    /// Frames sent whose buffers have not come back.
    pub(crate) fn in_flight(&mut self) -> usize {
        self.reap_transmit();
        usize::from(RING) - self.tx_free.len()
    }

    fn reap_transmit(&mut self) {
        for used in reap(&mut self.tx) {
            self.tx_free.push(self.tx_at[usize::from(used.id)]);
        }
    }

    /// Posts every free receive buffer.
    pub(crate) fn refill(&mut self) {
        self.refill_with(usize::from(RING));
    }

    /// Posts up to `n` receive buffers.
    pub(crate) fn refill_with(&mut self, n: usize) {
        let keep = self.rx_free.len().saturating_sub(n);
        for addr in self.rx_free.drain(keep..) {
            let id = self.rx.post(Segment { addr, len: self.shape.buffer, writable: true });
            self.rx_at[usize::from(id.unwrap())] = addr;
        }
        self.rx.publish();
    }

    /// The frames that arrived, headers cut off; the buffers are not posted again.
    pub(crate) fn frames(&mut self) -> Vec<Vec<u8>> {
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
    pub(crate) fn receive(&mut self) -> Vec<Vec<u8>> {
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
    pub(crate) fn wait_for(&mut self, n: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        until("frames to arrive", || {
            frames.extend(self.receive());
            frames.len() >= n
        });
        assert_eq!(frames.len(), n);
        frames
    }

    /// Waits until the NIC has dealt with every frame sent: those it delivered have arrived.
    pub(crate) fn settle(&mut self) {
        until("sent buffers to come back", || self.in_flight() == 0);
    }
}

/// A transmit ring whose guest overwrites all its buffers right after their headers were read.
struct Treacherous {
    ring: TransmitRing,
    memory: Arc<GuestMemory>,
    /// Address of the guest's first transmit buffer.
    at: u64,
}

impl Treacherous {
    fn rewrite(&self) {
        let len = u32::from(RING) * STRIDE;
        self.memory.slice(self.at, len).unwrap().write_bytes(&vec![TREASON; len as usize]);
    }
}

impl Transmit for Treacherous {
    fn swap(&mut self, area: &mut BurstBuffers) {
        self.ring.swap(area);
    }

    fn poll(&mut self) -> Polled {
        self.ring.poll()
    }

    fn snapshot_headers(&mut self) {
        self.ring.snapshot_headers();
        self.rewrite();
    }

    fn burst(&self) -> Burst<'_> {
        self.ring.burst()
    }

    fn complete(&mut self) -> bool {
        self.ring.complete()
    }

    fn enable_notification(&mut self) -> bool {
        self.ring.enable_notification()
    }

    fn disable_notification(&mut self) {
        self.ring.disable_notification();
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.ring.kick()
    }

    fn set_call(&mut self, call: Option<Arc<ForeignFd>>) {
        self.ring.set_call(call);
    }

    fn set_error(&mut self, error: Option<Arc<ForeignFd>>) {
        self.ring.set_error(error);
    }

    fn raise_error(&self) {
        self.ring.raise_error();
    }

    fn stop(&mut self) -> u32 {
        self.ring.stop()
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

/// Returns `true` if the guest's broken ring was reported to its front-end.
pub(crate) fn is_signalled(event: &ForeignFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

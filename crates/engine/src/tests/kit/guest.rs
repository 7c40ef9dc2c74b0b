//! A guest with one queue pair, both ends of whose rings are in this process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use guestmem::{GuestMemory, Mapping, Pages, SharedFile};
use port::virtio_net::{HEADER_LEN, ReceiveLayout, ReceiveRing, RingEvents, TransmitRing};
use port::{
    Burst, BurstBuffers, ForeignFd, FrameRules, GuestRing, Notification, OffloadSet, Polled,
    Readiness, Transmit,
};
use testguest::{QueuePair, RING};
use virtq::{Content, DeviceQueue, DriverQueue, Features, InflightRecord, Start};

use super::until;
use crate::Port;

/// Address of a buffer outside the guest's memory.
const OUTSIDE_MEMORY: u64 = 0x1000;
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
    pub(crate) pair: QueuePair,
    shape: Shape,
    /// Records of its rings, transmit and receive: tests detach and attach them at will.
    records: [InflightRecord; 2],
}

/// The same eventfd, for a device.
fn shared(event: &OwnedFd) -> Option<Arc<ForeignFd>> {
    Some(Arc::new(event.try_clone().unwrap().into()))
}

/// Empty records of two rings.
fn records() -> [InflightRecord; 2] {
    let bytes = InflightRecord::bytes(RING);
    let file = SharedFile::create("records", 2 * bytes, Pages::Ordinary).unwrap();
    let mapping = Arc::new(Mapping::new(file.fd(), 2 * bytes, 0).unwrap());
    [0, bytes].map(|at| InflightRecord::new(mapping.clone(), at, RING).unwrap())
}

impl Guest {
    pub(crate) fn new() -> Guest {
        Guest::with(Shape::default())
    }

    /// A guest whose receive ring is full of empty buffers.
    pub(crate) fn with(shape: Shape) -> Guest {
        let mut guest = Guest::empty(shape);
        guest.pair.refill();
        guest
    }

    /// A guest without posted receive buffers.
    pub(crate) fn empty(shape: Shape) -> Guest {
        let pair = QueuePair::new(shape.features, shape.buffer).unwrap();
        Guest { pair, shape, records: records() }
    }

    fn device(&self, driver: &DriverQueue, content: Content) -> DeviceQueue {
        let (memory, at) = (self.pair.memory().clone(), driver.addresses());
        let record = &self.records[usize::from(content == Content::Writable)];
        let start = Start { inflight: Some(record.clone()), ..Start::at(driver.first_position()) };
        DeviceQueue::new(memory, &at, RING, self.shape.features, content, start).unwrap()
    }

    pub(crate) fn attach_transmit(&self, port: &Port, pair: usize) {
        self.attach_transmit_with(port, pair, shared(&self.pair.kick));
    }

    pub(crate) fn attach_transmit_with(
        &self,
        port: &Port,
        pair: usize,
        kick: Option<Arc<ForeignFd>>,
    ) {
        let header = HEADER_LEN;
        let queue = self.device(&self.pair.tx, Content::Readable { header, keep: false });
        let events = RingEvents { kick, error: shared(&self.pair.error), ..RingEvents::default() };
        let ring = TransmitRing::new(queue, events, FRAME_MAX, OffloadSet::empty());
        port.attach_transmit(pair, Box::new(ring));
    }

    /// Its transmit ring, not attached, with checksum and segmentation offload.
    pub(crate) fn leaving(&self) -> TransmitRing {
        let queue =
            self.device(&self.pair.tx, Content::Readable { header: HEADER_LEN, keep: true });
        TransmitRing::new(queue, RingEvents::default(), FRAME_MAX, OffloadSet::all())
    }

    /// As [`attach_transmit`](Self::attach_transmit), by a guest that overwrites its frames right
    /// after classification.
    pub(crate) fn attach_treacherous(&self, port: &Port, pair: usize) {
        let queue =
            self.device(&self.pair.tx, Content::Readable { header: HEADER_LEN, keep: false });
        let events = RingEvents { kick: shared(&self.pair.kick), ..RingEvents::default() };
        let ring = TransmitRing::new(queue, events, FRAME_MAX, OffloadSet::empty());
        let memory = self.pair.memory().clone();
        port.attach_transmit(pair, Box::new(Treacherous { ring, memory }));
    }

    pub(crate) fn attach_receive(&self, port: &Port, pair: usize) {
        let queue = self.device(&self.pair.rx, Content::Writable);
        let events = RingEvents { error: shared(&self.pair.error), ..RingEvents::default() };
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

    pub(crate) fn flush(&mut self) -> bool {
        self.pair.flush()
    }

    /// Posts a frame; the NIC does not see it before [`flush`](Self::flush).
    pub(crate) fn post(&mut self, frame: &[u8]) {
        self.post_with([0xee; HEADER_LEN as usize], frame);
    }

    /// The same behind a header, which only [`leaving`](Self::leaving) rings read.
    pub(crate) fn post_with(&mut self, header: [u8; HEADER_LEN as usize], frame: &[u8]) {
        self.pair.post(header, frame).unwrap();
    }

    /// Sends a buffer that breaks the ring's rules: it is outside the memory.
    pub(crate) fn break_transmit(&mut self) {
        self.pair.post_at(OUTSIDE_MEMORY, 100).unwrap();
        self.flush();
    }

    /// Posts a receive buffer that breaks the ring's rules.
    pub(crate) fn break_receive(&mut self) {
        self.pair.post_receive(OUTSIDE_MEMORY);
        self.pair.rx.publish();
    }

    /// Buffers sent that have not come back.
    pub(crate) fn in_flight(&mut self) -> usize {
        self.pair.in_flight().unwrap()
    }

    /// The frames that arrived, headers cut off; the buffers are not posted again.
    pub(crate) fn frames(&mut self) -> Vec<Vec<u8>> {
        let received = self.pair.frames().unwrap().into_iter();
        let frames = received.map(|received| {
            assert_eq!(received.header[..10], [0; 10], "the sender's header must not pass");
            received.frame
        });
        frames.collect()
    }

    /// The frames that arrived; their buffers are posted again.
    pub(crate) fn receive(&mut self) -> Vec<Vec<u8>> {
        let frames = self.frames();
        self.pair.refill();
        frames
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

/// A transmit ring whose guest overwrites all its buffers right after their headers were read: when
/// the lane is lent the snapshots.
struct Treacherous {
    ring: TransmitRing,
    memory: Arc<GuestMemory>,
}

impl Treacherous {
    fn rewrite(&self) {
        let buffers = QueuePair::transmit_buffers();
        let len = (buffers.end - buffers.start) as u32;
        self.memory.slice(buffers.start, len).unwrap().write_bytes(&vec![TREASON; len as usize]);
    }
}

impl Transmit for Treacherous {
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled {
        self.ring.poll(buffers)
    }

    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        let burst = self.ring.burst(buffers);
        if !burst.snapshots.is_empty() {
            self.rewrite();
        }
        burst
    }

    fn complete(&mut self) -> Notification {
        self.ring.complete()
    }

    fn enable_notification(&mut self) -> Readiness {
        self.ring.enable_notification()
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.ring.kick()
    }

    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        self.ring.guest_ring()
    }

    fn frame_rules(&self) -> FrameRules {
        self.ring.frame_rules()
    }
}

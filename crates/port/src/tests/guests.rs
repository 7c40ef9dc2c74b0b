//! A guest that sends, and a guest that receives.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use guestmem::{GuestMemory, Pages, SharedFile};
use virtq::{Content, DeviceQueue, DriverQueue, Features, Segment, Start, Used};

use super::lent::Lent;
use crate::virtio_net::{self, HEADER_LEN, ReceiveRing, RingEvents, TransmitRing};
use crate::{Delivered, GuestRing, NetHeader, OffloadSet, VlanEdit};

const BASE: u64 = 0x4000_0000;
const MEMORY: u64 = 4 << 20;
const RING: u16 = 1024;

/// Layout of one buffer of a guest.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Bytes of each piece but the last, which takes the rest.
    pub(super) cuts: Vec<u32>,
    pub(super) indirect: bool,
}

impl Layout {
    pub(super) fn chain(cuts: &[u32]) -> Layout {
        Layout { cuts: cuts.to_vec(), indirect: false }
    }

    /// Posts a buffer; an indirect table goes where `table` says, for so many bytes.
    pub(super) fn post(
        &self,
        driver: &mut DriverQueue,
        buffer: Segment,
        table: impl FnOnce(u32) -> u64,
    ) -> u16 {
        let Segment { mut addr, len: mut left, writable } = buffer;
        let mut pieces = Vec::new();
        for cut in self.cuts.iter().copied().chain([u32::MAX]) {
            let len = cut.min(left);
            if len > 0 {
                pieces.push(Segment { addr, len, writable });
            }
            addr += u64::from(len);
            left -= len;
        }
        let id = match self.indirect {
            true => driver.post_indirect(&pieces, table(16 * pieces.len() as u32)),
            false => driver.post_chain(&pieces),
        };
        driver.publish();
        id.unwrap()
    }
}

thread_local! {
    /// Set to give new guests packed rings.
    static PACKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test with guests that have split rings, then with packed ones.
pub(super) fn on_both_kinds_of_rings(test: impl Fn()) {
    for packed in [false, true] {
        PACKED.set(packed);
        test();
    }
    PACKED.set(false);
}

/// Memory that is handed out from the front.
struct Heap {
    memory: Arc<GuestMemory>,
    next: u64,
}

impl Heap {
    fn new() -> Heap {
        let file = SharedFile::create("guest", MEMORY, Pages::Ordinary).unwrap();
        let memory = virtq::guest_memory(&file, BASE).unwrap();
        Heap { memory, next: BASE + DriverQueue::bytes(RING) }
    }

    /// Bytes behind everything handed out before, at any alignment.
    fn take(&mut self, len: u32) -> u64 {
        let addr = self.next;
        self.next += u64::from(len);
        assert!(self.next <= BASE + MEMORY, "the test's guest has too little memory");
        addr
    }

    fn ring(&self, features: Features, content: Content) -> (DriverQueue, DeviceQueue) {
        let memory = || self.memory.clone();
        let mut features = features;
        features.set(Features::PACKED, PACKED.get());
        let driver = DriverQueue::new(memory(), BASE, RING, features).unwrap();
        let (at, start) = (driver.addresses(), Start::at(driver.first_position()));
        let device = DeviceQueue::new(memory(), &at, RING, features, content, start).unwrap();
        (driver, device)
    }
}

/// A guest's sending side.
pub(super) struct Sender {
    heap: Heap,
    pub(super) driver: DriverQueue,
    pub(super) ring: Lent<Box<TransmitRing>>,
    header: u32,
}

impl Sender {
    pub(super) fn new(header: u32, frame_bytes_max: u32) -> Sender {
        Sender::with(header, frame_bytes_max, RingEvents::default())
    }

    pub(super) fn with(header: u32, frame_bytes_max: u32, events: RingEvents) -> Sender {
        Sender::negotiated(header, frame_bytes_max, events, OffloadSet::empty())
    }

    /// A guest that may leave something to be done on its frames.
    pub(super) fn leaving(leaves: OffloadSet, frame_bytes_max: u32) -> Sender {
        Sender::negotiated(HEADER_LEN, frame_bytes_max, RingEvents::default(), leaves)
    }

    fn negotiated(
        header: u32,
        frame_bytes_max: u32,
        events: RingEvents,
        leaves: OffloadSet,
    ) -> Sender {
        let heap = Heap::new();
        let content = Content::Readable { header, keep: !leaves.is_empty() };
        let (driver, device) = heap.ring(Features::all(), content);
        let ring = TransmitRing::new(device, events, frame_bytes_max, leaves);
        let ring = Lent::new(Box::new(ring));
        Sender { heap, driver, ring, header }
    }

    /// Makes a frame available, behind header bytes that must never be read; returns the addresses
    /// of its pieces.
    pub(super) fn send(&mut self, frame: &[u8], layout: &Layout) -> u64 {
        let header = vec![0xee; self.header as usize];
        self.send_bytes(header, frame, layout)
    }

    /// The same, behind a header that says what is left to do.
    pub(super) fn send_with(&mut self, left: NetHeader, frame: &[u8], layout: &Layout) -> u64 {
        self.send_bytes(left.to_bytes().to_vec(), frame, layout)
    }

    fn send_bytes(&mut self, mut bytes: Vec<u8>, frame: &[u8], layout: &Layout) -> u64 {
        bytes.extend_from_slice(frame);
        let addr = self.heap.take(bytes.len() as u32);
        self.write(addr, &bytes);
        let buffer = Segment { addr, len: bytes.len() as u32, writable: false };
        layout.post(&mut self.driver, buffer, |len| self.heap.take(len));
        addr + u64::from(self.header)
    }

    /// Writes to the guest's memory.
    pub(super) fn write(&self, addr: u64, bytes: &[u8]) {
        let slice = self.heap.memory.slice(addr, bytes.len() as u32).unwrap();
        assert_eq!(slice.write_bytes(bytes) as usize, bytes.len());
    }

    /// Forgets where frames were: all came back, and their memory can be used again.
    pub(super) fn rewind(&mut self) {
        assert_eq!(self.driver.room(), usize::from(RING));
        self.heap.next = BASE + DriverQueue::bytes(RING);
    }

    /// Buffers that came back.
    pub(super) fn reap(&mut self) -> Vec<Used> {
        testguest::reap(&mut self.driver).unwrap()
    }
}

/// A frame as the receiver found it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) header: Vec<u8>,
    pub(super) frame: Vec<u8>,
    /// Used length of each of its buffers.
    pub(super) lens: Vec<u32>,
}

/// A guest's receiving side.
pub(super) struct Receiver {
    heap: Heap,
    pub(super) driver: DriverQueue,
    pub(super) ring: Lent<Box<ReceiveRing>>,
    header: u32,
    posted: HashMap<u16, (u64, u32)>,
}

impl Receiver {
    pub(super) fn new(header: u32, mergeable: bool) -> Receiver {
        Receiver::with(header, mergeable, RingEvents::default())
    }

    pub(super) fn with(header: u32, mergeable: bool, events: RingEvents) -> Receiver {
        Receiver::negotiated(header, mergeable, events, OffloadSet::empty())
    }

    /// A guest that takes frames on which something is left to do, and merges buffers.
    pub(super) fn taking(takes: OffloadSet) -> Receiver {
        Receiver::negotiated(HEADER_LEN, true, RingEvents::default(), takes)
    }

    fn negotiated(header: u32, mergeable: bool, events: RingEvents, takes: OffloadSet) -> Receiver {
        let heap = Heap::new();
        let (driver, device) = heap.ring(Features::all(), Content::Writable);
        let layout = virtio_net::ReceiveLayout { header, mergeable };
        let ring = Lent::new(Box::new(ReceiveRing::new(device, events, layout, takes)));
        Receiver { heap, driver, ring, header, posted: HashMap::new() }
    }

    /// Stops the ring; a new owner without offloads continues at its position, with one buffer a
    /// frame.
    pub(super) fn change_owner(&mut self) {
        let start = Start::at(self.ring.half.stop());
        let (memory, at) = (self.heap.memory.clone(), self.driver.addresses());
        let mut features = Features::all();
        features.set(Features::PACKED, PACKED.get());
        let content = Content::Writable;
        let device = DeviceQueue::new(memory, &at, RING, features, content, start).unwrap();
        let layout = virtio_net::ReceiveLayout { header: self.header, mergeable: false };
        let (events, takes) = (RingEvents::default(), OffloadSet::empty());
        self.ring = Lent::new(Box::new(ReceiveRing::new(device, events, layout, takes)));
    }

    /// Makes a buffer of `len` bytes available.
    pub(super) fn post(&mut self, len: u32, layout: &Layout) {
        let addr = self.heap.take(len);
        let slice = self.heap.memory.slice(addr, len).unwrap();
        slice.write_bytes(&vec![0xaa; len as usize]);
        let buffer = Segment { addr, len, writable: true };
        let id = layout.post(&mut self.driver, buffer, |len| self.heap.take(len));
        assert_eq!(self.posted.insert(id, (addr, len)), None);
    }

    /// Forgets where buffers were: all were used, and their memory can be posted again.
    pub(super) fn rewind(&mut self) {
        assert!(self.posted.is_empty());
        self.heap.next = BASE + DriverQueue::bytes(RING);
    }

    /// The frames that arrived. Checks that nothing was written behind any.
    pub(super) fn frames(&mut self) -> Vec<Received> {
        let mut used = testguest::reap(&mut self.driver).unwrap().into_iter();
        let mut frames = Vec::new();
        while let Some(first) = used.next() {
            let mut bytes = self.bytes(first);
            let mut lens = vec![first.len];
            let header: Vec<u8> = bytes.drain(..self.header as usize).collect();
            let buffers = match header[..] {
                [.., low, high] if self.header == HEADER_LEN => u16::from_le_bytes([low, high]),
                _ => 1,
            };
            for _ in 1..buffers {
                let next = used.next().expect("as many buffers as the header says");
                bytes.extend(self.bytes(next));
                lens.push(next.len);
            }
            frames.push(Received { header, frame: bytes, lens });
        }
        frames
    }

    /// Bytes that the device wrote to a buffer.
    fn bytes(&mut self, used: Used) -> Vec<u8> {
        let (addr, len) = self.posted.remove(&used.id).expect("a buffer that was posted");
        let mut bytes = vec![0; len as usize];
        self.heap.memory.slice(addr, len).unwrap().read_bytes(&mut bytes);
        let behind = bytes.split_off(used.len as usize);
        assert!(behind.iter().all(|byte| *byte == 0xaa), "written past what was used");
        bytes
    }
}

/// Polls a burst and delivers the chosen frames of it.
pub(super) fn carry(
    from: &mut Sender,
    to: &mut Receiver,
    indices: &[u8],
    edit: VlanEdit,
) -> Delivered {
    carry_with(from, to, indices, edit, false)
}

/// The same, with longer snapshots or without.
pub(super) fn carry_with(
    from: &mut Sender,
    to: &mut Receiver,
    indices: &[u8],
    edit: VlanEdit,
    snapshots: bool,
) -> Delivered {
    from.ring.poll();
    if snapshots {
        from.ring.snapshot_headers();
    }
    let delivered = to.ring.deliver(&from.ring.burst(), indices, edit);
    to.ring.publish();
    from.ring.complete();
    delivered
}

/// A frame of `len` bytes that no other frame of a test equals.
pub(super) fn frame(number: usize, len: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9) >> 5;
    let byte = |i: usize| (seed.wrapping_add(i.wrapping_mul(1 + 2 * (seed % 61))) >> (i % 3)) as u8;
    let mut bytes: Vec<u8> = (0..len).map(byte).collect();
    if let Some(kind) = bytes.get_mut(12..14) {
        kind.copy_from_slice(&[0x08, 0x00]); // untagged, whatever the pattern says
    }
    bytes
}

/// The same with an 802.1Q tag.
pub(super) fn tagged_frame(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = frame(number, len);
    bytes[12..14].copy_from_slice(&[0x81, 0x00]);
    bytes
}

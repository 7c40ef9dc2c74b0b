//! Frames that the kernel places in a guest's receive buffers. The kernel is in memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use guestmem::{GuestMemory, Pages, SharedFile};
use rustix::io::Errno;
use virtq::{Content, DeviceQueue, DriverQueue, Fault, Features, Segment, Start, Used};
use xdp::kit::{SimulatedKernel, placing};

use super::lent::Lent;
use crate::virtio_net::{HEADER_LEN, RingEvents};
use crate::xdp::{DirectError, DirectRing, DirectStatus, XdpShared};
use crate::{GuestRing, Placed};

const BASE: u64 = 0x4000_0000;
const MEMORY: u64 = 1 << 20;
const RING: u16 = 128;
const LONGEST: u32 = 1514;
/// Bytes of the guest's buffers: as a Linux guest's with mergeable buffers.
const BUFFER: u32 = 1536;

/// A guest that receives, and the kernel.
struct Bench {
    memory: Arc<GuestMemory>,
    driver: DriverQueue,
    wire: SimulatedKernel,
    device: Arc<XdpShared>,
    half: Lent<Box<DirectRing>>,
    next: u64,
    /// Address of the buffer of each id.
    at: Vec<u64>,
}

impl Bench {
    fn new() -> Bench {
        let file = SharedFile::create("guest", MEMORY, Pages::Ordinary).unwrap();
        let memory = virtq::guest_memory(&file, BASE).unwrap();
        let driver = DriverQueue::new(memory.clone(), BASE, RING, Features::empty()).unwrap();
        let device = XdpShared {
            health: Arc::default(),
            frame_bytes_max: AtomicU32::new(LONGEST),
            redirect: None,
            _promiscuous: None,
            _tags: None,
        };
        let device = Arc::new(device);
        let (wire, half) = half(&memory, &driver, &device);
        let next = BASE + DriverQueue::bytes(RING) + 1;
        Bench { memory, driver, wire, device, half, next, at: vec![0; RING.into()] }
    }

    /// Another owner of the ring, and another socket, as after a restart.
    fn restart(&mut self) {
        (self.wire, self.half) = half(&self.memory, &self.driver, &self.device);
    }

    fn direct(&self) -> Arc<DirectStatus> {
        self.half.half.direct().clone()
    }

    fn post(&mut self, buffers: usize) {
        for _ in 0..buffers {
            let addr = self.next;
            self.next += u64::from(BUFFER) + 3; // at any alignment
            self.post_at(addr, BUFFER);
        }
    }

    fn post_at(&mut self, addr: u64, len: u32) {
        let id = self.driver.post(Segment { addr, len, writable: true }).unwrap();
        self.at[usize::from(id)] = addr;
        self.driver.publish();
    }

    fn poll(&mut self) -> Placed {
        let polled = self.half.poll();
        assert_eq!((polled.frames, polled.bytes), (0, 0));
        polled.placed.unwrap()
    }

    /// Contents of the used buffers, including headers.
    fn received(&mut self) -> Vec<Vec<u8>> {
        let used = testguest::reap(&mut self.driver).unwrap();
        let bytes = |used: &Used| {
            let mut bytes = vec![0; used.len as usize];
            let at = self.at[usize::from(used.id)];
            self.memory.slice(at, used.len).unwrap().read_bytes(&mut bytes);
            bytes
        };
        used.iter().map(bytes).collect()
    }
}

fn half(
    memory: &Arc<GuestMemory>,
    driver: &DriverQueue,
    device: &Arc<XdpShared>,
) -> (SimulatedKernel, Lent<Box<DirectRing>>) {
    let mapping = memory.regions()[0].mapping.clone();
    let (wire, placer) = placing(mapping, RING.into(), (HEADER_LEN, LONGEST));
    let at = driver.addresses();
    let features = Features::empty();
    let queue =
        DeviceQueue::new(memory.clone(), &at, RING, features, Content::Writable, Start::default())
            .unwrap();
    let half =
        DirectRing::new((queue, RingEvents::default()), placer, device.clone(), None).unwrap();
    (wire, Lent::new(Box::new(half)))
}

/// A frame that says its number.
fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[0] = 2;
    frame
}

/// A frame as the guest sees it.
fn seen(frame: &[u8]) -> Vec<u8> {
    let header = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]; // nothing to be done, one buffer
    [&header[..], frame].concat()
}

#[test]
fn frames_are_where_the_guest_wants_them() {
    let mut bench = Bench::new();
    let nothing = bench.wire.receive(&frame(0, 60));
    assert!(!nothing, "no buffer is posted");
    bench.post(100);
    assert_eq!(bench.poll(), Placed::default());
    let frames: Vec<_> = [14, 60, 64, 1514].into_iter().map(|len| frame(len as u8, len)).collect();
    assert!(frames.iter().all(|frame| bench.wire.receive(frame)));
    let placed = bench.poll();
    assert_eq!((placed.frames, placed.bytes), (4, 14 + 60 + 64 + 1514));
    let want: Vec<_> = frames.iter().map(|frame| seen(frame)).collect();
    assert_eq!(bench.received(), want);
}

#[test]
fn no_byte_around_a_frame_is_written() {
    let mut bench = Bench::new();
    let buffers = bench.memory.slice(bench.next - 1, 4 * BUFFER).unwrap();
    buffers.write_bytes(&vec![0xaa; 4 * BUFFER as usize]);
    bench.post(2);
    bench.poll();
    let frames = [frame(1, 60), frame(2, LONGEST as usize)];
    assert!(frames.iter().all(|frame| bench.wire.receive(frame)));
    assert_eq!(bench.poll().frames, 2);
    let mut want = vec![0xaa; 4 * BUFFER as usize];
    for (i, frame) in frames.iter().enumerate() {
        let at = 1 + i * (BUFFER as usize + 3);
        want[at..at + 12 + frame.len()].copy_from_slice(&seen(frame));
    }
    let mut is = vec![0; 4 * BUFFER as usize];
    bench.memory.slice(BASE + DriverQueue::bytes(RING), 4 * BUFFER).unwrap().read_bytes(&mut is);
    assert!(is == want);
}

#[test]
fn a_ring_is_worked_round_and_round() {
    let mut bench = Bench::new();
    let mut number = 0;
    for round in 0..40 {
        bench.next = BASE + DriverQueue::bytes(RING) + 1 + round % 7;
        bench.post(RING.into());
        bench.poll();
        let frames: Vec<_> = (0..RING).map(|i| frame(i as u8, 60)).collect();
        assert!(frames.iter().all(|frame| bench.wire.receive(frame)));
        while number < (round + 1) * u64::from(RING) {
            number += u64::from(bench.poll().frames);
        }
        let want: Vec<_> = frames.iter().map(|frame| seen(frame)).collect();
        assert_eq!(bench.received(), want);
    }
    assert_eq!(bench.direct().ended(), None);
}

#[test]
fn what_was_posted_and_not_used_is_posted_again_by_the_next_owner() {
    let mut bench = Bench::new();
    bench.post(50);
    bench.poll();
    assert!((0..20).all(|i| bench.wire.receive(&frame(i, 60))));
    bench.poll();
    // In flight when the daemon is killed: nothing reports them.
    assert!((20..30).all(|i| bench.wire.receive(&frame(i, 60))));
    bench.restart();
    bench.poll();
    assert!((30..60).all(|i| bench.wire.receive(&frame(i, 60))));
    assert!(!bench.wire.receive(&frame(60, 60)), "as many as were posted, and no more");
    bench.poll();
    let want: Vec<_> = (0..20).chain(30..60).map(|i| seen(&frame(i, 60))).collect();
    assert_eq!(bench.received(), want);
}

#[test]
fn what_is_on_its_way_when_it_is_stopped_arrives() {
    let mut bench = Bench::new();
    bench.post(5);
    bench.poll();
    assert!((0..3).all(|i| bench.wire.receive(&frame(i, 60))));
    assert_eq!(bench.half.half.stop(), 3);
    assert_eq!(bench.received().len(), 3);
    assert_eq!(bench.poll(), Placed::default());
}

#[test]
fn buffers_that_do_not_allow_it_end_it() {
    let need = HEADER_LEN + LONGEST;
    let good = BASE + MEMORY / 2;
    let cases: [(u64, u32, DirectError); 3] = [
        (good, need - 1, DirectError::TooSmall { has: need - 1, need }),
        (BASE + MEMORY - u64::from(need), need, DirectError::AtEdge),
        (BASE + 100, need, DirectError::AtEdge),
    ];
    for (addr, len, why) in cases {
        let mut bench = Bench::new();
        bench.post(2);
        bench.post_at(addr, len);
        bench.post(2);
        bench.poll();
        assert_eq!(bench.direct().ended(), Some(why));
        assert!(!bench.half.enable_notification(), "it keeps no lane awake");
        assert!(bench.wire.receive(&frame(7, 60)), "what was posted before it may be on its way");
        assert_eq!(bench.half.half.stop(), 1);
        assert_eq!(bench.received(), [seen(&frame(7, 60))]);
    }
}

#[test]
fn buffers_in_pieces_end_it() {
    let mut bench = Bench::new();
    let piece = |addr, len| Segment { addr, len, writable: true };
    let at = BASE + MEMORY / 2;
    bench.driver.post_chain(&[piece(at, 12), piece(at + 4096, 2000)]).unwrap();
    bench.driver.publish();
    bench.poll();
    assert_eq!(bench.direct().ended(), Some(DirectError::Pieces));
}

#[test]
fn a_guest_that_breaks_its_ring_is_told() {
    let mut bench = Bench::new();
    bench.post_at(BASE + 2 * MEMORY, BUFFER);
    let polled = bench.half.poll();
    assert_eq!(polled.fault, Some(Fault::OutsideMemory));
    assert!(polled.placed.is_some(), "it is the receive ring's fault");
    assert_eq!(bench.direct().ended(), Some(DirectError::Fault));
}

#[test]
fn an_interface_that_is_lost_ends_it() {
    let mut bench = Bench::new();
    bench.post(1);
    bench.poll();
    bench.device.health.lose(Errno::NETDOWN);
    bench.poll();
    assert_eq!(bench.direct().ended(), Some(DirectError::Lost));
}

#[test]
fn a_lane_sleeps_until_a_frame_comes_or_a_buffer_is_posted() {
    let mut bench = Bench::new();
    assert!(!bench.half.enable_notification());
    bench.post(1);
    assert!(bench.half.enable_notification(), "a buffer is there to be posted");
    bench.half.half.disable_notification();
    bench.poll();
    assert!(!bench.half.enable_notification());
    assert!(bench.wire.receive(&frame(1, 60)));
    assert!(bench.half.enable_notification(), "a frame is there");
}

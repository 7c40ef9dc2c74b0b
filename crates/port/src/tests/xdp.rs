//! Tests of AF_XDP: frames from the wire to a guest, and back. The wire is in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use rustix::io::Errno;
use wire::ethernet::OVERHEAD_MAX;
use xdp::kit::{SimulatedKernel, wire};

use super::contents::edited;
use super::guests::{Layout, Receiver, Sender, frame, tagged_frame};
use super::lent::Lent;
use super::offload::{GSO, MSS, left, payload_of, tcp};
use crate::virtio_net::HEADER_LEN;
use crate::xdp::{FromWire, ToWire, XdpShared};
use crate::{BURST, Delivered, OffloadSet, VlanEdit};

const RING: u32 = 256;
const MTU: u32 = 9000;

/// A port with its wire.
struct Bench {
    wire: SimulatedKernel,
    device: Arc<XdpShared>,
    from_wire: Lent<Box<FromWire>>,
    to_wire: Lent<Box<ToWire>>,
}

impl Bench {
    fn new(mtu: u32) -> Bench {
        let (wire, inbound, outbound) = wire(RING, 0);
        let frame_bytes_max = AtomicU32::new(mtu + OVERHEAD_MAX);
        let device = XdpShared {
            health: Arc::default(),
            frame_bytes_max,
            redirect: None,
            _promiscuous: None,
            _tags: None,
        };
        let (device, unsent) = (Arc::new(device), Arc::new(AtomicBool::new(false)));
        let from_wire = FromWire::new(inbound, device.clone(), unsent.clone(), false);
        let to_wire = ToWire::new(outbound, device.clone(), unsent);
        let (from_wire, to_wire) = (Lent::new(from_wire.into()), Lent::new(to_wire.into()));
        Bench { wire, device, from_wire, to_wire }
    }

    /// Sends a guest's burst; returns the frames on the wire.
    fn send(&mut self, from: &mut Sender, edit: VlanEdit) -> (Delivered, Vec<Vec<u8>>) {
        let frames = from.ring.poll().frames as u8;
        let indices: Vec<u8> = (0..frames).collect();
        let delivered = self.to_wire.deliver(&from.ring.burst(), &indices, edit);
        self.to_wire.publish();
        from.ring.complete();
        (delivered, self.wire.sent())
    }
}

/// Sizes at which something changes: one chunk, two, three.
const SIZES: [usize; 12] = [14, 15, 16, 17, 60, 128, 1514, 2047, 2048, 2049, 4097, 9014];

#[test]
fn what_guests_send_is_on_the_wire() {
    let tag = [0x81, 0x00, 0x00, 0x07];
    for edit in [VlanEdit::None, VlanEdit::Push(tag), VlanEdit::Retag(tag), VlanEdit::Pop] {
        for layout in [Layout::chain(&[]), Layout::chain(&[HEADER_LEN + 5, 20])] {
            for snapshots in [false, true] {
                let mut bench = Bench::new(MTU);
                let mut from = Sender::new(HEADER_LEN, 9018);
                let sizes = SIZES.into_iter().filter(|size| *size >= 18 || edit == VlanEdit::None);
                let frames: Vec<_> = sizes.map(|size| tagged_frame(size, size.max(18))).collect();
                for frame in &frames {
                    from.send(frame, &layout);
                }
                let indices: Vec<u8> = (0..from.ring.poll().frames as u8).collect();
                if snapshots {
                    from.ring.snapshot_headers();
                }
                let delivered = bench.to_wire.deliver(&from.ring.burst(), &indices, edit);
                assert_eq!(bench.wire.sent(), Vec::<Vec<u8>>::new(), "before it is published");
                bench.to_wire.publish();
                let want: Vec<_> = frames.iter().map(|frame| edited(frame, edit)).collect();
                assert_eq!(bench.wire.sent(), want, "{edit:?} {layout:?} {snapshots}");
                let bytes = want.iter().map(|frame| frame.len() as u64).sum();
                let frames = want.len() as u32;
                assert_eq!(delivered, Delivered { frames, bytes, ..Delivered::default() });
            }
        }
    }
}

#[test]
fn what_is_left_to_be_done_is_done() {
    for (size, payload, count) in [(MSS as u16, 30_500, 31), (0, 700, 1)] {
        let mut bench = Bench::new(1500);
        let mut from = Sender::leaving(OffloadSet::all(), 1514);
        let (frame, payload) = tcp(payload);
        let gso = if size > 0 { GSO } else { 0 };
        from.send_with(left(gso, size), &frame, &Layout::chain(&[]));
        let (delivered, sent) = bench.send(&mut from, VlanEdit::None);
        assert_eq!((delivered.frames, sent.len()), (count, count as usize));
        assert_eq!(payload_of(&sent), payload);
    }
}

#[test]
fn what_the_interface_cannot_send_is_counted_and_the_others_go() {
    let mut bench = Bench::new(1500);
    let mut from = Sender::new(HEADER_LEN, 9018);
    for (i, len) in [60, 1523, 1522, 9000, 64].into_iter().enumerate() {
        from.send(&frame(i, len), &Layout::chain(&[]));
    }
    let (delivered, sent) = bench.send(&mut from, VlanEdit::None);
    assert_eq!((delivered.frames, delivered.too_small, delivered.no_buffer), (3, 2, 0));
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [60, 1522, 64]);
}

#[test]
fn a_wire_that_is_full_takes_the_rest_of_nothing() {
    let mut bench = Bench::new(MTU);
    let mut from = Sender::new(HEADER_LEN, 9018);
    let mut total = Delivered::default();
    for i in 0..2 * RING as usize {
        from.send(&frame(i, 60), &Layout::chain(&[]));
    }
    while from.ring.poll().frames > 0 {
        let indices: Vec<u8> = (0..BURST as u8).collect();
        total.add(bench.to_wire.deliver(&from.ring.burst(), &indices, VlanEdit::None));
        bench.to_wire.publish();
        from.ring.complete();
    }
    assert_eq!((total.frames, total.no_buffer), (RING, RING));
    assert_eq!(bench.wire.sent().len(), RING as usize);
    from.send(&frame(1, 60), &Layout::chain(&[]));
    assert_eq!(bench.send(&mut from, VlanEdit::None).0.frames, 1, "what was sent made room");
}

#[test]
fn what_comes_from_the_wire_reaches_the_guest() {
    let mut bench = Bench::new(MTU);
    let mut to = Receiver::new(HEADER_LEN, true);
    let frames: Vec<_> = SIZES.iter().map(|size| frame(*size, *size)).collect();
    for _ in 0..20 {
        frames.iter().for_each(|frame| assert!(bench.wire.receive(frame)));
        (0..frames.len()).for_each(|_| to.post(9100, &Layout::chain(&[])));
        let polled = bench.from_wire.poll();
        assert_eq!((polled.frames as usize, polled.malformed(), polled.backlog), (12, 0, false));
        bench.from_wire.snapshot_headers();
        let burst = bench.from_wire.burst();
        let indices: Vec<u8> = (0..frames.len() as u8).collect();
        assert_eq!(to.ring.deliver(&burst, &indices, VlanEdit::None).frames, 12);
        to.ring.publish();
        bench.from_wire.complete();
        let received: Vec<_> = to.frames().into_iter().map(|received| received.frame).collect();
        assert_eq!(received, frames);
        to.rewind();
    }
    assert_eq!(bench.from_wire.poll().frames, 0);
}

#[test]
fn what_is_no_frame_is_marked() {
    let mut bench = Bench::new(1500);
    let good = frame(1, 60);
    for bytes in [&good[..13], &good, &tagged_frame(2, 17), &frame(3, 1523), &frame(4, 1522)] {
        assert!(bench.wire.receive(bytes));
    }
    let polled = bench.from_wire.poll();
    assert_eq!((polled.frames, polled.runts, polled.oversize), (5, 2, 1));
    assert_eq!(bench.from_wire.burst().malformed, 0b01101);
    bench.from_wire.complete();
}

#[test]
fn a_burst_leaves_a_backlog_and_arming_tells_of_it() {
    let mut bench = Bench::new(1500);
    assert!(!bench.from_wire.enable_notification());
    (0..BURST + 1).for_each(|i| assert!(bench.wire.receive(&frame(i, 60))));
    assert!(bench.from_wire.enable_notification());
    let polled = bench.from_wire.poll();
    assert_eq!((polled.frames as usize, polled.backlog), (BURST, true));
    bench.from_wire.complete();
    assert_eq!(bench.from_wire.poll().frames, 1);
    bench.from_wire.complete();
    assert!(!bench.from_wire.enable_notification());
}

#[test]
fn a_lost_device_is_silent() {
    let mut bench = Bench::new(1500);
    assert!(bench.wire.receive(&frame(1, 60)));
    bench.device.health.lose(Errno::NETDOWN);
    assert_eq!(bench.from_wire.poll(), crate::Polled::default());
    assert!(!bench.from_wire.enable_notification());
    let mut from = Sender::new(HEADER_LEN, 9018);
    from.send(&frame(1, 60), &Layout::chain(&[]));
    let (delivered, sent) = bench.send(&mut from, VlanEdit::None);
    assert_eq!((delivered.frames, delivered.no_buffer, sent.len()), (0, 1, 0));
}

//! Tests of taps without an interface: a Unix datagram-preserving socket stands for the tap's file,
//! and the test for the kernel behind it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use host::interface::{InterfaceError, Interfaces};
use host::links::LinkAddress;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use wire::Mac;
use wire::ethernet::OVERHEAD_MAX;

use super::guests::{Layout, Receiver, Sender, frame, tagged_frame};
use super::lent::Lent;
use super::offload::{GSO, HEADERS, MSS, left, payload_of, tcp};
use crate::tap::{TapError, TapSpec};
use crate::validate::FrameRules;
use crate::{
    BURST, Delivered, LinkHealth, NetHeader, OffloadSet, QueuePair, Receive, Transmit, VlanEdit,
    tap,
};

const HEADER: usize = 12;

/// A tap, and the other end of its file.
struct Tap {
    transmit: Lent<Box<dyn Transmit>>,
    receive: Lent<Box<dyn Receive>>,
    kernel: OwnedFd,
    health: Arc<LinkHealth>,
}

impl Tap {
    fn new(takes: OffloadSet) -> Tap {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (queue, kernel) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let health = Arc::new(LinkHealth::default());
        let rules = FrameRules { frame_bytes_max: 1500 + OVERHEAD_MAX, leaves: OffloadSet::all() };
        let QueuePair { transmit, receive } =
            tap::pair(Arc::new(queue), takes, rules, &health).unwrap();
        Tap { transmit: Lent::new(transmit), receive: Lent::new(receive), kernel, health }
    }

    /// The kernel sends a frame.
    fn send(&self, offload: NetHeader, frame: &[u8]) {
        let bytes = [&offload.to_bytes()[..], frame].concat();
        assert_eq!(rustix::io::write(&self.kernel, &bytes), Ok(bytes.len()));
    }

    /// Frames that the kernel received.
    fn received(&self) -> Vec<(NetHeader, Vec<u8>)> {
        let mut all = Vec::new();
        let mut room = vec![0; 70_000];
        loop {
            match rustix::io::read(&self.kernel, &mut room) {
                Ok(n) => {
                    let header = room[..HEADER].try_into().unwrap();
                    all.push((NetHeader::from_bytes(header), room[HEADER..n].to_vec()));
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    return all;
                }
            }
        }
    }

    /// Delivers the chosen frames of a guest's burst.
    fn deliver(&mut self, from: &mut Sender, indices: &[u8], edit: VlanEdit) -> Delivered {
        from.ring.poll();
        let delivered = self.receive.deliver(&from.ring.burst(), indices, edit);
        self.receive.publish();
        from.ring.complete();
        delivered
    }
}

fn frames(received: Vec<(NetHeader, Vec<u8>)>) -> Vec<Vec<u8>> {
    received.into_iter().map(|(_, frame)| frame).collect()
}

#[test]
fn what_a_guest_sends_arrives_in_whatever_pieces_it_is() {
    let layouts: [&[u32]; 5] = [&[], &[12], &[12, 14], &[20, 30, 40], &[1, 2, 3, 4, 5, 6, 7, 8, 9]];
    let mut tap = Tap::new(OffloadSet::all());
    for (i, layout) in layouts.into_iter().enumerate() {
        let mut from = Sender::new(HEADER as u32, 1514);
        let sent: Vec<_> = [14, 15, 16, 60, 128, 129, 1514].map(|len| frame(i, len)).to_vec();
        for frame in &sent {
            from.send(frame, &Layout::chain(layout));
        }
        let delivered = tap.deliver(&mut from, &[0, 1, 2, 3, 4, 5, 6], VlanEdit::None);
        let bytes: usize = sent.iter().map(Vec::len).sum();
        assert_eq!((delivered.frames, delivered.bytes), (7, bytes as u64), "{layout:?}");
        let received = tap.received();
        assert!(received.iter().all(|(offload, _)| offload.is_plain()));
        assert_eq!(frames(received), sent, "{layout:?}");
    }
}

#[test]
fn more_than_a_batch_arrives_in_order_and_only_the_chosen_frames() {
    let mut tap = Tap::new(OffloadSet::all());
    let mut from = Sender::new(HEADER as u32, 1514);
    for i in 0..BURST {
        from.send(&frame(i, 60 + i), &Layout::chain(&[]));
    }
    let indices: Vec<u8> = (0..BURST as u8).filter(|i| i % 3 != 1).collect();
    let delivered = tap.deliver(&mut from, &indices, VlanEdit::None);
    assert_eq!(delivered.frames as usize, indices.len());
    let wanted: Vec<_> = indices.iter().map(|i| frame((*i).into(), 60 + usize::from(*i))).collect();
    assert_eq!(frames(tap.received()), wanted);
}

#[test]
fn tags_are_put_in_and_taken_out() {
    let tag = [0x81, 0x00, 0x20, 0x07];
    let mut tap = Tap::new(OffloadSet::all());
    for (edit, sent, wanted) in [
        (VlanEdit::Push(tag), frame(1, 100), {
            let plain = frame(1, 100);
            [&plain[..12], &tag, &plain[12..]].concat()
        }),
        (VlanEdit::Pop, tagged_frame(2, 100), {
            let tagged = tagged_frame(2, 100);
            [&tagged[..12], &tagged[16..]].concat()
        }),
        (VlanEdit::Retag(tag), tagged_frame(3, 100), {
            let tagged = tagged_frame(3, 100);
            [&tagged[..12], &tag, &tagged[16..]].concat()
        }),
    ] {
        let mut from = Sender::new(HEADER as u32, 1514);
        from.send(&sent, &Layout::chain(&[]));
        let delivered = tap.deliver(&mut from, &[0], edit);
        assert_eq!(delivered.bytes, wanted.len() as u64);
        assert_eq!(frames(tap.received()), [wanted], "{edit:?}");
    }
}

#[test]
fn what_is_left_to_do_is_handed_to_the_kernel_and_moves_with_the_tag() {
    for (edit, by) in [(VlanEdit::None, 0), (VlanEdit::Push([0x81, 0, 0, 5]), 4)] {
        let mut tap = Tap::new(OffloadSet::all());
        let mut from = Sender::leaving(OffloadSet::all(), 1514);
        let (sent, _) = tcp(30_000);
        from.send_with(left(GSO, MSS as u16), &sent, &Layout::chain(&[]));
        let delivered = tap.deliver(&mut from, &[0], edit);
        assert_eq!((delivered.frames, delivered.bytes), (1, sent.len() as u64 + by));
        let [(offload, received)] = &tap.received()[..] else { panic!("one frame") };
        assert_eq!((offload.gso_type, offload.gso_size.get()), (GSO, MSS as u16));
        assert_eq!(u64::from(offload.csum_start.get()), 34 + by);
        assert_eq!(u64::from(offload.hdr_len.get()), HEADERS as u64 + by);
        assert_eq!(received[received.len() - 30_000..], sent[HEADERS..]);
    }
}

#[test]
fn what_the_kernel_does_not_take_is_done_here() {
    let mut tap = Tap::new(OffloadSet::empty());
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let (sent, payload) = tcp(30_500);
    from.send(&frame(1, 60), &Layout::chain(&[]));
    from.send_with(left(GSO, MSS as u16), &sent, &Layout::chain(&[]));
    from.send(&frame(2, 60), &Layout::chain(&[]));
    let delivered = tap.deliver(&mut from, &[0, 1, 2], VlanEdit::None);
    assert_eq!((delivered.frames, delivered.no_buffer, delivered.too_small), (33, 0, 0));
    let mut received = frames(tap.received());
    assert_eq!((received.pop().unwrap(), received.remove(0)), (frame(2, 60), frame(1, 60)));
    assert_eq!(payload_of(&received), payload);
}

#[test]
fn what_the_kernel_sends_arrives_with_what_is_left_to_do() {
    let mut tap = Tap::new(OffloadSet::all());
    let mut to = Receiver::taking(OffloadSet::all());
    (0..40).for_each(|_| to.post(2048, &Layout::chain(&[])));
    let (large, _) = tcp(30_000);
    let sent = [frame(1, 14), large.clone(), frame(2, 1514), frame(3, 15)];
    tap.send(NetHeader::PLAIN, &sent[0]);
    tap.send(left(GSO, MSS as u16), &sent[1]);
    tap.send(NetHeader::PLAIN, &sent[2]);
    tap.send(NetHeader::PLAIN, &sent[3]);
    let polled = tap.transmit.poll();
    assert_eq!((polled.frames, polled.malformed(), polled.backlog), (4, 0, false));
    assert_eq!(polled.bytes, sent.iter().map(|frame| frame.len() as u64).sum::<u64>());
    let delivered = {
        let indices = [0, 1, 2, 3];
        let delivered = to.ring.deliver(&tap.transmit.burst(), &indices, VlanEdit::None);
        to.ring.publish();
        delivered
    };
    tap.transmit.complete();
    assert_eq!(delivered.frames, 4);
    let received = to.frames();
    let asks: Vec<_> = received.iter().map(|frame| frame.header[1]).collect();
    assert_eq!(asks, [0, GSO, 0, 0]);
    let received: Vec<_> = received.into_iter().map(|frame| frame.frame).collect();
    assert_eq!(received, sent);
}

#[test]
fn frames_that_are_none_are_told() {
    let mut tap = Tap::new(OffloadSet::all());
    tap.send(NetHeader::PLAIN, &frame(1, 13));
    tap.send(NetHeader::PLAIN, &tagged_frame(2, 17));
    tap.send(NetHeader::PLAIN, &frame(3, 1523));
    tap.send(left(GSO, 1500), &tcp(30_000).0);
    tap.send(left(0xfe, 1000), &tcp(30_000).0);
    tap.send(NetHeader::PLAIN, &frame(4, 66_000));
    tap.send(NetHeader::PLAIN, &frame(5, 60));
    let polled = tap.transmit.poll();
    assert_eq!((polled.frames, polled.runts, polled.oversize, polled.bad_offload), (7, 2, 3, 1));
    assert_eq!(tap.transmit.burst().malformed, 0b011_1111);
}

#[test]
fn a_burst_has_a_limit_and_says_whether_there_is_more() {
    let mut tap = Tap::new(OffloadSet::all());
    let sent: Vec<_> = (0..BURST + 3).map(|i| frame(i, 60)).collect();
    sent.iter().for_each(|frame| tap.send(NetHeader::PLAIN, frame));
    assert!(tap.transmit.enable_notification(), "frames are there already");
    let mut seen = Vec::new();
    for wanted in [BURST, 3] {
        let polled = tap.transmit.poll();
        assert_eq!((polled.frames as usize, polled.backlog), (wanted, wanted == BURST));
        seen.extend_from_slice(tap.transmit.burst().headers);
        tap.transmit.complete();
    }
    assert!(seen.iter().zip(&sent).all(|(header, frame)| header[..] == frame[..16]));
    assert!(!tap.transmit.enable_notification());
    assert!(tap.transmit.half.kick().is_some());
}

#[test]
fn a_full_queue_has_no_buffers_and_a_lost_one_is_silent() {
    let mut tap = Tap::new(OffloadSet::all());
    let mut from = Sender::new(HEADER as u32, 1514);
    let mut taken = 0;
    loop {
        for i in 0..BURST {
            from.send(&frame(i, 1514), &Layout::chain(&[]));
        }
        let indices: Vec<u8> = (0..BURST as u8).collect();
        let delivered = tap.deliver(&mut from, &indices, VlanEdit::None);
        assert_eq!((delivered.frames + delivered.no_buffer) as usize, BURST);
        taken += delivered.frames as usize;
        if delivered.no_buffer > 0 {
            break;
        }
        from.reap();
        from.rewind();
    }
    assert_eq!(tap.received().len(), taken);
    assert_eq!(tap.health.failure(), None, "it is full, not lost");
    tap.health.lose(Errno::BADFD);
    tap.send(NetHeader::PLAIN, &frame(1, 60));
    assert_eq!(tap.transmit.poll().frames, 0);
    assert!(!tap.transmit.enable_notification());
    from.reap();
    from.rewind();
    from.send(&frame(1, 60), &Layout::chain(&[]));
    let delivered = tap.deliver(&mut from, &[0], VlanEdit::None);
    assert_eq!((delivered.frames, delivered.no_buffer), (0, 1));
    assert_eq!(tap.received(), []);
}

/// Opens a new tap with three wrong settings among good ones; returns the failures that the error
/// names, once the tap is gone.
fn open_with_wrong_settings() -> Vec<String> {
    let mut spec = TapSpec {
        name: "tap0".to_owned(),
        netns: None,
        queue_pairs: 1,
        mtu: u16::MAX, // more than a tap can have
        offload: true,
        mac: Some(Mac([1, 0, 0, 0, 0, 1])), // a group address
        begins_up: true,
        addresses: vec![LinkAddress { ip: [10, 0, 0, 1].into(), prefix_len: 24 }],
        gateways: vec![[10, 0, 0, 254].into(), [192, 0, 2, 1].into()],
        removed: <_>::default(),
        mark: None,
    };
    let failures = match tap::open(&mut spec) {
        Err(TapError::Settings { name, failures }) if name == "tap0" => failures,
        other => panic!("{other:?}"),
    };
    let left = Interfaces::of(None).unwrap().state("tap0");
    assert!(matches!(left, Err(InterfaceError::Missing { .. })), "{left:?}");
    failures
}

#[test]
fn all_settings_that_fail_are_named_and_the_new_tap_is_removed() {
    let seen =
        std::thread::spawn(|| host::unshare::new_network().map(|()| open_with_wrong_settings()));
    match seen.join().unwrap() {
        Ok(failures) => {
            let wrong = ["MAC address", "MTU", "192.0.2.1"];
            assert_eq!(failures.len(), wrong.len(), "{failures:?}");
            for (failure, wrong) in failures.iter().zip(wrong) {
                assert!(failure.contains(wrong), "no {wrong} in {failures:?}");
            }
        }
        // A thread of several makes no user namespace, so this needs root.
        Err(error) => assert!(error.to_string().contains("run as root"), "{error}"),
    }
}

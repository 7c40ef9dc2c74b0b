//! Frames that cannot be taken or delivered are counted, without effect on others.

use virtq::Fault;

use super::guests::{Layout, Receiver, Sender, carry, frame, on_both_kinds_of_rings, tagged_frame};
use crate::validate::FRAME_MAX;
use crate::virtio_net::HEADER_LEN;
use crate::{BURST, BURST_BYTES, Delivered, GuestRing, Polled, VlanEdit};

fn one_piece() -> Layout {
    Layout::chain(&[])
}

fn all(n: usize) -> Vec<u8> {
    (0..n as u8).collect()
}

#[test]
fn runts_and_oversize_frames_are_malformed() {
    on_both_kinds_of_rings(|| {
        let lens = [60, 13, 14, 0, 1514, 1515, 17, 18, 9000, 1];
        for layout in [one_piece(), Layout::chain(&[12]), Layout::chain(&[12, 5, 5])] {
            let mut from = Sender::new(HEADER_LEN, 1514);
            lens.iter().for_each(|&len| {
                from.send(&frame(len, len), &layout);
            });
            // A tag needs a type behind it.
            for len in [14, 17, 18] {
                from.send(&tagged_frame(len, len), &layout);
            }
            let polled = from.ring.poll();
            let expected = Polled {
                frames: 13,
                bytes: lens.iter().chain(&[14, 17, 18]).sum::<usize>() as u64,
                runts: 5,
                oversize: 2,
                ..Polled::default()
            };
            assert_eq!(polled, expected, "{layout:?}");
            let malformed = [1, 3, 5, 8, 9, 10, 11].iter().fold(0, |bits, i| bits | 1u64 << i);
            assert_eq!(from.ring.burst().malformed, malformed, "{layout:?}");
            from.ring.complete();
            assert_eq!(from.reap().len(), 13, "the buffers of malformed frames come back");
        }
    });
}

#[test]
fn an_empty_poll_leaves_nothing_of_the_former_burst() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, 1514);
        from.send(&frame(13, 1), &one_piece());
        assert_eq!(from.ring.poll().malformed(), 1);
        from.ring.complete();
        assert_eq!(from.ring.poll(), Polled::default());
        let burst = from.ring.burst();
        assert_eq!((burst.malformed, burst.frames.len()), (0, 0));
        assert!(burst.snapshots.is_empty() && burst.offloads.is_empty());
    });
}

#[test]
fn a_burst_of_long_frames_ends_before_its_limit_and_the_rest_follows() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
        let sent: Vec<_> = (0..10).map(|n| frame(n, 60_000)).collect();
        sent.iter().for_each(|frame| {
            from.send(frame, &one_piece());
        });
        for range in [0..4, 4..8, 8..10] {
            let polled = from.ring.poll();
            let bytes = 60_000 * range.len() as u64;
            assert!(bytes <= BURST_BYTES);
            assert_eq!((polled.frames as usize, polled.bytes), (range.len(), bytes));
            assert_eq!(polled.backlog, range.end < 10);
            assert_eq!(from.ring.frames(), sent[range.clone()]);
            from.ring.complete();
            assert_eq!(from.reap().len(), range.len());
            assert_eq!(from.ring.enable_notification(), range.end < 10);
        }
        assert_eq!(from.ring.poll(), Polled::default());
        // One that is longer than the limit is taken alone.
        from.rewind();
        from.send(&vec![0; BURST_BYTES as usize + 1], &one_piece());
        from.send(&frame(1, 60), &one_piece());
        for (bytes, oversize) in [(BURST_BYTES + 1, 1), (60, 0)] {
            let polled = from.ring.poll();
            assert_eq!((polled.frames, polled.bytes, polled.oversize), (1, bytes, oversize));
            from.ring.complete();
        }
    });
}

#[test]
fn a_malformed_frame_is_found_though_it_comes_alone() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, 1514);
        let mut malformed = |frame: &[u8]| {
            from.send(frame, &one_piece());
            let polled = from.ring.poll();
            let malformed = from.ring.burst().malformed;
            assert_eq!(u64::from(polled.runts + polled.oversize), malformed);
            from.ring.complete();
            from.reap();
            malformed == 1
        };
        for len in 0..=1600 {
            assert_eq!(malformed(&frame(len, len)), !(14..=1514).contains(&len), "{len} bytes");
        }
        for len in 14..=20 {
            assert_eq!(malformed(&tagged_frame(len, len)), len < 18, "{len} bytes with a tag");
        }
    });
}

#[test]
fn a_chain_without_any_frame_is_a_runt() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(0, 1514);
        // The guest's ring cuts 12 bytes off; this one sends fewer.
        let mut short = Sender::new(HEADER_LEN, 1514);
        short.send(&[], &one_piece());
        assert_eq!(short.ring.poll().runts, 1);
        assert_eq!(short.ring.burst().frames[0].len, 0);
        from.send(&frame(0, 5), &one_piece());
        assert_eq!(from.ring.poll().runts, 1);
    });
}

/// CVE-2024-0340 (Linux): memory was passed on that nothing had been written to.
#[test]
fn stale_bytes_in_short_frames() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, 1514);
        from.send(&[0xff; 60], &one_piece());
        from.ring.poll();
        from.ring.complete();
        let short = frame(3, 14);
        from.send(&short, &one_piece());
        from.ring.poll();
        let header = from.ring.burst().headers[0];
        assert_eq!((&header[..14], &header[14..]), (&short[..], &[0, 0][..]));
    });
}

#[test]
fn frames_without_buffers_are_counted() {
    on_both_kinds_of_rings(|| {
        for mergeable in [false, true] {
            let mut from = Sender::new(HEADER_LEN, 1514);
            let mut to = Receiver::new(HEADER_LEN, mergeable);
            (0..10).for_each(|i| {
                from.send(&frame(i, 100), &one_piece());
            });
            (0..4).for_each(|_| to.post(HEADER_LEN + 100, &one_piece()));
            let delivered = carry(&mut from, &mut to, &all(10), VlanEdit::None);
            let expected =
                Delivered { frames: 4, bytes: 400, no_buffer: 6, ..Delivered::default() };
            assert_eq!(delivered, expected);
            let seen: Vec<_> = to.frames().into_iter().map(|received| received.frame).collect();
            assert_eq!(seen, (0..4).map(|i| frame(i, 100)).collect::<Vec<_>>());
            // The guest posts again, and traffic goes on.
            from.send(&frame(10, 100), &one_piece());
            to.post(HEADER_LEN + 100, &one_piece());
            assert_eq!(carry(&mut from, &mut to, &[0], VlanEdit::None).frames, 1);
        }
    });
}

/// CVE-2021-3748 (QEMU): the header of an unmapped buffer was written.
#[test]
fn mergeable_buffers_run_out() {
    on_both_kinds_of_rings(|| {
        // Two mergeable buffers are there, three are needed: they stay for the next frame.
        let mut from = Sender::new(HEADER_LEN, 1514);
        let mut to = Receiver::new(HEADER_LEN, true);
        from.send(&frame(0, 1000), &one_piece());
        from.send(&frame(1, 500), &one_piece());
        to.post(400, &one_piece());
        to.post(400, &one_piece());
        let delivered = carry(&mut from, &mut to, &all(2), VlanEdit::None);
        assert_eq!(
            (delivered.frames, delivered.no_buffer),
            (0, 2),
            "in order, so both are dropped"
        );
        assert!(to.frames().is_empty());
        from.send(&frame(2, 500), &one_piece());
        assert_eq!(carry(&mut from, &mut to, &[0], VlanEdit::None).frames, 1);
        let received = to.frames();
        assert_eq!((&received[0].frame, &received[0].lens[..]), (&frame(2, 500), &[400, 112][..]));
    });
}

#[test]
fn a_frame_that_the_next_buffer_is_too_small_for_is_counted() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, 1514);
        let mut to = Receiver::new(HEADER_LEN, false);
        for len in [101, 100, 99] {
            from.send(&frame(len, len), &one_piece());
        }
        to.post(HEADER_LEN + 100, &one_piece());
        to.post(HEADER_LEN + 98, &one_piece());
        let delivered = carry(&mut from, &mut to, &all(3), VlanEdit::None);
        let expected = Delivered { frames: 1, bytes: 100, too_small: 2, ..Delivered::default() };
        assert_eq!(delivered, expected);
        assert_eq!(to.frames()[0].frame, frame(100, 100));
        // A tag that is pushed needs its room too.
        from.send(&frame(0, 95), &one_piece());
        from.send(&frame(1, 94), &one_piece());
        let delivered = carry(&mut from, &mut to, &all(2), VlanEdit::Push([0x81, 0, 0, 1]));
        assert_eq!((delivered.frames, delivered.too_small), (1, 1));
    });
}

/// CVE-2026-86566 (DPDK): a length became negative.
#[test]
fn runt_receive_buffers() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, 9018);
        let mut to = Receiver::new(HEADER_LEN, true);
        let crumbs = Layout { cuts: vec![1; 29], indirect: true };
        (0..20).for_each(|_| to.post(30, &crumbs));
        for len in [250, 1000, 200] {
            from.send(&frame(len, len), &one_piece());
        }
        let delivered = carry(&mut from, &mut to, &all(3), VlanEdit::None);
        assert_eq!((delivered.frames, delivered.too_small), (2, 1), "{delivered:?}");
        let seen: Vec<_> = to.frames().into_iter().map(|received| received.frame).collect();
        assert_eq!(seen, [frame(250, 250), frame(200, 200)]);
        // More buffers than a burst.
        let mut to = Receiver::new(HEADER_LEN, true);
        (0..200).for_each(|_| to.post(20, &one_piece()));
        from.send(&frame(0, 20 * BURST + 1), &one_piece());
        from.send(&frame(1, 20 * BURST - 12), &one_piece());
        let delivered = carry(&mut from, &mut to, &all(2), VlanEdit::None);
        assert_eq!((delivered.frames, delivered.too_small), (1, 1), "{delivered:?}");
        assert_eq!(to.frames()[0].lens.len(), BURST);
    });
}

#[test]
fn a_fault_is_reported_by_either_half() {
    let mut from = Sender::new(HEADER_LEN, 1514);
    for i in 0..3 {
        from.send(&frame(i, 60), &one_piece());
    }
    from.driver.post(virtq::Segment { addr: 1, len: 64, writable: false }).unwrap();
    from.driver.publish();
    let polled = from.ring.poll();
    assert_eq!((polled.frames, polled.fault), (3, Some(Fault::OutsideMemory)));

    let mut to = Receiver::new(HEADER_LEN, false);
    to.post(200, &one_piece());
    to.driver.post(virtq::Segment { addr: 1, len: 200, writable: true }).unwrap();
    to.driver.publish();
    let delivered = to.ring.deliver(&from.ring.burst(), &[0, 1, 2], VlanEdit::None);
    let expected = Delivered {
        frames: 1,
        bytes: 60,
        no_buffer: 2,
        fault: Some(Fault::OutsideMemory),
        ..Delivered::default()
    };
    assert_eq!(delivered, expected);
    to.ring.publish();
    assert_eq!(to.frames()[0].frame, frame(0, 60));
    assert_eq!((to.ring.half.stop(), from.ring.half.stop()), (1, 0));
}

#[test]
fn arming_says_what_is_there_and_backlog_what_is_left() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, 1514);
        assert!(!from.ring.enable_notification());
        from.ring.half.disable_notification();
        (0..BURST + 3).for_each(|i| {
            from.send(&frame(i, 60), &one_piece());
        });
        assert!(from.ring.enable_notification());
        let polled = from.ring.poll();
        assert_eq!((polled.frames as usize, polled.backlog), (BURST, true));
        from.ring.complete();
        let polled = from.ring.poll();
        assert_eq!((polled.frames, polled.backlog), (3, false));
        from.ring.complete();
        assert!(!from.ring.enable_notification());
        assert_eq!(from.ring.poll(), Polled::default());
        assert!(from.ring.burst().frames.is_empty());
    });
}

/// A lane stages buffers ahead of the frames for them. They stay the guest's when the ring gets
/// another owner: by a change of its memory, a detached session, a hot restart or a migration.
#[test]
fn buffers_staged_ahead_are_used_by_the_next_owner() {
    on_both_kinds_of_rings(|| {
        let (mut from, mut to) = (Sender::new(HEADER_LEN, 9018), Receiver::new(HEADER_LEN, false));
        let layout = Layout::chain(&[]);
        (0..12).for_each(|_| to.post(2048, &layout));
        for number in 0..12 {
            from.send(&frame(number, 64), &layout);
            let delivered = carry(&mut from, &mut to, &[0], VlanEdit::None);
            assert_eq!((delivered.frames, delivered.no_buffer), (1, 0), "frame {number}");
            if number % 3 == 0 {
                to.change_owner();
            }
        }
        let arrived: Vec<_> = to.frames().into_iter().map(|received| received.frame).collect();
        assert_eq!(arrived, (0..12).map(|number| frame(number, 64)).collect::<Vec<_>>());
    });
}

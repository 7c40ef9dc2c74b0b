//! The first 128 bytes are read once: the receiver gets exactly the bytes that were classified.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::contents::{edit, edited, layout, size, takes_tagged};
use super::guests::{Layout, Receiver, Sender, frame, on_both_kinds_of_rings, tagged_frame};
use crate::virtio_net::{HEADER_LEN, HEADER_LEN_LEGACY};
use crate::{BURST, BurstBuffers, HeaderSnapshot, VlanEdit};

const FRAME_MAX: u32 = 9018;
const SNAPSHOT_LEN: usize = HeaderSnapshot::LEN;
/// Bytes that a hostile guest writes over a classified frame.
const FORGED: u8 = 0x66;

/// Expected frame after its sender overwrote it behind the snapshot.
fn expected_frame(honest: &[u8], edit: VlanEdit) -> Vec<u8> {
    let mut bytes = honest.to_vec();
    bytes.iter_mut().skip(SNAPSHOT_LEN).for_each(|byte| *byte = FORGED);
    edited(&bytes, edit)
}

/// Posts buffers that a frame of `need` bytes with its header just fills, or one.
fn post(to: &mut Receiver, mut need: u32, piece: u32, layout: &Layout) {
    while need > 0 {
        to.post(need.min(piece), layout);
        need -= need.min(piece);
    }
}

/// Every length from one pair of guests to another, forged between snapshot and copy.
fn every_length(from_layout: &Layout, header: u32, piece: u32, to_layout: &Layout, edit: VlanEdit) {
    let mut from = Sender::new(header, FRAME_MAX);
    let mut to = Receiver::new(header, piece < u32::MAX);
    for len in 14..300 {
        if takes_tagged(edit) && len < 18 {
            continue;
        }
        let honest = if takes_tagged(edit) { tagged_frame(len, len) } else { frame(len, len) };
        let expected = expected_frame(&honest, edit);
        let at = from.send(&honest, from_layout);
        post(&mut to, header + expected.len() as u32, piece, to_layout);
        from.ring.poll();
        from.ring.snapshot_headers();
        from.write(at, &vec![FORGED; len]);
        assert_eq!(
            from.ring.burst().snapshots,
            [HeaderSnapshot::of_frame(&honest)],
            "{from_layout:?}"
        );
        let delivered = to.ring.deliver(&from.ring.burst(), &[0], edit);
        assert_eq!((delivered.frames, delivered.bytes), (1, expected.len() as u64));
        to.ring.publish();
        from.ring.complete();
        let got = to.frames().remove(0).frame;
        assert_eq!(got, expected, "{len} bytes, {from_layout:?} to {to_layout:?}, {edit:?}");
        assert_eq!(from.reap().len(), 1);
        from.rewind();
        to.rewind();
    }
}

#[test]
fn a_guest_cannot_change_what_was_judged() {
    let indirect = Layout { cuts: vec![15, 3, 200], indirect: true };
    let layouts =
        [Layout::chain(&[]), Layout::chain(&[12, 128]), Layout::chain(&[29, 1, 7, 50]), indirect];
    let edits = [
        VlanEdit::None,
        VlanEdit::Pop,
        VlanEdit::Push([0x81, 0x00, 0x20, 0x07]),
        VlanEdit::Retag([0x88, 0xa8, 0x0f, 0xfe]),
    ];
    let whole = u32::MAX;
    for edit in edits {
        for from in &layouts {
            for to in &layouts {
                every_length(from, HEADER_LEN, whole, to, edit);
            }
            every_length(from, HEADER_LEN_LEGACY, whole, &layouts[0], edit);
            // Mergeable, in buffers that hold the whole of a frame, or bits of it.
            for piece in [2000, 141, 37] {
                every_length(from, HEADER_LEN, piece, &layouts[0], edit);
            }
        }
    }
}

#[test]
fn the_head_that_was_taken_first_is_not_read_again() {
    on_both_kinds_of_rings(|| {
        for (len, cuts) in [(300, &[][..]), (64, &[]), (300, &[20, 9, 40]), (60, &[13]), (14, &[])]
        {
            let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
            let honest = frame(3, len);
            let at = from.send(&honest, &Layout::chain(cuts));
            from.ring.poll();
            from.write(at, &vec![FORGED; len]);
            from.ring.snapshot_headers();
            let burst = from.ring.burst();
            let mut expected = HeaderSnapshot::of_frame(&vec![FORGED; len]);
            let header_len = len.min(16);
            expected.bytes[..header_len].copy_from_slice(&honest[..header_len]);
            assert_eq!(burst.snapshots, [expected], "{len} bytes");
            assert_eq!(burst.headers[0], burst.snapshots[0].bytes[..16]);
        }
    });
}

#[test]
fn a_snapshot_is_of_one_poll() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
        let send = |from: &mut Sender, len| {
            from.send(&frame(len, len), &Layout::chain(&[]));
            from.ring.poll();
            assert!(from.ring.burst().snapshots.is_empty(), "not before it is asked for");
            from.ring.snapshot_headers();
            assert_eq!(from.ring.burst().snapshots, [HeaderSnapshot::of_frame(&frame(len, len))]);
        };
        send(&mut from, 1000);
        from.ring.complete();
        assert!(from.ring.burst().snapshots.is_empty(), "its frames are gone");
        send(&mut from, 20); // nothing of the long one shows behind it
    });
}

#[test]
fn rings_share_the_room_of_their_lane() {
    on_both_kinds_of_rings(|| {
        let mut buffers = BurstBuffers::default();
        let (snapshots, headers) = (buffers.snapshots.as_ptr(), buffers.headers.as_ptr());
        for number in 0..3 {
            let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
            let len = 200 - 70 * number;
            (0..BURST).for_each(|i| {
                from.send(&frame(i + number, len), &Layout::chain(&[]));
            });
            std::mem::swap(&mut from.ring.buffers, &mut buffers);
            from.ring.poll();
            from.ring.snapshot_headers();
            let burst = from.ring.burst();
            assert_eq!((burst.snapshots.len(), burst.snapshots.as_ptr()), (BURST, snapshots));
            assert_eq!((burst.headers.len(), burst.headers.as_ptr()), (BURST, headers));
            for (i, snapshots) in burst.snapshots.iter().enumerate() {
                assert_eq!(*snapshots, HeaderSnapshot::of_frame(&frame(i + number, len)));
            }
            from.ring.complete();
            std::mem::swap(&mut from.ring.buffers, &mut buffers);
        }
    });
}

#[test]
fn frames_without_room_are_counted_as_ever() {
    on_both_kinds_of_rings(|| {
        let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
        let mut to = Receiver::new(HEADER_LEN, false);
        for (i, len) in [100, 200, 130, 60, 90].into_iter().enumerate() {
            from.send(&frame(i, len), &Layout::chain(&[]));
        }
        to.post(HEADER_LEN + 100, &Layout::chain(&[]));
        to.post(HEADER_LEN + 199, &Layout::chain(&[])); // one byte too few, so the next frame gets it
        to.post(HEADER_LEN + 130, &Layout::chain(&[]));
        from.ring.poll();
        from.ring.snapshot_headers();
        let delivered = to.ring.deliver(&from.ring.burst(), &[0, 1, 2, 3, 4], VlanEdit::None);
        to.ring.publish();
        assert_eq!((delivered.frames, delivered.bytes), (3, 290), "the small buffer stays");
        assert_eq!((delivered.too_small, delivered.no_buffer), (1, 1));
    });
}

proptest! {
    #[test]
    fn what_was_judged_arrives_whatever_else_the_guest_does(
        sent in prop::collection::vec((size(), layout()), 1..20),
        to_layout in layout(),
        edit in edit(),
        mergeable: bool,
        indices in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
    ) {
        let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
        let mut to = Receiver::new(HEADER_LEN, mergeable);
        let mut frames = Vec::new();
        for (i, (len, layout)) in sent.iter().enumerate() {
            let len = len + 4;
            let frame = if takes_tagged(edit) { tagged_frame(i, len) } else { frame(i, len) };
            frames.push((from.send(&frame, layout), frame));
        }
        from.ring.poll();
        from.ring.snapshot_headers();
        for (at, frame) in &frames {
            from.write(*at, &vec![FORGED; frame.len()]);
        }
        let indices: BTreeSet<_> = indices.iter().map(|place| place.index(sent.len()) as u8).collect();
        let indices = Vec::from_iter(indices);
        let mut expected = Vec::new();
        for index in &indices {
            let frame = expected_frame(&frames[usize::from(*index)].1, edit);
            to.post(HEADER_LEN + frame.len() as u32, &to_layout);
            expected.push(frame);
        }
        let delivered = to.ring.deliver(&from.ring.burst(), &indices, edit);
        to.ring.publish();
        prop_assert_eq!(delivered.frames as usize, indices.len());
        let got: Vec<_> = to.frames().into_iter().map(|received| received.frame).collect();
        prop_assert_eq!(got, expected);
    }
}

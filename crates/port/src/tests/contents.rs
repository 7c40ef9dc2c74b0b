//! Frames arrive as sent: for all sizes, layouts of both guests, headers and edits.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::guests::{
    Layout, Received, Receiver, Sender, carry, carry_with, frame, on_both_kinds_of_rings,
    tagged_frame,
};
use crate::virtio_net::{HEADER_LEN, HEADER_LEN_LEGACY};
use crate::{BURST, Delivered, VlanEdit};

const FRAME_MAX: u32 = 9018;

/// Sizes at which something changes, and some between.
fn sizes() -> Vec<usize> {
    let edges =
        [14..=36, 59..=66, 110..=116, 126..=146, 254..=258, 508..=516, 1020..=1026, 1510..=1526];
    let sampled = (1600..=9000).step_by(617).chain([2048, 4096, 8999, 9000]);
    edges.into_iter().flatten().chain(sampled).collect()
}

/// Reference implementation of an edit.
pub(super) fn edited(frame: &[u8], edit: VlanEdit) -> Vec<u8> {
    match edit {
        VlanEdit::None => frame.to_vec(),
        VlanEdit::Pop => [&frame[..12], &frame[16..]].concat(),
        VlanEdit::Push(tag) => [&frame[..12], &tag[..], &frame[12..]].concat(),
        VlanEdit::Retag(tag) => [&frame[..12], &tag[..], &frame[16..]].concat(),
    }
}

/// The device's header in front of a frame in so many buffers.
fn header(len: u32, buffers: u16) -> Vec<u8> {
    let mut header = vec![0; len as usize];
    if len == HEADER_LEN {
        header[10..].copy_from_slice(&buffers.to_le_bytes());
    }
    header
}

/// Layouts of known guests, and some others.
fn layouts(header: u32) -> Vec<Layout> {
    let indirect = |cuts: &[u32]| Layout { cuts: cuts.to_vec(), indirect: true };
    vec![
        Layout::chain(&[]),           // all in one piece
        Layout::chain(&[header]),     // the header apart, as old Linux and DPDK do
        Layout::chain(&[header / 2]), // split within the header
        Layout::chain(&[header + 6]), // and within the Ethernet header
        Layout::chain(&[header, 6, 6, 2]),
        Layout::chain(&[header + 14]), // behind it
        Layout::chain(&[1; 30]),
        indirect(&[]),
        indirect(&[header]),
        indirect(&[header + 3, 9, 700]),
    ]
}

#[test]
fn every_size_and_layout_arrives() {
    on_both_kinds_of_rings(|| {
        for header_len in [HEADER_LEN, HEADER_LEN_LEGACY] {
            for (from_layout, to_layout) in layouts(header_len)
                .into_iter()
                .flat_map(|from| layouts(header_len).into_iter().map(move |to| (from.clone(), to)))
            {
                let mut from = Sender::new(header_len, FRAME_MAX);
                let mut to = Receiver::new(header_len, false);
                for sizes in sizes().chunks(6) {
                    let frames: Vec<_> = sizes.iter().map(|&len| frame(len, len)).collect();
                    for frame in &frames {
                        from.send(frame, &from_layout);
                        to.post(header_len + frame.len() as u32 + 1, &to_layout);
                    }
                    let indices: Vec<u8> = (0..frames.len() as u8).collect();
                    let delivered = carry(&mut from, &mut to, &indices, VlanEdit::None);
                    let bytes = sizes.iter().sum::<usize>() as u64;
                    let whole =
                        Delivered { frames: sizes.len() as u32, bytes, ..Delivered::default() };
                    assert_eq!(delivered, whole, "{from_layout:?} to {to_layout:?}");
                    let expected: Vec<_> = frames
                        .into_iter()
                        .map(|frame| Received {
                            lens: vec![header_len + frame.len() as u32],
                            header: header(header_len, 1),
                            frame,
                        })
                        .collect();
                    assert_eq!(to.frames(), expected, "{from_layout:?} to {to_layout:?}");
                    assert_eq!(from.reap().len(), sizes.len());
                    to.rewind();
                    from.rewind();
                }
            }
        }
    });
}

pub(super) fn layout() -> impl Strategy<Value = Layout> {
    let cuts = prop::collection::vec(prop_oneof![3 => 1..40u32, 1 => 1..3000u32], 0..7);
    (cuts, any::<bool>()).prop_map(|(cuts, indirect)| Layout { cuts, indirect })
}

/// Only tagged frames lose their tag, or get another.
pub(super) fn takes_tagged(edit: VlanEdit) -> bool {
    matches!(edit, VlanEdit::Pop | VlanEdit::Retag(_))
}

pub(super) fn edit() -> impl Strategy<Value = VlanEdit> {
    prop_oneof![
        Just(VlanEdit::None),
        Just(VlanEdit::Pop),
        any::<[u8; 4]>().prop_map(VlanEdit::Push),
        any::<[u8; 4]>().prop_map(VlanEdit::Retag),
    ]
}

pub(super) fn size() -> impl Strategy<Value = usize> {
    prop_oneof![14..=80usize, 100..=1600usize, 14..=9000usize]
}

/// Bytes used of each posted buffer by a frame of `need` bytes.
fn portions(mut need: u32, posted: &mut impl Iterator<Item = u32>) -> Vec<u32> {
    let mut lens = Vec::new();
    while need > 0 {
        let len = posted.next().expect("enough was posted").min(need);
        need -= len;
        lens.push(len);
    }
    lens
}

proptest! {
    #[test]
    fn any_frames_arrive_in_any_mergeable_buffers(
        sent in prop::collection::vec((size(), layout()), 1..12),
        posted in prop::collection::vec((20..3000u32, layout()), 1..12),
        edit in edit(),
        snapshots: bool,
    ) {
        let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
        let mut to = Receiver::new(HEADER_LEN, true);
        let mut expected = Vec::new();
        // The same few layouts again and again, until all frames have room.
        let mut buffers = posted.iter().cycle();
        let mut room = Vec::new();
        for (i, (len, layout)) in sent.iter().enumerate() {
            let frame = if takes_tagged(edit) { tagged_frame(i, *len + 4) } else { frame(i, *len) };
            from.send(&frame, layout);
            let frame = edited(&frame, edit);
            let mut need = HEADER_LEN + frame.len() as u32;
            let first = room.len();
            while need > 0 {
                prop_assume!(to.driver.room() > 8);
                let (len, layout) = buffers.next().unwrap();
                to.post(*len, layout);
                room.push(*len);
                need = need.saturating_sub(*len);
            }
            let lens = portions(HEADER_LEN + frame.len() as u32, &mut room[first..].iter().copied());
            prop_assume!(lens.len() <= BURST / 2);
            expected.push(Received { header: header(HEADER_LEN, lens.len() as u16), frame, lens });
        }
        let indices: Vec<u8> = (0..sent.len() as u8).collect();
        let delivered = carry_with(&mut from, &mut to, &indices, edit, snapshots);
        let bytes = expected.iter().map(|received| received.frame.len() as u64).sum();
        let frames = sent.len() as u32;
        prop_assert_eq!(delivered, Delivered { frames, bytes, ..Delivered::default() });
        prop_assert_eq!(to.frames(), expected);
    }

    #[test]
    fn any_frames_arrive_in_buffers_that_just_fit(
        sent in prop::collection::vec((size(), layout(), layout(), 0..3u32), 1..30),
        edit in edit(),
        handover: bool,
        snapshots: bool,
    ) {
        let header_len = if handover { HEADER_LEN_LEGACY } else { HEADER_LEN };
        let mut from = Sender::new(header_len, FRAME_MAX);
        let mut to = Receiver::new(header_len, false);
        let mut expected = Vec::new();
        for (i, (len, from_layout, to_layout, slack)) in sent.iter().enumerate() {
            let frame = if takes_tagged(edit) { tagged_frame(i, *len + 4) } else { frame(i, *len) };
            from.send(&frame, from_layout);
            let frame = edited(&frame, edit);
            let need = header_len + frame.len() as u32;
            to.post(need + slack, to_layout);
            expected.push(Received { header: header(header_len, 1), frame, lens: vec![need] });
        }
        let indices: Vec<u8> = (0..sent.len() as u8).collect();
        let delivered = carry_with(&mut from, &mut to, &indices, edit, snapshots);
        prop_assert_eq!(delivered.frames as usize, sent.len());
        prop_assert_eq!(to.frames(), expected);
    }

    #[test]
    fn chosen_frames_arrive_in_the_order_of_their_indices(
        count in 1..=BURST,
        indices in prop::collection::vec(any::<prop::sample::Index>(), 0..BURST),
        mergeable: bool,
        snapshots: bool,
    ) {
        let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
        let mut to = Receiver::new(HEADER_LEN, mergeable);
        let frames: Vec<_> = (0..count).map(|i| frame(i, 60 + i)).collect();
        frames.iter().for_each(|frame| { from.send(frame, &Layout::chain(&[])); });
        let indices: BTreeSet<_> = indices.iter().map(|place| place.index(count) as u8).collect();
        let indices = Vec::from_iter(indices);
        indices.iter().for_each(|_| to.post(200, &Layout::chain(&[])));
        let delivered = carry_with(&mut from, &mut to, &indices, VlanEdit::None, snapshots);
        prop_assert_eq!(delivered.frames as usize, indices.len());
        let seen: Vec<_> = to.frames().into_iter().map(|received| received.frame).collect();
        let frame = |index: &u8| frames[usize::from(*index)].clone();
        let expected: Vec<_> = indices.iter().map(frame).collect();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn bursts_go_on_while_buffers_are_left_over() {
    on_both_kinds_of_rings(|| {
        // Each frame takes two and a half of these, so that some are always staged and not used,
        // and each is a chain, so that its pieces are kept between bursts.
        let mut from = Sender::new(HEADER_LEN, FRAME_MAX);
        let mut to = Receiver::new(HEADER_LEN, true);
        let layout = Layout::chain(&[12, 50, 30]);
        let mut sent = Vec::new();
        for round in 0..400 {
            // One more than are needed, at first.
            for _ in 0..if round == 0 { 60 } else { 3 } {
                to.post(200, &layout);
            }
            let frame = frame(round, 500);
            from.send(&frame, &Layout::chain(&[]));
            from.ring.poll();
            let delivered = to.ring.deliver(&from.ring.burst(), &[0], VlanEdit::None);
            assert_eq!((delivered.frames, delivered.no_buffer), (1, 0), "round {round}");
            to.ring.publish();
            from.ring.complete();
            from.reap();
            sent.push(frame);
            let got = to.frames();
            assert_eq!(got.len(), 1);
            assert_eq!(got[0].frame, sent[round]);
            assert_eq!(got[0].lens, [200, 200, 112]);
            from.rewind();
        }
    });
}

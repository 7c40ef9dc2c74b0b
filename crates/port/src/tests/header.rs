//! The first 16 bytes are read once: the receiver gets exactly the bytes that were classified.

use proptest::prelude::*;

use super::guests::{Layout, Receiver, Sender, frame};
use crate::VlanEdit;
use crate::virtio_net::HEADER_LEN;

/// Delivers a frame whose sender overwrites all of it after the poll.
fn forged(len: usize, from_cuts: &[u32], to_cuts: &[u32], edit: VlanEdit) -> (Vec<u8>, Vec<u8>) {
    let mut from = Sender::new(HEADER_LEN, 9018);
    let mut to = Receiver::new(HEADER_LEN, false);
    let honest = frame(7, len);
    let at = from.send(&honest, &Layout::chain(from_cuts));
    to.post(HEADER_LEN + len as u32 + 4, &Layout::chain(to_cuts));
    from.ring.poll();
    assert_eq!(from.ring.burst().headers[0][..len.min(16)], honest[..len.min(16)]);
    from.write(at, &vec![0x66; len]);
    assert_eq!(from.ring.burst().headers[0][..len.min(16)], honest[..len.min(16)]);
    to.ring.deliver(&from.ring.burst(), &[0], edit);
    to.ring.publish();
    (honest, to.frames().remove(0).frame)
}

proptest! {
    #[test]
    fn a_guest_cannot_change_a_head_after_the_poll(
        len in 14..2000usize,
        from_cuts in prop::collection::vec(1..30u32, 0..5),
        to_cuts in prop::collection::vec(1..30u32, 0..5),
        tag in prop::option::of(any::<[u8; 4]>()),
    ) {
        let edit = tag.map_or(VlanEdit::None, VlanEdit::Push);
        let (honest, seen) = forged(len, &from_cuts, &to_cuts, edit);
        let tag = tag.map_or(0, |_| 4);
        let header_len = len.min(16);
        prop_assert_eq!(seen.len(), len + tag);
        prop_assert_eq!(&seen[..12], &honest[..12], "both addresses");
        prop_assert_eq!(&seen[12 + tag..header_len + tag], &honest[12..header_len]);
        // The rest was read later, and holds only bytes of the guest.
        prop_assert!(seen[header_len + tag..].iter().all(|byte| *byte == 0x66));
    }
}

#[test]
fn the_quick_way_and_the_others_agree() {
    for (from_cuts, to_cuts) in [(&[][..], &[][..]), (&[12], &[]), (&[], &[12]), (&[18], &[20])] {
        let (honest, seen) = forged(100, from_cuts, to_cuts, VlanEdit::None);
        assert_eq!(seen[..16], honest[..16]);
        assert_eq!(seen[16..], [0x66; 84]);
    }
}

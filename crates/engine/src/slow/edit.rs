//! Two changes to a tag in a row, as one.

use port::VlanEdit;

/// Combines two edits of a tag into one; `None` if one edit cannot do it: two tags to remove or to
/// add. Such a frame is dropped, since it would hop from VLAN to VLAN.
#[inline]
pub(crate) fn combine(first: VlanEdit, then: VlanEdit) -> Option<VlanEdit> {
    Some(match (first, then) {
        (VlanEdit::None, edit) | (edit, VlanEdit::None) => edit,
        (VlanEdit::Push(_), VlanEdit::Pop) => VlanEdit::None,
        (VlanEdit::Push(_), VlanEdit::Retag(tag)) => VlanEdit::Push(tag),
        (VlanEdit::Retag(_), VlanEdit::Pop) => VlanEdit::Pop,
        (VlanEdit::Retag(_), VlanEdit::Retag(tag)) | (VlanEdit::Pop, VlanEdit::Push(tag)) => {
            VlanEdit::Retag(tag)
        }
        (VlanEdit::Pop, VlanEdit::Pop | VlanEdit::Retag(_)) => return None,
        (VlanEdit::Push(_) | VlanEdit::Retag(_), VlanEdit::Push(_)) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame after an edit.
    fn made(edit: VlanEdit, frame: &[u8]) -> Vec<u8> {
        let (macs, rest) = frame.split_at(12);
        match edit {
            VlanEdit::None => frame.to_vec(),
            VlanEdit::Pop => [macs, &rest[4..]].concat(),
            VlanEdit::Push(tag) => [macs, &tag, rest].concat(),
            VlanEdit::Retag(tag) => [macs, &tag, &rest[4..]].concat(),
        }
    }

    #[test]
    fn one_change_does_what_two_do() {
        let (a, b) = ([0x81, 0, 0, 7], [0x88, 0xa8, 0, 9]);
        let all = |tag| [VlanEdit::None, VlanEdit::Pop, VlanEdit::Push(tag), VlanEdit::Retag(tag)];
        let frame: Vec<u8> = (0..40).collect();
        for first in all(a) {
            for then in all(b) {
                let expected = made(then, &made(first, &frame));
                match combine(first, then) {
                    Some(edit) => assert_eq!(made(edit, &frame), expected, "{first:?} {then:?}"),
                    None => {
                        let mut any = all(a).into_iter().chain(all(b));
                        assert!(!any.any(|edit| made(edit, &frame) == expected));
                    }
                }
            }
        }
    }
}

//! Changes to tags: those of the NIC and of the switch as a port makes them, and two in a row.

use port::Edit;
use vswitch::VlanEdit;

/// The NIC's change in a port's words.
#[inline]
pub(crate) fn of_nic(edit: nic::VlanEdit) -> Edit {
    match edit {
        nic::VlanEdit::None => Edit::None,
        nic::VlanEdit::Pop => Edit::Pop,
        nic::VlanEdit::Push(tag) => Edit::Push(tag),
        nic::VlanEdit::Retag(tag) => Edit::Retag(tag),
    }
}

/// The switch's change in a port's words.
#[inline]
pub(crate) fn of_switch(edit: VlanEdit) -> Edit {
    match edit {
        VlanEdit::None => Edit::None,
        VlanEdit::Pop => Edit::Pop,
        VlanEdit::Push(tag) => Edit::Push(tag),
        VlanEdit::Retag(tag) => Edit::Retag(tag),
    }
}

/// One change that does what two do; `None` if there is none, as a frame with two tags to take off
/// or to put on would need. Such a frame is dropped: it would hop from VLAN to VLAN.
#[inline]
pub(crate) fn both(first: Edit, then: Edit) -> Option<Edit> {
    Some(match (first, then) {
        (Edit::None, edit) | (edit, Edit::None) => edit,
        (Edit::Push(_), Edit::Pop) => Edit::None,
        (Edit::Push(_), Edit::Retag(tag)) => Edit::Push(tag),
        (Edit::Retag(_), Edit::Pop) => Edit::Pop,
        (Edit::Retag(_), Edit::Retag(tag)) | (Edit::Pop, Edit::Push(tag)) => Edit::Retag(tag),
        (Edit::Pop, Edit::Pop | Edit::Retag(_)) => return None,
        (Edit::Push(_) | Edit::Retag(_), Edit::Push(_)) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame after a change.
    fn made(edit: Edit, frame: &[u8]) -> Vec<u8> {
        let (macs, rest) = frame.split_at(12);
        match edit {
            Edit::None => frame.to_vec(),
            Edit::Pop => [macs, &rest[4..]].concat(),
            Edit::Push(tag) => [macs, &tag, rest].concat(),
            Edit::Retag(tag) => [macs, &tag, &rest[4..]].concat(),
        }
    }

    #[test]
    fn one_change_does_what_two_do() {
        let (a, b) = ([0x81, 0, 0, 7], [0x88, 0xa8, 0, 9]);
        let all = |tag| [Edit::None, Edit::Pop, Edit::Push(tag), Edit::Retag(tag)];
        let frame: Vec<u8> = (0..40).collect();
        for first in all(a) {
            for then in all(b) {
                let expected = made(then, &made(first, &frame));
                match both(first, then) {
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

//! What a device leaves to another process of the same user, which goes on with it.
//!
//! Model: the halves are taken out of the lanes' hands first, and stay as they are. Then
//! [`Housekeeping::legacy`](crate::Housekeeping::legacy) says what there is: descriptors, and words
//! that only the same kind of device understands. What was received and not handed on is in them,
//! so nothing is lost; what the kernel keeps for a descriptor waits there.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Descriptors, and words about them.
#[derive(Clone, Debug, Default)]
pub struct Legacy {
    /// In an order that the kind of device knows.
    pub fds: Vec<Arc<OwnedFd>>,
    /// In a form that the kind of device knows.
    pub words: Vec<u8>,
}

/// What was handed over is not what this kind of device leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what another daemon handed over for {0} is incomplete, or of another version")]
pub struct Incomplete(pub &'static str);

/// Puts words together.
#[derive(Debug, Default)]
pub(crate) struct Words(pub(crate) Vec<u8>);

impl Words {
    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    /// Bytes behind their length.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.number(flag.into());
    }
}

/// Takes words apart.
#[derive(Debug)]
pub(crate) struct Said<'a>(pub(crate) &'a [u8]);

impl<'a> Said<'a> {
    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(len)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_and_cut_ones_are_not() {
        let mut words = Words::default();
        words.flag(true);
        words.number(u64::MAX);
        words.bytes(b"frame");
        words.bytes(b"");
        let all = words.0;
        let mut said = Said(&all);
        assert_eq!((said.flag(), said.number()), (Some(true), Some(u64::MAX)));
        assert_eq!((said.bytes(), said.bytes()), (Some(&b"frame"[..]), Some(&b""[..])));
        assert_eq!((said.number(), said.bytes(), said.flag()), (None, None, None));
        let mut cut = Said(&all[16..28]);
        assert_eq!(cut.bytes(), None, "the length is there, and not all bytes");
        assert_eq!(Said(&[2, 0, 0, 0, 0, 0, 0, 0]).flag(), None);
    }
}

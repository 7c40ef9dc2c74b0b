//! State of an open device, for hand-over to another process of the same user (hot restart).
//!
//! Model: first the halves are detached from the lanes and stay unchanged. Then
//! [`Housekeeping::handover`](crate::Housekeeping::handover) returns descriptors and state bytes,
//! which only the same kind of device understands. They include frames that were received and not
//! forwarded, so none is lost. Frames in the kernel's queues stay with their descriptor.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Descriptors and state of an open device.
#[derive(Clone, Debug, Default)]
pub struct PortHandover {
    /// Descriptors, in an order defined by the kind of device.
    pub fds: Vec<Arc<OwnedFd>>,
    /// State bytes, in a format defined by the kind of device.
    pub state: Vec<u8>,
}

/// The state received is not that of this kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hand-over state of {0} is incomplete, or of another version")]
pub struct IncompleteHandover(pub &'static str);

/// Writes state bytes.
#[derive(Debug, Default)]
pub(crate) struct StateWriter(pub(crate) Vec<u8>);

impl StateWriter {
    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    /// Writes the length, then the bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.number(flag.into());
    }
}

/// Reads state bytes.
#[derive(Debug)]
pub(crate) struct StateReader<'a>(pub(crate) &'a [u8]);

impl<'a> StateReader<'a> {
    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (header, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(header)
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
        let mut state = StateWriter::default();
        state.flag(true);
        state.number(u64::MAX);
        state.bytes(b"frame");
        state.bytes(b"");
        let all = state.0;
        let mut state = StateReader(&all);
        assert_eq!((state.flag(), state.number()), (Some(true), Some(u64::MAX)));
        assert_eq!((state.bytes(), state.bytes()), (Some(&b"frame"[..]), Some(&b""[..])));
        assert_eq!((state.number(), state.bytes(), state.flag()), (None, None, None));
        let mut cut = StateReader(&all[16..28]);
        assert_eq!(cut.bytes(), None, "the length is there, and not all bytes");
        assert_eq!(StateReader(&[2, 0, 0, 0, 0, 0, 0, 0]).flag(), None);
    }
}

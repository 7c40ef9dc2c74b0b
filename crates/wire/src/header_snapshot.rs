//! The first 128 bytes of a frame: the input of guards and ACLs.
//!
//! Model: a snapshot, taken once from memory that a guest may change, like
//! [`FrameHeader`](crate::FrameHeader) but long enough for the headers up to the ports. The code
//! that takes it, decides by it and delivers it shares only this type. Cannot panic: a length that
//! is too large counts as [`HeaderSnapshot::LEN`].

use crate::vlan::is_tpid;

/// The first 128 bytes of a frame, read once.
///
/// Aligned so that no 16-byte access to it crosses a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct HeaderSnapshot {
    /// The bytes, from the destination address; unspecified behind the valid ones.
    pub bytes: [u8; Self::LEN],
    /// Valid bytes; more than [`LEN`](Self::LEN) counts as that.
    pub len: u8,
}

/// Equal valid bytes.
impl PartialEq for HeaderSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for HeaderSnapshot {}

impl HeaderSnapshot {
    /// Bytes of a snapshot.
    pub const LEN: usize = 128;
    /// The snapshot of no bytes.
    pub const EMPTY: Self = Self { bytes: [0; Self::LEN], len: 0 };

    /// The snapshot of a frame.
    pub fn of_frame(frame: &[u8]) -> Self {
        let len = frame.len().min(Self::LEN);
        let mut bytes = [0; Self::LEN];
        bytes[..len].copy_from_slice(&frame[..len]);
        Self { bytes, len: len as u8 }
    }

    /// Returns `true` if a second tag follows the first, in a frame that has a first.
    #[inline]
    pub const fn has_second_tag(&self) -> bool {
        // Offset behind both addresses and the first tag.
        self.len >= 18 && is_tpid(u16::from_be_bytes([self.bytes[16], self.bytes[17]]))
    }

    /// The first 16 bytes, padded with zeros.
    pub fn header(&self) -> [u8; 16] {
        let mut header = [0; 16];
        let valid = self.bytes().len().min(header.len());
        header[..valid].copy_from_slice(&self.bytes[..valid]);
        header
    }

    /// The valid bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(Self::LEN)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_the_front_of_its_frame() {
        let frame: Vec<u8> = (0..=255).collect();
        for len in 0..=frame.len() {
            let snapshot = HeaderSnapshot::of_frame(&frame[..len]);
            assert_eq!(snapshot.bytes(), &frame[..len.min(128)]);
            let byte = |at: usize| if at < len { frame[at] } else { 0xee };
            let reused = HeaderSnapshot { bytes: std::array::from_fn(byte), ..snapshot };
            assert_eq!(reused, snapshot, "bytes of a former frame are no part of it");
            let header = std::array::from_fn(|at| if at < len { frame[at] } else { 0 });
            assert_eq!(reused.header(), header);
        }
        assert!(HeaderSnapshot::EMPTY.bytes().is_empty());
        assert!(!HeaderSnapshot::EMPTY.has_second_tag());
        for (second, is_tag) in [([0x81, 0], true), ([0x88, 0xa8], true), ([8, 0], false)] {
            let tags = [&[0; 12][..], &[0x81, 0, 0, 0], &second, &[0, 10]].concat();
            assert_eq!(HeaderSnapshot::of_frame(&tags).has_second_tag(), is_tag);
            assert!(!HeaderSnapshot::of_frame(&tags[..16]).has_second_tag());
        }
        assert_eq!(
            HeaderSnapshot { len: 255, ..HeaderSnapshot::EMPTY }.bytes().len(),
            HeaderSnapshot::LEN
        );
    }
}

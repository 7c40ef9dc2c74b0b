//! The first 128 bytes of a frame: what guards and ACLs look at.
//!
//! Model: a snapshot, taken once from memory that a guest may change, like [`Head`](crate::Head)
//! but long enough for the headers up to the ports. It is data: who takes it, who judges by it and
//! who delivers it agree on this type and nothing else.
//! Cannot panic: a length that is too large counts as [`DeepHead::LEN`].

use crate::vlan::is_tpid;

/// The first bytes of a frame, taken once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeepHead {
    /// The bytes, from the destination address.
    pub bytes: [u8; Self::LEN],
    /// How many of them there are; more than [`LEN`](Self::LEN) counts as that.
    pub len: u8,
}

impl DeepHead {
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
        // Behind both addresses and a tag.
        is_tpid(u16::from_be_bytes([self.bytes[16], self.bytes[17]]))
    }

    /// The bytes that there are.
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
            let deep = DeepHead::of_frame(&frame[..len]);
            assert_eq!(deep.bytes(), &frame[..len.min(128)]);
            assert!(deep.bytes[len.min(128)..].iter().all(|byte| *byte == 0));
        }
        assert!(DeepHead::EMPTY.bytes().is_empty());
        assert!(!DeepHead::EMPTY.has_second_tag());
        for (second, is_tag) in [([0x81, 0], true), ([0x88, 0xa8], true), ([8, 0], false)] {
            let tags = [&[0; 12][..], &[0x81, 0, 0, 0], &second, &[0, 10]].concat();
            assert_eq!(DeepHead::of_frame(&tags).has_second_tag(), is_tag);
            assert!(!DeepHead::of_frame(&tags[..16]).has_second_tag());
        }
        assert_eq!(DeepHead { len: 255, ..DeepHead::EMPTY }.bytes().len(), DeepHead::LEN);
    }
}

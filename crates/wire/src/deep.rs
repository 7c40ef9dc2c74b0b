//! The first 128 bytes of a frame: what guards and ACLs look at.
//!
//! Model: a snapshot, taken once from memory that a guest may change, like [`Head`](crate::Head)
//! but long enough for the headers up to the ports. It is data: who takes it, who judges by it and
//! who delivers it agree on this type and nothing else.
//! Cannot panic: a length that is too large counts as [`DeepHead::LEN`].

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
        assert_eq!(DeepHead { len: 255, ..DeepHead::EMPTY }.bytes().len(), DeepHead::LEN);
    }
}

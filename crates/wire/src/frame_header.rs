//! The first 16 bytes of a frame: the input of the classifier.
//!
//! Model: a snapshot, taken once from memory that a guest may change, of both addresses, the type
//! and, in a tagged frame, the TCI. Each accessor is a load, a mask and no branch. Cannot panic:
//! the array is read as numbers of fixed size.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::vlan::{Tag, is_tpid, vid_of_tci};
use crate::{Mac, Truncated, ethernet};

/// The first 16 bytes of a frame, by value.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct FrameHeader(pub [u8; 16]);

impl FrameHeader {
    /// Bytes of the snapshot.
    pub const LEN: usize = 16;
    /// Bit of [`tag_bits`](Self::tag_bits) that is set in a tagged frame; the VID is below it.
    pub const TAGGED: u16 = 1 << 12;

    /// The first 16 bytes of a frame; one that ends after its Ethernet header is padded with zeros.
    ///
    /// # Errors
    /// The frame is shorter than an Ethernet header.
    pub fn of_frame(frame: &[u8]) -> Result<Self, Truncated> {
        if let Some(header) = frame.first_chunk() {
            return Ok(Self(*header));
        }
        let short = ethernet::Frame::new(frame)?.bytes();
        let mut header = [0; Self::LEN];
        for (to, from) in header.iter_mut().zip(short) {
            *to = *from;
        }
        Ok(Self(header))
    }

    /// Destination address.
    #[inline]
    pub const fn dst(&self) -> Mac {
        Mac::from_key(self.dst_key())
    }

    /// Source address.
    #[inline]
    pub const fn src(&self) -> Mac {
        Mac::from_key(self.src_key())
    }

    /// Bytes 0 to 7 as a little-endian number: the destination's key below, two more bytes above.
    #[inline]
    pub const fn low_word(&self) -> u64 {
        // Two loads of eight bytes; assembled from single bytes it would be a dozen.
        u128::from_le_bytes(self.0) as u64
    }

    /// Bytes 8 to 15 as a little-endian number: the rest of the source, the type, the TCI.
    #[inline]
    pub const fn high_word(&self) -> u64 {
        (u128::from_le_bytes(self.0) >> 64) as u64
    }

    /// [`Mac::key`] of the destination: one load and a mask.
    #[inline]
    pub const fn dst_key(&self) -> u64 {
        self.low_word() & Mac::KEY_MASK
    }

    /// [`Mac::key`] of the source: one load and a mask.
    #[inline]
    pub const fn src_key(&self) -> u64 {
        (u128::from_le_bytes(self.0) >> 48) as u64 & Mac::KEY_MASK
    }

    /// The type field: an EtherType, a length, or the TPID of a tag.
    #[inline]
    pub const fn tpid_or_type(&self) -> u16 {
        ((self.high_word() >> 32) as u16).swap_bytes()
    }

    /// Bytes 14 and 15: the TCI of a tagged frame, else the first bytes of the payload.
    #[inline]
    pub const fn tci(&self) -> u16 {
        ((self.high_word() >> 48) as u16).swap_bytes()
    }

    /// Returns `true` if these frames are of the same flow, so that one decision holds for all.
    /// They have the same addresses and type, and tagged ones the same TCI.
    #[inline(always)]
    pub fn is_like_all(&self, rest: &[[u8; Self::LEN]]) -> bool {
        let own = u128::from_le_bytes(self.0);
        let differ = |differing, header: &[u8; 16]| differing | u128::from_le_bytes(*header) ^ own;
        // Several at a time, but ends soon if they differ.
        rest.chunks(8).all(|some| self.is_one_flow(some.iter().fold(0, differ)))
    }

    /// Returns `true` if frames whose headers differ from this one in these bits at most, as in a
    /// little-endian number, are of its flow.
    #[inline(always)]
    pub const fn is_one_flow(&self, differing: u128) -> bool {
        // Bytes 14 and 15 are payload of an untagged frame.
        differing << if self.is_tagged() { 0 } else { 16 } == 0
    }

    /// Returns `true` if the frame has a tag, 802.1Q or 802.1ad.
    #[inline]
    pub const fn is_tagged(&self) -> bool {
        is_tpid(self.tpid_or_type())
    }

    /// The VLAN id of a tagged frame, 0 for a priority tag; `None` of an untagged one.
    #[inline]
    pub const fn vid(&self) -> Option<u16> {
        if self.is_tagged() { Some(vid_of_tci(self.tci())) } else { None }
    }

    /// [`TAGGED`](Self::TAGGED) and the VLAN id in one number, 0 for an untagged frame; for loops
    /// that must not branch on frame contents.
    #[inline]
    pub const fn tag_bits(&self) -> u16 {
        let all_if_tagged = (self.is_tagged() as u16).wrapping_neg();
        (Self::TAGGED | vid_of_tci(self.tci())) & all_if_tagged
    }

    /// Returns `true` if the outermost tag is a priority tag (VLAN id 0).
    #[inline]
    pub const fn is_priority_tagged(&self) -> bool {
        self.tag_bits() == Self::TAGGED
    }

    /// The tag of a tagged frame.
    pub const fn tag(&self) -> Option<Tag> {
        if self.is_tagged() { Some(Tag::from_words(self.tpid_or_type(), self.tci())) } else { None }
    }
}

impl From<[u8; 16]> for FrameHeader {
    #[inline]
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use etherparse::Ethernet2HeaderSlice;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_frames() {
        assert_eq!(FrameHeader::of_frame(&[7; 13]).unwrap_err().need, 14);
        assert_eq!(FrameHeader::of_frame(&[7; 14]).unwrap().0[13..], [7, 0, 0]);
        assert_eq!(FrameHeader::of_frame(&[7; 17]).unwrap().0, [7; 16]);
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(mut bytes: [u8; 16], kind in 0..4) {
            match kind {
                0 => bytes[12..14].copy_from_slice(&[0x81, 0x00]),
                1 => bytes[12..14].copy_from_slice(&[0x88, 0xa8]),
                _ => (),
            }
            let header = FrameHeader(bytes);
            let theirs = Ethernet2HeaderSlice::from_slice(&bytes).unwrap();
            prop_assert_eq!(header.dst().0, theirs.destination());
            prop_assert_eq!(header.src().0, theirs.source());
            prop_assert_eq!(header.tpid_or_type(), theirs.ether_type().0);
            prop_assert_eq!(header.dst_key(), header.dst().key());
            prop_assert_eq!(header.src_key(), header.src().key());
            let tag = Tag::parse(&bytes).unwrap();
            prop_assert_eq!(header.tag(), tag);
            prop_assert_eq!(header.vid(), tag.map(|tag| tag.vid));
            prop_assert_eq!(header.tag_bits(), tag.map_or(0, |tag| 0x1000 | tag.vid));
            prop_assert_eq!(header.is_priority_tagged(), tag.is_some_and(|tag| tag.vid == 0));
            prop_assert_eq!(&header.low_word().to_le_bytes()[..], &bytes[..8]);
            prop_assert_eq!(&header.high_word().to_le_bytes()[..], &bytes[8..]);
        }
    }
}

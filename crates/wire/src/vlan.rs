//! VLAN tags (IEEE 802.1Q-2022, clause 9): four bytes between the source address and the type.
//!
//! Model: a [`Tag`] is a parsed TPID and TCI. [`push_tag`] and [`pop_tag`] edit the snapshot of a
//! frame's first 16 bytes, so that a copy writes the edited header and then the rest.
//!
//! Limits: one tag. Bytes behind the outermost tag are not read. Cannot panic.

use std::fmt;
use std::num::NonZeroU16;

use crate::{Truncated, prefix, prefix_mut};

/// TPID of a customer tag, 802.1Q.
pub const TPID_8021Q: u16 = 0x8100;
/// TPID of a service tag, 802.1ad.
pub const TPID_8021AD: u16 = 0x88a8;
/// Bytes of a tag.
pub const TAG_LEN: usize = 4;
/// Offset of the tag in a frame: after both addresses.
pub const TAG_OFFSET: usize = 12;

mod field {
    pub(super) const PCP_SHIFT: u16 = 13;
    pub(super) const DEI: u16 = 1 << 12;
    pub(super) const VID: u16 = (1 << 12) - 1;
}

/// Returns `true` if a TPID announces a VLAN tag.
#[inline]
pub const fn is_tpid(tpid: u16) -> bool {
    // Both are compared, without a branch: this is in the classifier's loop.
    (tpid == TPID_8021Q) | (tpid == TPID_8021AD)
}

/// The VLAN id in a TCI, 0 for a priority tag.
#[inline]
pub const fn vid_of_tci(tci: u16) -> u16 {
    tci & field::VID
}

/// The id of a VLAN, 1 to 4094.
///
/// 0 means "no VLAN, priority only" and 4095 is reserved (802.1Q table 9-2), so neither is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(NonZeroU16);

/// A number that is not a VLAN id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a VLAN id; allowed: 1 to 4094")]
pub struct VidError(pub u16);

impl Vid {
    /// The largest id.
    pub const MAX: u16 = 4094;

    /// Checks a number.
    ///
    /// # Errors
    /// 0, and everything above [`MAX`](Self::MAX).
    pub const fn new(vid: u16) -> Result<Self, VidError> {
        match NonZeroU16::new(vid) {
            Some(number) if vid <= Self::MAX => Ok(Self(number)),
            _ => Err(VidError(vid)),
        }
    }

    /// The number, 1 to 4094.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl TryFrom<u16> for Vid {
    type Error = VidError;

    fn try_from(vid: u16) -> Result<Self, VidError> {
        Self::new(vid)
    }
}

impl fmt::Display for Vid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A parsed tag: the representation of TPID and TCI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// [`TPID_8021Q`] or [`TPID_8021AD`].
    pub tpid: u16,
    /// Priority code point, 0 to 7; higher bits are not written.
    pub pcp: u8,
    /// Drop eligible.
    pub dei: bool,
    /// VLAN id as on the wire, 0 (priority only) to 4095; higher bits are not written.
    pub vid: u16,
}

impl Tag {
    /// An 802.1Q tag of priority 0.
    pub const fn new(vid: Vid) -> Self {
        Self::from_words(TPID_8021Q, vid.get())
    }

    /// Splits a TCI into its fields.
    pub const fn from_words(tpid: u16, tci: u16) -> Self {
        Self {
            tpid,
            pcp: (tci >> field::PCP_SHIFT) as u8,
            dei: tci & field::DEI != 0,
            vid: vid_of_tci(tci),
        }
    }

    /// The TCI: PCP, DEI and VID in one number.
    pub const fn tci(&self) -> u16 {
        let dei = if self.dei { field::DEI } else { 0 };
        (self.pcp as u16) << field::PCP_SHIFT | dei | (self.vid & field::VID)
    }

    /// The four bytes of the tag.
    pub const fn to_bytes(&self) -> [u8; TAG_LEN] {
        let [a, b] = self.tpid.to_be_bytes();
        let [c, d] = self.tci().to_be_bytes();
        [a, b, c, d]
    }

    /// Reads the tag of a frame; `None` if its type field announces none.
    ///
    /// # Errors
    /// The frame ends before the type field does, or inside the tag.
    pub fn parse(frame: &[u8]) -> Result<Option<Self>, Truncated> {
        let [.., a, b] = *prefix::<{ TAG_OFFSET + 2 }>(frame, "Ethernet")?;
        let tpid = u16::from_be_bytes([a, b]);
        if !is_tpid(tpid) {
            return Ok(None);
        }
        let [.., c, d] = *prefix::<{ TAG_OFFSET + TAG_LEN }>(frame, "VLAN tag")?;
        Ok(Some(Self::from_words(tpid, u16::from_be_bytes([c, d]))))
    }

    /// Writes the tag into a frame that already has a gap for it.
    ///
    /// # Errors
    /// The frame is shorter than both addresses and the tag.
    pub fn emit(&self, frame: &mut [u8]) -> Result<(), Truncated> {
        let head = prefix_mut::<{ TAG_OFFSET + TAG_LEN }>(frame, "VLAN tag")?;
        let [.., a, b, c, d] = head;
        [*a, *b, *c, *d] = self.to_bytes();
        Ok(())
    }
}

/// The first 16 bytes of a frame with `tag` pushed: 20 bytes.
#[inline]
pub fn push_tag(head: &[u8; 16], tag: [u8; TAG_LEN]) -> [u8; 20] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *head;
    let [t, u, v, w] = tag;
    [a, b, c, d, e, f, g, h, i, j, k, l, t, u, v, w, m, n, o, p]
}

/// The first 16 bytes of a tagged frame with its tag popped: 12 bytes.
#[inline]
pub fn pop_tag(head: &[u8; 16]) -> [u8; 12] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *head;
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// A change to a frame's tag on its way from one port to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VlanEdit {
    /// The frame stays as it is.
    None,
    /// Removes the outermost tag.
    Pop,
    /// Adds these four bytes of a tag.
    Push([u8; TAG_LEN]),
    /// Replaces the outermost tag by these four bytes.
    Retag([u8; TAG_LEN]),
}

#[cfg(test)]
mod tests {
    use etherparse::{Ethernet2HeaderSlice, SingleVlanHeader, VlanId, VlanPcp};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids() {
        assert_eq!(Vid::new(0), Err(VidError(0)));
        assert_eq!(Vid::new(1).map(Vid::get), Ok(1));
        assert_eq!(Vid::new(4094).map(Vid::get), Ok(4094));
        assert_eq!(Vid::new(4095), Err(VidError(4095)));
        assert_eq!(VidError(4095).to_string(), "4095 is not a VLAN id; allowed: 1 to 4094");
    }

    #[test]
    fn a_cut_tag_is_an_error() {
        let mut frame = [0u8; 16];
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        assert!(Tag::parse(&frame[..13]).is_err());
        assert!(Tag::parse(&frame[..15]).is_err());
        assert_eq!(Tag::parse(&frame).unwrap().unwrap().vid, 0);
        assert!(Tag::new(Vid::new(1).unwrap()).emit(&mut frame[..15]).is_err());
    }

    proptest! {
        #[test]
        fn tags_agree_with_etherparse(pcp in 0u8..8, dei: bool, vid in 0u16..4096, outer: bool) {
            let tpid = if outer { TPID_8021AD } else { TPID_8021Q };
            let tag = Tag { tpid, pcp, dei, vid };
            let theirs = SingleVlanHeader {
                pcp: VlanPcp::try_new(pcp).unwrap(),
                drop_eligible_indicator: dei,
                vlan_id: VlanId::try_new(vid).unwrap(),
                ether_type: etherparse::EtherType::IPV4,
            };
            prop_assert_eq!(&tag.to_bytes()[2..], &theirs.to_bytes()[..2]);
            prop_assert_eq!(Tag::from_words(tpid, tag.tci()), tag);
        }

        #[test]
        fn push_and_pop_are_inverse(frame in prop::collection::vec(any::<u8>(), 16..64), tci: u16) {
            let head: &[u8; 16] = frame.first_chunk().unwrap();
            let tag = Tag::from_words(TPID_8021Q, tci);
            let mut tagged = push_tag(head, tag.to_bytes()).to_vec();
            tagged.extend_from_slice(&frame[16..]);
            prop_assert_eq!(Tag::parse(&tagged).unwrap(), Some(tag));
            prop_assert_eq!(Ethernet2HeaderSlice::from_slice(&tagged).unwrap().ether_type().0, TPID_8021Q);

            let mut back = pop_tag(tagged.first_chunk().unwrap()).to_vec();
            back.extend_from_slice(&tagged[16..]);
            prop_assert_eq!(back, frame);
        }

        #[test]
        fn emit_writes_what_parse_reads(mut frame in prop::collection::vec(any::<u8>(), 0..32), tci: u16) {
            let tag = Tag::from_words(TPID_8021AD, tci);
            match tag.emit(&mut frame) {
                Ok(()) => prop_assert_eq!(Tag::parse(&frame).unwrap(), Some(tag)),
                Err(error) => prop_assert!(frame.len() < 16 && error.need == 16),
            }
        }
    }
}

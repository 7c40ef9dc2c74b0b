//! Ethernet II frames (IEEE 802.3-2022, clause 3), without FCS.
//!
//! Model: [`Frame`] reads, [`Header`] is the representation. Limits: the type field is not
//! interpreted; for tags see [`crate::vlan`]. Cannot panic.

use crate::{Mac, Truncated, prefix, prefix_mut};

/// Bytes of the header.
pub const HEADER_LEN: usize = 14;
/// Most bytes that a frame adds to its packet, without FCS: two addresses, two tags, a type.
pub const OVERHEAD_MAX: u32 = (HEADER_LEN + 2 * crate::vlan::TAG_LEN) as u32;
/// Bytes of the shortest frame that a wire carries, without FCS.
pub const FRAME_LEN_MIN: usize = 60;
/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const TYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;

mod field {
    use std::ops::Range;
    pub(super) const DST: Range<usize> = 0..6;
    pub(super) const SRC: Range<usize> = 6..12;
    pub(super) const TYPE: Range<usize> = 12..14;
}

/// A frame of at least a header, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    header: &'a [u8; HEADER_LEN],
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Looks at `bytes` as a frame.
    ///
    /// # Errors
    /// Fewer bytes than a header.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Truncated> {
        Ok(Self { header: prefix(bytes, "Ethernet")?, bytes })
    }

    /// Destination address.
    pub fn dst(&self) -> Mac {
        let [a, b, c, d, e, f, ..] = *self.header;
        Mac([a, b, c, d, e, f])
    }

    /// Source address.
    pub fn src(&self) -> Mac {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        Mac([a, b, c, d, e, f])
    }

    /// The type field: an EtherType, a length below 1536, or the TPID of a tag.
    pub fn ethertype(&self) -> u16 {
        let [.., a, b] = *self.header;
        u16::from_be_bytes([a, b])
    }

    /// The bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    /// The whole frame.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Destination address.
    pub dst: Mac,
    /// Source address.
    pub src: Mac,
    /// EtherType, or the TPID of a tag.
    pub ethertype: u16,
}

impl Header {
    /// Reads the header of a frame.
    pub fn parse(frame: &Frame<'_>) -> Self {
        Self { dst: frame.dst(), src: frame.src(), ethertype: frame.ethertype() }
    }

    /// Writes the header at the start of `frame`.
    ///
    /// # Errors
    /// Fewer bytes than a header.
    pub fn emit(&self, frame: &mut [u8]) -> Result<(), Truncated> {
        let header = prefix_mut::<HEADER_LEN>(frame, "Ethernet")?;
        header[field::DST].copy_from_slice(&self.dst.0);
        header[field::SRC].copy_from_slice(&self.src.0);
        header[field::TYPE].copy_from_slice(&self.ethertype.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use etherparse::Ethernet2Header;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_short() {
        let error = Frame::new(&[0; 13]).unwrap_err();
        assert_eq!(error.to_string(), "Ethernet: 13 bytes, at least 14 are needed");
        let header = Header { dst: Mac::ZERO, src: Mac::ZERO, ethertype: 0 };
        assert_eq!(header.emit(&mut [0; 13]), Err(error));
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(dst: [u8; 6], src: [u8; 6], ethertype: u16, rest: Vec<u8>) {
            let theirs = Ethernet2Header { destination: dst, source: src, ether_type: ethertype.into() };
            let mut frame = theirs.to_bytes().to_vec();
            frame.extend_from_slice(&rest);

            let view = Frame::new(&frame).unwrap();
            prop_assert_eq!(view.payload(), &rest[..]);
            let ours = Header::parse(&view);
            prop_assert_eq!(ours, Header { dst: Mac(dst), src: Mac(src), ethertype });

            let mut written = frame.clone();
            written[..HEADER_LEN].fill(0x5a);
            ours.emit(&mut written).unwrap();
            prop_assert_eq!(written, frame);
        }
    }
}

//! IPv4 headers (RFC 791).
//!
//! Model: [`Ipv4Layout`] reads the header of a packet whose payload may not be at hand. [`Packet`]
//! checks once that header and total length fit into the bytes given; [`Header`] is the
//! representation. Limits: options are skipped, and never written; fragments are not reassembled.
//! Cannot panic.

use std::net::Ipv4Addr;

use crate::checksum::{self, Sum};
use crate::{Truncated, prefix, prefix_mut};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

mod field {
    use std::ops::Range;
    pub(super) const VERSION_IHL: usize = 0;
    pub(super) const TOTAL_LEN: Range<usize> = 2..4;
    pub(super) const ID: Range<usize> = 4..6;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const CHECKSUM: Range<usize> = 10..12;
    pub(super) const SRC: Range<usize> = 12..16;
    pub(super) const DST: Range<usize> = 16..20;
}

/// Reasons that bytes are not an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ipv4Error {
    /// Fewer bytes than the header, or than the lengths in the header say.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version is not 4.
    #[error("IPv4: version is {0}; it must be 4")]
    Version(u8),
    /// The header length is below 20 bytes, or beyond the total length.
    #[error("IPv4: header length {header_len} and total length {total_len} contradict each other")]
    Lengths {
        /// Bytes of the header, from IHL.
        header_len: usize,
        /// Bytes of the packet, from the total length.
        total_len: usize,
    },
}

/// Offsets and lengths from a header, checked against the header alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Layout {
    /// Bytes of the header with its options, 20 to 60; all of them are present.
    pub header_len: usize,
    /// Bytes of the packet. 0 means more than the field can hold; senders write it when they leave
    /// segmentation to the device.
    pub total_len: usize,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// `true` for a fragment.
    pub is_fragment: bool,
}

impl Ipv4Layout {
    /// Reads the header of a packet, of which `bytes` may be only the first bytes.
    ///
    /// # Errors
    /// Another version, too few bytes, or contradicting lengths.
    #[inline]
    pub fn new(bytes: &[u8]) -> Result<Self, Ipv4Error> {
        let fixed: &[u8; HEADER_LEN] = prefix(bytes, "IPv4")?;
        let version = fixed[field::VERSION_IHL] >> 4;
        if version != 4 {
            return Err(Ipv4Error::Version(version));
        }
        let header_len = usize::from(fixed[field::VERSION_IHL] & 0xf) * 4;
        let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if header_len < HEADER_LEN || (total_len != 0 && total_len < header_len) {
            return Err(Ipv4Error::Lengths { header_len, total_len });
        }
        if bytes.len() < header_len {
            let (need, have) = (header_len, bytes.len());
            return Err(Truncated { header: "IPv4 options", need, have }.into());
        }
        // All bits below "don't fragment": "more fragments" and the offset.
        let is_fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
        Ok(Self { header_len, total_len, protocol: fixed[field::PROTOCOL], is_fragment })
    }
}

/// A packet whose lengths agree with its bytes, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    fixed: &'a [u8; HEADER_LEN],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Views the start of `bytes` as a packet; bytes behind it (Ethernet padding) are ignored.
    ///
    /// # Errors
    /// Another version, too few bytes, or contradicting lengths.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let Ipv4Layout { header_len, total_len, .. } = Ipv4Layout::new(bytes)?;
        let fixed: &[u8; HEADER_LEN] = prefix(bytes, "IPv4")?;
        if total_len < header_len {
            return Err(Ipv4Error::Lengths { header_len, total_len });
        }
        let cut = Truncated { header: "IPv4 packet", need: total_len, have: bytes.len() };
        let packet = bytes.get(..total_len).ok_or(cut)?;
        let (header, payload) = packet.split_at_checked(header_len).ok_or(cut)?;
        Ok(Self { fixed, header, payload })
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Protocol number of the payload.
    pub fn protocol(&self) -> u8 {
        self.fixed[field::PROTOCOL]
    }

    /// Time to live, hops.
    pub fn ttl(&self) -> u8 {
        self.fixed[field::TTL]
    }

    /// Identification, for fragments.
    pub fn id(&self) -> u16 {
        u16::from_be_bytes([self.fixed[4], self.fixed[5]])
    }

    /// Returns `true` if the header's checksum is correct.
    pub fn checksum_ok(&self) -> bool {
        Sum::new().bytes(self.header).finish() == 0
    }

    /// The bytes after the header, up to the total length.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Parsed header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Time to live, hops.
    pub ttl: u8,
    /// Identification, for fragments.
    pub id: u16,
    /// Bytes after the header; at most 65515.
    pub payload_len: u16,
}

impl Header {
    /// Reads the header of a packet, without options.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self {
            src: packet.src(),
            dst: packet.dst(),
            protocol: packet.protocol(),
            ttl: packet.ttl(),
            id: packet.id(),
            // The total length is a u16, and the payload is no longer.
            payload_len: packet.payload.len() as u16,
        }
    }

    /// Writes 20 bytes with their checksum, "don't fragment" not set.
    ///
    /// # Errors
    /// Fewer bytes than a header.
    pub fn emit(&self, packet: &mut [u8]) -> Result<(), Truncated> {
        let header = prefix_mut::<HEADER_LEN>(packet, "IPv4")?;
        *header = [0; HEADER_LEN];
        header[field::VERSION_IHL] = 0x45;
        let total_len = self.payload_len.saturating_add(HEADER_LEN as u16);
        header[field::TOTAL_LEN].copy_from_slice(&total_len.to_be_bytes());
        header[field::ID].copy_from_slice(&self.id.to_be_bytes());
        header[field::TTL] = self.ttl;
        header[field::PROTOCOL] = self.protocol;
        header[field::SRC].copy_from_slice(&self.src.octets());
        header[field::DST].copy_from_slice(&self.dst.octets());
        sign(header);
        Ok(())
    }

    /// The sum over the pseudo-header that UDP and TCP checksums begin with (RFC 768).
    pub fn pseudo_sum(&self) -> Sum {
        let (src, dst) = (self.src.octets(), self.dst.octets());
        checksum::pseudo_v4(src, dst, self.protocol).word(self.payload_len)
    }
}

/// Writes the checksum of a header; the field's old contents do not matter.
fn sign(header: &mut [u8]) {
    if let Some(field) = header.get_mut(field::CHECKSUM) {
        field.fill(0);
    }
    let checksum = Sum::new().bytes(header).finish();
    if let Some(field) = header.get_mut(field::CHECKSUM) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Sets total length, identification and checksum of `header`, which may have options. Changes
/// nothing if there are fewer bytes than a header.
pub(crate) fn patch(header: &mut [u8], total_len: u16, id: u16) {
    if let Some(fixed) = header.first_chunk_mut::<HEADER_LEN>() {
        fixed[field::TOTAL_LEN].copy_from_slice(&total_len.to_be_bytes());
        fixed[field::ID].copy_from_slice(&id.to_be_bytes());
        sign(header);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::Ipv4Header;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refusals() {
        let mut bytes = [0u8; 40];
        let header = Header {
            src: Ipv4Addr::LOCALHOST,
            dst: Ipv4Addr::LOCALHOST,
            protocol: PROTOCOL_UDP,
            ttl: 1,
            id: 7,
            payload_len: 20,
        };
        assert!(header.emit(&mut bytes[..19]).is_err());
        header.emit(&mut bytes).unwrap();
        assert!(Packet::new(&bytes).unwrap().checksum_ok());
        assert!(matches!(Packet::new(&bytes[..39]), Err(Ipv4Error::Truncated(_))));
        assert!(matches!(Packet::new(&bytes[..19]), Err(Ipv4Error::Truncated(_))));
        bytes[8] ^= 1;
        assert!(!Packet::new(&bytes).unwrap().checksum_ok());
        bytes[0] = 0x65;
        assert_eq!(Packet::new(&bytes).unwrap_err(), Ipv4Error::Version(6));
        bytes[0] = 0x44;
        assert!(matches!(Packet::new(&bytes), Err(Ipv4Error::Lengths { .. })));
        bytes[0] = 0x4b;
        assert!(matches!(Packet::new(&bytes), Err(Ipv4Error::Lengths { .. })));
    }

    proptest! {
        #[test]
        fn emit_agrees_with_etherparse(
            src: [u8; 4], dst: [u8; 4], protocol: u8, ttl: u8, id: u16, payload in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut theirs = Ipv4Header::new(payload.len() as u16, ttl, protocol.into(), src, dst).unwrap();
            theirs.identification = id;
            theirs.dont_fragment = false;
            theirs.header_checksum = theirs.calc_header_checksum();
            let mut bytes = theirs.to_bytes().to_vec();
            bytes.extend_from_slice(&payload);

            let packet = Packet::new(&bytes).unwrap();
            prop_assert!(packet.checksum_ok());
            prop_assert_eq!(packet.payload(), &payload[..]);
            let header = Header::parse(&packet);
            prop_assert_eq!((header.src.octets(), header.dst.octets()), (src, dst));
            let mut ours = bytes.clone();
            ours[..HEADER_LEN].fill(0xa5);
            header.emit(&mut ours).unwrap();
            prop_assert_eq!(ours, bytes);
        }

        /// QEMU issue 4166: the IP header's own length was trusted.
        #[test]
        fn ip_header_length_beyond_packet(mut bytes: Vec<u8>, ihl in 0u8..16) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | ihl;
            }
            let theirs = etherparse::Ipv4HeaderSlice::from_slice(&bytes).is_ok();
            if let Ok(packet) = Packet::new(&bytes) {
                prop_assert!(theirs);
                prop_assert!(packet.payload().len() + packet.header.len() <= bytes.len());
            }
        }
    }
}

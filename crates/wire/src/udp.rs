//! UDP headers (RFC 768).
//!
//! Model: [`Datagram`] reads, [`Header`] is the representation; the checksum needs the IPv4 header
//! for its pseudo-header. Limits: no jumbograms; over IPv6 only what [`crate::segment`] needs.
//! Cannot panic.

use crate::{Truncated, ipv4, prefix, prefix_mut};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: u16 = 6;

mod field {
    use std::ops::Range;
    pub(super) const SRC_PORT: Range<usize> = 0..2;
    pub(super) const DST_PORT: Range<usize> = 2..4;
    pub(super) const LEN: Range<usize> = 4..6;
    pub(super) const CHECKSUM: Range<usize> = 6..8;
}

/// A datagram whose length agrees with its bytes, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    header: &'a [u8; HEADER_LEN],
    bytes: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Views `bytes`, the payload of an IPv4 packet, as a datagram.
    ///
    /// # Errors
    /// Fewer bytes than a header, or than the length field says; a length field below 8.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let header: &[u8; HEADER_LEN] = prefix(bytes, "UDP")?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if len < HEADER_LEN {
            return Err(Truncated { header: "UDP length field", need: HEADER_LEN, have: len });
        }
        let cut = Truncated { header: "UDP datagram", need: len, have: bytes.len() };
        Ok(Self { header, bytes: bytes.get(..len).ok_or(cut)? })
    }

    /// Source port.
    pub fn src_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    pub fn dst_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// The checksum field; 0 means no checksum.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// Returns `true` if the checksum is correct or absent.
    pub fn checksum_ok(&self, ip: &ipv4::Header) -> bool {
        self.checksum() == 0 || ip.pseudo_sum().bytes(self.bytes).finish() == 0
    }

    /// The bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }
}

/// Parsed header; length and checksum are derived on writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl Header {
    /// Reads the header of a datagram.
    pub fn parse(datagram: &Datagram<'_>) -> Self {
        Self { src_port: datagram.src_port(), dst_port: datagram.dst_port() }
    }

    /// Writes header and checksum over the first `ip.payload_len` bytes of `datagram`, whose
    /// payload must be in place.
    ///
    /// # Errors
    /// Fewer bytes than `ip.payload_len`, or than a header.
    pub fn emit(&self, ip: &ipv4::Header, datagram: &mut [u8]) -> Result<(), Truncated> {
        let (need, have) = (usize::from(ip.payload_len), datagram.len());
        let datagram =
            datagram.get_mut(..need).ok_or(Truncated { header: "UDP datagram", need, have })?;
        let header = prefix_mut::<HEADER_LEN>(datagram, "UDP")?;
        header[field::SRC_PORT].copy_from_slice(&self.src_port.to_be_bytes());
        header[field::DST_PORT].copy_from_slice(&self.dst_port.to_be_bytes());
        header[field::LEN].copy_from_slice(&ip.payload_len.to_be_bytes());
        header[field::CHECKSUM].fill(0);
        let checksum = stored(ip.pseudo_sum().bytes(datagram).finish());
        prefix_mut::<HEADER_LEN>(datagram, "UDP")?[field::CHECKSUM]
            .copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// Field value of a computed checksum: 0 means "none", so a computed 0 is sent as all ones.
pub const fn stored(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Sets the length of `header`, and its checksum to 0. Changes nothing if there are fewer bytes
/// than a header.
pub(crate) fn patch(header: &mut [u8], len: u16) {
    if let Some(fixed) = header.first_chunk_mut::<HEADER_LEN>() {
        fixed[field::LEN].copy_from_slice(&len.to_be_bytes());
        fixed[field::CHECKSUM].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use etherparse::{Ipv4Header, UdpHeader};
    use proptest::prelude::*;

    use super::*;

    fn ip(src: [u8; 4], dst: [u8; 4], payload_len: u16) -> ipv4::Header {
        ipv4::Header {
            src: Ipv4Addr::from(src),
            dst: Ipv4Addr::from(dst),
            protocol: ipv4::PROTOCOL_UDP,
            ttl: 64,
            id: 0,
            payload_len,
        }
    }

    #[test]
    fn refusals() {
        let mut bytes = [0u8; 12];
        let header = Header { src_port: 1, dst_port: 2 };
        assert!(header.emit(&ip([1; 4], [2; 4], 13), &mut bytes).is_err());
        assert!(header.emit(&ip([1; 4], [2; 4], 7), &mut bytes).is_err());
        header.emit(&ip([1; 4], [2; 4], 12), &mut bytes).unwrap();
        assert!(Datagram::new(&bytes[..11]).is_err());
        assert!(Datagram::new(&bytes[..7]).is_err());
        bytes[5] = 7;
        assert!(Datagram::new(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(
            src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16, payload in prop::collection::vec(any::<u8>(), 0..99),
        ) {
            let their_ip = Ipv4Header::new(8 + payload.len() as u16, 64, etherparse::IpNumber::UDP, src, dst).unwrap();
            let theirs = UdpHeader::with_ipv4_checksum(src_port, dst_port, &their_ip, &payload).unwrap();
            let mut expected = theirs.to_bytes().to_vec();
            expected.extend_from_slice(&payload);

            let mut ours = vec![0xa5; HEADER_LEN];
            ours.extend_from_slice(&payload);
            let ip = ip(src, dst, ours.len() as u16);
            Header { src_port, dst_port }.emit(&ip, &mut ours).unwrap();
            prop_assert_eq!(&ours, &expected);

            let datagram = Datagram::new(&ours).unwrap();
            prop_assert_eq!(Header::parse(&datagram), Header { src_port, dst_port });
            prop_assert_eq!(datagram.payload(), &payload[..]);
            prop_assert!(datagram.checksum_ok(&ip));
            ours[0] ^= 0x10;
            prop_assert!(!Datagram::new(&ours).unwrap().checksum_ok(&ip));
        }
    }
}

//! IPv6 headers with their extension headers (RFC 8200), for reading.
//!
//! Model: [`Ipv6Layout`] walks from the fixed header over extension headers to the upper-layer
//! header. Sections: RFC 8200 section 4, RFC 4302 (AH), RFC 6275 section 6.4 and RFC 8754 (routing
//! headers that name the final destination).
//!
//! Limits: eight extension headers; no jumbograms. Cannot panic.

use crate::{Truncated, prefix};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// Most extension headers that are skipped.
pub const EXTENSIONS_MAX: usize = 8;

mod field {
    use std::ops::Range;
    pub(super) const PAYLOAD_LEN: Range<usize> = 4..6;
    pub(super) const NEXT: usize = 6;
}

mod next {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(super) const OPTIONS: u8 = 60;
}

/// Reasons that bytes are not an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ipv6Error {
    /// Fewer bytes than the headers take.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version is not 6.
    #[error("IPv6: version is {0}; it must be 6")]
    Version(u8),
    /// More than [`EXTENSIONS_MAX`] extension headers.
    #[error("IPv6: more than {EXTENSIONS_MAX} extension headers")]
    Extensions,
}

/// Offsets and lengths from the headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Layout {
    /// Bytes of the header with its extension headers; all of them are present.
    pub headers_len: usize,
    /// Bytes of the packet. 0 means more than the field can hold, as in
    /// [`ipv4::Ipv4Layout`](crate::ipv4::Ipv4Layout).
    pub total_len: usize,
    /// Protocol number of the upper-layer header.
    pub protocol: u8,
    /// `true` for a fragment. Bytes behind the fragment header are then not read.
    pub is_fragment: bool,
    /// `true` if an authentication header covers the payload.
    pub is_authenticated: bool,
    /// Source address.
    pub src: [u8; 16],
    /// Final destination, behind routing headers; `None` if they do not give it.
    pub dst: Option<[u8; 16]>,
}

impl Ipv6Layout {
    /// Reads the headers of a packet, of which `bytes` may be only the first bytes.
    ///
    /// # Errors
    /// Another version, too few bytes for the headers, too many extension headers.
    #[inline]
    pub fn new(bytes: &[u8]) -> Result<Self, Ipv6Error> {
        let fixed: &[u8; HEADER_LEN] = prefix(bytes, "IPv6")?;
        let version = fixed[0] >> 4;
        if version != 6 {
            return Err(Ipv6Error::Version(version));
        }
        let payload_len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let [_, _, _, _, _, _, _, _, addresses @ ..] = fixed;
        let (src, dst) = (addresses.first_chunk(), addresses.last_chunk());
        let mut layout = Self {
            headers_len: HEADER_LEN,
            total_len: if payload_len == 0 { 0 } else { HEADER_LEN + payload_len },
            protocol: fixed[field::NEXT],
            is_fragment: false,
            is_authenticated: false,
            src: src.copied().unwrap_or_default(),
            dst: dst.copied(),
        };
        for _ in 0..=EXTENSIONS_MAX {
            if !layout.step(bytes)? {
                return Ok(layout);
            }
        }
        Err(Ipv6Error::Extensions)
    }

    /// Skips one extension header; `false` if there is none.
    fn step(&mut self, bytes: &[u8]) -> Result<bool, Truncated> {
        let here = bytes.get(self.headers_len..).unwrap_or_default();
        let unit = match self.protocol {
            next::HOP_BY_HOP | next::ROUTING | next::OPTIONS | next::FRAGMENT => 8,
            next::AUTHENTICATION => 4,
            _ => return Ok(false),
        };
        let [following, len, kind, left, ..] = *prefix::<8>(here, "IPv6 extension header")?;
        // The second byte of a fragment header is reserved; the header has 8 bytes.
        let is_fragment = self.protocol == next::FRAGMENT;
        let header_len = if is_fragment { 8 } else { 8 + unit * usize::from(len) };
        let cut = Truncated { header: "IPv6 extension header", need: header_len, have: here.len() };
        let header = here.get(..header_len).ok_or(cut)?;
        match self.protocol {
            // Even an "atomic" fragment, a packet in one piece, must not be changed by others.
            next::FRAGMENT => self.is_fragment = true,
            next::AUTHENTICATION => self.is_authenticated = true,
            // Home address, and segment routing: the last segment comes first.
            next::ROUTING if left != 0 && matches!(kind, 2 | 4) => {
                self.dst = header.get(8..).and_then(<[u8]>::first_chunk).copied();
            }
            next::ROUTING if left != 0 => self.dst = None,
            _ => (),
        }
        self.protocol = following;
        self.headers_len += header_len;
        Ok(!is_fragment)
    }
}

/// Sets the payload length of `header`. Changes nothing if there are fewer bytes than a header.
pub(crate) fn patch(header: &mut [u8], payload_len: u16) {
    if let Some(fixed) = header.first_chunk_mut::<HEADER_LEN>() {
        fixed[field::PAYLOAD_LEN].copy_from_slice(&payload_len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{IpNumber, Ipv6Header};
    use proptest::prelude::*;

    use super::*;

    fn packet(next: u8, rest: &[u8]) -> Vec<u8> {
        let header = Ipv6Header {
            payload_length: rest.len() as u16,
            next_header: IpNumber(next),
            source: [1; 16],
            destination: [2; 16],
            ..Ipv6Header::default()
        };
        [&header.to_bytes()[..], rest].concat()
    }

    #[test]
    fn extension_headers_are_walked_over() {
        let mut rest = vec![next::OPTIONS, 1];
        rest.resize(16, 0);
        rest.extend([next::AUTHENTICATION, 0, 1, 4, 0, 0, 0, 0]);
        rest.extend([6, 4]);
        rest.resize(16 + 8 + 24 + 20, 0);
        let bytes = packet(next::HOP_BY_HOP, &rest);
        let layout = Ipv6Layout::new(&bytes).unwrap();
        assert_eq!((layout.headers_len, layout.total_len), (40 + 16 + 8 + 24, bytes.len()));
        assert!(layout.protocol == 6 && layout.is_authenticated && !layout.is_fragment);
        assert_eq!((layout.src, layout.dst), ([1; 16], Some([2; 16])));
        for cut in 0..layout.headers_len {
            assert!(
                matches!(Ipv6Layout::new(&bytes[..cut]), Err(Ipv6Error::Truncated(_))),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_routing_header_says_where_the_packet_ends_up() {
        for (kind, left, dst) in [
            (4, 1, Some([9; 16])),
            (2, 1, Some([9; 16])),
            (0, 1, None),
            (4, 0, Some([2; 16])),
            (0, 0, Some([2; 16])),
        ] {
            let mut rest = vec![17, 2, kind, left, 0, 0, 0, 0];
            rest.extend([9; 16]);
            let layout = Ipv6Layout::new(&packet(next::ROUTING, &rest)).unwrap();
            assert_eq!((layout.dst, layout.protocol, layout.headers_len), (dst, 17, 64));
        }
        // No room for an address.
        let layout = Ipv6Layout::new(&packet(next::ROUTING, &[17, 0, 4, 1, 0, 0, 0, 0])).unwrap();
        assert_eq!(layout.dst, None);
    }

    #[test]
    fn refusals() {
        let fragment = packet(next::FRAGMENT, &[next::OPTIONS, 77, 0, 1, 0, 0, 0, 1]);
        let layout = Ipv6Layout::new(&fragment).unwrap();
        assert!(layout.is_fragment && layout.headers_len == 48, "and no further");

        let options = |count: usize| [next::OPTIONS, 0, 0, 0, 0, 0, 0, 0].repeat(count);
        let mut eight = options(EXTENSIONS_MAX);
        eight[(EXTENSIONS_MAX - 1) * 8] = 17;
        assert_eq!(Ipv6Layout::new(&packet(next::OPTIONS, &eight)).unwrap().headers_len, 40 + 64);
        let nine = packet(next::OPTIONS, &options(EXTENSIONS_MAX + 2));
        assert_eq!(Ipv6Layout::new(&nine), Err(Ipv6Error::Extensions));

        let mut four = packet(17, &[]);
        four[0] = 0x45;
        assert_eq!(Ipv6Layout::new(&four), Err(Ipv6Error::Version(4)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(next: u8, rest: Vec<u8>, cut in 0usize..140) {
            let mut bytes = packet(next, &rest);
            bytes.truncate(cut);
            if let Ok(layout) = Ipv6Layout::new(&bytes) {
                prop_assert!(layout.headers_len <= bytes.len());
            }
        }

        #[test]
        fn patch_writes_a_length(payload_len: u16) {
            let mut bytes = packet(6, &[]);
            patch(&mut bytes, payload_len);
            let (header, _) = Ipv6Header::from_slice(&bytes).unwrap();
            prop_assert_eq!(header.payload_length, payload_len);
        }
    }
}

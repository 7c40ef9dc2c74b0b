//! A header that a guest wrote, judged by the frame it stands in front of.
//!
//! Model: whoever acts on a header writes where it says. So before anybody does, the field of the
//! checksum must be that of the frame's protocol: behind everything that switches, guards and ACLs
//! decide by. What comes out of [`Header::judge`] has only what is left to do, with a true
//! `hdr_len`.
//!
//! | IP carries | `csum_start` | `csum_offset` |
//! |---|---|---|
//! | TCP | its header | 16 |
//! | UDP | its header | 6 |
//! | UDP, not to segment | within its payload: a packet that it carries | any |
//! | DCCP, UDP-Lite | its header | 6 |
//! | ICMP, ICMPv6 | its header | 2 |
//! | SCTP | refused: its checksum is a CRC | |
//! | anything else | its header or behind | any |
//!
//! Limits: [`SEGMENTS_MAX`]; frames of other EtherTypes than IP have nothing left to do.
//! Cannot panic.

use super::{Accepts, FLAG_NEEDS_CSUM, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_UDP_L4};
use super::{Header, HeaderError};
use crate::{IpVersion, Layers, LayersError, ipv4, ipv6, prefix, tcp, udp};

/// Segments that one frame is cut into at most: a guest that asks for more wants to keep others
/// from being served. 64 KiB at 128 bytes a segment.
pub const SEGMENTS_MAX: usize = 512;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_DCCP: u8 = 33;
const PROTOCOL_SCTP: u8 = 132;
const PROTOCOL_UDP_LITE: u8 = 136;
/// Where ICMP and ICMPv6 have their checksum.
const ICMP_CHECKSUM_OFFSET: u16 = 2;

/// What is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gso {
    None,
    Tcp,
    Udp,
}

/// A header found right, and what was seen on the way.
pub(crate) struct Judged {
    /// Has only what is left to do.
    pub(crate) header: Header,
    pub(crate) layers: Layers,
    pub(crate) gso: Gso,
    /// Bytes from the frame's start to the payload to segment; 0 without segmentation.
    pub(crate) headers_len: usize,
}

impl Header {
    /// Judges a header that a guest wrote by the frame, and gives what of it can be handed on.
    ///
    /// `head` holds the first bytes of the frame, as many as its headers take (128 do, but for rare
    /// options), and `frame_len` says how long the whole is. `accepts` is what the sender may leave
    /// to do.
    ///
    /// # Errors
    /// As [`check`](Self::check); and whatever in the header contradicts the frame.
    #[inline]
    pub fn judge(
        &self,
        head: &[u8],
        frame_len: usize,
        accepts: Accepts,
    ) -> Result<Self, HeaderError> {
        self.check(frame_len, accepts)?;
        if self.is_plain() {
            return Ok(Self::default());
        }
        Ok(Judged::of(self, head, frame_len)?.header)
    }
}

impl Header {
    /// Number of segments of a frame of `frame_len` bytes, and the bytes that their headers add.
    /// The header must come from [`judge`](Self::judge), which corrects `hdr_len`.
    #[inline]
    pub fn segments(&self, frame_len: u32) -> (u32, u32) {
        let (size, headers_len) = (u32::from(self.gso_size.get()), u32::from(self.hdr_len.get()));
        if size == 0 {
            return (1, 0);
        }
        let count = frame_len.saturating_sub(headers_len).div_ceil(size);
        // Padding behind the IP packet is in no segment.
        let count = count.clamp(1, SEGMENTS_MAX as u32);
        (count, (count - 1) * headers_len)
    }
}

impl Judged {
    /// Judges a header that passed [`Header::check`] and is not plain.
    pub(crate) fn of(header: &Header, head: &[u8], frame_len: usize) -> Result<Self, HeaderError> {
        let layers = Layers::of(head, frame_len)?;
        if !layers.is_whole {
            return Err(HeaderError::Piece);
        }
        let gso = kind(header, &layers)?;
        place(header, &layers, gso)?;
        let headers_len = match gso {
            Gso::None => 0,
            Gso::Tcp => layers.upper + tcp_header_len(head, &layers)?,
            Gso::Udp => layers.upper + udp::HEADER_LEN,
        };
        let mut left = Header {
            flags: FLAG_NEEDS_CSUM,
            csum_start: header.csum_start,
            csum_offset: header.csum_offset,
            ..Header::default()
        };
        if gso != Gso::None {
            size(header, &layers, headers_len)?;
            left.gso_type = header.gso_type;
            left.gso_size = header.gso_size;
            // Not beyond the IP packet, nor the longest headers that there are.
            left.hdr_len = (headers_len as u16).into();
        }
        Ok(Self { header: left, layers, gso, headers_len })
    }
}

/// Whether the segmentation type is that of the frame's protocols.
fn kind(header: &Header, layers: &Layers) -> Result<Gso, HeaderError> {
    let gso_type = header.gso_type;
    if gso_type == GSO_NONE {
        return Ok(Gso::None);
    }
    let Layers { version, protocol, .. } = *layers;
    if gso_type == GSO_UDP_L4 {
        if protocol == ipv4::PROTOCOL_UDP {
            return Ok(Gso::Udp);
        }
    } else {
        let is_v4 = gso_type & !GSO_ECN == GSO_TCPV4;
        if protocol == ipv4::PROTOCOL_TCP && is_v4 == (version == IpVersion::V4) {
            return Ok(Gso::Tcp);
        }
    }
    Err(HeaderError::GsoProtocol { gso_type, version, protocol })
}

/// Whether the checksum is where that of the frame's protocol is.
fn place(header: &Header, layers: &Layers, gso: Gso) -> Result<(), HeaderError> {
    let Layers { upper, end, protocol, .. } = *layers;
    let (start, offset) = (header.csum_start.get(), header.csum_offset.get());
    let at = usize::from(start);
    let fixed = match protocol {
        ipv4::PROTOCOL_TCP => Some(tcp::CHECKSUM_OFFSET),
        ipv4::PROTOCOL_UDP if gso == Gso::None && at >= upper + udp::HEADER_LEN => None,
        ipv4::PROTOCOL_UDP | PROTOCOL_DCCP | PROTOCOL_UDP_LITE => Some(udp::CHECKSUM_OFFSET),
        PROTOCOL_ICMP | ipv6::PROTOCOL_ICMPV6 => Some(ICMP_CHECKSUM_OFFSET),
        _ => None,
    };
    let right = match fixed {
        Some(place) => at == upper && offset == place,
        None => at >= upper && protocol != PROTOCOL_SCTP,
    };
    if right && at + usize::from(offset) + 2 <= end {
        Ok(())
    } else {
        Err(HeaderError::Place { start, offset, protocol, upper })
    }
}

/// Bytes of the TCP header of a frame to segment.
fn tcp_header_len(head: &[u8], layers: &Layers) -> Result<usize, HeaderError> {
    let upper = head.get(layers.upper..).unwrap_or_default();
    let fixed: &[u8; tcp::HEADER_LEN] = prefix(upper, "TCP").map_err(LayersError::from)?;
    let len = tcp::header_len(fixed)?;
    // The sequence number counts a SYN, so that the segments behind it would be one off.
    let flags = fixed[13];
    if flags & (tcp::FLAG_SYN | tcp::FLAG_RST) != 0 {
        return Err(HeaderError::TcpFlags(flags));
    }
    Ok(len)
}

/// Whether the size of a segment is sane.
fn size(header: &Header, layers: &Layers, headers_len: usize) -> Result<(), HeaderError> {
    let Layers { network, end, .. } = *layers;
    let payload = end.checked_sub(headers_len).ok_or(HeaderError::Headers { headers_len, end })?;
    let size = header.gso_size.get();
    let segments = payload.div_ceil(usize::from(size.max(1)));
    if segments > SEGMENTS_MAX {
        return Err(HeaderError::Segments { segments, size });
    }
    let longest = payload.min(usize::from(size));
    if headers_len - network + longest > usize::from(u16::MAX) {
        return Err(HeaderError::SegmentLen(longest));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

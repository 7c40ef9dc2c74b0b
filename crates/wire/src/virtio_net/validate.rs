//! Validation of a guest's header against its frame.
//!
//! Model: code that completes a checksum writes at the offset that the header gives. So the field
//! must first be proved to be the checksum of the frame's protocol, behind all fields that
//! switches, guards and ACLs decide by. The result of [`NetHeader::validate`] has only the offloads
//! that are left to do, with a true `hdr_len`.
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
//! Limits: [`SEGMENTS_MAX`]; frames of EtherTypes other than IP can have no offload. Cannot panic.

use super::{FLAG_NEEDS_CSUM, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_UDP_L4, OffloadSet};
use super::{NetHeader, NetHeaderError};
use crate::{IpVersion, Layers, LayersError, ipv4, ipv6, prefix, tcp, udp};

/// Most segments of one frame, against a guest that would delay others. 64 KiB at 128 bytes a
/// segment.
pub const SEGMENTS_MAX: usize = 512;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_DCCP: u8 = 33;
const PROTOCOL_SCTP: u8 = 132;
const PROTOCOL_UDP_LITE: u8 = 136;
/// Checksum offset in ICMP and ICMPv6.
const ICMP_CHECKSUM_OFFSET: u16 = 2;

/// Payload to segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gso {
    None,
    Tcp,
    Udp,
}

/// A validated header, and the layers found on the way.
pub(crate) struct ValidHeader {
    /// Has only the offloads that are left to do.
    pub(crate) header: NetHeader,
    pub(crate) layers: Layers,
    pub(crate) gso: Gso,
    /// Bytes from the frame's start to the payload to segment; 0 without segmentation.
    pub(crate) headers_len: usize,
}

impl NetHeader {
    /// Checks a guest's header against its frame, and returns the part of it that can be passed on.
    ///
    /// `head` holds the first bytes of the frame, including all headers (128 do, except with rare
    /// options); `frame_len` is the frame's full length. `accepts` has the offloads that the sender
    /// may ask for.
    ///
    /// # Errors
    /// As [`check`](Self::check); and every contradiction between header and frame.
    #[inline]
    pub fn validate(
        &self,
        head: &[u8],
        frame_len: usize,
        accepts: OffloadSet,
    ) -> Result<Self, NetHeaderError> {
        self.check(frame_len, accepts)?;
        if self.is_plain() {
            return Ok(Self::default());
        }
        Ok(ValidHeader::of(self, head, frame_len)?.header)
    }
}

impl NetHeader {
    /// Number of segments of a frame of `frame_len` bytes, and the bytes that their headers add.
    /// The header must come from [`validate`](Self::validate), which corrects `hdr_len`.
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

impl ValidHeader {
    /// Validates a header that passed [`NetHeader::check`] and is not plain.
    pub(crate) fn of(
        header: &NetHeader,
        head: &[u8],
        frame_len: usize,
    ) -> Result<Self, NetHeaderError> {
        let layers = Layers::of(head, frame_len)?;
        if !layers.is_whole {
            return Err(NetHeaderError::Piece);
        }
        let gso = kind(header, &layers)?;
        place(header, &layers, gso)?;
        let headers_len = match gso {
            Gso::None => 0,
            Gso::Tcp => layers.upper + tcp_header_len(head, &layers)?,
            Gso::Udp => layers.upper + udp::HEADER_LEN,
        };
        let mut left = NetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: header.csum_start,
            csum_offset: header.csum_offset,
            ..NetHeader::default()
        };
        if gso != Gso::None {
            size(header, &layers, headers_len)?;
            left.gso_type = header.gso_type;
            left.gso_size = header.gso_size;
            // Within the IP packet and the longest possible headers.
            left.hdr_len = (headers_len as u16).into();
        }
        Ok(Self { header: left, layers, gso, headers_len })
    }
}

/// Checks that the segmentation type matches the frame's protocols.
fn kind(header: &NetHeader, layers: &Layers) -> Result<Gso, NetHeaderError> {
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
    Err(NetHeaderError::GsoProtocol { gso_type, version, protocol })
}

/// Checks that the checksum field is that of the frame's protocol.
fn place(header: &NetHeader, layers: &Layers, gso: Gso) -> Result<(), NetHeaderError> {
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
        Err(NetHeaderError::Place { start, offset, protocol, upper })
    }
}

/// Bytes of the TCP header of a frame to segment.
fn tcp_header_len(head: &[u8], layers: &Layers) -> Result<usize, NetHeaderError> {
    let upper = head.get(layers.upper..).unwrap_or_default();
    let fixed: &[u8; tcp::HEADER_LEN] = prefix(upper, "TCP").map_err(LayersError::from)?;
    let len = tcp::header_len(fixed)?;
    // The sequence number counts a SYN, so the segments behind it would be one off.
    let flags = fixed[13];
    if flags & (tcp::FLAG_SYN | tcp::FLAG_RST) != 0 {
        return Err(NetHeaderError::TcpFlags(flags));
    }
    Ok(len)
}

/// Checks the segment size and the number of segments.
fn size(header: &NetHeader, layers: &Layers, headers_len: usize) -> Result<(), NetHeaderError> {
    let Layers { network, end, .. } = *layers;
    let payload =
        end.checked_sub(headers_len).ok_or(NetHeaderError::Headers { headers_len, end })?;
    let size = header.gso_size.get();
    let segments = payload.div_ceil(usize::from(size.max(1)));
    if segments > SEGMENTS_MAX {
        return Err(NetHeaderError::Segments { segments, size });
    }
    let longest = payload.min(usize::from(size));
    if headers_len - network + longest > usize::from(u16::MAX) {
        return Err(NetHeaderError::SegmentLen(longest));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Segmentation in software: cuts a frame with a virtio segmentation type (virtio 1.2, section
//! 5.1.6.2) into frames for the wire.
//!
//! Model: [`Segments`] copies the frame's headers once. For each segment it returns that copy,
//! patched, with a slice of the frame's payload. The frame is not written, and its payload is read
//! once, for the checksum. Fields that change from segment to segment:
//!
//! | header | field |
//! |---|---|
//! | IPv4 | total length, identification (one more each), checksum |
//! | IPv6 | payload length |
//! | TCP | sequence number; FIN and PSH only in the last, CWR only in the first (RFC 3168), URG as far as the urgent data goes; checksum |
//! | UDP | length, checksum |
//!
//! Pseudo-header sums are computed from the addresses; the sum in the checksum field is ignored.
//! Padding behind the IP packet is dropped.
//!
//! Limits: TCP and UDP over IPv4 and IPv6, behind up to two VLAN tags, with at most
//! [`HEADERS_LEN_MAX`] bytes of headers; at most [`SEGMENTS_MAX`](crate::virtio_net::SEGMENTS_MAX)
//! segments. Encapsulated packets are not cut. A source route among IPv4's options is ignored.
//! Nothing is allocated. Cannot panic.

use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::ipv6::Ipv6Error;
use crate::tcp::{self, TcpError};
use crate::virtio_net::{Gso, NetHeader, NetHeaderError, OffloadSet, ValidHeader};
use crate::{IpVersion, Truncated, ipv4, ipv6, prefix, udp};

/// Most bytes of headers, from Ethernet's to the last; enough for two tags, and IPv4 and TCP with
/// all options.
pub const HEADERS_LEN_MAX: usize = 256;

/// Reasons that a frame cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The header does not fit the frame.
    #[error(transparent)]
    Header(#[from] NetHeaderError),
    /// The header asks for no segmentation.
    #[error("segmentation: the header asks for none")]
    NotAsked,
    /// Headers of more than [`HEADERS_LEN_MAX`] bytes.
    #[error("segmentation: headers of {0} bytes; at most {HEADERS_LEN_MAX} are supported")]
    HeadersTooLong(usize),
    /// A length of 0 means a packet that is too long for the field, but extension headers may mean
    /// a jumbogram.
    #[error("segmentation: an IPv6 packet without a length has extension headers")]
    Jumbogram,
    /// The pseudo-header's destination is unknown.
    #[error("segmentation: the IPv6 routing header does not give the final destination")]
    Route,
    /// The IPv6 header is wrong.
    #[error(transparent)]
    Ipv6(#[from] Ipv6Error),
    /// The TCP header is wrong.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// Fewer bytes than a header.
    #[error(transparent)]
    Truncated(#[from] Truncated),
}

/// One frame to send: `headers`, then `payload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// All headers, with complete checksums.
    pub headers: &'a [u8],
    /// The payload bytes after them.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Bytes of the frame.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.headers.len() + self.payload.len()
    }
}

/// Transport fields that change from segment to segment.
#[derive(Clone, Copy, Debug)]
enum Transport {
    /// As in the uncut frame.
    Tcp {
        seq: u32,
        flags: u8,
        urgent: u16,
    },
    Udp,
}

/// A frame being segmented.
#[derive(Clone, Debug)]
pub struct Segments<'f> {
    /// The frame's headers, patched for the last segment returned.
    headers: [u8; HEADERS_LEN_MAX],
    headers_len: usize,
    /// Offset of the IP header.
    network: usize,
    /// Offset of the transport header.
    upper: usize,
    version: IpVersion,
    /// Identification of the next segment, for IPv4.
    id: u16,
    transport: Transport,
    /// The pseudo-header's sum without its length.
    pseudo: Sum,
    /// The whole payload.
    payload: &'f [u8],
    /// Payload bytes of a segment.
    size: usize,
    /// Payload bytes returned so far.
    lent: usize,
    /// Segments left.
    left: usize,
}

impl<'f> Segments<'f> {
    /// Prepares to cut `frame` as `header` asks. A frame without payload is one segment.
    ///
    /// # Errors
    /// The header asks for no segmentation, or contradicts the frame (see [`NetHeader::validate`]);
    /// or the frame exceeds the limits of this module.
    pub fn new(frame: &'f [u8], header: &NetHeader) -> Result<Self, SegmentError> {
        header.check(frame.len(), OffloadSet::all())?;
        if header.is_plain() {
            return Err(SegmentError::NotAsked);
        }
        let ValidHeader { header, layers, gso, headers_len } =
            ValidHeader::of(header, frame, frame.len())?;
        let too_long = SegmentError::HeadersTooLong(headers_len);
        let (from, rest) = frame.split_at_checked(headers_len).ok_or(too_long)?;
        let mut headers = [0; HEADERS_LEN_MAX];
        headers.get_mut(..headers_len).ok_or(too_long)?.copy_from_slice(from);
        // The header was validated: the packet ends behind its headers and within the frame.
        let payload = rest.get(..layers.end - headers_len).ok_or(too_long)?;

        let transport = match gso {
            Gso::None => return Err(SegmentError::NotAsked),
            Gso::Udp => Transport::Udp,
            Gso::Tcp => {
                let tcp = tcp::Segment::new(from.get(layers.upper..).unwrap_or_default())?;
                Transport::Tcp { seq: tcp.seq(), flags: tcp.flags(), urgent: tcp.urgent() }
            }
        };
        let packet = from.get(layers.network..).unwrap_or_default();
        let (pseudo, id) = match layers.version {
            IpVersion::V4 => of_ipv4(packet)?,
            IpVersion::V6 => (of_ipv6(packet)?, 0),
        };
        let size = usize::from(header.gso_size.get());
        Ok(Self {
            headers,
            headers_len,
            network: layers.network,
            upper: layers.upper,
            version: layers.version,
            id,
            transport,
            pseudo,
            payload,
            size,
            lent: 0,
            left: payload.len().div_ceil(size.max(1)).max(1),
        })
    }

    /// Number of segments left.
    #[inline]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Returns `true` if no segments are left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next segment, valid until the next call.
    #[inline]
    pub fn next<'s>(&'s mut self) -> Option<Segment<'s>> {
        if self.left == 0 {
            return None;
        }
        let rest = self.payload.get(self.lent..)?;
        let payload = rest.get(..self.size).unwrap_or(rest);
        let (is_first, is_last) = (self.lent == 0, self.left == 1);
        let headers = self.headers.get_mut(..self.headers_len)?;
        let (lower, upper) = headers.split_at_mut_checked(self.upper)?;
        let network = lower.get_mut(self.network..)?;

        // No longer than the IP field can hold, as the header was validated.
        let upper_len = (upper.len() + payload.len()) as u16;
        let packet_len = (network.len() + upper.len() + payload.len()) as u16;
        match self.version {
            IpVersion::V4 => ipv4::patch(network, packet_len, self.id),
            IpVersion::V6 => ipv6::patch(network, packet_len - ipv6::HEADER_LEN as u16),
        }
        let checksum_offset = match self.transport {
            Transport::Tcp { seq, flags, urgent } => {
                let flags = tcp_flags(flags, is_first, is_last);
                let (flags, urgent) = tcp_urgent(flags, urgent, self.lent);
                tcp::patch(upper, seq.wrapping_add(self.lent as u32), flags, urgent);
                tcp::CHECKSUM_OFFSET
            }
            Transport::Udp => {
                udp::patch(upper, upper_len);
                udp::CHECKSUM_OFFSET
            }
        };
        let sum = self.pseudo.word(upper_len).bytes(upper).bytes(payload).finish();
        let sum = if let Transport::Udp = self.transport { udp::stored(sum) } else { sum };
        *upper.get_mut(usize::from(checksum_offset)..)?.first_chunk_mut()? = sum.to_be_bytes();

        self.lent += payload.len();
        self.left -= 1;
        self.id = self.id.wrapping_add(1);
        Some(Segment { headers, payload })
    }
}

/// The pseudo-header's sum, and the identification.
fn of_ipv4(packet: &[u8]) -> Result<(Sum, u16), SegmentError> {
    let fixed: &[u8; ipv4::HEADER_LEN] = prefix(packet, "IPv4")?;
    let [_, _, _, _, i, j, _, _, _, protocol, _, _, a, b, c, d, e, f, g, h] = *fixed;
    Ok((pseudo_v4([a, b, c, d], [e, f, g, h], protocol), u16::from_be_bytes([i, j])))
}

/// The pseudo-header's sum.
fn of_ipv6(packet: &[u8]) -> Result<Sum, SegmentError> {
    let layout = ipv6::Ipv6Layout::new(packet)?;
    if layout.total_len == 0 && layout.headers_len != ipv6::HEADER_LEN {
        return Err(SegmentError::Jumbogram);
    }
    let dst = layout.dst.ok_or(SegmentError::Route)?;
    Ok(pseudo_v6(layout.src, dst, layout.protocol))
}

/// TCP flags of a segment, from those of the uncut frame.
#[inline]
fn tcp_flags(flags: u8, is_first: bool, is_last: bool) -> u8 {
    let not_last = if is_last { 0 } else { tcp::FLAG_FIN | tcp::FLAG_PSH };
    let not_first = if is_first { 0 } else { tcp::FLAG_CWR };
    flags & !not_last & !not_first
}

/// Flags and urgent pointer of a segment that begins `lent` bytes into the payload: the pointer
/// counts from each segment's own sequence number.
#[inline]
fn tcp_urgent(flags: u8, urgent: u16, lent: usize) -> (u8, u16) {
    match usize::from(urgent).checked_sub(lent) {
        _ if flags & tcp::FLAG_URG == 0 => (flags, urgent),
        // Not larger than the original.
        Some(left) if left > 0 || lent == 0 => (flags, left as u16),
        _ => (flags & !tcp::FLAG_URG, 0),
    }
}

#[cfg(test)]
mod tests;

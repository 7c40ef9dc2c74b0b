//! Segmentation in software: a frame that virtio's segmentation types leave to be cut (virtio 1.2,
//! section 5.1.6.2) as the frames that go onto a wire.
//!
//! Model: [`Segments`] copies the frame's headers once, and lends for each segment that copy,
//! patched, with a slice of the frame's payload behind it. Nothing of the frame is written, and its
//! payload is read once, for the checksum. What changes from segment to segment:
//!
//! | header | field |
//! |---|---|
//! | IPv4 | total length, identification (one more each), checksum |
//! | IPv6 | payload length |
//! | TCP | sequence number; FIN and PSH only in the last, CWR only in the first (RFC 3168), URG as far as the urgent data goes; checksum |
//! | UDP | length, checksum |
//!
//! Pseudo-headers are made anew from the addresses; the sum that the field holds is not needed.
//! Padding behind the IP packet is left out.
//!
//! Limits: TCP and UDP over IPv4 and IPv6, behind up to two VLAN tags, whose headers take at most
//! [`HEAD_LEN_MAX`] bytes; at most [`SEGMENTS_MAX`](crate::virtio_net::SEGMENTS_MAX) segments.
//! Packets in packets are not cut. A source route among IPv4's options is not looked at. Nothing is
//! allocated. Cannot panic.

use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::ipv6::Ipv6Error;
use crate::tcp::{self, TcpError};
use crate::virtio_net::{Accepts, Gso, Header, HeaderError, Judged};
use crate::{IpVersion, Truncated, ipv4, ipv6, prefix, udp};

/// Bytes of the longest headers, from Ethernet's to the last: more than two tags, IPv4 and TCP with
/// all their options take.
pub const HEAD_LEN_MAX: usize = 256;

/// Why a frame cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The header does not fit the frame.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The header asks for no segmentation.
    #[error("segmentation: none is asked for; the frame goes as it is, with its checksum made")]
    NotAsked,
    /// Headers of more than [`HEAD_LEN_MAX`] bytes.
    #[error("segmentation: headers of {0} bytes are too long; at most {HEAD_LEN_MAX} are taken")]
    Head(usize),
    /// A length of 0 stands for too much to say, but the extension headers may say it as well.
    #[error("segmentation: an IPv6 packet without a length has extension headers")]
    Jumbogram,
    /// The pseudo-header's destination is not known.
    #[error("segmentation: the IPv6 routing header does not say where the packet ends up")]
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

/// One frame to send: `head`, then `payload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// All headers, with every checksum made.
    pub head: &'a [u8],
    /// What follows them.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Bytes of the frame.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}

/// What of the transport header goes on from segment to segment.
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

/// A frame on its way to being cut.
#[derive(Clone, Debug)]
pub struct Segments<'f> {
    /// The frame's headers, patched for the segment that was lent last.
    head: [u8; HEAD_LEN_MAX],
    head_len: usize,
    /// Where the IP header begins.
    network: usize,
    /// Where the transport header begins.
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
    /// Payload bytes that have been lent.
    lent: usize,
    /// Segments still to lend.
    left: usize,
}

impl<'f> Segments<'f> {
    /// Prepares to cut `frame` as `header` asks. A frame without payload is one segment.
    ///
    /// # Errors
    /// The header asks for no segmentation, or contradicts the frame (see [`Header::judge`]); or
    /// the frame is beyond the limits of this module.
    pub fn new(frame: &'f [u8], header: &Header) -> Result<Self, SegmentError> {
        header.check(frame.len(), Accepts::all())?;
        if header.is_plain() {
            return Err(SegmentError::NotAsked);
        }
        let Judged { header, layers, gso, headers_len } = Judged::of(header, frame, frame.len())?;
        let too_long = SegmentError::Head(headers_len);
        let (from, rest) = frame.split_at_checked(headers_len).ok_or(too_long)?;
        let mut head = [0; HEAD_LEN_MAX];
        head.get_mut(..headers_len).ok_or(too_long)?.copy_from_slice(from);
        // The header was judged: the packet ends behind its headers and within the frame.
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
            head,
            head_len: headers_len,
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

    /// How many segments are still to come.
    #[inline]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether all segments have been lent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Lends the next segment, until another is asked for.
    #[inline]
    pub fn next<'s>(&'s mut self) -> Option<Segment<'s>> {
        if self.left == 0 {
            return None;
        }
        let rest = self.payload.get(self.lent..)?;
        let payload = rest.get(..self.size).unwrap_or(rest);
        let (is_first, is_last) = (self.lent == 0, self.left == 1);
        let head = self.head.get_mut(..self.head_len)?;
        let (front, upper) = head.split_at_mut_checked(self.upper)?;
        let network = front.get_mut(self.network..)?;

        // No longer than IP can say, as the header was judged.
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
        Some(Segment { head, payload })
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
    let front = ipv6::Front::new(packet)?;
    if front.total_len == 0 && front.headers_len != ipv6::HEADER_LEN {
        return Err(SegmentError::Jumbogram);
    }
    let dst = front.dst.ok_or(SegmentError::Route)?;
    Ok(pseudo_v6(front.src, dst, front.protocol))
}

/// The flags of a segment, of those of the uncut frame.
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
        // No more than it was.
        Some(left) if left > 0 || lent == 0 => (flags, left as u16),
        _ => (flags & !tcp::FLAG_URG, 0),
    }
}

#[cfg(test)]
mod tests;

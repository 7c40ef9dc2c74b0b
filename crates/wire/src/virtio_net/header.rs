//! What stands in front of each frame in a ring: virtio 1.2, section 5.1.6.
//!
//! Model: plain old data. [`Header::check`] is about the header alone, [`Header::judge`] about the
//! frame as well.
//! Cannot panic.

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Accepts, FLAG_NEEDS_CSUM, FLAG_RSC_INFO, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4,
    HEADER_LEN, HEADER_LEN_LEGACY,
};
use crate::tcp::TcpError;
use crate::{IpVersion, LayersError};

/// What stands in front of each frame in a ring (5.1.6).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// `FLAG_*`.
    pub flags: u8,
    /// `GSO_*`.
    pub gso_type: u8,
    /// Bytes of the headers in front of the payload to segment; a hint.
    pub hdr_len: U16,
    /// Payload bytes of a segment.
    pub gso_size: U16,
    /// Where the checksum begins, in bytes of the frame.
    pub csum_start: U16,
    /// Where to store it, in bytes from `csum_start`.
    pub csum_offset: U16,
    /// Receive: how many buffers the frame takes. Transmit: 0. Absent from the legacy header.
    pub num_buffers: U16,
}

/// Why a header does not fit its frame, or its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The checksum would lie outside the frame.
    #[error(
        "virtio-net header: checksum at {start} + {offset} is outside a frame of {frame_len} bytes"
    )]
    Checksum {
        /// `csum_start`, in bytes.
        start: u16,
        /// `csum_offset`, in bytes.
        offset: u16,
        /// Length of the frame.
        frame_len: usize,
    },
    /// The segmentation type is unknown, or UDP by fragments, which nobody makes any more.
    #[error("virtio-net header: segmentation type {0:#04x} is none of TCPV4, TCPV6 and UDP_L4")]
    GsoType(u8),
    /// Segments of no bytes.
    #[error("virtio-net header: segment size is 0, with segmentation type {0:#04x}")]
    GsoSize(u8),
    /// Segmentation without a checksum to make (5.1.6.2).
    #[error("virtio-net header: segmentation type {0:#04x} without NEEDS_CSUM")]
    GsoWithoutChecksum(u8),
    /// Receive coalescing counts, which only a device writes.
    #[error("virtio-net header: RSC_INFO was not negotiated")]
    RscInfo,
    /// Something is left to do that was not negotiated.
    #[error("virtio-net header: {asked:?} is left to do, but only {accepts:?} may be")]
    NotAccepted {
        /// What the header leaves to do.
        asked: Accepts,
        /// What may be left to do.
        accepts: Accepts,
    },
    /// The frame carries no IP, or its headers are wrong or not all there.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// The frame carries a fragment, or is under an authentication header.
    #[error("virtio-net header: neither fragments nor signed packets can be left to do")]
    Piece,
    /// The checksum is not where that of the protocol is, or it is of another kind.
    #[error(
        "virtio-net header: checksum at {start} + {offset} is not that of IP protocol {protocol}, \
         which begins at {upper}"
    )]
    Place {
        /// `csum_start`, in bytes.
        start: u16,
        /// `csum_offset`, in bytes.
        offset: u16,
        /// IP's protocol number.
        protocol: u8,
        /// Where what IP carries begins.
        upper: usize,
    },
    /// The segmentation type is of another protocol than the frame.
    #[error(
        "virtio-net header: segmentation type {gso_type:#04x} does not suit {version:?} with \
         protocol {protocol}"
    )]
    GsoProtocol {
        /// The header's `gso_type`.
        gso_type: u8,
        /// The frame's version of IP.
        version: IpVersion,
        /// IP's protocol number.
        protocol: u8,
    },
    /// The TCP header is wrong.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// SYN and RST are in no frame of data.
    #[error("virtio-net header: a TCP frame to segment has the flags {0:#04x}")]
    TcpFlags(u8),
    /// The frame ends within its headers.
    #[error("virtio-net header: headers of {headers_len} bytes in a packet that ends at {end}")]
    Headers {
        /// Bytes of the headers, of Ethernet's to the last.
        headers_len: usize,
        /// Where the packet ends.
        end: usize,
    },
    /// The segments would be too many.
    #[error("virtio-net header: {segments} segments of {size} bytes; at most {max} are made", max = super::SEGMENTS_MAX)]
    Segments {
        /// How many segments.
        segments: usize,
        /// Payload bytes of one.
        size: u16,
    },
    /// One segment would be longer than IP can say.
    #[error(
        "virtio-net header: a segment with {0} bytes of payload does not fit into an IP packet"
    )]
    SegmentLen(usize),
}

impl Header {
    /// A header that asks for nothing and fills one buffer.
    pub const PLAIN: Self = Self {
        flags: 0,
        gso_type: GSO_NONE,
        hdr_len: U16::ZERO,
        gso_size: U16::ZERO,
        csum_start: U16::ZERO,
        csum_offset: U16::ZERO,
        num_buffers: U16::from_bytes([1, 0]),
    };

    /// Reads the long header.
    #[inline]
    pub const fn from_bytes(bytes: [u8; HEADER_LEN]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Writes the long header; a legacy one is the first [`HEADER_LEN_LEGACY`] bytes of it.
    #[inline]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        zerocopy::transmute!(self)
    }

    /// Reads the legacy header; `num_buffers` is 0.
    #[inline]
    pub const fn from_legacy_bytes(bytes: [u8; HEADER_LEN_LEGACY]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j] = bytes;
        Self::from_bytes([a, b, c, d, e, f, g, h, i, j, 0, 0])
    }

    /// Whether nothing is left to do on the frame: no checksum to make, nothing to segment.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.flags & FLAG_NEEDS_CSUM == 0 && self.gso_type == GSO_NONE
    }

    /// What the header leaves to do.
    ///
    /// # Errors
    /// A segmentation type that no receiver takes.
    #[inline]
    pub fn asks(&self) -> Result<Accepts, HeaderError> {
        let mut asked = Accepts::empty();
        asked.set(Accepts::CSUM, self.flags & FLAG_NEEDS_CSUM != 0);
        asked |= match self.gso_type & !GSO_ECN {
            GSO_TCPV4 => Accepts::TSO4,
            GSO_TCPV6 => Accepts::TSO6,
            GSO_UDP_L4 if self.gso_type == GSO_UDP_L4 => Accepts::USO,
            GSO_NONE if self.gso_type == GSO_NONE => Accepts::empty(),
            _ => return Err(HeaderError::GsoType(self.gso_type)),
        };
        asked.set(Accepts::ECN, self.gso_type & GSO_ECN != 0);
        Ok(asked)
    }

    /// Whether a receiver takes the frame as it is, with all that is left to do.
    #[inline]
    pub fn fits(&self, accepts: Accepts) -> bool {
        self.is_plain() || self.asks().is_ok_and(|asked| accepts.contains(asked))
    }

    /// The header of the frame after `by` bytes were put in front of what it carries, or taken away
    /// there if negative: 4 for a tag. `None` if the checksum would then begin in front of the
    /// frame, or too far behind.
    #[inline]
    #[must_use]
    pub fn moved_by(self, by: i32) -> Option<Self> {
        let mut moved = self;
        if self.flags & FLAG_NEEDS_CSUM != 0 {
            let start = i32::from(self.csum_start.get()).checked_add(by)?;
            moved.csum_start = u16::try_from(start).ok()?.into();
        }
        // A hint, and 0 if there is none.
        if self.hdr_len != 0 {
            let len = i32::from(self.hdr_len.get()).saturating_add(by);
            moved.hdr_len = (len.clamp(0, i32::from(u16::MAX)) as u16).into();
        }
        Some(moved)
    }

    /// Whether the header that a guest wrote makes sense with a frame of `frame_len` bytes, and
    /// leaves no more to do than `accepts`. Where the frame can be seen, [`judge`](Self::judge) it.
    ///
    /// # Errors
    /// A checksum outside the frame; segmentation of an unknown type, of no size, or without a
    /// checksum; something left to do that may not be.
    #[inline]
    pub fn check(&self, frame_len: usize, accepts: Accepts) -> Result<(), HeaderError> {
        // Other flags are ignored, as 5.1.6.2.2 wants.
        if self.flags & FLAG_RSC_INFO != 0 {
            return Err(HeaderError::RscInfo);
        }
        let asked = self.asks()?;
        if !accepts.contains(asked) {
            return Err(HeaderError::NotAccepted { asked, accepts });
        }
        if asked.contains(Accepts::CSUM) {
            let (start, offset) = (self.csum_start.get(), self.csum_offset.get());
            if usize::from(start) + usize::from(offset) + 2 > frame_len {
                return Err(HeaderError::Checksum { start, offset, frame_len });
            }
        }
        if self.gso_type == GSO_NONE {
            return Ok(());
        }
        if self.gso_size == 0 {
            return Err(HeaderError::GsoSize(self.gso_type));
        }
        if !asked.contains(Accepts::CSUM) {
            return Err(HeaderError::GsoWithoutChecksum(self.gso_type));
        }
        Ok(())
    }
}

//! The header of each frame in a ring: virtio 1.2, section 5.1.6.
//!
//! Model: plain old data. [`NetHeader::check`] checks the header alone, [`NetHeader::validate`]
//! also the frame. Cannot panic.

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    FLAG_NEEDS_CSUM, FLAG_RSC_INFO, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4,
    HEADER_LEN, HEADER_LEN_LEGACY, OffloadSet,
};
use crate::tcp::TcpError;
use crate::{IpVersion, LayersError};

/// Header of a frame in a ring (5.1.6).
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
pub struct NetHeader {
    /// `FLAG_*`.
    pub flags: u8,
    /// `GSO_*`.
    pub gso_type: u8,
    /// Bytes of the headers before the payload to segment; a hint.
    pub hdr_len: U16,
    /// Payload bytes of a segment.
    pub gso_size: U16,
    /// Start of the checksummed range, in bytes of the frame.
    pub csum_start: U16,
    /// Offset of the checksum field from `csum_start`, in bytes.
    pub csum_offset: U16,
    /// Receive: number of buffers that the frame takes. Transmit: 0. Absent from the legacy header.
    pub num_buffers: U16,
}

/// Reasons that a header does not fit its frame, or its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetHeaderError {
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
    /// The segmentation type is unknown, or UDP by fragments, which is obsolete.
    #[error("virtio-net header: segmentation type {0:#04x}; allowed: TCPV4, TCPV6, UDP_L4")]
    GsoType(u8),
    /// The segment size is 0.
    #[error("virtio-net header: segment size is 0, with segmentation type {0:#04x}")]
    GsoSize(u8),
    /// Segmentation without a checksum (5.1.6.2).
    #[error("virtio-net header: segmentation type {0:#04x} without NEEDS_CSUM")]
    GsoWithoutChecksum(u8),
    /// Receive coalescing counts, which only a device may write.
    #[error("virtio-net header: RSC_INFO was not negotiated")]
    RscInfo,
    /// The header asks for an offload that was not negotiated.
    #[error("virtio-net header: asks for {asked:?}; allowed: {accepts:?}")]
    NotNegotiated {
        /// Offloads that the header asks for.
        asked: OffloadSet,
        /// Offloads that are allowed.
        accepts: OffloadSet,
    },
    /// The frame carries no IP, or its headers are wrong or incomplete.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// The frame carries a fragment, or has an authentication header.
    #[error("virtio-net header: offload of a fragment or an authenticated packet")]
    Piece,
    /// The checksum field is not that of the protocol.
    #[error(
        "virtio-net header: checksum at {start} + {offset} does not match IP protocol {protocol} \
         at {upper}"
    )]
    Place {
        /// `csum_start`, in bytes.
        start: u16,
        /// `csum_offset`, in bytes.
        offset: u16,
        /// IP's protocol number.
        protocol: u8,
        /// Offset of the upper-layer header.
        upper: usize,
    },
    /// The segmentation type does not match the frame's protocol.
    #[error(
        "virtio-net header: segmentation type {gso_type:#04x} does not match {version:?} \
         with protocol {protocol}"
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
    /// SYN or RST in a TCP frame to segment.
    #[error("virtio-net header: TCP flags {0:#04x} with segmentation; SYN and RST are not allowed")]
    TcpFlags(u8),
    /// The frame ends within its headers.
    #[error("virtio-net header: headers of {headers_len} bytes in a packet that ends at {end}")]
    Headers {
        /// Bytes of the headers, from Ethernet's to the last.
        headers_len: usize,
        /// Offset of the packet's end.
        end: usize,
    },
    /// Too many segments.
    #[error("virtio-net header: {segments} segments of {size} bytes; at most {max} are allowed", max = super::SEGMENTS_MAX)]
    Segments {
        /// Number of segments.
        segments: usize,
        /// Payload bytes of one.
        size: u16,
    },
    /// A segment would exceed the longest IP packet.
    #[error("virtio-net header: segment payload of {0} bytes does not fit into an IP packet")]
    SegmentLen(usize),
}

impl NetHeader {
    /// A header that asks for no offload and fills one buffer.
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

    /// Returns `true` if the header asks for no offload: no checksum, no segmentation.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.flags & FLAG_NEEDS_CSUM == 0 && self.gso_type == GSO_NONE
    }

    /// Offloads that the header asks for.
    ///
    /// # Errors
    /// A segmentation type that no receiver takes.
    #[inline]
    pub fn offloads(&self) -> Result<OffloadSet, NetHeaderError> {
        let mut asked = OffloadSet::empty();
        asked.set(OffloadSet::CSUM, self.flags & FLAG_NEEDS_CSUM != 0);
        asked |= match self.gso_type & !GSO_ECN {
            GSO_TCPV4 => OffloadSet::TSO4,
            GSO_TCPV6 => OffloadSet::TSO6,
            GSO_UDP_L4 if self.gso_type == GSO_UDP_L4 => OffloadSet::USO,
            GSO_NONE if self.gso_type == GSO_NONE => OffloadSet::empty(),
            _ => return Err(NetHeaderError::GsoType(self.gso_type)),
        };
        asked.set(OffloadSet::ECN, self.gso_type & GSO_ECN != 0);
        Ok(asked)
    }

    /// Returns `true` if a receiver takes the frame with all its offloads.
    #[inline]
    pub fn fits(&self, accepts: OffloadSet) -> bool {
        self.is_plain() || self.offloads().is_ok_and(|asked| accepts.contains(asked))
    }

    /// The header after `by` bytes were inserted before the payload of the frame, or removed if
    /// negative: 4 for a tag. `None` if the checksum would then begin before the frame, or beyond
    /// the field's range.
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

    /// Checks a guest's header for a frame of `frame_len` bytes, and that it asks for no offload
    /// outside `accepts`. If the frame is at hand, [`validate`](Self::validate) it instead.
    ///
    /// # Errors
    /// A checksum outside the frame; segmentation of an unknown type, of no size, or without a
    /// checksum; an offload that is not allowed.
    #[inline]
    pub fn check(&self, frame_len: usize, accepts: OffloadSet) -> Result<(), NetHeaderError> {
        // Other flags are ignored, as 5.1.6.2.2 requires.
        if self.flags & FLAG_RSC_INFO != 0 {
            return Err(NetHeaderError::RscInfo);
        }
        let asked = self.offloads()?;
        if !accepts.contains(asked) {
            return Err(NetHeaderError::NotNegotiated { asked, accepts });
        }
        if asked.contains(OffloadSet::CSUM) {
            let (start, offset) = (self.csum_start.get(), self.csum_offset.get());
            if usize::from(start) + usize::from(offset) + 2 > frame_len {
                return Err(NetHeaderError::Checksum { start, offset, frame_len });
            }
        }
        if self.gso_type == GSO_NONE {
            return Ok(());
        }
        if self.gso_size == 0 {
            return Err(NetHeaderError::GsoSize(self.gso_type));
        }
        if !asked.contains(OffloadSet::CSUM) {
            return Err(NetHeaderError::GsoWithoutChecksum(self.gso_type));
        }
        Ok(())
    }
}

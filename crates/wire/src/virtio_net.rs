//! The virtio network device as bytes (virtio 1.2, section 5.1): frame header and configuration.
//!
//! Model: [`Header`] and [`Config`] are plain old data of little-endian fields, read and written
//! whole by value. [`Header::check`] says whether a header that a guest wrote can be handed on with
//! a frame of a given length.
//!
//! Limits: no RSS, no hash report. Before VERSION_1 the fields are in the guest's byte order; only
//! little-endian guests are served. Cannot panic.

pub mod feature;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Mac;

/// Bytes of the header with `num_buffers`: VERSION_1 or MRG_RXBUF negotiated (5.1.6.1).
pub const HEADER_LEN: usize = 12;
/// Bytes of the header without `num_buffers`: neither was negotiated.
pub const HEADER_LEN_LEGACY: usize = 10;

/// [`Header::flags`]: the checksum must still be made, see `csum_start` and `csum_offset`.
pub const FLAG_NEEDS_CSUM: u8 = 1;
/// [`Header::flags`]: the checksum was found right.
pub const FLAG_DATA_VALID: u8 = 2;
/// [`Header::flags`]: the `csum` fields hold receive coalescing counts.
pub const FLAG_RSC_INFO: u8 = 4;

/// [`Header::gso_type`]: not segmented.
pub const GSO_NONE: u8 = 0;
/// [`Header::gso_type`]: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// [`Header::gso_type`]: UDP over IPv4, by fragments.
pub const GSO_UDP: u8 = 3;
/// [`Header::gso_type`]: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// [`Header::gso_type`]: UDP, by datagrams.
pub const GSO_UDP_L4: u8 = 5;
/// [`Header::gso_type`], added to a TCP type: the frame has ECN set.
pub const GSO_ECN: u8 = 0x80;

/// [`Config::status`]: the link is up.
pub const STATUS_LINK_UP: u16 = 1;
/// [`Config::status`]: the driver is asked to announce itself.
pub const STATUS_ANNOUNCE: u16 = 2;
/// [`Config::speed`]: not known.
pub const SPEED_UNKNOWN: u32 = u32::MAX;
/// [`Config::duplex`]: full.
pub const DUPLEX_FULL: u8 = 1;
/// [`Config::duplex`]: not known.
pub const DUPLEX_UNKNOWN: u8 = 0xff;

/// Length of the header for negotiated feature bits.
#[inline]
pub const fn header_len(features: u64) -> usize {
    let long = feature::mask(&[feature::VIRTIO_F_VERSION_1, feature::VIRTIO_NET_F_MRG_RXBUF]);
    if features & long != 0 { HEADER_LEN } else { HEADER_LEN_LEGACY }
}

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

/// Why a header does not fit its frame.
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
    /// The segmentation type is none of virtio 1.2.
    #[error("virtio-net header: segmentation type {0:#04x} is unknown")]
    GsoType(u8),
    /// Segments of no bytes.
    #[error("virtio-net header: segment size is 0, with segmentation type {0:#04x}")]
    GsoSize(u8),
    /// Segmentation without a checksum to make (5.1.6.2).
    #[error("virtio-net header: segmentation type {0:#04x} without NEEDS_CSUM")]
    GsoWithoutChecksum(u8),
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

    /// Whether the header, whatever it says, leaves the frame as it is: nothing to sum or segment.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.flags & FLAG_NEEDS_CSUM == 0 && self.gso_type == GSO_NONE
    }

    /// Whether a receiver may be given this transmit header with a frame of `frame_len` bytes.
    ///
    /// # Errors
    /// A checksum outside the frame; segmentation of an unknown type, of no size, or without a
    /// checksum.
    pub fn check(&self, frame_len: usize) -> Result<(), HeaderError> {
        if self.flags & FLAG_NEEDS_CSUM != 0 {
            let (start, offset) = (self.csum_start.get(), self.csum_offset.get());
            if usize::from(start) + usize::from(offset) + 2 > frame_len {
                return Err(HeaderError::Checksum { start, offset, frame_len });
            }
        }
        match self.gso_type {
            GSO_NONE => return Ok(()),
            GSO_UDP | GSO_UDP_L4 => (),
            kind if matches!(kind & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6) => (),
            unknown => return Err(HeaderError::GsoType(unknown)),
        }
        if self.gso_size.get() == 0 {
            return Err(HeaderError::GsoSize(self.gso_type));
        }
        if self.flags & FLAG_NEEDS_CSUM == 0 {
            return Err(HeaderError::GsoWithoutChecksum(self.gso_type));
        }
        Ok(())
    }
}

/// The device's configuration space (5.1.4), as far as the VIRTIO_NET_F_RSS fields.
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
pub struct Config {
    /// The adapter's address; needs VIRTIO_NET_F_MAC.
    pub mac: Mac,
    /// `STATUS_*`; needs VIRTIO_NET_F_STATUS.
    pub status: U16,
    /// Pairs of rings, 1 to 32768; needs VIRTIO_NET_F_MQ.
    pub max_virtqueue_pairs: U16,
    /// Bytes of payload of the longest frame, at least 68; needs VIRTIO_NET_F_MTU.
    pub mtu: U16,
    /// Speed in Mbit/s, or [`SPEED_UNKNOWN`]; needs VIRTIO_NET_F_SPEED_DUPLEX.
    pub speed: U32,
    /// 0 half, 1 full, or [`DUPLEX_UNKNOWN`]; needs VIRTIO_NET_F_SPEED_DUPLEX.
    pub duplex: u8,
    /// Longest hash key; 0 without VIRTIO_NET_F_RSS.
    pub rss_max_key_size: u8,
    /// Entries of the indirection table; 0 without VIRTIO_NET_F_RSS.
    pub rss_max_indirection_table_length: U16,
    /// Kinds of hash; 0 without VIRTIO_NET_F_RSS or VIRTIO_NET_F_HASH_REPORT.
    pub supported_hash_types: U32,
}

/// Bytes of [`Config`].
pub const CONFIG_LEN: usize = size_of::<Config>();

impl Config {
    /// Reads the configuration space.
    pub const fn from_bytes(bytes: [u8; CONFIG_LEN]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Writes the configuration space.
    pub const fn to_bytes(self) -> [u8; CONFIG_LEN] {
        zerocopy::transmute!(self)
    }
}

#[cfg(test)]
mod tests;

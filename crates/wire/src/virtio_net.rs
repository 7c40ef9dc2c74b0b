//! The virtio network device as bytes (virtio 1.2, section 5.1): frame header and configuration.
//!
//! Model: [`NetHeader`] and [`Config`] are plain old data of little-endian fields, read and written
//! whole by value. [`OffloadSet`] is the set of offloads that a receiver takes.
//! [`NetHeader::validate`] checks a guest's header against its frame and returns one that is safe
//! to pass on.
//!
//! Limits: no RSS, no hash report. Before VERSION_1 the fields are in the guest's byte order; only
//! little-endian guests are served. Cannot panic.

mod complete;
pub mod feature;
mod header;
mod offload_set;
mod validate;

pub use complete::complete_checksum;
pub use header::{NetHeader, NetHeaderError};
pub use offload_set::OffloadSet;
pub use validate::SEGMENTS_MAX;
pub(crate) use validate::{Gso, ValidHeader};

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Mac;

/// Bytes of the header with `num_buffers`: VERSION_1 or MRG_RXBUF negotiated (5.1.6.1).
pub const HEADER_LEN: usize = 12;
/// Bytes of the header without `num_buffers`: neither was negotiated.
pub const HEADER_LEN_LEGACY: usize = 10;

/// [`NetHeader::flags`]: the checksum must still be made, see `csum_start` and `csum_offset`.
pub const FLAG_NEEDS_CSUM: u8 = 1;
/// [`NetHeader::flags`]: the checksum was found right.
pub const FLAG_DATA_VALID: u8 = 2;
/// [`NetHeader::flags`]: the `csum` fields hold receive coalescing counts.
pub const FLAG_RSC_INFO: u8 = 4;

/// [`NetHeader::gso_type`]: not segmented.
pub const GSO_NONE: u8 = 0;
/// [`NetHeader::gso_type`]: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// [`NetHeader::gso_type`]: UDP over IPv4, by fragments.
pub const GSO_UDP: u8 = 3;
/// [`NetHeader::gso_type`]: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// [`NetHeader::gso_type`]: UDP, by datagrams.
pub const GSO_UDP_L4: u8 = 5;
/// [`NetHeader::gso_type`], added to a TCP type: the frame has ECN set.
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

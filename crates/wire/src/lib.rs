//! Headers as bytes: Ethernet, 802.1Q, IPv4, IPv6, TCP, UDP and virtio-net; with checksum
//! completion and segmentation, which a virtio-net header can leave to the device.
//!
//! Model: every protocol file has one shape. A `field` module holds offsets; a view over `&[u8]`
//! checks its length once, in its constructor, and then reads fields; a plain struct (the
//! representation) has `parse` and `emit`.
//!
//! No panics: views are built only over enough bytes, fixed-size arrays are destructured by
//! pattern, and no index comes from a frame without a check.
//!
//! Limits: bytes in, bytes out. The crate owns no buffers, allocates nothing and keeps no state.
//! Frames are without FCS: the "64 B" frame of the literature is 60 bytes here.

pub mod checksum;
pub mod ethernet;
mod frame_header;
mod header_snapshot;
pub mod ipv4;
pub mod ipv6;
mod layers;
mod mac;
pub mod probe;
pub mod rarp;
pub mod segment;
pub mod tcp;
pub mod udp;
pub mod virtio_net;
pub mod vlan;

pub use frame_header::FrameHeader;
pub use header_snapshot::HeaderSnapshot;
pub use layers::{IpVersion, Layers, LayersError};
pub use mac::{Mac, MacParseError};
pub use vlan::{Vid, VidError, VlanEdit};

/// A buffer is shorter than the header it should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{header}: {have} bytes, at least {need} are needed")]
pub struct Truncated {
    /// Name of the header, for the message.
    pub header: &'static str,
    /// Bytes that the header takes.
    pub need: usize,
    /// Bytes present.
    pub have: usize,
}

/// Checks that `bytes` holds `N` bytes for `header` and returns them as an array.
pub(crate) fn prefix<'a, const N: usize>(
    bytes: &'a [u8],
    header: &'static str,
) -> Result<&'a [u8; N], Truncated> {
    bytes.first_chunk().ok_or(Truncated { header, need: N, have: bytes.len() })
}

/// As [`prefix`], for writing.
pub(crate) fn prefix_mut<'a, const N: usize>(
    bytes: &'a mut [u8],
    header: &'static str,
) -> Result<&'a mut [u8; N], Truncated> {
    let have = bytes.len();
    bytes.first_chunk_mut().ok_or(Truncated { header, need: N, have })
}

//! Offsets of a frame's headers: behind tags and IP, to the upper-layer header.
//!
//! Model: one pass over the first bytes of a frame whose full length is known. Offsets count from
//! the frame's start.
//!
//! Limits: Ethernet II, up to two VLAN tags, IPv4 or IPv6 with [eight](crate::ipv6::EXTENSIONS_MAX)
//! extension headers. Encapsulated packets are not parsed. Cannot panic.

use crate::ipv4::Ipv4Error;
use crate::ipv6::Ipv6Error;
use crate::vlan::{TAG_LEN, is_tpid};
use crate::{Truncated, ethernet, ipv4, ipv6, prefix};

/// Most tags that are skipped.
const TAGS_MAX: usize = 2;

/// Reasons that a frame's layers cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayersError {
    /// Fewer bytes than a header, or than a length in it.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The IPv4 header is wrong.
    #[error(transparent)]
    Ipv4(#[from] Ipv4Error),
    /// The IPv6 header is wrong.
    #[error(transparent)]
    Ipv6(#[from] Ipv6Error),
    /// The frame carries another protocol.
    #[error("EtherType {0:#06x} is not IP, or is behind more than two VLAN tags")]
    EtherType(u16),
}

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Offsets of the layers in a frame that carries IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Version of IP.
    pub version: IpVersion,
    /// Offset of the IP header.
    pub network: usize,
    /// Offset of the upper-layer header, behind options and extension headers.
    pub upper: usize,
    /// Offset of the packet's end; bytes behind it are padding.
    pub end: usize,
    /// Protocol number of the upper-layer header.
    pub protocol: u8,
    /// `true` if the IP payload is complete and not authenticated: no fragment, no authentication
    /// header. Only then can its checksum be computed.
    pub is_whole: bool,
}

impl Layers {
    /// Reads the layers of a frame of `frame_len` bytes; `head` holds at least its first bytes.
    ///
    /// An IP length of 0 means up to the frame's end, as senders write that leave segmentation to
    /// the device.
    ///
    /// # Errors
    /// Not IP; headers that are not all in `head`; lengths beyond `frame_len`.
    #[inline]
    pub fn of(head: &[u8], frame_len: usize) -> Result<Self, LayersError> {
        let (ethertype, network) = ethertype(head)?;
        let packet = head.get(network..).unwrap_or_default();
        let (version, headers_len, total_len, protocol, is_whole) = match ethertype {
            ethernet::TYPE_IPV4 => {
                let layout = ipv4::Ipv4Layout::new(packet)?;
                let whole = !layout.is_fragment;
                (IpVersion::V4, layout.header_len, layout.total_len, layout.protocol, whole)
            }
            ethernet::TYPE_IPV6 => {
                let layout = ipv6::Ipv6Layout::new(packet)?;
                let whole = !layout.is_fragment && !layout.is_authenticated;
                (IpVersion::V6, layout.headers_len, layout.total_len, layout.protocol, whole)
            }
            other => return Err(LayersError::EtherType(other)),
        };
        let upper = network + headers_len;
        let end = if total_len == 0 { frame_len } else { network + total_len };
        if end > frame_len {
            return Err(Truncated { header: "IP packet", need: end, have: frame_len }.into());
        }
        if end < upper {
            return Err(Truncated { header: "IP length", need: upper, have: end }.into());
        }
        Ok(Self { version, network, upper, end, protocol, is_whole })
    }
}

/// The EtherType behind the tags, and the offset of its header.
#[inline]
fn ethertype(head: &[u8]) -> Result<(u16, usize), Truncated> {
    let mut at = ethernet::HEADER_LEN;
    let [.., a, b] = *prefix::<{ ethernet::HEADER_LEN }>(head, "Ethernet")?;
    let mut ethertype = u16::from_be_bytes([a, b]);
    for _ in 0..TAGS_MAX {
        if !is_tpid(ethertype) {
            break;
        }
        let tag = prefix::<TAG_LEN>(head.get(at..).unwrap_or_default(), "VLAN tag")?;
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        at += TAG_LEN;
    }
    Ok((ethertype, at))
}

#[cfg(test)]
mod tests;

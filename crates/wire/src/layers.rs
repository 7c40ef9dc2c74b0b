//! Where the headers of a frame lie: behind tags and IP, to what IP carries.
//!
//! Model: one walk over the first bytes of a frame, that knows how long the whole is. Offsets count
//! from the frame's start.
//!
//! Limits: Ethernet II, up to two VLAN tags, IPv4 or IPv6 with [eight](crate::ipv6::EXTENSIONS_MAX)
//! extension headers. Packets in packets are not entered. Cannot panic.

use crate::ipv4::Ipv4Error;
use crate::ipv6::Ipv6Error;
use crate::vlan::{TAG_LEN, is_tpid};
use crate::{Truncated, ethernet, ipv4, ipv6, prefix};

/// Tags that are walked over.
const TAGS_MAX: usize = 2;

/// Why a frame's layers cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayersError {
    /// Fewer bytes than a header, or than a length in it says.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The IPv4 header is wrong.
    #[error(transparent)]
    Ipv4(#[from] Ipv4Error),
    /// The IPv6 header is wrong.
    #[error(transparent)]
    Ipv6(#[from] Ipv6Error),
    /// It carries something else.
    #[error("EtherType {0:#06x} is not IP, or lies behind more than two VLAN tags")]
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

/// Where the layers of a frame that carries IP lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Version of IP.
    pub version: IpVersion,
    /// Where the IP header begins.
    pub network: usize,
    /// Where what IP carries begins: behind options and extension headers.
    pub upper: usize,
    /// Where the packet ends; what follows pads the frame.
    pub end: usize,
    /// Protocol number of what IP carries.
    pub protocol: u8,
    /// Whether what IP carries is complete and unsigned: not a fragment, not under an
    /// authentication header. Only then can its checksum be made.
    pub is_whole: bool,
}

impl Layers {
    /// Reads the layers of a frame of `frame_len` bytes, of which `head` holds the first at least.
    ///
    /// An IP length of 0 means up to the frame's end, as senders write that leave segmentation to
    /// others.
    ///
    /// # Errors
    /// Not IP; headers that are not all in `head`; lengths beyond `frame_len`.
    #[inline]
    pub fn of(head: &[u8], frame_len: usize) -> Result<Self, LayersError> {
        let (ethertype, network) = ethertype(head)?;
        let packet = head.get(network..).unwrap_or_default();
        let (version, headers_len, total_len, protocol, is_whole) = match ethertype {
            ethernet::TYPE_IPV4 => {
                let front = ipv4::Front::new(packet)?;
                let whole = !front.is_fragment;
                (IpVersion::V4, front.header_len, front.total_len, front.protocol, whole)
            }
            ethernet::TYPE_IPV6 => {
                let front = ipv6::Front::new(packet)?;
                let whole = !front.is_fragment && !front.is_authenticated;
                (IpVersion::V6, front.headers_len, front.total_len, front.protocol, whole)
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

/// The EtherType behind the tags, and where what it names begins.
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

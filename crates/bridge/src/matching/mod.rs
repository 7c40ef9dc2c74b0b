//! Matching of frames against lists of rules; shared by the switch's ACLs and the NIC's rules.
//!
//! Model: a [`Match`] names fields of a frame; a frame matches if every named field does. A frame
//! without a field, such as ports, does not match a rule that names it. A [`Key`] holds a frame's
//! fields, and a [`List`] finds the matching rules in order. The caller decides what happens to the
//! frame.
//!
//! Limits: 128 bytes of each frame, see [`Key`]. No I/O, no allocation after a list is built;
//! nothing here can panic on a frame's bytes.

mod check;
mod dimension;
mod key;
mod list;
mod plain;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use wire::Mac;

pub use check::MatchError;
pub use key::{ICMP, ICMPV6, Key, TCP, UDP, Words, has, place};
pub use list::List;
pub(crate) use plain::{Layout, PlainMask};

/// A match; `None` for any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Source MAC.
    pub src_mac: Option<MacPrefix>,
    /// Destination MAC.
    pub dst_mac: Option<MacPrefix>,
    /// EtherType of the payload, behind tags and SNAP.
    pub ethertype: Option<u16>,
    /// The VLAN that the frame belongs to; 0 is the untagged network.
    pub vid: Option<RangeInclusive<u16>>,
    /// Source address of IPv4 or IPv6.
    pub src_ip: Option<IpPrefix>,
    /// Destination address of IPv4 or IPv6.
    pub dst_ip: Option<IpPrefix>,
    /// Protocol of IPv4, or that behind the extension headers of IPv6.
    pub protocol: Option<u8>,
    /// Source port of TCP, UDP, SCTP, DCCP or UDP-Lite.
    pub src_port: Option<RangeInclusive<u16>>,
    /// Destination port of these.
    pub dst_port: Option<RangeInclusive<u16>>,
    /// Type and code of ICMP or ICMPv6.
    pub icmp: Option<Icmp>,
    /// Flags of TCP.
    pub tcp_flags: Option<TcpFlags>,
    /// Set: matches only fragments after the first; clear: no such fragments.
    pub later_fragment: Option<bool>,
}

/// MAC prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacPrefix {
    /// An address; zero beyond the prefix.
    pub mac: Mac,
    /// Bits that are compared, 0 to 48.
    pub len: u8,
}

/// IP prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPrefix {
    /// An address; zero beyond the prefix.
    pub addr: IpAddr,
    /// Bits that are compared, 0 to 32 or to 128.
    pub len: u8,
}

/// Type and code of ICMP or ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// The type.
    pub kind: u8,
    /// The code; `None` for any.
    pub code: Option<u8>,
}

/// Flags of TCP that must be set, and not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// The flags compared, FIN in bit 0.
    pub mask: u8,
    /// Those among them that must be set.
    pub value: u8,
}

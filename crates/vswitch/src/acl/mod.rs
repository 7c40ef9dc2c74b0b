//! Access lists: what may be asked of a frame, and what is done with those that answer.
//!
//! Model: [`Acl`] is what is configured; [`compiled::Compiled`] is what frames are matched with.
//! A rule matches a frame if every field that it names does; a frame that does not have a field
//! (ports, of a frame that is not TCP or the like) does not match a rule that names it.

mod check;
pub(crate) mod compiled;
mod dimension;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use wire::Mac;

/// The most rules of all lists of a switch together.
pub const MAX_RULES: usize = 2048;

/// A list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
    /// What becomes of a frame that no rule decides on.
    pub default_allow: bool,
}

/// A rule of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which frames it is for.
    pub matches: Match,
    /// What becomes of them.
    pub action: RuleAction,
}

/// What a rule does. Each counts the frames that it is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// The frame passes; later rules are not tried.
    Allow,
    /// The frame is dropped; later rules are not tried.
    Deny,
    /// Nothing else; the next rule is tried.
    Count,
}

/// Which frames a rule is for; `None` for any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Source MAC.
    pub src_mac: Option<MacPrefix>,
    /// Destination MAC.
    pub dst_mac: Option<MacPrefix>,
    /// The type of what the frame carries, behind tags and SNAP.
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
    /// What kind of ICMP or ICMPv6.
    pub icmp: Option<Icmp>,
    /// Flags of TCP.
    pub tcp_flags: Option<TcpFlags>,
    /// Whether it is a fragment but not the first.
    pub later_fragment: Option<bool>,
}

/// MACs that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacPrefix {
    /// An address; zero beyond the prefix.
    pub mac: Mac,
    /// Bits that are compared, 0 to 48.
    pub len: u8,
}

/// IP addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPrefix {
    /// An address; zero beyond the prefix.
    pub addr: IpAddr,
    /// Bits that are compared, 0 to 32 or to 128.
    pub len: u8,
}

/// A kind of ICMP or ICMPv6.
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
    /// The flags that are looked at, FIN in bit 0.
    pub mask: u8,
    /// Those among them that must be set.
    pub value: u8,
}

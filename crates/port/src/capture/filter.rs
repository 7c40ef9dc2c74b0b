//! Capture filters, in a subset of the syntax of pcap.
//!
//! # Model
//! [`Filter::parse`] makes a tree of tests; [`Filter::matches`] evaluates it on the first
//! [`READS`] bytes of a frame. The meaning is that of libpcap 1.10, without its optimizer; the test
//! compares the verdicts:
//!
//! - `and` and `or` have equal precedence, and associate to the left; `not` binds more closely.
//! - A value without qualifiers has those of the last one: `tcp port 80 or 443`.
//! - After `vlan`, to the end of the expression, all tests but those of MAC addresses are of the
//!   header behind the tag.
//! - A frame that ends before a byte that is tested does not match, whatever else the expression
//!   says.
//!
//! # Grammar
//! ```text
//! expression  = ["not"] term { ("and" | "or") ["not"] (term | VALUE) }
//! term        = "(" expression ")"
//!             | "ip" | "ip6" | "arp" | "rarp" | "tcp" | "udp" | "sctp" | "icmp" | "icmp6"
//!             | "vlan" [VID] | ["ether"] ("broadcast" | "multicast")
//!             | ("ip" | "ip6") "multicast" | "less" BYTES | "greater" BYTES
//!             | ["ip" | "ip6" | "ether"] "proto" (NUMBER | "\" NAME)
//!             | ["ip" | "ip6" | "arp" | "rarp"] [direction] ["host"] ADDRESS
//!             | ["ip" | "ip6" | "arp" | "rarp"] [direction] "net" ADDRESS["/" BITS | "mask" MASK]
//!             | "ether" [direction] ["host"] MAC
//!             | ["tcp" | "udp" | "sctp"] [direction] ("port" PORT | "portrange" PORT "-" PORT)
//! direction   = "src" | "dst" | "src or dst" | "src and dst"
//! ```
//!
//! # Limits
//! [`LEN_MAX`] bytes and [`TERMS_MAX`] terms, so a lane's work is bounded. Names of hosts and of
//! services are not looked up.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use wire::{Mac, ethernet, ipv4, ipv6};

mod parser;
mod token;

pub use parser::FilterError;

/// Longest expression, bytes.
pub const LEN_MAX: usize = 1024;
/// Most terms of an expression.
pub const TERMS_MAX: usize = 64;
/// Bytes of a frame that a filter reads, at most.
pub const READS: u32 = 128;

/// Type of RARP.
const TYPE_RARP: u16 = 0x8035;
/// Types of tags, as libpcap knows them.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const SCTP: u8 = 132;
/// IPv6 fragment header.
const FRAGMENT: u8 = 44;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Test(Test),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
}

/// Address that a test is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Which {
    Source,
    Destination,
    #[default]
    Either,
    Both,
}

/// A test of a frame. `tags` is the number of tags before the header that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    /// Type behind the tags.
    Type {
        tags: usize,
        value: u16,
    },
    /// Tag behind the tags, in this VLAN if one is given.
    Vlan {
        tags: usize,
        vid: Option<u16>,
    },
    /// Protocol of IPv4 or IPv6, or of an IPv6 fragment.
    Protocol {
        tags: usize,
        types: Types,
        number: u8,
    },
    Ether {
        which: Which,
        mac: Mac,
    },
    EtherMulticast,
    IpMulticast {
        tags: usize,
    },
    Ip6Multicast {
        tags: usize,
    },
    Net {
        tags: usize,
        types: Types,
        which: Which,
        net: Net,
    },
    Port {
        tags: usize,
        protocols: &'static [u8],
        which: Which,
        ports: RangeInclusive<u16>,
    },
    Longer {
        than: u32,
    },
}

/// Network protocols that a test is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Types {
    ip: bool,
    ip6: bool,
    arp: bool,
    rarp: bool,
}

/// Network, or an address as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Net {
    address: IpAddr,
    mask: u128,
}

impl Filter {
    /// Parses an expression.
    ///
    /// # Errors
    /// The expression is too long, or is none of the subset; with the column.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parser::parse(text).map(Filter)
    }

    /// Returns `true` if a frame of `len` bytes matches, of which `bytes` holds at least the first
    /// [`READS`] or all.
    pub fn matches(&self, bytes: &[u8], len: u32) -> bool {
        self.0.is_met(&Head { bytes, len }).unwrap_or(false)
    }
}

impl Node {
    /// Result for a frame; `None` if it ends too early.
    fn is_met(&self, head: &Head<'_>) -> Option<bool> {
        match self {
            Node::Test(test) => test.is_met(head),
            Node::Not(of) => Some(!of.is_met(head)?),
            Node::And(a, b) => {
                if a.is_met(head)? {
                    b.is_met(head)
                } else {
                    Some(false)
                }
            }
            Node::Or(a, b) => {
                if a.is_met(head)? {
                    Some(true)
                } else {
                    b.is_met(head)
                }
            }
        }
    }
}

/// First bytes of a frame, and its length.
struct Head<'a> {
    bytes: &'a [u8],
    len: u32,
}

impl Head<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    /// Type behind so many tags.
    fn kind(&self, tags: usize) -> Option<u16> {
        self.u16(12 + 4 * tags)
    }
}

/// Offset of the network header.
const fn network(tags: usize) -> usize {
    ethernet::HEADER_LEN + 4 * tags
}

impl Which {
    /// Applies a test to the source, the destination or both.
    fn any(
        self,
        source: impl FnOnce() -> Option<bool>,
        destination: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        match self {
            Which::Source => source(),
            Which::Destination => destination(),
            Which::Either => {
                if source()? {
                    Some(true)
                } else {
                    destination()
                }
            }
            Which::Both => {
                if source()? {
                    destination()
                } else {
                    Some(false)
                }
            }
        }
    }
}

impl Test {
    fn is_met(&self, head: &Head<'_>) -> Option<bool> {
        match self {
            Test::Type { tags, value } => Some(head.kind(*tags)? == *value),
            Test::Vlan { tags, vid } => {
                if !TAGS.contains(&head.kind(*tags)?) {
                    return Some(false);
                }
                let Some(vid) = vid else { return Some(true) };
                Some(head.u16(network(*tags))? & 0xfff == *vid)
            }
            Test::Protocol { tags, types, number } => {
                let at = network(*tags);
                match head.kind(*tags)? {
                    ethernet::TYPE_IPV4 if types.ip => Some(head.byte(at + 9)? == *number),
                    ethernet::TYPE_IPV6 if types.ip6 => match head.byte(at + 6)? {
                        next if next == *number => Some(true),
                        FRAGMENT => Some(head.byte(at + ipv6::HEADER_LEN)? == *number),
                        _ => Some(false),
                    },
                    _ => Some(false),
                }
            }
            Test::Ether { which, mac } => {
                let is = |at| Some(head.array(at)? == mac.0);
                which.any(|| is(6), || is(0))
            }
            Test::EtherMulticast => Some(head.byte(0)? & 1 == 1),
            Test::IpMulticast { tags } => match head.kind(*tags)? {
                ethernet::TYPE_IPV4 => Some(head.byte(network(*tags) + 16)? >= 224),
                _ => Some(false),
            },
            Test::Ip6Multicast { tags } => match head.kind(*tags)? {
                ethernet::TYPE_IPV6 => Some(head.byte(network(*tags) + 24)? == 0xff),
                _ => Some(false),
            },
            Test::Net { tags, types, which, net } => net.is_met(head, *tags, *types, *which),
            Test::Port { tags, protocols, which, ports } => {
                let Some(at) = upper(head, *tags, protocols)? else { return Some(false) };
                let is = |at| Some(ports.contains(&head.u16(at)?));
                which.any(|| is(at), || is(at + 2))
            }
            Test::Longer { than } => Some(head.len > *than),
        }
    }
}

/// Offset of the ports of a packet of one of the protocols; `None` inside for any other packet, or
/// a later fragment of IPv4.
fn upper(head: &Head<'_>, tags: usize, protocols: &[u8]) -> Option<Option<usize>> {
    let at = network(tags);
    match head.kind(tags)? {
        ethernet::TYPE_IPV6 => {
            let is_one = protocols.contains(&head.byte(at + 6)?);
            Some(is_one.then_some(at + ipv6::HEADER_LEN))
        }
        ethernet::TYPE_IPV4 => {
            if !protocols.contains(&head.byte(at + 9)?) || head.u16(at + 6)? & 0x1fff != 0 {
                return Some(None);
            }
            Some(Some(at + usize::from(head.byte(at)? & 0xf) * 4))
        }
        _ => Some(None),
    }
}

impl Net {
    fn of(address: IpAddr) -> Net {
        let mask = if address.is_ipv4() { u32::MAX.into() } else { u128::MAX };
        Net { address, mask }
    }

    fn is_met(&self, head: &Head<'_>, tags: usize, types: Types, which: Which) -> Option<bool> {
        let at = network(tags);
        let offsets = match (head.kind(tags)?, self.address) {
            (ethernet::TYPE_IPV4, IpAddr::V4(_)) if types.ip => [12, 16],
            (ethernet::TYPE_ARP, IpAddr::V4(_)) if types.arp => [14, 24],
            (TYPE_RARP, IpAddr::V4(_)) if types.rarp => [14, 24],
            (ethernet::TYPE_IPV6, IpAddr::V6(_)) if types.ip6 => [8, 24],
            _ => return Some(false),
        };
        let [source, destination] = offsets.map(|offset| at + offset);
        which.any(|| self.is_at(head, source), || self.is_at(head, destination))
    }

    /// Compares word by word, until one differs.
    fn is_at(&self, head: &Head<'_>, at: usize) -> Option<bool> {
        let (address, words) = match self.address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 1),
            IpAddr::V6(address) => (address.to_bits(), 4),
        };
        for word in 0..words {
            let shift = 32 * (words - 1 - word);
            let mask = (self.mask >> shift) as u32;
            let found = u32::from_be_bytes(head.array(at + 4 * word)?);
            if found & mask != (address >> shift) as u32 {
                return Some(false);
            }
        }
        Some(true)
    }
}

/// Protocols with ports that `port` alone is of.
const WITH_PORTS: &[u8] = &[SCTP, ipv4::PROTOCOL_TCP, ipv4::PROTOCOL_UDP];

/// Dotted digits as a network: missing octets are 0, and not compared.
fn short_net(text: &str) -> Option<Net> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 4 {
        return None;
    }
    let mut octets = [0; 4];
    for (octet, part) in octets.iter_mut().zip(&parts) {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    let mask = u32::MAX << (32 - 8 * parts.len());
    Some(Net { address: Ipv4Addr::from(octets).into(), mask: mask.into() })
}

#[cfg(test)]
mod tests;

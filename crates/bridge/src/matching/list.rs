//! Match list: bit vectors, one for each field (Lakshman and Stiliadis, SIGCOMM 1998).
//!
//! Model: each field that some rule names maps its value to a set of rules. The intersection is the
//! set of matching rules; the lowest is the first. The cost depends on the number of rules, 64 a
//! step, and little on their contents: no list and no frame makes it slow.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::matching::check::bits;
use crate::matching::dimension::{Byte, Ranges};
use crate::matching::{IpPrefix, Key, MacPrefix, Match, Words, has, place};

/// The bits of a MAC as a number.
const MAC_MASK: u64 = wire::Mac::KEY_MASK;
/// Maximum number of fields.
const FIELDS: usize = 11;

/// Compiled match list; see the module's documentation. A rule is a match of it.
#[derive(Clone, Debug)]
pub struct List {
    rules: usize,
    mask: Words,
    has: Option<Byte>,
    protocol: Option<Byte>,
    tcp_flags: Option<Byte>,
    ethertype: Option<Ranges<u16>>,
    vid: Option<Ranges<u16>>,
    src_port: Option<Ranges<u16>>,
    dst_port: Option<Ranges<u16>>,
    src_mac: Option<Ranges<u64>>,
    dst_mac: Option<Ranges<u64>>,
    src_ip: Option<Ranges<u128>>,
    dst_ip: Option<Ranges<u128>>,
}

impl List {
    /// Builds from [validated](Match::check) matches, in order.
    pub fn build<'a>(matches: impl Iterator<Item = &'a Match>) -> Self {
        let matches: Vec<&Match> = matches.collect();
        let rules = || matches.iter().copied();
        let bytes = |of: fn(&Match) -> (u8, u8)| Byte::build(&rules().map(of).collect::<Vec<_>>());
        let numbers = |of: fn(&Match) -> Option<(u16, u16)>| {
            Ranges::build(&rules().map(of).collect::<Vec<_>>(), |n: u16| n.checked_add(1))
        };
        let macs = |of: fn(&Match) -> Option<MacPrefix>| {
            let ranges: Vec<_> = rules().map(|rule| of(rule).map(mac_range)).collect();
            Ranges::build(&ranges, |n: u64| n.checked_add(1))
        };
        let addrs = |of: fn(&Match) -> Option<IpPrefix>| {
            let ranges: Vec<_> = rules().map(|rule| of(rule).map(ip_range)).collect();
            Ranges::build(&ranges, |n: u128| n.checked_add(1))
        };
        Self {
            rules: matches.len(),
            mask: mask(rules()),
            has: bytes(has_bits),
            protocol: bytes(|rule| rule.protocol.map_or((0, 0), |protocol| (u8::MAX, protocol))),
            tcp_flags: bytes(|rule| {
                rule.tcp_flags.map_or((0, 0), |flags| (flags.mask, flags.value))
            }),
            ethertype: numbers(|rule| rule.ethertype.map(|ethertype| (ethertype, ethertype))),
            vid: numbers(|rule| rule.vid.as_ref().map(ends)),
            src_port: numbers(|rule| rule.src_port.as_ref().map(ends)),
            dst_port: numbers(dst_port_range),
            src_mac: macs(|rule| rule.src_mac),
            dst_mac: macs(|rule| rule.dst_mac),
            src_ip: addrs(|rule| rule.src_ip),
            dst_ip: addrs(|rule| rule.dst_ip),
        }
    }

    /// Offers the matching rules to `decides`, in order; returns the rule that decided.
    #[inline]
    pub fn find(&self, key: &Key, mut decides: impl FnMut(usize) -> bool) -> Option<usize> {
        let (sets, fields) = self.sets(key);
        let sets = &sets[..fields];
        for word in 0..self.rules.div_ceil(64) {
            let rest = self.rules - word * 64;
            let existing = u64::MAX >> 64_usize.saturating_sub(rest);
            let mut matching = sets.iter().fold(existing, |all, set| all & set[word]);
            while matching != 0 {
                let rule = word * 64 + matching.trailing_zeros() as usize;
                matching &= matching - 1;
                if decides(rule) {
                    return Some(rule);
                }
            }
        }
        None
    }

    /// Bits of a key that some rule examines; other bits do not change the result.
    pub fn mask(&self) -> Words {
        self.mask
    }

    /// Set of each relevant field, and their number.
    #[inline]
    fn sets(&self, key: &Key) -> ([&[u64]; FIELDS], usize) {
        let (mut sets, mut len): ([&[u64]; FIELDS], _) = ([&[]; FIELDS], 0);
        let all = [
            self.has.as_ref().map(|field| field.get(key.has)),
            self.protocol.as_ref().map(|field| field.get(key.protocol)),
            self.tcp_flags.as_ref().map(|field| field.get(key.tcp_flags)),
            self.ethertype.as_ref().map(|field| field.get(key.ethertype)),
            self.vid.as_ref().map(|field| field.get(key.vid)),
            self.src_port.as_ref().map(|field| field.get(key.src_port)),
            self.dst_port.as_ref().map(|field| field.get(key.dst_port)),
            self.src_mac.as_ref().map(|field| field.get(key.src_mac)),
            self.dst_mac.as_ref().map(|field| field.get(key.dst_mac)),
            self.src_ip.as_ref().map(|field| field.get(key.src_ip)),
            self.dst_ip.as_ref().map(|field| field.get(key.dst_ip)),
        ];
        for set in all.into_iter().flatten() {
            sets[len] = set;
            len += 1;
        }
        (sets, len)
    }
}

fn mask<'a>(rules: impl Iterator<Item = &'a Match>) -> Words {
    let mut mask = [0; 8];
    for rule in rules {
        for (word, prefix) in [(place::SRC_MAC, rule.src_mac), (place::DST_MAC, rule.dst_mac)] {
            let range = prefix.map(mac_range);
            mask[word] |= range.map_or(0, |(first, last)| !(first ^ last) & MAC_MASK);
        }
        for (word, prefix) in [(place::SRC_IP, rule.src_ip), (place::DST_IP, rule.dst_ip)] {
            // All bits above an IPv4 address are 0 in any key that has one.
            let bits = prefix.map(ip_range).map_or(0, |(first, last)| !(first ^ last));
            mask[word] |= bits as u64;
            mask[word + 1] |= (bits >> 64) as u64;
        }
        let ports = rule.dst_port.is_some() || rule.icmp.is_some();
        for ((word, shift), named) in [
            (place::ETHERTYPE, rule.ethertype.is_some()),
            (place::VID, rule.vid.is_some()),
            (place::SRC_PORT, rule.src_port.is_some()),
            (place::DST_PORT, ports),
        ] {
            mask[word] |= if named { u64::from(u16::MAX) << shift } else { 0 };
        }
        for ((word, shift), bits) in [
            (place::PROTOCOL, rule.protocol.map_or(0, |_| u8::MAX)),
            (place::TCP_FLAGS, rule.tcp_flags.map_or(0, |flags| flags.mask)),
            (place::HAS, has_bits(rule).0),
        ] {
            mask[word] |= u64::from(bits) << shift;
        }
    }
    mask
}

/// Parts that a frame must have and must not have for a rule, as mask and value.
fn has_bits(rule: &Match) -> (u8, u8) {
    let mut must = if rule.protocol.is_some() { has::IP } else { 0 };
    for prefix in [rule.src_ip, rule.dst_ip].into_iter().flatten() {
        must |= if prefix.addr.is_ipv4() { has::IPV4 } else { has::IPV6 };
    }
    if rule.src_port.is_some() || rule.dst_port.is_some() {
        must |= has::PORTS;
    }
    if rule.icmp.is_some() {
        must |= has::ICMP;
    }
    if rule.tcp_flags.is_some() {
        must |= has::TCP;
    }
    match rule.later_fragment {
        None => (must, must),
        Some(true) => (must | has::LATER_FRAGMENT, must | has::LATER_FRAGMENT),
        Some(false) => (must | has::LATER_FRAGMENT, must),
    }
}

fn ends(range: &RangeInclusive<u16>) -> (u16, u16) {
    (*range.start(), *range.end())
}

/// The field also holds ICMP's type and code; a rule never names both.
fn dst_port_range(rule: &Match) -> Option<(u16, u16)> {
    let ports = rule.dst_port.as_ref().map(ends);
    let icmp = rule.icmp.map(|icmp| {
        let (from, to) = icmp.code.map_or((0, u8::MAX), |code| (code, code));
        (u16::from_be_bytes([icmp.kind, from]), u16::from_be_bytes([icmp.kind, to]))
    });
    ports.or(icmp)
}

fn mac_range(MacPrefix { mac, len }: MacPrefix) -> (u64, u64) {
    let first = mac.key().swap_bytes() >> 16;
    (first, first | ((1 << (48 - len.min(48))) - 1))
}

fn ip_range(IpPrefix { addr, len }: IpPrefix) -> (u128, u128) {
    let (first, most) = bits(addr);
    let rest = u32::from(most.saturating_sub(len));
    let family = match addr {
        IpAddr::V4(_) => u128::from(u32::MAX),
        IpAddr::V6(_) => u128::MAX,
    };
    (first, first | (family & !(u128::MAX.checked_shl(rest).unwrap_or(0))))
}

//! Validation of matches: rejects those that no frame could match.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use wire::{Vid, ethernet, vlan};

use crate::matching::key::{ICMP, ICMPV6, TCP, TYPE_MIN, WITH_PORTS};
use crate::matching::{IpPrefix, MacPrefix, Match};

/// Reason for which a match is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// Allowed values.
    pub allowed: String,
}

/// Returns an error unless a condition holds; formats it only then.
macro_rules! ensure {
    ($holds:expr, $field:expr, $value:expr, $allowed:expr) => {
        if !$holds {
            let (value, allowed) = ($value.to_string(), $allowed.to_string());
            return Err(MatchError { field: $field, value, allowed });
        }
    };
}

impl Match {
    /// Validates the match: a frame could match it.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), MatchError> {
        range("src_port", &self.src_port, u16::MAX)?;
        range("dst_port", &self.dst_port, u16::MAX)?;
        range("vid", &self.vid, Vid::MAX)?;
        for (field, prefix) in [("src_mac", self.src_mac), ("dst_mac", self.dst_mac)] {
            if let Some(MacPrefix { mac, len }) = prefix {
                let bits = mac.key().swap_bytes() >> 16;
                self::prefix(field, (bits.into(), len, 48), mac)?;
            }
        }
        for (field, prefix) in [("src_ip", self.src_ip), ("dst_ip", self.dst_ip)] {
            if let Some(IpPrefix { addr, len }) = prefix {
                let (bits, most) = bits(addr);
                self::prefix(field, (bits, len, most), addr)?;
            }
        }
        if let (Some(src), Some(dst)) = (self.src_ip, self.dst_ip) {
            let alike = src.addr.is_ipv4() == dst.addr.is_ipv4();
            ensure!(alike, "dst_ip", dst.addr, "the same version of IP as in src_ip");
        }
        self.check_ethertype()?;
        self.check_upper()
    }

    fn check_ethertype(&self) -> Result<(), MatchError> {
        let Some(ethertype) = self.ethertype else { return Ok(()) };
        let value = format_args!("{ethertype:#06x}");
        let real = ethertype >= TYPE_MIN && !vlan::is_tpid(ethertype);
        let allowed = "0x0600 to 0xffff but for tags, which are not part of what is compared";
        ensure!(real, "ethertype", value, allowed);
        let ipv4 = ethertype == ethernet::TYPE_IPV4;
        let ip = ipv4 || ethertype == ethernet::TYPE_IPV6;
        ensure!(
            ip || !(self.is_ip() || self.names_upper()),
            "ethertype",
            value,
            "0x0800 or 0x86dd in a rule that names fields of IP"
        );
        for addr in [self.src_ip, self.dst_ip].into_iter().flatten().map(|prefix| prefix.addr) {
            let allowed = "the type of the version of IP whose addresses the rule names";
            ensure!(addr.is_ipv4() == ipv4, "ethertype", value, allowed);
        }
        Ok(())
    }

    fn check_upper(&self) -> Result<(), MatchError> {
        let ports = self.src_port.is_some() || self.dst_port.is_some();
        let protocol = self.protocol;
        let of = |allowed: &[u8]| protocol.is_none_or(|protocol| allowed.contains(&protocol));
        let name = || protocol.map_or("none".into(), |protocol| protocol.to_string());
        let allowed =
            "TCP (6), UDP (17), DCCP (33), SCTP (132) or UDP-Lite (136) in a rule that names ports";
        ensure!(!ports || of(&WITH_PORTS), "protocol", name(), allowed);
        let allowed = "ICMP (1) or ICMPv6 (58) in a rule that names a kind of it";
        ensure!(self.icmp.is_none() || of(&[ICMP, ICMPV6]), "protocol", name(), allowed);
        let allowed = "TCP (6) in a rule that names flags";
        ensure!(self.tcp_flags.is_none() || of(&[TCP]), "protocol", name(), allowed);
        if let Some(icmp) = self.icmp {
            let allowed = "no ICMP in a rule that names ports or flags";
            let alone = !ports && self.tcp_flags.is_none();
            ensure!(alone, "icmp", format_args!("type {}", icmp.kind), allowed);
        }
        if let Some(flags) = self.tcp_flags {
            let value = format_args!("value {:#04x}, mask {:#04x}", flags.value, flags.mask);
            let allowed = "a value within the mask";
            ensure!(flags.value & !flags.mask == 0, "tcp_flags", value, allowed);
        }
        let hidden = self.later_fragment == Some(true) && self.names_upper();
        let allowed = "false, or none, in a rule that names ports, ICMP or flags";
        ensure!(!hidden, "later_fragment", true, allowed);
        Ok(())
    }

    /// Returns `true` if it names only addresses and VLAN, so that the first 16 bytes of a frame
    /// suffice.
    pub fn is_shallow(&self) -> bool {
        self.ethertype.is_none() && !self.is_ip() && !self.names_upper()
    }

    /// Returns `true` if only IP can match.
    fn is_ip(&self) -> bool {
        self.src_ip.is_some()
            || self.dst_ip.is_some()
            || self.protocol.is_some()
            || self.later_fragment.is_some()
    }

    /// Returns `true` if only frames with a transport header can match.
    fn names_upper(&self) -> bool {
        let ports = self.src_port.is_some() || self.dst_port.is_some();
        ports || self.icmp.is_some() || self.tcp_flags.is_some()
    }
}

/// An address as a number, and its number of bits.
pub(crate) fn bits(addr: IpAddr) -> (u128, u8) {
    match addr {
        IpAddr::V4(addr) => (addr.to_bits().into(), 32),
        IpAddr::V6(addr) => (addr.to_bits(), 128),
    }
}

fn prefix(
    field: &'static str,
    (bits, len, most): (u128, u8, u8),
    addr: impl std::fmt::Display,
) -> Result<(), MatchError> {
    let value = format_args!("{addr}/{len}");
    ensure!(len <= most, field, value, format_args!("a prefix of up to {most} bits"));
    let rest = !u128::MAX.checked_shl(u32::from(most - len)).unwrap_or(0);
    let allowed = "an address that is zero beyond its prefix";
    ensure!(bits & rest == 0, field, value, allowed);
    Ok(())
}

fn range(
    field: &'static str,
    range: &Option<RangeInclusive<u16>>,
    most: u16,
) -> Result<(), MatchError> {
    if let Some(range) = range {
        let (start, end) = (range.start(), range.end());
        let allowed = format_args!("0 to {most}, the lower number first");
        let value = format_args!("{start} to {end}");
        ensure!(start <= end && *end <= most, field, value, allowed);
    }
    Ok(())
}

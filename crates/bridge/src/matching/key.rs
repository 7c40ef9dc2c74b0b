//! Match key of a frame, from its first 128 bytes.
//!
//! Model: one pass over Ethernet, tags and LLC/SNAP, IP with its options or extension headers, up
//! to the ports. Receivers may parse more leniently than we do. So a frame that is truncated,
//! malformed or nested too deep has no key: an unknown header could hide anything. Sections: RFC
//! 791, RFC 8200 section 4, RFC 4302 (AH), IEEE 802.2 with RFC 1042.
//!
//! Limits: two tags, one SNAP header, eight extension headers. Lengths beyond the headers are not
//! checked, nor are checksums. Cannot panic: each read is checked.

use wire::{FrameHeader, HeaderSnapshot, ethernet, vlan};

/// Maximum number of IPv6 extension headers.
const EXTENSIONS_MAX: usize = 8;
const TAGS_MAX: usize = 2;
/// Type fields below are lengths (IEEE 802.3-2022, 3.2.6).
pub(crate) const TYPE_MIN: u16 = 0x600;

/// The protocol number of ICMP.
pub const ICMP: u8 = 1;
/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;
/// The protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// Protocols that begin with a source and a destination port: also DCCP, SCTP and UDP-Lite.
pub(crate) const WITH_PORTS: [u8; 5] = [TCP, UDP, 33, 132, 136];

/// Parts that a [`Key`] has, which define the meaning of its fields.
pub mod has {
    /// IPv4 addresses.
    pub const IPV4: u8 = 1;
    /// IPv6 addresses.
    pub const IPV6: u8 = 2;
    /// A source and a destination port.
    pub const PORTS: u8 = 4;
    /// Type and code of ICMP or ICMPv6, instead of the destination port.
    pub const ICMP: u8 = 8;
    /// TCP's flags.
    pub const TCP: u8 = 16;
    /// It is a fragment but not the first.
    pub const LATER_FRAGMENT: u8 = 32;
    /// A protocol, whatever the version of IP.
    pub const IP: u8 = 64;
}

/// A key as eight words, to hash, mask and compare. See [`Key::words`].
pub type Words = [u64; 8];

/// Position of each field in [`Words`]: the word, and the shift.
pub mod place {
    /// The source address's first word.
    pub const SRC_IP: usize = 0;
    /// The destination address's first word.
    pub const DST_IP: usize = 2;
    /// The source MAC's word.
    pub const SRC_MAC: usize = 4;
    /// The destination MAC's word.
    pub const DST_MAC: usize = 5;
    /// The type.
    pub const ETHERTYPE: (usize, u32) = (6, 48);
    /// The VLAN.
    pub const VID: (usize, u32) = (6, 32);
    /// The source port.
    pub const SRC_PORT: (usize, u32) = (6, 16);
    /// The destination port, or ICMP's type and code.
    pub const DST_PORT: (usize, u32) = (6, 0);
    /// The protocol.
    pub const PROTOCOL: (usize, u32) = (7, 0);
    /// TCP's flags.
    pub const TCP_FLAGS: (usize, u32) = (7, 8);
    /// Parts present, see [`has`](super::has).
    pub const HAS: (usize, u32) = (7, 16);
}

/// Fields that rules can match. A field that the frame does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Source address; of IPv4 in the low 32 bits.
    pub src_ip: u128,
    /// Destination address.
    pub dst_ip: u128,
    /// Source MAC, as a big-endian number, so that a prefix is a range.
    pub src_mac: u64,
    /// Destination MAC, likewise.
    pub dst_mac: u64,
    /// 0 for LLC without an EtherType.
    pub ethertype: u16,
    /// The VLAN, as the caller has it.
    pub vid: u16,
    /// Source port.
    pub src_port: u16,
    /// Destination port, or ICMP's type and code.
    pub dst_port: u16,
    /// Protocol of IP.
    pub protocol: u8,
    /// Flags of TCP.
    pub tcp_flags: u8,
    /// Parts present, see [`has`].
    pub has: u8,
}

impl Key {
    /// Key of a frame in a VLAN; `None` if its headers cannot be parsed.
    pub fn of(header: FrameHeader, snapshot: &HeaderSnapshot, vid: u16) -> Option<Self> {
        let bytes = snapshot.bytes();
        let big_endian = |key: u64| key.swap_bytes() >> 16;
        let mut key = Self {
            src_mac: big_endian(header.src_key()),
            dst_mac: big_endian(header.dst_key()),
            vid,
            ..Self::default()
        };
        let (ethertype, at) = ethertype(bytes)?;
        key.ethertype = ethertype;
        match ethertype {
            ethernet::TYPE_IPV4 => key.ipv4(bytes.get(at..)?)?,
            ethernet::TYPE_IPV6 => key.ipv6(bytes.get(at..)?)?,
            _ => (),
        }
        Some(key)
    }

    /// Key of a frame with unparseable headers: addresses, VLAN, and the type if it is readable.
    pub fn outer(header: FrameHeader, snapshot: &HeaderSnapshot, vid: u16) -> Self {
        let big_endian = |key: u64| key.swap_bytes() >> 16;
        let (src_mac, dst_mac) = (big_endian(header.src_key()), big_endian(header.dst_key()));
        let ethertype = ethertype(snapshot.bytes()).map_or(0, |(ethertype, _)| ethertype);
        Self { src_mac, dst_mac, vid, ethertype, ..Self::default() }
    }

    /// As eight words, one cache line.
    #[inline(always)]
    pub fn words(&self) -> Words {
        let both = |a: u16, b: u16| u64::from(a) << 16 | u64::from(b);
        [
            self.src_ip as u64,
            (self.src_ip >> 64) as u64,
            self.dst_ip as u64,
            (self.dst_ip >> 64) as u64,
            self.src_mac,
            self.dst_mac,
            both(self.ethertype, self.vid) << 32 | both(self.src_port, self.dst_port),
            u64::from_le_bytes([self.protocol, self.tcp_flags, self.has, 0, 0, 0, 0, 0]),
        ]
    }

    /// The key that has these words.
    pub fn from_words(words: &Words) -> Self {
        let ip = |at: usize| u128::from(words[at]) | u128::from(words[at + 1]) << 64;
        let number = |(word, shift): (usize, u32)| (words[word] >> shift) as u16;
        let byte = |place| number(place) as u8;
        Self {
            src_ip: ip(place::SRC_IP),
            dst_ip: ip(place::DST_IP),
            src_mac: words[place::SRC_MAC],
            dst_mac: words[place::DST_MAC],
            ethertype: number(place::ETHERTYPE),
            vid: number(place::VID),
            src_port: number(place::SRC_PORT),
            dst_port: number(place::DST_PORT),
            protocol: byte(place::PROTOCOL),
            tcp_flags: byte(place::TCP_FLAGS),
            has: byte(place::HAS),
        }
    }

    fn ipv4(&mut self, packet: &[u8]) -> Option<()> {
        let fixed: &[u8; 20] = packet.first_chunk()?;
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let total_len = usize::from(u16_at(fixed, 2)?);
        // A total length of 0 stands for one that does not fit, under segmentation offload.
        let total_len = if total_len == 0 { usize::MAX } else { total_len };
        if fixed[0] >> 4 != 4 || header_len < fixed.len() || total_len < header_len {
            return None;
        }
        let [.., a, b, c, d, e, f, g, h] = *fixed;
        self.src_ip = u32::from_be_bytes([a, b, c, d]).into();
        self.dst_ip = u32::from_be_bytes([e, f, g, h]).into();
        self.has |= has::IP | has::IPV4;
        let fragment_offset = u16_at(fixed, 6)? & 0x1fff;
        let payload = packet.get(header_len..packet.len().min(total_len))?;
        self.upper(fixed[9], fragment_offset, payload)
    }

    fn ipv6(&mut self, packet: &[u8]) -> Option<()> {
        let (fixed, mut rest) = packet.split_first_chunk::<40>()?;
        if fixed[0] >> 4 != 6 {
            return None;
        }
        self.src_ip = u128::from_be_bytes(*fixed[8..].first_chunk()?);
        self.dst_ip = u128::from_be_bytes(*fixed[24..].first_chunk()?);
        self.has |= has::IP | has::IPV6;
        let mut next = fixed[6];
        for _ in 0..=EXTENSIONS_MAX {
            let len = match next {
                // Hop-by-hop options, routing, destination options.
                0 | 43 | 60 => usize::from(*rest.get(1)?) * 8 + 8,
                // Authentication.
                51 => usize::from(*rest.get(1)?) * 4 + 8,
                // Fragment.
                44 => {
                    let offset = u16_at(rest, 2)? >> 3;
                    if offset != 0 {
                        return self.upper(*rest.first()?, offset, rest.get(8..)?);
                    }
                    8
                }
                _ => return self.upper(next, 0, rest),
            };
            next = *rest.first()?;
            rest = rest.get(len..)?;
        }
        None
    }

    /// Parses the transport header; `fragment_offset` is in units of 8 bytes.
    fn upper(&mut self, protocol: u8, fragment_offset: u16, payload: &[u8]) -> Option<()> {
        self.protocol = protocol;
        if fragment_offset != 0 {
            self.has |= has::LATER_FRAGMENT;
            // At offset 1 a fragment would overwrite TCP's flags, which the first fragment showed
            // (RFC 3128).
            return (protocol != TCP || fragment_offset != 1).then_some(());
        }
        let icmp = if self.has & has::IPV4 != 0 { ICMP } else { ICMPV6 };
        if WITH_PORTS.contains(&protocol) {
            self.src_port = u16_at(payload, 0)?;
            self.dst_port = u16_at(payload, 2)?;
            self.has |= has::PORTS;
            if protocol == TCP {
                self.tcp_flags = *payload.get(13)?;
                self.has |= has::TCP;
            }
        } else if protocol == icmp {
            self.dst_port = u16_at(payload, 0)?;
            self.has |= has::ICMP;
        }
        Some(())
    }
}

/// EtherType, 0 if there is none, and the offset behind it.
fn ethertype(bytes: &[u8]) -> Option<(u16, usize)> {
    let (mut at, mut tags, mut snaps) = (12, 0, 0);
    loop {
        let ethertype = u16_at(bytes, at)?;
        at += 2;
        if vlan::is_tpid(ethertype) {
            tags += 1;
            at += 2;
        } else if ethertype < TYPE_MIN && is_snap(bytes.get(at..at + 6)?) {
            snaps += 1;
            at += 6;
        } else {
            return Some((if ethertype < TYPE_MIN { 0 } else { ethertype }, at));
        }
        if tags > TAGS_MAX || snaps > 1 {
            return None;
        }
    }
}

/// Returns `true` for LLC with an EtherType: SNAP of RFC 1042, or of 802.1H bridges.
fn is_snap(llc: &[u8]) -> bool {
    matches!(llc, [0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8, ..])
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

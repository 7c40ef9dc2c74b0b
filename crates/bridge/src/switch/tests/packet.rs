//! Frames described by their fields, for a model that need not parse; and their bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use wire::Mac;

use super::mac;

/// A frame by its fields.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) dst: Mac,
    pub(super) src: Mac,
    /// TPID and TCI of each tag, the outermost first.
    pub(super) tags: Vec<(u16, u16)>,
    /// Put LLC and SNAP between length and type.
    pub(super) snap: bool,
    pub(super) payload: Payload,
}

#[derive(Clone, Debug)]
pub(super) enum Payload {
    /// Not IP: a type.
    Other(u16),
    Ip(Ip),
}

#[derive(Clone, Debug)]
pub(super) struct Ip {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// Options in words of 4 bytes, or extension headers of 8 bytes.
    pub(super) extras: u8,
    /// In units of 8 bytes; of IPv6 a fragment header if it is not `None`.
    pub(super) fragment: Option<u16>,
    pub(super) upper: Upper,
}

#[derive(Clone, Debug)]
pub(super) enum Upper {
    Ports {
        protocol: u8,
        src: u16,
        dst: u16,
        flags: u8,
    },
    /// ICMP of the version that fits.
    Icmp {
        kind: u8,
        code: u8,
    },
    Other(u8),
}

impl Packet {
    /// Something plain between two addresses.
    pub(super) fn new(dst: Mac, src: Mac, payload: Payload) -> Self {
        Self { dst, src, tags: Vec::new(), snap: false, payload }
    }

    pub(super) fn ethertype(&self) -> u16 {
        match &self.payload {
            Payload::Other(ethertype) => *ethertype,
            Payload::Ip(ip) if ip.src.is_ipv4() => 0x0800,
            Payload::Ip(_) => 0x86dd,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.dst.0, self.src.0].concat();
        for (tpid, tci) in &self.tags {
            bytes.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        let payload = match &self.payload {
            Payload::Other(_) => vec![0xa5; 46],
            Payload::Ip(ip) => ip.bytes(),
        };
        if self.snap {
            bytes.extend((payload.len() as u16 + 8).to_be_bytes());
            bytes.extend([0xaa, 0xaa, 3, 0, 0, 0]);
        }
        bytes.extend(self.ethertype().to_be_bytes());
        bytes.extend(payload);
        bytes
    }
}

impl Ip {
    pub(super) fn protocol(&self) -> u8 {
        match self.upper {
            Upper::Ports { protocol, .. } => protocol,
            Upper::Icmp { .. } if self.src.is_ipv4() => 1,
            Upper::Icmp { .. } => 58,
            Upper::Other(protocol) => protocol,
        }
    }

    /// Returns `true` for a fragment after the first.
    pub(super) fn is_later(&self) -> bool {
        self.fragment.is_some_and(|offset| offset != 0)
    }

    fn upper_bytes(&self) -> Vec<u8> {
        let mut bytes = match self.upper {
            Upper::Ports { src, dst, flags, .. } => {
                let mut bytes = [src.to_be_bytes(), dst.to_be_bytes()].concat();
                bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags]);
                bytes
            }
            Upper::Icmp { kind, code } => vec![kind, code],
            Upper::Other(_) => vec![],
        };
        bytes.resize(24, 0x99);
        if let Upper::Ports { protocol: 17, .. } = self.upper {
            bytes[4..6].copy_from_slice(&[0, 24]);
        }
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        let upper = self.upper_bytes();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.v4(src, dst, &upper),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.v6(src, dst, &upper),
            _ => panic!("two versions in one packet"),
        }
    }

    fn v4(&self, src: Ipv4Addr, dst: Ipv4Addr, upper: &[u8]) -> Vec<u8> {
        let header_len = 20 + 4 * usize::from(self.extras);
        let mut bytes = vec![0x40 | (header_len / 4) as u8, 0];
        bytes.extend(((header_len + upper.len()) as u16).to_be_bytes());
        // All have "more fragments" set, which must not matter.
        let fragment = self.fragment.map_or(0, |offset| offset | 0x2000);
        bytes.extend([7_u16.to_be_bytes(), fragment.to_be_bytes()].concat());
        bytes.extend([64, self.protocol(), 0, 0]);
        bytes.extend([src.octets(), dst.octets()].concat());
        bytes.resize(header_len, 1); // "no operation"
        [&bytes, upper].concat()
    }

    fn v6(&self, src: Ipv6Addr, dst: Ipv6Addr, upper: &[u8]) -> Vec<u8> {
        // Hop-by-hop options first, destination options after.
        let mut chain: Vec<u8> = (0..self.extras).map(|n| if n == 0 { 0 } else { 60 }).collect();
        chain.extend(self.fragment.map(|_| 44));
        chain.push(self.protocol());
        let mut bytes = vec![0x60, 0, 0, 0];
        let payload_len = (chain.len() - 1) * 8 + upper.len();
        bytes.extend((payload_len as u16).to_be_bytes());
        bytes.extend([chain[0], 64]);
        bytes.extend([src.octets(), dst.octets()].concat());
        for pair in chain.windows(2) {
            if pair[0] == 44 {
                let fragment = self.fragment.unwrap_or(0) << 3 | 1;
                bytes.extend([pair[1], 0]);
                bytes.extend(fragment.to_be_bytes());
                bytes.extend([0, 0, 0, 7]);
            } else {
                bytes.extend([pair[1], 0, 1, 4, 0, 0, 0, 0]); // padding of 6 bytes
            }
        }
        [&bytes, upper].concat()
    }
}

/// Few addresses, so that frames meet each other and rules.
fn any_mac() -> impl Strategy<Value = Mac> {
    prop_oneof![
        20 => (0_u16..12).prop_map(mac),
        2 => Just(Mac::BROADCAST),
        1 => Just(Mac([1, 0, 0x5e, 0, 0, 1])),
        1 => Just(Mac([1, 0x80, 0xc2, 0, 0, 0xe])),
    ]
}

pub(super) fn any_port() -> impl Strategy<Value = u16> {
    prop_oneof![
        Just(53_u16),
        Just(67),
        Just(68),
        Just(546),
        Just(547),
        1000_u16..1010,
        any::<u16>()
    ]
}

fn any_upper() -> impl Strategy<Value = Upper> {
    let protocol = prop_oneof![Just(6_u8), Just(6), Just(17), Just(17), Just(132)];
    let kind = prop_oneof![Just(5_u8), Just(8), Just(9), Just(134), Just(137)];
    prop_oneof![
        4 => (protocol, any_port(), any_port(), any::<u8>())
            .prop_map(|(protocol, src, dst, flags)| Upper::Ports { protocol, src, dst, flags }),
        2 => (kind, 0_u8..3).prop_map(|(kind, code)| Upper::Icmp { kind, code }),
        1 => prop_oneof![Just(47_u8), Just(50), Just(59)].prop_map(Upper::Other),
    ]
}

pub(super) fn any_ipv4() -> impl Strategy<Value = IpAddr> {
    (0_u8..4, 0_u8..4).prop_map(|(net, host)| Ipv4Addr::new(10, 0, net, host).into())
}

pub(super) fn any_ipv6() -> impl Strategy<Value = IpAddr> {
    // One of them looks as an IPv4 address does where both are kept in one field.
    let net = prop_oneof![Just(0x20010db8_u128 << 96), Just(0xfe80 << 112), Just(0)];
    let host = prop_oneof![0_u128..4, Just(0x0a00_0001)];
    (net, host).prop_map(|(net, host)| Ipv6Addr::from_bits(net | host).into())
}

pub(super) fn any_payload() -> impl Strategy<Value = Payload> {
    let v4 = (any_ipv4(), any_ipv4(), 0_u8..=10);
    let v6 = (any_ipv6(), any_ipv6(), 0_u8..=3);
    let fragment = prop::option::weighted(0.2, prop_oneof![Just(0_u16), 2_u16..0x1fff]);
    let addresses = prop_oneof![3 => v4.boxed(), 2 => v6.boxed()];
    let ip =
        (addresses, fragment, any_upper()).prop_map(|((src, dst, extras), fragment, upper)| {
            Payload::Ip(Ip { src, dst, extras, fragment, upper })
        });
    prop_oneof![5 => ip, 1 => prop_oneof![Just(0x0806), Just(0x88cc)].prop_map(Payload::Other)]
}

pub(super) fn any_packet() -> impl Strategy<Value = Packet> {
    let vid = prop_oneof![Just(0_u16), Just(1), Just(2), Just(3), Just(4095)];
    let tag = (prop_oneof![3 => Just(0x8100_u16), 1 => Just(0x88a8)], vid, 0_u16..16)
        .prop_map(|(tpid, vid, priority)| (tpid, priority << 12 | vid));
    let tags = prop_oneof![
        3 => Just(vec![]),
        3 => prop::collection::vec(tag.clone(), 1),
        1 => prop::collection::vec(tag, 2),
    ];
    let snap = prop::bool::weighted(0.1);
    (any_mac(), any_mac(), tags, snap, any_payload())
        .prop_map(|(dst, src, tags, snap, payload)| Packet { dst, src, tags, snap, payload })
}

//! Random switches, and sequences of bursts, ticks, flushes and changes of settings, against a
//! model in a map that does one frame after the other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use wire::Mac;

use super::packet::{Ip, Packet, Payload, Upper, any_ipv4, any_ipv6, any_packet, any_port};
use super::*;

/// The rules as a reader of the module's documentation would write them down.
#[derive(Default)]
struct Model {
    config: SwitchConfig,
    /// With the ticks since the last frame.
    fdb: BTreeMap<(Mac, u16), (PortId, u8)>,
    /// Time at which the bucket of a port and kind is full.
    full_at: BTreeMap<(PortId, usize), u64>,
    /// By list and rule.
    counters: BTreeMap<(usize, usize), u64>,
}

impl Model {
    fn port(&self, port: PortId) -> Option<&PortConfig> {
        self.config.ports.get(port.index())?.as_ref()
    }

    fn fixed(&self, mac: Mac, vid: u16) -> Option<PortId> {
        let same = |entry: &&StaticEntry| entry.mac == mac && entry.vlan.map_or(0, Vid::get) == vid;
        self.config.statics.iter().find(same).map(|entry| entry.port)
    }

    fn vid(&self, from: PortId, packet: &Packet) -> Result<u16, DropReason> {
        let port = self.port(from).ok_or(DropReason::LinkDown)?;
        if packet.src.is_multicast() {
            return Err(DropReason::SourceMulticast);
        }
        // The length field before a SNAP header is no tag, and what stands in it is none either.
        let tag = packet.tags.first().map(|(_, tci)| tci & 0xfff);
        if tag == Some(0) && packet.tags.len() > 1 && from != PortId::UPLINK {
            return Err(DropReason::VlanForbidden);
        }
        let vid = match (&port.vlans, tag) {
            (Vlans::Access(Some(vid)), None) => Some(vid.get()),
            (Vlans::Access(None), None | Some(0)) => Some(0),
            (Vlans::Access(_), Some(_)) => None,
            (Vlans::Trunk { native: Native::Refused, .. }, None | Some(0)) => None,
            (Vlans::Trunk { native: Native::Untagged, .. }, None | Some(0)) => Some(0),
            (Vlans::Trunk { native: Native::Vlan(vid), .. }, None | Some(0)) => Some(vid.get()),
            (Vlans::Trunk { .. }, Some(vid)) => Some(vid),
        };
        vid.filter(|vid| port.vlans.contains(*vid)).ok_or(DropReason::VlanForbidden)
    }

    /// Rules 1 to 8.
    fn admit(&mut self, from: PortId, packet: &Packet) -> Result<u16, DropReason> {
        let vid = self.vid(from, packet)?;
        if packet.dst.0[..5] == [1, 0x80, 0xc2, 0, 0] && packet.dst.0[5] < 16 {
            return Err(DropReason::LinkLocal);
        }
        if self.fixed(packet.src, vid).is_some_and(|port| port != from) {
            return Err(DropReason::SpoofedMac);
        }
        let port = self.config.ports[from.index()].as_ref().unwrap();
        if let Payload::Ip(ip) = &packet.payload
            && !ip.is_later()
        {
            let v4 = ip.src.is_ipv4();
            match ip.upper {
                Upper::Ports { protocol: 17, src, dst, .. } if port.dhcp_guard => {
                    let hit = if v4 { src == 67 || dst == 68 } else { src == 547 || dst == 546 };
                    if hit {
                        return Err(DropReason::DhcpGuard);
                    }
                }
                Upper::Icmp { kind, .. } if port.router_guard => {
                    let router = if v4 { [5, 9] } else { [134, 137] };
                    if router.contains(&kind) {
                        return Err(DropReason::RouterGuard);
                    }
                }
                _ => (),
            }
        }
        let Some(acl) = port.acl else { return Ok(vid) };
        for (index, rule) in self.config.acls[acl].rules.iter().enumerate() {
            if matches(&rule.matches, packet, vid) {
                *self.counters.entry((acl, index)).or_default() += 1;
                match rule.action {
                    RuleAction::Allow => return Ok(vid),
                    RuleAction::Deny => return Err(DropReason::AclDeny),
                    RuleAction::Count => (),
                }
            }
        }
        let allowed = self.config.acls[acl].default_allow;
        if allowed { Ok(vid) } else { Err(DropReason::AclDeny) }
    }

    /// Rule 9.
    fn learn(
        &mut self,
        from: PortId,
        key: (Mac, u16),
        budget: &mut usize,
    ) -> Result<(), DropReason> {
        let Learning { limit, beyond } = self.port(from).unwrap().learning;
        if self.fixed(key.0, key.1).is_some() || (limit, beyond) == (0, Beyond::Forward) {
            return Ok(());
        }
        if let Some((port, ticks)) = self.fdb.get_mut(&key)
            && *port == from
        {
            *ticks = 0;
            return Ok(());
        }
        let has = self.fdb.values().filter(|(port, _)| *port == from).count();
        if has >= limit as usize {
            return if beyond == Beyond::Drop { Err(DropReason::MacLimit) } else { Ok(()) };
        }
        if *budget > 0 {
            *budget -= 1;
            self.fdb.insert(key, (from, 0));
        }
        Ok(())
    }

    fn receivers(&self, from: PortId, vid: u16, flood: Flood) -> Vec<PortId> {
        let isolated = self.port(from).unwrap().isolated;
        let all = (0..self.config.ports.len() as u16).map(PortId);
        all.filter(|to| {
            self.port(*to).is_some_and(|port| {
                port.vlans.contains(vid)
                    && *to != from
                    && !(isolated && port.isolated)
                    && (flood == Flood::Group || port.flood_unknown)
            })
        })
        .collect()
    }

    /// Rules 10 to 14.
    fn forward(&mut self, from: PortId, packet: &Packet, vid: u16, now_ns: u64) -> Action {
        let flood = if packet.dst.is_multicast() {
            Flood::Group
        } else {
            let member =
                |port: &PortId| self.port(*port).is_some_and(|port| port.vlans.contains(vid));
            let learned = self.fdb.get(&(packet.dst, vid)).map(|(port, _)| *port).filter(member);
            match self.fixed(packet.dst, vid).or(learned) {
                Some(to) if to == from => return dropped(DropReason::Hairpin),
                Some(to)
                    if self.port(to).unwrap().isolated && self.port(from).unwrap().isolated =>
                {
                    return dropped(DropReason::Isolated);
                }
                Some(to) => return Action::Port(to),
                None => Flood::Unknown,
            }
        };
        if self.receivers(from, vid, flood).is_empty() {
            return dropped(DropReason::NoMatch);
        }
        let storm = self.port(from).unwrap().storm;
        let (kind, rate, reason) = match flood {
            Flood::Unknown => (2, storm.unknown, DropReason::StormUnknown),
            Flood::Group if packet.dst == Mac::BROADCAST => {
                (0, storm.broadcast, DropReason::StormBroadcast)
            }
            Flood::Group => (1, storm.multicast, DropReason::StormMulticast),
        };
        match rate {
            None => return Action::Flood(flood),
            Some(0) => return dropped(reason),
            Some(_) => (),
        }
        let full_at = self.full_at.entry((from, kind)).or_default();
        let start = (*full_at).max(now_ns);
        if start > now_ns + 100_000_000 {
            return dropped(reason);
        }
        *full_at = start + 1_000_000_000 / u64::from(rate.unwrap());
        Action::Flood(flood)
    }

    fn mirrors(&self, from: PortId, vid: u16, action: Action) -> u32 {
        let receivers = match action {
            Action::Port(port) => vec![port],
            Action::Flood(flood) => self.receivers(from, vid, flood),
            Action::Drop(_) => vec![],
        };
        let wants = |mirror: &SwitchMirror| {
            let takes = mirror.ingress.contains(&from)
                || mirror.egress.iter().any(|port| receivers.contains(port));
            takes && mirror.to != from && !receivers.contains(&mirror.to)
        };
        let all = self.config.mirrors.iter().enumerate();
        all.map(|(index, mirror)| u32::from(wants(mirror)) << index).sum()
    }

    fn burst(&mut self, from: PortId, packets: &[Packet], now_ns: u64) -> Vec<(Action, u32)> {
        let mut vids: Vec<_> = packets.iter().map(|packet| self.admit(from, packet)).collect();
        let mut budget = LEARN_MAX;
        for (packet, vid) in packets.iter().zip(&mut vids) {
            if let Ok(number) = *vid {
                *vid = self.learn(from, (packet.src, number), &mut budget).map(|()| number);
            }
        }
        let expected = packets.iter().zip(vids).map(|(packet, vid)| {
            let action = match vid {
                Ok(vid) => self.forward(from, packet, vid, now_ns),
                Err(DropReason::LinkDown) => return (dropped(DropReason::LinkDown), 0),
                Err(reason) => Action::Drop(reason),
            };
            (action, self.mirrors(from, vid.unwrap_or(0), action))
        });
        expected.collect()
    }

    fn tick(&mut self) {
        self.fdb.retain(|_, (_, ticks)| {
            *ticks += 1;
            *ticks < 4
        });
    }
}

/// Returns `true` if a rule matches a packet.
fn matches(rule: &Match, packet: &Packet, vid: u16) -> bool {
    let in_range = |range: &Option<std::ops::RangeInclusive<u16>>, value: Option<u16>| {
        range.as_ref().is_none_or(|range| value.is_some_and(|value| range.contains(&value)))
    };
    let mac = |prefix: Option<MacPrefix>, mac: Mac| {
        prefix.is_none_or(|prefix| same_bits(&prefix.mac.0, &mac.0, prefix.len))
    };
    let layer_two = mac(rule.src_mac, packet.src)
        && mac(rule.dst_mac, packet.dst)
        && rule.ethertype.is_none_or(|ethertype| ethertype == packet.ethertype())
        && in_range(&rule.vid, Some(vid));
    let ip = match &packet.payload {
        Payload::Ip(ip) => Some(ip),
        Payload::Other(_) => None,
    };
    let addr = |prefix: Option<IpPrefix>, of: fn(&Ip) -> IpAddr| {
        prefix.is_none_or(|prefix| ip.is_some_and(|ip| is_within(prefix, of(ip))))
    };
    let later = ip.is_some_and(Ip::is_later);
    let upper = ip.filter(|_| !later).map(|ip| &ip.upper);
    let (mut src, mut dst, mut icmp, mut flags) = (None, None, None, None);
    match upper {
        Some(Upper::Ports { protocol, src: from, dst: to, flags: tcp }) => {
            (src, dst) = (Some(*from), Some(*to));
            flags = (*protocol == 6).then_some(*tcp);
        }
        Some(Upper::Icmp { kind, code }) => icmp = Some((*kind, *code)),
        _ => (),
    }
    layer_two
        && addr(rule.src_ip, |ip| ip.src)
        && addr(rule.dst_ip, |ip| ip.dst)
        && rule.protocol.is_none_or(|protocol| ip.is_some_and(|ip| ip.protocol() == protocol))
        && in_range(&rule.src_port, src)
        && in_range(&rule.dst_port, dst)
        && rule.icmp.is_none_or(|wanted| {
            icmp.is_some_and(|(kind, code)| {
                kind == wanted.kind && wanted.code.is_none_or(|wanted| wanted == code)
            })
        })
        && rule
            .tcp_flags
            .is_none_or(|wanted| flags.is_some_and(|flags| flags & wanted.mask == wanted.value))
        && rule.later_fragment.is_none_or(|wanted| wanted == later)
}

fn same_bits(a: &[u8], b: &[u8], len: u8) -> bool {
    (0..usize::from(len)).all(|bit| (a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1 == 0)
}

fn is_within(prefix: IpPrefix, addr: IpAddr) -> bool {
    match (prefix.addr, addr) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same_bits(&a.octets(), &b.octets(), prefix.len),
        (IpAddr::V6(a), IpAddr::V6(b)) => same_bits(&a.octets(), &b.octets(), prefix.len),
        _ => false,
    }
}

fn any_vid() -> impl Strategy<Value = Vid> {
    (1_u16..=3).prop_map(vid)
}

fn any_vlans() -> impl Strategy<Value = Vlans> {
    let native = prop_oneof![
        Just(Native::Refused),
        Just(Native::Untagged),
        any_vid().prop_map(Native::Vlan)
    ];
    let allowed =
        prop::collection::vec(any_vid(), 0..4).prop_map(|vids| vids.into_iter().collect());
    prop_oneof![
        prop::option::of(any_vid()).prop_map(Vlans::Access),
        (allowed, native).prop_map(|(allowed, native)| Vlans::Trunk { allowed, native }),
        Just(PortConfig::uplink().vlans),
    ]
}

fn any_port_config(acls: usize) -> impl Strategy<Value = PortConfig> {
    let limit = prop_oneof![2 => 0_u32..4, 3 => Just(64)];
    let beyond = prop_oneof![Just(Beyond::Forward), Just(Beyond::Drop)];
    let learning = (limit, beyond).prop_map(|(limit, beyond)| Learning { limit, beyond });
    let rate = || prop_oneof![4 => Just(None), 1 => Just(Some(0)), 2 => Just(Some(50)), 1 => Just(Some(1000))];
    let storm = (rate(), rate(), rate()).prop_map(|(broadcast, multicast, unknown)| Storm {
        broadcast,
        multicast,
        unknown,
    });
    let acl = (0..2 * acls.max(1)).prop_map(move |acl| Some(acl).filter(|acl| *acl < acls));
    let guards = (prop::bool::weighted(0.3), prop::bool::weighted(0.3));
    (
        any_vlans(),
        learning,
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.8),
        storm,
        acl,
        guards,
    )
        .prop_map(|(vlans, learning, isolated, flood_unknown, storm, acl, guards)| {
            PortConfig {
                vlans,
                tagging: Tagging::default(),
                learning,
                isolated,
                flood_unknown,
                storm,
                acl,
                dhcp_guard: guards.0,
                router_guard: guards.1,
            }
        })
}

/// An address with all beyond the prefix zero.
fn ip_prefix((addr, len): (IpAddr, u8)) -> IpPrefix {
    let addr = match addr {
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4((addr.to_bits() & mask).into())
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::V6((addr.to_bits() & mask).into())
        }
    };
    IpPrefix { addr, len: if addr.is_ipv4() { len.min(32) } else { len } }
}

fn any_range(
    number: impl Strategy<Value = u16> + Clone,
) -> impl Strategy<Value = std::ops::RangeInclusive<u16>> {
    (number.clone(), number).prop_map(|(a, b)| a.min(b)..=a.max(b))
}

/// Fields of the third layer and up that go together.
fn any_ip_match() -> impl Strategy<Value = Match> {
    let len = || {
        prop_oneof![
            Just(0_u8),
            Just(8),
            Just(24),
            Just(30),
            Just(31),
            Just(32),
            Just(127),
            Just(128)
        ]
    };
    let v4 = (prop::option::of((any_ipv4(), len())), prop::option::of((any_ipv4(), len())));
    let v6 = (prop::option::of((any_ipv6(), len())), prop::option::of((any_ipv6(), len())));
    let addrs = prop_oneof![v4.boxed(), v6.boxed()];
    let range = || prop::option::of(any_range(any_port().boxed()));
    let ports = (prop::option::of(prop_oneof![Just(6_u8), Just(17)]), range(), range()).prop_map(
        |(protocol, src_port, dst_port)| Match { protocol, src_port, dst_port, ..Match::default() },
    );
    let icmp = (prop_oneof![Just(5_u8), Just(8), Just(134)], prop::option::of(0_u8..3))
        .prop_map(|(kind, code)| Match { icmp: Some(Icmp { kind, code }), ..Match::default() });
    let flags = (any::<u8>(), any::<u8>()).prop_map(|(mask, value)| {
        let flags = TcpFlags { mask: mask & 0x13, value: value & mask & 0x13 };
        Match { tcp_flags: Some(flags), ..Match::default() }
    });
    let protocol = prop_oneof![Just(0_u8), Just(1), Just(6), Just(17), Just(58), Just(47)];
    let fragment = (prop::option::of(any::<bool>()), prop::option::of(protocol)).prop_map(
        |(later_fragment, protocol)| Match { later_fragment, protocol, ..Match::default() },
    );
    let upper = prop_oneof![3 => ports.boxed(), 1 => icmp.boxed(), 1 => flags.boxed(), 2 => fragment.boxed()];
    (addrs, upper).prop_map(|((src, dst), upper)| Match {
        src_ip: src.map(ip_prefix),
        dst_ip: dst.map(ip_prefix),
        ..upper
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let prefix =
        (0_u16..12, prop_oneof![Just(48_u8), Just(47), Just(46), Just(0)]).prop_map(|(n, len)| {
            let all = Mac([0xff; 6]).key().swap_bytes() >> 16;
            let mask = (all << (48 - len) & all) << 16;
            MacPrefix { mac: Mac::from_key(mac(n).key() & mask.swap_bytes()), len }
        });
    let macs = (prop::option::weighted(0.2, prefix.clone()), prop::option::weighted(0.2, prefix));
    let ethertype = prop_oneof![Just(0x0806_u16), Just(0x88cc), Just(0x0800)];
    let vid = prop::option::weighted(0.2, any_range((0_u16..4).boxed()));
    let upper = prop_oneof![
        1 => prop::option::of(ethertype).prop_map(|ethertype| Match { ethertype, ..Match::default() }).boxed(),
        4 => any_ip_match().boxed(),
    ];
    let action =
        prop_oneof![Just(RuleAction::Allow), Just(RuleAction::Deny), Just(RuleAction::Count)];
    (macs, vid, upper, action).prop_map(|((src_mac, dst_mac), vid, upper, action)| Rule {
        matches: Match { src_mac, dst_mac, vid, ..upper },
        action,
    })
}

fn any_acl() -> impl Strategy<Value = Acl> {
    let rules = prop_oneof![
        4 => prop::collection::vec(any_rule(), 0..12),
        // More than fit into a word of a set.
        1 => prop::collection::vec(any_rule(), 60..140),
    ];
    (rules, any::<bool>()).prop_map(|(rules, default_allow)| Acl { rules, default_allow })
}

/// A configuration; what of it would be refused is left out.
pub(super) fn any_config() -> impl Strategy<Value = SwitchConfig> {
    let acls = prop::collection::vec(any_acl(), 0..3);
    let entry = (0_u16..12, prop::option::of(any_vid()), 0_u16..7);
    let statics = prop_oneof![Just(vec![]), prop::collection::vec(entry, 1..8)];
    let of = || prop::collection::vec((0_u16..7).prop_map(PortId), 0..3);
    let mirrors = prop_oneof![
        2 => Just(vec![]),
        1 => prop::collection::vec((0_u16..7, of(), of()), 1..4),
    ];
    (acls, statics, mirrors).prop_flat_map(|(acls, statics, mirrors)| {
        let ports =
            prop::collection::vec(prop::option::weighted(0.95, any_port_config(acls.len())), 1..7);
        ports.prop_map(move |ports| {
            let mut config = SwitchConfig { ports, acls: acls.clone(), ..SwitchConfig::default() };
            for (n, vlan, port) in &statics {
                let entry = StaticEntry { mac: mac(*n), vlan: *vlan, port: PortId(*port) };
                keep(&mut config, |config| config.statics.push(entry));
            }
            for (to, ingress, egress) in &mirrors {
                let (ingress, egress) = (ingress.clone(), egress.clone());
                let mirror = SwitchMirror { to: PortId(*to), ingress, egress };
                keep(&mut config, |config| config.mirrors.push(mirror));
            }
            config
        })
    })
}

/// Changes a configuration unless the change is refused.
fn keep(config: &mut SwitchConfig, change: impl FnOnce(&mut SwitchConfig)) {
    let mut changed = config.clone();
    change(&mut changed);
    if changed.check().is_ok() {
        *config = changed;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Burst { from: PortId, packets: Vec<Packet>, after_ns: u64 },
    Tick,
    Flush(Flush),
    Swap(SwitchConfig),
}

/// Frames of a few flows, so that bursts alike, nearly alike and mixed all occur.
fn any_packets() -> impl Strategy<Value = Vec<Packet>> {
    let flows = prop::collection::vec((any_packet(), 1_usize..12), 0..12);
    (flows, 0..4).prop_map(|(mut flows, same)| {
        if let Some((first, _)) = flows.first().cloned() {
            for (packet, _) in &mut flows {
                match same {
                    // Nothing but the payload differs, which only a screen can see.
                    0 => *packet = Packet { payload: packet.payload.clone(), ..first.clone() },
                    // Nothing but the tags does.
                    1 => *packet = Packet { tags: packet.tags.clone(), ..first.clone() },
                    // Nothing but the transport header does, and perhaps an address.
                    2 => *packet = with_upper_of(packet, &first),
                    _ => (),
                }
            }
        }
        let repeated = flows.into_iter().flat_map(|(packet, n)| vec![packet; n]);
        repeated.take(BURST).collect()
    })
}

/// A packet whose transport header, and source if that is possible, are of another.
fn with_upper_of(other: &Packet, packet: &Packet) -> Packet {
    let mut packet = packet.clone();
    if let (Payload::Ip(ip), Payload::Ip(other)) = (&mut packet.payload, &other.payload) {
        ip.upper = other.upper.clone();
        if ip.src.is_ipv4() == other.src.is_ipv4() {
            ip.src = other.src;
        }
    }
    packet
}

fn any_step() -> impl Strategy<Value = Step> {
    let after_ns = prop_oneof![Just(0_u64), Just(7_000_000), 0_u64..300_000_000];
    let port = || (0_u16..7).prop_map(PortId);
    let burst = (port(), any_packets(), after_ns)
        .prop_map(|(from, packets, after_ns)| Step::Burst { from, packets, after_ns });
    let flush = (prop::option::of(port()), prop::option::of(0_u16..4))
        .prop_map(|(port, vid)| Step::Flush(Flush { port, vid }));
    prop_oneof![
        20 => burst,
        3 => Just(Step::Tick),
        1 => flush,
        1 => any_config().prop_map(Step::Swap),
    ]
}

/// Does a burst with both, and compares all that can be seen.
fn compare(bench: &mut Bench, model: &mut Model, from: PortId, packets: &[Packet]) {
    let frames: Vec<_> = packets.iter().map(Packet::bytes).collect();
    let got = bench.burst(from.0, &frames);
    let expected = model.burst(from, packets, bench.now_ns);
    let actions: Vec<_> = expected.iter().map(|(action, _)| *action).collect();
    assert_eq!(got, actions, "from {from}: {packets:#?}");
    let mirrors: Vec<_> = expected.iter().map(|(_, mirrors)| *mirrors).collect();
    if mirrors.iter().any(|mirrors| *mirrors != 0) {
        assert_eq!(bench.out.mirrors(), mirrors);
    } else {
        assert!(bench.out.mirrors().is_empty());
    }
}

fn compare_memory(bench: &Bench, model: &Model) {
    let fdb = &bench.state.fdb;
    let entries: BTreeMap<_, _> =
        fdb.entries().map(|entry| ((entry.mac, entry.vid), (entry.port, entry.ticks))).collect();
    assert_eq!(entries, model.fdb);
    assert_eq!(fdb.len(), entries.len());
    for port in (0..7).map(PortId) {
        let of_port = entries.values().filter(|(of, _)| *of == port).count();
        assert_eq!(fdb.len_of(port), of_port);
    }
    for (acl, list) in model.config.acls.iter().enumerate() {
        for rule in 0..list.rules.len() {
            let expected = model.counters.get(&(acl, rule)).copied().unwrap_or(0);
            let counter = bench.table.counter(acl, rule).unwrap();
            assert_eq!(bench.counters[counter], expected, "rule {rule} of list {acl}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn agrees_with_the_model(config in any_config(), steps in prop::collection::vec(any_step(), 1..40)) {
        let mut bench = Bench::new(&config);
        let mut model = Model { config, ..Model::default() };
        for step in steps {
            match step {
                Step::Burst { from, packets, after_ns } => {
                    bench.now_ns += after_ns;
                    compare(&mut bench, &mut model, from, &packets);
                }
                Step::Tick => {
                    let before = model.fdb.len();
                    model.tick();
                    prop_assert_eq!(bench.state.fdb.tick(), before - model.fdb.len());
                }
                Step::Flush(which) => {
                    bench.state.fdb.flush(which);
                    model.fdb.retain(|(_, vid), (port, _)| {
                        which.port.is_some_and(|of| of != *port) || which.vid.is_some_and(|of| of != *vid)
                    });
                }
                Step::Swap(config) => {
                    bench.swap(&config);
                    model.counters.clear();
                    model.config = config;
                }
            }
            compare_memory(&bench, &model);
        }
    }
}

//! Guards and access lists, one case for each field and action.

use std::net::IpAddr;

use super::packet::{Ip, Packet, Payload, Upper};
use super::*;

const DENIED: Action = Action::Drop(DropReason::AclDeny);
const HIDDEN: Action = Action::Drop(DropReason::HiddenHeader);

fn ports(protocol: u8, src: u16, dst: u16) -> Upper {
    Upper::Ports { protocol, src, dst, flags: 0x12 }
}

/// From `src` to `dst`, both IPv4 or both IPv6.
fn ip(src: &str, dst: &str, upper: Upper) -> Packet {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let ip = Ip { src, dst, extras: 0, fragment: None, upper };
    Packet::new(mac(2), mac(1), Payload::Ip(ip))
}

fn v4(upper: Upper) -> Packet {
    ip("10.0.0.1", "10.0.0.2", upper)
}

fn v6(upper: Upper) -> Packet {
    ip("fe80::1", "fe80::2", upper)
}

fn fragment(mut packet: Packet, offset: u16) -> Packet {
    if let Payload::Ip(ip) = &mut packet.payload {
        ip.fragment = Some(offset);
    }
    packet
}

/// Port 1 sends to port 2, whose address is known.
fn bench(port: PortConfig, acls: Vec<Acl>) -> Bench {
    let config = SwitchConfig { acls, ..switch([PortConfig::uplink(), port, access(0)]) };
    let mut bench = Bench::new(&config);
    bench.send(2, Mac::BROADCAST, mac(2));
    bench
}

fn listed(rules: Vec<Rule>, default_allow: bool) -> Bench {
    bench(PortConfig { acl: Some(0), ..access(0) }, vec![Acl { rules, default_allow }])
}

fn rule(matches: Match, action: RuleAction) -> Rule {
    Rule { matches, action }
}

fn prefix(addr: &str, len: u8) -> Option<IpPrefix> {
    Some(IpPrefix { addr: addr.parse::<IpAddr>().unwrap(), len })
}

/// Says of each packet whether a rule matches it; alone, and in a burst of all.
#[track_caller]
fn check(matches: Match, packets: &[(Packet, bool)]) {
    let mut bench = listed(vec![rule(matches.clone(), RuleAction::Deny)], true);
    let expected: Vec<_> =
        packets.iter().map(|(_, hit)| if *hit { DENIED } else { to(2) }).collect();
    let frames: Vec<_> = packets.iter().map(|(packet, _)| packet.bytes()).collect();
    for (frame, expected) in frames.iter().zip(&expected) {
        assert_eq!(bench.burst(1, std::slice::from_ref(frame)), [*expected], "{matches:?}");
    }
    assert_eq!(bench.burst(1, &frames), expected, "{matches:?}");
    let hits = packets.iter().filter(|(_, hit)| *hit).count() as u64;
    assert_eq!(bench.counters, [2 * hits]);
}

#[test]
fn layer_two() {
    let any = Match::default;
    let arp = || Packet::new(mac(2), mac(1), Payload::Other(0x0806));
    let udp = || v4(ports(17, 1, 2));
    let all = |hit| [(arp(), hit), (udp(), hit)];
    check(any(), &all(true));
    let mac_prefix = |n, len| Some(MacPrefix { mac: mac(n), len });
    check(Match { src_mac: mac_prefix(1, 48), ..any() }, &all(true));
    check(Match { src_mac: mac_prefix(2, 48), ..any() }, &all(false));
    check(Match { dst_mac: mac_prefix(2, 48), ..any() }, &all(true));
    check(Match { dst_mac: mac_prefix(2, 47), ..any() }, &all(true));
    check(Match { dst_mac: mac_prefix(0, 46), ..any() }, &all(true));
    check(Match { dst_mac: mac_prefix(0, 47), ..any() }, &all(false));
    check(Match { dst_mac: Some(MacPrefix { mac: Mac::ZERO, len: 0 }), ..any() }, &all(true));
    check(Match { ethertype: Some(0x0806), ..any() }, &[(arp(), true), (udp(), false)]);
    check(Match { ethertype: Some(0x0800), ..any() }, &[(arp(), false), (udp(), true)]);
    check(Match { vid: Some(0..=0), ..any() }, &all(true));
    check(Match { vid: Some(1..=4094), ..any() }, &all(false));
}

#[test]
fn vlans_are_those_that_the_frame_belongs_to() {
    let matches = Match { vid: Some(7..=8), ..Match::default() };
    let acls = vec![Acl { rules: vec![rule(matches, RuleAction::Deny)], default_allow: true }];
    let port = trunk(&[6, 7, 8, 9], Native::Vlan(vid(8)));
    let mut bench = bench(PortConfig { acl: Some(0), ..port }, acls);
    for (tci, expected) in [(6, FLOOD), (7, DENIED), (0xe008, DENIED), (9, FLOOD), (0, DENIED)] {
        assert_eq!(bench.send_tagged(1, Mac::BROADCAST, mac(1), tci), expected);
    }
    assert_eq!(bench.send(1, Mac::BROADCAST, mac(1)), DENIED);
}

#[test]
fn addresses() {
    let any = Match::default;
    let four = || v4(ports(17, 1, 2));
    let six = || v6(ports(17, 1, 2));
    // An IPv6 address with the bits of an IPv4 one.
    let disguised = || ip("::10.0.0.1", "::10.0.0.2", ports(17, 1, 2));
    let check = |matches, hits: [bool; 3]| {
        check(matches, &[(four(), hits[0]), (six(), hits[1]), (disguised(), hits[2])]);
    };
    check(Match { src_ip: prefix("10.0.0.1", 32), ..any() }, [true, false, false]);
    check(Match { src_ip: prefix("10.0.0.2", 32), ..any() }, [false, false, false]);
    check(Match { dst_ip: prefix("10.0.0.0", 30), ..any() }, [true, false, false]);
    check(Match { dst_ip: prefix("10.0.0.0", 31), ..any() }, [false, false, false]);
    check(Match { dst_ip: prefix("0.0.0.0", 0), ..any() }, [true, false, false]);
    check(Match { src_ip: prefix("::", 0), ..any() }, [false, true, true]);
    check(Match { src_ip: prefix("fe80::", 10), ..any() }, [false, true, false]);
    check(Match { dst_ip: prefix("fe80::2", 128), ..any() }, [false, true, false]);
    check(Match { src_ip: prefix("::10.0.0.0", 124), ..any() }, [false, false, true]);
    let both = Match { src_ip: prefix("10.0.0.1", 32), dst_ip: prefix("10.0.0.1", 32), ..any() };
    check(both, [false, false, false]);
}

#[test]
fn transport() {
    let any = Match::default;
    let tcp = || v4(ports(6, 1000, 80));
    let udp = || v6(ports(17, 1000, 80));
    let ping = || v4(Upper::Icmp { kind: 8, code: 0 });
    let ping6 = || v6(Upper::Icmp { kind: 128, code: 1 });
    let gre = || v4(Upper::Other(47));
    let arp = || Packet::new(mac(2), mac(1), Payload::Other(0x0806));
    let check = |matches, hits: [u8; 6]| {
        let packets = [tcp(), udp(), ping(), ping6(), gre(), arp()];
        let packets: Vec<_> = packets.into_iter().zip(hits.map(|hit| hit == 1)).collect();
        check(matches, &packets);
    };
    check(Match { protocol: Some(6), ..any() }, [1, 0, 0, 0, 0, 0]);
    check(Match { protocol: Some(47), ..any() }, [0, 0, 0, 0, 1, 0]);
    check(Match { protocol: Some(0), ..any() }, [0, 0, 0, 0, 0, 0]);
    check(Match { src_port: Some(1000..=1000), ..any() }, [1, 1, 0, 0, 0, 0]);
    check(Match { src_port: Some(0..=u16::MAX), ..any() }, [1, 1, 0, 0, 0, 0]);
    check(Match { dst_port: Some(0..=79), ..any() }, [0, 0, 0, 0, 0, 0]);
    check(Match { dst_port: Some(80..=u16::MAX), ..any() }, [1, 1, 0, 0, 0, 0]);
    check(Match { dst_port: Some(0..=u16::MAX), ..any() }, [1, 1, 0, 0, 0, 0]);
    check(Match { dst_port: Some(80..=80), protocol: Some(17), ..any() }, [0, 1, 0, 0, 0, 0]);
    let icmp = |kind, code| Match { icmp: Some(Icmp { kind, code }), ..any() };
    check(icmp(8, None), [0, 0, 1, 0, 0, 0]);
    check(icmp(8, Some(1)), [0, 0, 0, 0, 0, 0]);
    check(icmp(128, Some(1)), [0, 0, 0, 1, 0, 0]);
    check(icmp(0, None), [0, 0, 0, 0, 0, 0]);
    let flags = |mask, value| Match { tcp_flags: Some(TcpFlags { mask, value }), ..any() };
    check(flags(0x12, 0x12), [1, 0, 0, 0, 0, 0]);
    check(flags(0x13, 0x12), [1, 0, 0, 0, 0, 0]);
    check(flags(0x12, 0x02), [0, 0, 0, 0, 0, 0]);
    check(flags(0, 0), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn fragments() {
    let any = Match::default;
    let packets = |hits: [bool; 3]| {
        let udp = || v4(ports(17, 1000, 80));
        let packets = [udp(), fragment(udp(), 0), fragment(udp(), 5)];
        packets.into_iter().zip(hits).collect::<Vec<_>>()
    };
    check(Match { dst_port: Some(80..=80), ..any() }, &packets([true, true, false]));
    check(Match { dst_port: Some(0..=0), ..any() }, &packets([false, false, false]));
    check(Match { protocol: Some(17), ..any() }, &packets([true, true, true]));
    check(Match { later_fragment: Some(true), ..any() }, &packets([false, false, true]));
    check(Match { later_fragment: Some(false), ..any() }, &packets([true, true, false]));
}

/// Frames that differ in one field only, in turn: none may get what was said of the other.
#[test]
fn every_field_tells_flows_apart() {
    let any = Match::default;
    let tcp = |src, dst, flags| v4(Upper::Ports { protocol: 6, src, dst, flags });
    let base = || tcp(1000, 80, 0x12);
    let six = |src, dst| ip(src, dst, ports(6, 1000, 80));
    let icmp = |kind, code| v4(Upper::Icmp { kind, code });
    let mac_prefix = |n, len| Some(MacPrefix { mac: mac(n), len });
    let other_source = Packet { src: mac(9), ..base() };
    let cases = [
        (Match { src_mac: mac_prefix(1, 48), ..any() }, base(), other_source),
        (Match { dst_mac: mac_prefix(2, 48), ..any() }, base(), Packet { dst: mac(3), ..base() }),
        (
            Match { ethertype: Some(0x0800), ..any() },
            base(),
            Packet::new(mac(2), mac(1), Payload::Other(0x88cc)),
        ),
        (Match { src_port: Some(1000..=1000), ..any() }, base(), tcp(1001, 80, 0x12)),
        (Match { dst_port: Some(80..=80), ..any() }, base(), tcp(1000, 81, 0x12)),
        (
            Match { tcp_flags: Some(TcpFlags { mask: 2, value: 2 }), ..any() },
            base(),
            tcp(1000, 80, 0x10),
        ),
        (Match { protocol: Some(6), ..any() }, base(), v4(ports(132, 1000, 80))),
        (Match { later_fragment: Some(false), ..any() }, base(), fragment(base(), 8)),
        (Match { icmp: Some(Icmp { kind: 8, code: None }), ..any() }, icmp(8, 0), icmp(9, 0)),
        (Match { icmp: Some(Icmp { kind: 8, code: Some(0) }), ..any() }, icmp(8, 0), icmp(8, 1)),
        (
            Match { src_ip: prefix("10.0.0.0", 31), ..any() },
            base(),
            ip("10.0.0.2", "10.0.0.2", ports(6, 1000, 80)),
        ),
        (
            Match { dst_ip: prefix("10.0.0.2", 31), ..any() },
            base(),
            ip("10.0.0.1", "10.0.0.1", ports(6, 1000, 80)),
        ),
        (
            Match { src_ip: prefix("fe80::", 64), ..any() },
            six("fe80::1", "::"),
            six("fe81::1", "::"),
        ),
        (Match { dst_ip: prefix("::2", 127), ..any() }, six("::", "::3"), six("::", "::4")),
    ];
    for (matches, hit, miss) in cases {
        let mut bench = listed(vec![rule(matches.clone(), RuleAction::Deny)], true);
        bench.send(2, Mac::BROADCAST, mac(3));
        let burst = [&hit, &miss, &hit, &miss].map(|packet| packet.bytes());
        assert_eq!(bench.burst(1, &burst), [DENIED, to(2), DENIED, to(2)], "{matches:?}");
    }
}

#[test]
fn the_first_rule_that_decides_does() {
    let port = |port| Match { dst_port: Some(port..=port), ..Match::default() };
    let any = Match::default;
    let rules = vec![
        rule(any(), RuleAction::Count),
        rule(port(80), RuleAction::Allow),
        rule(port(80), RuleAction::Count),
        rule(Match { protocol: Some(17), ..any() }, RuleAction::Deny),
        rule(any(), RuleAction::Count),
    ];
    let to_port = |port| v4(ports(17, 1000, port)).bytes();
    let tcp = v4(ports(6, 1000, 81)).bytes();
    let burst = [to_port(80), to_port(80), to_port(81), tcp];
    for (default_allow, last) in [(true, to(2)), (false, DENIED)] {
        let mut bench = listed(rules.clone(), default_allow);
        for turn in 1..=3 {
            assert_eq!(bench.burst(1, &burst), [to(2), to(2), DENIED, last]);
            assert_eq!(bench.counters, [4 * turn, 2 * turn, 0, turn, turn]);
        }
    }
}

#[test]
fn a_new_table_forgets_the_last_result() {
    let any = |action| Acl { rules: vec![rule(Match::default(), action)], default_allow: false };
    let port = PortConfig { acl: Some(0), ..access(0) };
    let frames = vec![v4(ports(17, 1, 2)).bytes(); 4];
    let mut bench = bench(port.clone(), vec![any(RuleAction::Allow)]);
    assert_eq!(bench.burst(1, &frames), [to(2); 4]);
    let acls = vec![any(RuleAction::Deny)];
    bench.swap(&SwitchConfig { acls, ..switch([PortConfig::uplink(), port, access(0)]) });
    assert_eq!(bench.burst(1, &frames), [DENIED; 4]);
    assert_eq!(bench.counters, [4]);
}

#[test]
fn many_counting_rules() {
    let mut rules = vec![rule(Match::default(), RuleAction::Count); 100];
    rules.push(rule(Match::default(), RuleAction::Deny));
    let mut bench = listed(rules, true);
    assert_eq!(bench.burst(1, &vec![v4(ports(17, 1, 2)).bytes(); 3]), [DENIED; 3]);
    assert_eq!(bench.counters, [3; 101]);
}

#[test]
fn lists_are_shared_and_apart() {
    let acl = |action, rules| Acl {
        rules: vec![rule(Match::default(), action); rules],
        default_allow: true,
    };
    let acls = vec![acl(RuleAction::Count, 2), acl(RuleAction::Deny, 3), acl(RuleAction::Count, 0)];
    let port = |acl| PortConfig { acl: Some(acl), ..access(0) };
    let config = SwitchConfig { acls, ..switch([port(0), port(0), port(1), port(2)]) };
    let mut bench = Bench::new(&config);
    for (port, expected) in [(0, FLOOD), (1, FLOOD), (2, DENIED), (3, FLOOD)] {
        assert_eq!(bench.send(port, Mac::BROADCAST, mac(port)), expected);
    }
    assert_eq!(bench.counters, [2, 2, 1, 0, 0]);
    let table = &bench.table;
    assert_eq!(
        (table.counters_len(), table.counter(0, 1), table.counter(1, 2)),
        (5, Some(1), Some(4))
    );
    for (acl, rule) in [(0, 2), (1, 3), (2, 0), (3, 0), (usize::MAX - 1, 0)] {
        assert_eq!(table.counter(acl, rule), None);
    }
    // Nothing is learned from what is denied; and no counter is missed.
    assert_eq!(bench.state.fdb.get(mac(2), 0), None);
    bench.counters.clear();
    assert_eq!(bench.send(2, Mac::BROADCAST, mac(2)), DENIED);
    // Another table's word counts from the next burst on.
    bench.swap(&switch([access(0), access(0), access(0)]));
    assert_eq!(bench.send(2, Mac::BROADCAST, mac(2)), FLOOD);
}

#[test]
fn dhcp_guard() {
    let mut bench = bench(PortConfig { dhcp_guard: true, ..access(0) }, vec![]);
    let guarded = Action::Drop(DropReason::DhcpGuard);
    for (packet, expected) in [
        (v4(ports(17, 67, 68)), guarded),
        (v4(ports(17, 67, 67)), guarded),
        (v4(ports(17, 9999, 68)), guarded),
        (v4(ports(17, 68, 67)), to(2)),
        (v4(ports(6, 67, 68)), to(2)),
        (v4(ports(17, 547, 546)), to(2)),
        (v6(ports(17, 547, 546)), guarded),
        (v6(ports(17, 547, 547)), guarded),
        (v6(ports(17, 9999, 546)), guarded),
        (v6(ports(17, 546, 547)), to(2)),
        (v6(ports(17, 67, 68)), to(2)),
        (fragment(v4(ports(17, 67, 68)), 0), guarded),
        (fragment(v4(ports(17, 67, 68)), 4), to(2)),
        (Packet::new(mac(2), mac(1), Payload::Other(0x0806)), to(2)),
        (Packet { snap: true, ..v4(ports(17, 67, 68)) }, guarded),
    ] {
        assert_eq!(bench.burst(1, &[packet.bytes()]), [expected], "{packet:?}");
    }
    let trunk = PortConfig { dhcp_guard: true, ..trunk(&[5], Native::Untagged) };
    let mut tagged = self::bench(trunk, vec![]);
    for (tags, expected) in
        [(vec![(0x8100, 5), (0x88a8, 5)], guarded), (vec![(0x8100, 5); 3], HIDDEN)]
    {
        let packet = Packet { tags, ..v4(ports(17, 67, 68)) };
        assert_eq!(tagged.burst(1, &[packet.bytes()]), [expected], "{packet:?}");
    }
    // From others it may come.
    assert_eq!(bench.burst(2, &[v4(ports(17, 67, 68)).bytes()]), [dropped(DropReason::Hairpin)]);
}

#[test]
fn router_guard() {
    let mut bench = bench(PortConfig { router_guard: true, ..access(0) }, vec![]);
    let guarded = Action::Drop(DropReason::RouterGuard);
    let icmp = |kind| Upper::Icmp { kind, code: 0 };
    for kind in 0..=255 {
        let expected = if [134, 137].contains(&kind) { guarded } else { to(2) };
        assert_eq!(bench.burst(1, &[v6(icmp(kind)).bytes()]), [expected], "{kind}");
        let expected = if [5, 9].contains(&kind) { guarded } else { to(2) };
        assert_eq!(bench.burst(1, &[v4(icmp(kind)).bytes()]), [expected], "{kind}");
    }
    // Behind extension headers, as far as can be seen; and no further (RFC 7113).
    for extras in 0..=9 {
        let mut packet = v6(icmp(134));
        if let Payload::Ip(ip) = &mut packet.payload {
            ip.extras = extras;
        }
        let expected = if extras < 9 { guarded } else { HIDDEN };
        assert_eq!(bench.burst(1, &[packet.bytes()]), [expected]);
    }
    assert_eq!(bench.burst(1, &[fragment(v6(icmp(134)), 0).bytes()]), [guarded]);
}

#[test]
fn without_a_snapshot_nothing_passes_that_would_need_one() {
    let mut bench = bench(PortConfig { dhcp_guard: true, ..access(0) }, vec![]);
    assert!(bench.table.needs_snapshots(PortId(1)) && !bench.table.needs_snapshots(PortId(2)));
    let frames = [v4(ports(17, 1, 2)), Packet::new(mac(2), mac(1), Payload::Other(0x0806))];
    let headers = frames.map(|frame| FrameHeader::of_frame(&frame.bytes()).unwrap().0);
    let short = [HeaderSnapshot::of_frame(&[])];
    for snapshots in [None, Some(&short[..0])] {
        let burst = Burst { from: PortId(1), headers: &headers, snapshots, now_ns: 0 };
        let mut flows = Flows::new();
        bench.table.classify(&bench.state, &burst, &mut flows, &mut [], &mut bench.out);
        let actions: Vec<_> = bench.out.iter().map(|verdict| verdict.action()).collect();
        assert_eq!(actions, [HIDDEN, to(2)]);
    }
}

//! One case for each refusal of a configuration.

use super::*;

fn config() -> SwitchConfig {
    let rule = Rule { matches: Match::default(), action: RuleAction::Deny };
    SwitchConfig {
        acls: vec![Acl { rules: vec![rule; 2], default_allow: true }],
        ..switch([PortConfig::uplink(), access(7), access(0)])
    }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut SwitchConfig), text: &str) {
    let mut config = config();
    Table::build(&config).unwrap();
    change(&mut config);
    assert_eq!(Table::build(&config).unwrap_err().to_string(), text);
}

#[track_caller]
fn refused_rule(matches: Match, text: &str) {
    refused(
        |config| config.acls[0].rules[1].matches = matches,
        &format!("acls[0].rules[1]: {text}"),
    );
}

fn port(config: &mut SwitchConfig, port: usize) -> &mut PortConfig {
    config.ports[port].as_mut().unwrap()
}

#[test]
fn ports() {
    refused(
        |config| config.ports.resize(513, None),
        "switch: ports: 513 ports; allowed is up to 512",
    );
    refused(
        |config| port(config, 2).acl = Some(1),
        "port 2: acl: 1; allowed is a list of the switch's 1, counted from 0",
    );
    refused(
        |config| port(config, 0).storm.unknown = Some(10_000_001),
        "uplink: storm.unknown: 10000001; allowed is up to 10000000 frames a second, or none",
    );
}

#[test]
fn statics() {
    let entry =
        |n, vlan, port| StaticEntry { mac: mac(n), vlan: Vid::new(vlan).ok(), port: PortId(port) };
    let with = |statics: Vec<StaticEntry>, text| refused(|config| config.statics = statics, text);
    with(
        vec![entry(1, 7, 1), StaticEntry { mac: Mac::BROADCAST, ..entry(1, 7, 1) }],
        "statics[1]: mac: ff:ff:ff:ff:ff:ff; allowed is a unicast address that is not zero",
    );
    with(
        vec![StaticEntry { mac: Mac::ZERO, ..entry(1, 7, 1) }],
        "statics[0]: mac: 00:00:00:00:00:00; allowed is a unicast address that is not zero",
    );
    with(
        vec![entry(1, 7, 1), entry(1, 8, 0), entry(1, 7, 0)],
        "statics[2]: mac: 02:00:00:00:00:01, as in statics[0]; allowed is each once within a VLAN",
    );
    with(vec![entry(1, 7, 3)], "statics[0]: port: port 3; allowed is a port of the switch");
    with(vec![entry(1, 8, 1)], "statics[0]: vlan: 8; allowed is a VLAN that port 1 is a member of");
    with(
        vec![entry(1, 0, 1)],
        "statics[0]: vlan: the untagged network; allowed is a VLAN that port 1 is a member of",
    );
    with(
        vec![entry(1, 7, 1); MAX_STATICS + 1],
        "switch: statics: 8193 static entries; allowed is up to 8192",
    );
}

#[test]
fn mirrors() {
    let mirror = |to, ingress: &[u16], egress: &[u16]| SwitchMirror {
        to: PortId(to),
        ingress: ingress.iter().copied().map(PortId).collect(),
        egress: egress.iter().copied().map(PortId).collect(),
    };
    let with = |mirrors: Vec<SwitchMirror>, text| refused(|config| config.mirrors = mirrors, text);
    with(vec![mirror(9, &[1], &[])], "mirrors[0]: to: port 9; allowed is a port of the switch");
    with(
        vec![mirror(2, &[1, 9], &[])],
        "mirrors[0]: ingress: port 9; allowed is a port of the switch",
    );
    with(
        vec![mirror(2, &[1], &[0]), mirror(1, &[0], &[2, 1])],
        "mirrors[1]: egress: port 1; allowed is any port but the one that gets the copies",
    );
    with(
        vec![mirror(2, &[1], &[]), mirror(2, &[0], &[])],
        "mirrors[1]: to: port 2, as in mirrors[0]; allowed is one mirror for each port",
    );
    with(vec![mirror(2, &[], &[]); 33], "switch: mirrors: 33 mirrors; allowed is up to 32");
}

#[test]
fn too_many_rules() {
    let rules = |config: &mut SwitchConfig, n| {
        let rule = config.acls[0].rules[0].clone();
        config.acls.push(Acl { rules: vec![rule; n], default_allow: true });
    };
    refused(
        |config| rules(config, MAX_RULES - 1),
        "switch: acls: 2049 rules in all lists; allowed is up to 2048",
    );
    let mut most = config();
    rules(&mut most, MAX_RULES - 2);
    assert_eq!(Table::build(&most).unwrap().counters_len(), MAX_RULES);
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
fn ranges_and_prefixes() {
    let any = Match::default;
    refused_rule(
        Match { src_port: Some(2..=1), ..any() },
        "src_port: 2 to 1; allowed is 0 to 65535, the lower number first",
    );
    refused_rule(
        Match { vid: Some(0..=4095), ..any() },
        "vid: 0 to 4095; allowed is 0 to 4094, the lower number first",
    );
    let prefix = |addr: &str, len| Some(IpPrefix { addr: addr.parse().unwrap(), len });
    refused_rule(
        Match { src_ip: prefix("10.0.0.0", 33), ..any() },
        "src_ip: 10.0.0.0/33; allowed is a prefix of up to 32 bits",
    );
    refused_rule(
        Match { dst_ip: prefix("10.0.0.1", 31), ..any() },
        "dst_ip: 10.0.0.1/31; allowed is an address that is zero beyond its prefix",
    );
    refused_rule(
        Match { dst_ip: prefix("8000::", 0), ..any() },
        "dst_ip: 8000::/0; allowed is an address that is zero beyond its prefix",
    );
    refused_rule(
        Match { src_ip: prefix("10.0.0.0", 8), dst_ip: prefix("fe80::", 10), ..any() },
        "dst_ip: fe80::; allowed is the same version of IP as in src_ip",
    );
    let mac_prefix = |len| Some(MacPrefix { mac: mac(1), len });
    refused_rule(
        Match { src_mac: mac_prefix(49), ..any() },
        "src_mac: 02:00:00:00:00:01/49; allowed is a prefix of up to 48 bits",
    );
    refused_rule(
        Match { src_mac: mac_prefix(47), ..any() },
        "src_mac: 02:00:00:00:00:01/47; allowed is an address that is zero beyond its prefix",
    );
}

#[test]
fn rules_that_match_nothing() {
    let any = Match::default;
    let addr = Some(IpPrefix { addr: "10.0.0.0".parse().unwrap(), len: 8 });
    for ethertype in [0x05ff, 0x8100, 0x88a8] {
        refused_rule(
            Match { ethertype: Some(ethertype), ..any() },
            &format!(
                "ethertype: {ethertype:#06x}; allowed is 0x0600 to 0xffff \
                 but for tags, which are not part of what is compared"
            ),
        );
    }
    let ip = "ethertype: 0x0806; allowed is 0x0800 or 0x86dd in a rule that names fields of IP";
    let arp = || Match { ethertype: Some(0x0806), ..any() };
    refused_rule(Match { src_ip: addr, ..arp() }, ip);
    refused_rule(Match { protocol: Some(6), ..arp() }, ip);
    refused_rule(Match { dst_port: Some(1..=2), ..arp() }, ip);
    refused_rule(
        Match { ethertype: Some(0x86dd), src_ip: addr, ..any() },
        "ethertype: 0x86dd; allowed is the type of the version of IP whose addresses the rule names",
    );
    refused_rule(
        Match { protocol: Some(1), dst_port: Some(1..=2), ..any() },
        "protocol: 1; allowed is TCP (6), UDP (17), DCCP (33), SCTP (132) or UDP-Lite (136) \
         in a rule that names ports",
    );
    let icmp = Some(Icmp { kind: 8, code: None });
    refused_rule(
        Match { protocol: Some(6), icmp, ..any() },
        "protocol: 6; allowed is ICMP (1) or ICMPv6 (58) in a rule that names a kind of it",
    );
    refused_rule(
        Match { src_port: Some(1..=2), icmp, ..any() },
        "icmp: type 8; allowed is no ICMP in a rule that names ports or flags",
    );
    let flags = |mask, value| Some(TcpFlags { mask, value });
    refused_rule(
        Match { protocol: Some(17), tcp_flags: flags(1, 1), ..any() },
        "protocol: 17; allowed is TCP (6) in a rule that names flags",
    );
    refused_rule(
        Match { tcp_flags: flags(1, 3), ..any() },
        "tcp_flags: value 0x03, mask 0x01; allowed is a value within the mask",
    );
    refused_rule(
        Match { later_fragment: Some(true), tcp_flags: flags(1, 1), ..any() },
        "later_fragment: true; allowed is false, or none, in a rule that names ports, ICMP or flags",
    );
}

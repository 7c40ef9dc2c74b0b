//! Port settings that only a switch enforces, for adapters that send through it.

use serde_json::{Value, json};

use crate::host::{frame, until};
use crate::net::*;

const ALL: [&str; 3] = ["b", "c", "uplink"];

/// A net whose switch has these port settings.
fn with(tested: TestedPath, ports: Value) -> Net {
    Net::new(tested, json!({"switch": {"port": ports}}))
}

/// A UDP datagram without data from one IPv4 address and port to another.
pub(super) fn udp(
    dst: [u8; 6],
    src: [u8; 6],
    (from, to): ([u8; 4], [u8; 4]),
    ports: [u16; 2],
) -> Vec<u8> {
    let mut bytes = [&dst[..], &src, &[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]].concat();
    bytes.extend([from, to].concat());
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend([0, 8, 0, 0]);
    bytes.resize(60, 0);
    bytes
}

pub(super) const HERE: [u8; 4] = [10, 0, 0, 1];
pub(super) const THERE: [u8; 4] = [10, 0, 0, 2];

#[test]
fn rules_deny_allow_and_count() {
    in_the_switch(|tested| {
        let rules = json!([
            {"action": "count", "protocol": 17},
            {"action": "allow", "protocol": 17, "to_port": "53", "to_ip": "10.0.0.0/24"},
            {"action": "deny", "protocol": 17, "to_port": "1-1023"},
            {"action": "deny", "to_mac": "02:00:00:00:00:03"},
            {"action": "deny", "ethertype": 0x88b6},
        ]);
        let mut net = with(tested, json!([{"adapter": "a", "acl": rules}]));
        let drop = "tx_switch_acl_deny";
        let to = |port| udp(B, A, (HERE, THERE), [5000, port]);
        net.passes("a", &to(53), &["b"]);
        net.drops("a", &to(80), drop);
        net.passes("a", &to(1024), &["b"]);
        net.drops("a", &udp(B, A, (HERE, [10, 0, 1, 1]), [5000, 53]), drop);
        net.drops("a", &frame(C, A, 1), drop);
        let mut typed = frame(BROADCAST, A, 2);
        typed[12..14].copy_from_slice(&[0x88, 0xb6]);
        net.drops("a", &typed, drop);
        net.passes("a", &frame(BROADCAST, A, 3), &ALL);
        let met = |net: &Net| -> Vec<u64> {
            let stats = net.get("/v1/stats");
            let rules = stats["rules"].as_array().into_iter().flatten();
            let of_a = rules.filter(|rule| rule["port"] == "a" && rule["switch"] == "sw0");
            of_a.map(|rule| rule["frames"].as_u64().unwrap()).collect()
        };
        // A lane publishes its counters when idle.
        until("rules to be counted", || met(&net) == [4, 1, 2, 1, 1]);
        // The limits apply to frames sent by `a` only.
        net.passes("b", &udp(A, B, (THERE, HERE), [53, 80]), &["a"]);
        net.passes("b", &frame(C, B, 4), &["c"]);
        net.patch("/v1/switches/sw0/ports/a", json!({"acl": null}));
        net.passes("a", &to(80), &["b"]);
        net.patch("/v1/switches/sw0/ports/a", json!({"acl": [{"action": "deny"}]}));
        net.drops("a", &to(53), drop);
        net.assert_connected();
    });
}

#[test]
fn rules_know_vlans_and_sources() {
    in_the_switch(|tested| {
        let rules = json!([
            {"action": "deny", "vlan": 20},
            {"action": "deny", "from_mac": "02:00:00:00:00:77"},
            {"action": "allow"},
        ]);
        let mut net = Net::new(
            tested,
            json!({
                "a": {"trunks": ["10-20"], "macs": ["02:00:00:00:00:77"]},
                "switch": {"port": [{"adapter": "a", "acl": rules}]},
            }),
        );
        let out = frame(ELSEWHERE, A, 1);
        net.passes("a", &in_vlan(&out, 10), &["uplink"]);
        net.drops("a", &in_vlan(&out, 20), "tx_switch_acl_deny");
        net.drops("a", &frame(ELSEWHERE, STRANGER, 2), "tx_switch_acl_deny");
        net.passes("a", &out, &["uplink"]);
    });
}

#[test]
fn isolated_ports_reach_only_others() {
    in_the_switch(|tested| {
        let isolated = |name| json!({"adapter": name, "isolated": true});
        let mut net = with(tested, json!([isolated("a"), isolated("b")]));
        net.drops("a", &frame(B, A, 1), "tx_switch_isolated");
        net.drops("b", &frame(A, B, 2), "tx_switch_isolated");
        net.passes("a", &frame(C, A, 3), &["c"]);
        net.passes("c", &frame(A, C, 4), &["a"]);
        net.passes("a", &frame(ELSEWHERE, A, 5), &["uplink"]);
        net.passes("uplink", &frame(B, ELSEWHERE, 6), &["b"]);
        net.passes("a", &frame(BROADCAST, A, 7), &["c", "uplink"]);
        net.patch("/v1/switches/sw0/ports/b", json!({"isolated": false}));
        net.passes("a", &frame(B, A, 8), &["b"]);
    });
}

#[test]
fn a_guarded_port_sends_no_answers_of_a_dhcp_server() {
    in_the_switch(|tested| {
        let mut net = with(tested, json!([{"adapter": "a", "dhcp_guard": true}]));
        let any = ([0; 4], [255; 4]);
        let answer = |mac| udp(BROADCAST, mac, any, [67, 68]);
        net.drops("a", &answer(A), "tx_switch_dhcp_guard");
        net.passes("a", &udp(BROADCAST, A, any, [68, 67]), &ALL);
        net.passes("b", &answer(B), &["a", "c", "uplink"]);
        net.patch("/v1/switches/sw0/ports/a", json!({"dhcp_guard": false}));
        net.passes("a", &answer(A), &ALL);
    });
}

#[test]
fn a_guarded_port_sends_no_router_advertisements() {
    in_the_switch(|tested| {
        let mut net = with(tested, json!([{"adapter": "a", "router_guard": true}]));
        // IPv6 from fe80::1 to ff02::1, ICMPv6 of type 134: a router advertisement.
        let icmp = |mac: [u8; 6], kind: u8| {
            let mut bytes = [&[0x33, 0x33, 0, 0, 0, 1][..], &mac, &[0x86, 0xdd]].concat();
            bytes.extend([0x60, 0, 0, 0, 0, 16, 58, 255]);
            bytes.extend([&[0xfe, 0x80][..], &[0; 13], &[1]].concat());
            bytes.extend([&[0xff, 0x02][..], &[0; 13], &[1]].concat());
            bytes.extend([kind, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes
        };
        net.drops("a", &icmp(A, 134), "tx_switch_router_guard");
        net.passes("a", &icmp(A, 133), &ALL); // a router solicitation
        net.passes("b", &icmp(B, 134), &["a", "c", "uplink"]);
        net.patch("/v1/switches/sw0/ports/a", json!({"router_guard": false}));
        net.passes("a", &icmp(A, 134), &ALL);
    });
}

#[test]
fn so_many_addresses_are_learnt_and_no_more() {
    in_the_switch(|tested| {
        let port = |name| json!({"adapter": name, "unknown_unicast": false});
        let ports = json!([{"adapter": "a", "max_macs": 2}, port("b"), port("c")]);
        let mut net =
            Net::new(tested, json!({"a": {"spoof_check": false}, "switch": {"port": ports}}));
        let nth = |n: u8| [2, 0, 0, 0, 9, n];
        for n in 0..4 {
            net.passes("a", &frame(B, nth(n), n.into()), &["b"]);
        }
        // Frames to an unlearned address are flooded, to the wire as well.
        for n in 0..4 {
            let to: &[_] = if n < 2 { &["a"] } else { &["a", "uplink"] };
            net.passes("b", &frame(nth(n), B, 9), to);
        }
    });
}

#[test]
fn who_does_not_want_unknown_frames_gets_none() {
    in_the_switch(|tested| {
        let mut net = with(tested, json!([{"adapter": "b", "unknown_unicast": false}]));
        let is_switched = tested.other() != "vf";
        let with_c: &[_] = if is_switched { &["c", "uplink"] } else { &["uplink"] };
        net.passes("a", &frame(STRANGER, A, 1), with_c);
        net.passes("a", &frame(B, A, 2), &["b"]);
        net.patch("/v1/switches/sw0/ports/b", json!({"unknown_unicast": true}));
        net.passes("a", &frame(STRANGER, A, 3), &[&["b"], with_c].concat());
    });
}

#[test]
fn a_static_address_is_where_it_was_said_to_be() {
    on_every_path(|tested| {
        let entry = json!({"mac": "02:00:00:00:00:77", "port": "a"});
        let mut net = Net::new(tested, json!({"switch": {"static": [entry]}}));
        net.passes("b", &frame(STRANGER, B, 1), &["a"]);
        net.passes("c", &frame(STRANGER, C, 2), &["a"]);
        net.passes("uplink", &frame(STRANGER, ELSEWHERE, 3), &["a"]);
        net.passes("a", &frame(B, STRANGER, 4), &["b"]);
        let reason = net.reason("tx_spoofed_mac", "tx_switch_spoofed_mac");
        net.drops("b", &frame(A, STRANGER, 5), reason);
    });
}

#[test]
fn what_only_the_switch_enforces_keeps_an_adapter_there() {
    on(&["vf"], |tested| {
        let mut net = Net::new(tested, json!({}));
        let own = "/v1/switches/sw0/ports/a";
        let policies = [
            json!({"acl": [{"action": "deny", "ethertype": 0x88b5}]}),
            json!({"isolated": true}),
            json!({"dhcp_guard": true}),
            json!({"router_guard": true}),
        ];
        for policy in policies {
            net.patch(own, policy.clone());
            net.assert_path("a", "vmq");
            assert_eq!(net.actual("a")["reason"], "PortPolicy");
            if policy.get("acl").is_some() {
                net.drops("a", &frame(B, A, 1), "tx_switch_acl_deny");
            }
            net.passes("b", &frame(A, B, 2), &["a"]);
            net.request(api::Method::DELETE, own, None).unwrap();
            net.assert_path("a", "vf");
            net.passes("a", &frame(B, A, 3), &["b"]);
        }
        net.assert_connected();
    });
}

//! Addresses: permitted sources, and destinations.

use serde_json::json;

use crate::host::frame;
use crate::net::*;

#[test]
fn a_guest_has_its_own_address_and_no_other() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({}));
        net.passes("a", &frame(B, A, 1), &["b"]);
        net.passes("b", &frame(A, B, 2), &["a"]);
        net.passes("a", &frame(C, A, 3), &["c"]);
        net.passes("c", &frame(A, C, 4), &["a"]);
        net.passes("a", &frame(ELSEWHERE, A, 5), &["uplink"]);
        net.passes("uplink", &frame(A, ELSEWHERE, 6), &["a"]);
        net.passes("a", &frame(BROADCAST, A, 7), &["b", "c", "uplink"]);
        net.passes("uplink", &frame(BROADCAST, ELSEWHERE, 8), &["a", "b", "c"]);
        let unknown = net.reason("tx_spoofed_mac", "tx_switch_mac_limit");
        net.drops("a", &frame(B, STRANGER, 9), unknown);
        let of_another = net.reason("tx_spoofed_mac", "tx_switch_spoofed_mac");
        net.drops("a", &frame(B, C, 10), of_another);
        net.drops("a", &frame(ELSEWHERE, B, 11), of_another);
        let group = net.reason("tx_spoofed_mac", "tx_switch_source_multicast");
        net.drops("a", &frame(B, [3, 0, 0, 0, 0, 1], 12), group);
        net.passes("a", &frame(B, A, 13), &["b"]);
    });
}

#[test]
fn a_guest_has_its_further_addresses_too() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({"a": {"macs": ["02:00:00:00:00:77"]}}));
        for from in [A, STRANGER] {
            net.passes("a", &frame(B, from, 1), &["b"]);
            net.passes("a", &frame(C, from, 2), &["c"]);
            net.passes("a", &frame(ELSEWHERE, from, 3), &["uplink"]);
        }
        for other in ["b", "c", "uplink"] {
            let from =
                [B, C, ELSEWHERE][MEMBERS.iter().position(|name| *name == other).unwrap() - 1];
            net.passes(other, &frame(STRANGER, from, 4), &["a"]);
        }
        let reason = net.reason("tx_spoofed_mac", "tx_switch_mac_limit");
        net.drops("a", &frame(B, ELSEWHERE, 5), reason);
    });
}

#[test]
fn without_the_check_a_guest_sends_from_any_address() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({"a": {"spoof_check": false}}));
        net.passes("a", &frame(B, STRANGER, 1), &["b"]);
        net.passes("a", &frame(C, STRANGER, 2), &["c"]);
        net.passes("a", &frame(ELSEWHERE, STRANGER, 3), &["uplink"]);
        // A switch learns the location of an address; a NIC is configured with it.
        let home = if way.is_vf() { "uplink" } else { "a" };
        net.passes("b", &frame(STRANGER, B, 4), &[home]);
        // Others are still checked, and cannot take over the addresses.
        let reason = net.reason("tx_spoofed_mac", "tx_switch_mac_limit");
        net.drops("b", &frame(A, ELSEWHERE, 5), reason);
        net.passes("uplink", &frame(B, ELSEWHERE, 6), &["b"]);
    });
}

#[test]
fn a_promiscuous_guest_gets_what_is_for_nobody() {
    on_every_path(|way| {
        // Ports of the switch receive flooded frames, unless flooding is off.
        let port = |name| json!({"adapter": name, "unknown_unicast": false});
        let switch = json!({"port": [port("b"), port("c")]});
        let open = json!({"trust": true, "promiscuous": true});
        let mut net = Net::new(way, json!({"a": open, "switch": switch}));
        net.passes("uplink", &frame(STRANGER, ELSEWHERE, 1), &["a"]);
        net.passes("uplink", &frame(A, ELSEWHERE, 2), &["a"]);
        net.passes("uplink", &frame(B, ELSEWHERE, 3), &["b"]);
        net.passes("b", &frame(C, B, 4), &["c"]);
        net.passes("b", &frame(STRANGER, B, 5), &["a", "uplink"]);
        net.passes("c", &frame(STRANGER, C, 6), &["a", "uplink"]);
        let mut shut =
            Net::new(way, json!({"switch": {"port": [port("a"), port("b"), port("c")]}}));
        assert!(shut.send("uplink", &frame(STRANGER, ELSEWHERE, 7)).is_empty());
        shut.passes("b", &frame(STRANGER, B, 8), &["uplink"]);
    });
}

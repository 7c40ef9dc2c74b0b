//! VLANs: tags on the wire and at trunks, none at access adapters, and isolation between VLANs.

use serde_json::json;

use crate::host::frame;
use crate::net::*;

#[test]
fn an_access_adapter_is_in_its_vlan_and_its_tag_is_on_the_wire() {
    for (proto, tpid) in [("802.1q", 0x8100), ("802.1ad", 0x88a8)] {
        on_every_path(|way| {
            let mut net = Net::new(
                way,
                json!({"a": {"vlan": {"id": 100, "qos": 5, "proto": proto}}, "b": {"vlan": {"id": 100}}}),
            );
            let out = frame(ELSEWHERE, A, 1);
            net.arrives("a", &out, &[("uplink", &tagged(&out, tpid, 5, 100))]);
            let back = frame(A, ELSEWHERE, 2);
            net.arrives("uplink", &tagged(&back, tpid, 3, 100), &[("a", &back)]);
            net.passes("a", &frame(B, A, 3), &["b"]);
            net.passes("b", &frame(A, B, 4), &["a"]);
            let all = frame(BROADCAST, A, 5);
            net.arrives("a", &all, &[("b", &all), ("uplink", &tagged(&all, tpid, 5, 100))]);
            let all = frame(BROADCAST, ELSEWHERE, 6);
            net.arrives("uplink", &tagged(&all, tpid, 0, 100), &[("a", &all), ("b", &all)]);
        });
    }
}

#[test]
fn nothing_goes_from_one_vlan_to_another() {
    on_every_path(|way| {
        let mut net =
            Net::new(way, json!({"a": {"vlan": {"id": 100}}, "b": {"vlan": {"id": 200}}}));
        // Unknown in the sender's VLAN, so they go to the wire, which is in all VLANs.
        for (from, to, mac, vlan) in [("a", B, A, 100), ("a", C, A, 100), ("b", A, B, 200)] {
            let out = frame(to, mac, 1);
            net.arrives(from, &out, &[("uplink", &in_vlan(&out, vlan))]);
        }
        net.passes("c", &frame(A, C, 2), &["uplink"]);
        let all = frame(BROADCAST, A, 3);
        net.arrives("a", &all, &[("uplink", &in_vlan(&all, 100))]);
        net.passes("c", &frame(BROADCAST, C, 4), &["uplink"]);
        for wrong in [frame(A, ELSEWHERE, 5), in_vlan(&frame(A, ELSEWHERE, 6), 200)] {
            assert!(net.send("uplink", &wrong).iter().all(|(to, _)| *to != "a"));
        }
        let right = frame(A, ELSEWHERE, 7);
        net.arrives("uplink", &in_vlan(&right, 100), &[("a", &right)]);
    });
}

#[test]
fn an_access_adapter_sends_no_tags() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({"a": {"vlan": {"id": 100}}}));
        let reason = net.reason("tx_vlan_forbidden", "tx_switch_vlan_forbidden");
        for vlan in [100, 200] {
            net.drops("a", &in_vlan(&frame(ELSEWHERE, A, 1), vlan), reason);
            net.drops("a", &tagged(&frame(BROADCAST, A, 2), 0x88a8, 0, vlan), reason);
            net.drops("b", &in_vlan(&frame(ELSEWHERE, B, 3), vlan), reason);
            net.drops("b", &in_vlan(&frame(A, B, 4), vlan), reason);
        }
        net.passes("b", &frame(ELSEWHERE, B, 5), &["uplink"]);
    });
}

#[test]
fn a_priority_tag_hides_no_other_tag() {
    on_every_path(|way| {
        let settings = json!({"a": {}, "b": {"trunks": ["10"]}, "c": {"vlan": {"id": 10}}});
        let mut net = Net::new(way, settings);
        let reason = net.reason("tx_vlan_forbidden", "tx_switch_vlan_forbidden");
        for to in [BROADCAST, B, C, ELSEWHERE] {
            for (first, second) in [(0x8100, 0x8100), (0x88a8, 0x8100), (0x8100, 0x88a8)] {
                let inner = tagged(&frame(to, A, 1), second, 0, 10);
                net.drops("a", &tagged(&inner, first, 7, 0), reason);
                net.drops("a", &tagged(&tagged(&inner, 0x8100, 0, 0), first, 0, 0), reason);
            }
        }
        // Nor can a trunk, apart from its permitted tags.
        let inner = in_vlan(&frame(ELSEWHERE, B, 2), 20);
        net.drops("b", &tagged(&inner, 0x8100, 0, 0), reason);
        net.passes("b", &in_vlan(&frame(ELSEWHERE, B, 3), 10), &["uplink"]);
        net.passes("a", &tagged(&frame(ELSEWHERE, A, 4), 0x8100, 5, 0), &["uplink"]);
        net.passes("a", &tagged(&frame(B, A, 5), 0x8100, 5, 0), &["b"]);
    });
}

#[test]
fn a_service_tag_goes_around_the_guests_own() {
    on_every_path(|way| {
        let service = json!({"vlan": {"id": 100, "proto": "802.1ad"}});
        let mut net = Net::new(way, json!({"a": service, "b": service}));
        let out = in_vlan(&frame(ELSEWHERE, A, 1), 7);
        net.arrives("a", &out, &[("uplink", &tagged(&out, 0x88a8, 0, 100))]);
        net.passes("a", &in_vlan(&frame(B, A, 2), 7), &["b"]);
        let back = in_vlan(&frame(A, ELSEWHERE, 3), 7);
        net.arrives("uplink", &tagged(&back, 0x88a8, 0, 100), &[("a", &back)]);
        let reason = net.reason("tx_vlan_forbidden", "tx_switch_vlan_forbidden");
        net.drops("a", &tagged(&frame(ELSEWHERE, A, 4), 0x88a8, 0, 100), reason);
    });
}

#[test]
fn a_trunk_carries_the_tags_of_its_list_and_no_others() {
    on_every_path(|way| {
        let mut net =
            Net::new(way, json!({"a": {"trunks": ["10", "20-21"]}, "b": {"vlan": {"id": 10}}}));
        let out = frame(ELSEWHERE, A, 1);
        for vlan in [10, 20, 21] {
            net.passes("a", &in_vlan(&out, vlan), &["uplink"]);
            net.passes("uplink", &in_vlan(&frame(A, ELSEWHERE, 2), vlan), &["a"]);
        }
        let reason = net.reason("tx_vlan_forbidden", "tx_switch_vlan_forbidden");
        net.drops("a", &in_vlan(&out, 11), reason);
        net.drops("a", &in_vlan(&out, 22), reason);
        net.passes("a", &out, &["uplink"]); // untagged frames are in the untagged network
        net.passes("a", &frame(C, A, 3), &["c"]);
        let there = frame(B, A, 4);
        net.arrives("a", &in_vlan(&there, 10), &[("b", &there)]);
        let back = frame(A, B, 5);
        net.arrives("b", &back, &[("a", &in_vlan(&back, 10))]);
        assert!(
            net.send("uplink", &in_vlan(&frame(A, ELSEWHERE, 6), 11))
                .iter()
                .all(|(to, _)| *to != "a")
        );
    });
}

#[test]
fn a_trunk_with_a_vlan_of_its_own_has_that_for_frames_without_a_tag() {
    on_every_path(|way| {
        let a = json!({"trunks": ["20"], "vlan": {"id": 10, "qos": 2}});
        let mut net =
            Net::new(way, json!({"a": a, "b": {"vlan": {"id": 10}}, "c": {"vlan": {"id": 20}}}));
        let out = frame(ELSEWHERE, A, 1);
        net.arrives("a", &out, &[("uplink", &tagged(&out, 0x8100, 2, 10))]);
        net.passes("a", &in_vlan(&out, 20), &["uplink"]);
        let reason = net.reason("tx_vlan_forbidden", "tx_switch_vlan_forbidden");
        net.drops("a", &in_vlan(&out, 30), reason);
        net.passes("a", &frame(B, A, 2), &["b"]);
        net.passes("b", &frame(A, B, 3), &["a"]);
        let there = frame(C, A, 4);
        net.arrives("a", &in_vlan(&there, 20), &[("c", &there)]);
        let back = frame(A, C, 5);
        net.arrives("c", &back, &[("a", &in_vlan(&back, 20))]);
        let wire = frame(A, ELSEWHERE, 6);
        net.arrives("uplink", &in_vlan(&wire, 10), &[("a", &wire)]);
        net.passes("uplink", &in_vlan(&wire, 20), &["a"]);
    });
}

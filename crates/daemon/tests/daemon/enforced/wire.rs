//! Settings of the switch's uplink port. With any of them no adapter has a VF or a queue, since the
//! wire's frames would bypass the switch.

use serde_json::{Value, json};

use crate::host::frame;
use crate::net::*;

/// Sets the uplink port under guests on every path, which are in the switch from then on.
fn with_wire(scenario: impl Fn(&mut Net), settings: Value, wire: Value) {
    on_every_path(|way| {
        let mut net = Net::new(way, settings.clone());
        net.patch("/v1/switches/sw0/ports/uplink", wire.clone());
        for name in ADAPTERS {
            net.assert_path(name, "synthetic");
            let wanted = if name == "c" { way.other() } else { way.path };
            let reason = if wanted == "synthetic" { "Supported" } else { "PortPolicy" };
            assert_eq!(net.actual(name)["reason"], reason);
        }
        scenario(&mut net);
        net.request(api::Method::DELETE, "/v1/switches/sw0/ports/uplink", None).unwrap();
        net.assert_path("a", way.path);
        net.assert_connected();
    });
}

#[test]
fn it_has_its_vlans() {
    let settings =
        json!({"a": {"vlan": {"id": 10}}, "b": {"vlan": {"id": 20}}, "c": {"vlan": {"id": 30}}});
    let scenario = |net: &mut Net| {
        let out = frame(ELSEWHERE, A, 1);
        net.arrives("a", &out, &[("uplink", &in_vlan(&out, 10))]);
        net.passes("b", &frame(ELSEWHERE, B, 2), &["uplink"]); // its VLAN is untagged there
        assert!(net.send("c", &frame(ELSEWHERE, C, 3)).is_empty());
        let back = frame(A, ELSEWHERE, 4);
        net.arrives("uplink", &in_vlan(&back, 10), &[("a", &back)]);
        net.passes("uplink", &frame(B, ELSEWHERE, 5), &["b"]);
        let wrong = in_vlan(&frame(C, ELSEWHERE, 6), 30);
        net.drops("uplink", &wrong, "tx_switch_vlan_forbidden");
    };
    with_wire(scenario, settings, json!({"trunks": ["10", "20"], "native_vlan": 20}));
}

#[test]
fn its_rules_are_for_what_comes_from_the_wire() {
    let scenario = |net: &mut Net| {
        net.drops("uplink", &frame(A, ELSEWHERE, 1), "tx_switch_acl_deny");
        net.passes("uplink", &frame(B, ELSEWHERE, 2), &["b"]);
        net.passes("b", &frame(A, B, 3), &["a"]);
        net.passes("a", &frame(ELSEWHERE, A, 4), &["uplink"]);
    };
    let rules = json!([{"action": "deny", "to_mac": "02:00:00:00:00:01"}]);
    with_wire(scenario, json!({}), json!({"acl": rules}));
}

#[test]
fn who_is_isolated_reaches_no_isolated_wire() {
    let scenario = |net: &mut Net| {
        net.patch("/v1/switches/sw0/ports/a", json!({"isolated": true}));
        net.drops("a", &frame(ELSEWHERE, A, 1), "tx_switch_isolated");
        net.drops("uplink", &frame(A, ELSEWHERE, 2), "tx_switch_isolated");
        net.passes("uplink", &frame(B, ELSEWHERE, 3), &["b"]);
        net.passes("a", &frame(B, A, 4), &["b"]);
        net.patch("/v1/switches/sw0/ports/a", json!({"isolated": null}));
    };
    with_wire(scenario, json!({}), json!({"isolated": true}));
}

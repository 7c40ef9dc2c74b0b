//! Counters and addresses as operators see them.

use serde_json::{Value, json};

use crate::host::{frame, until};
use crate::net::*;

/// Hits of each rule of a port, by its number.
fn hits(net: &Net, port: &str) -> Vec<(u64, u64)> {
    let stats = net.get("/v1/stats");
    let rules = stats["rules"].as_array().into_iter().flatten();
    let number = |rule: &Value, name: &str| rule[name].as_u64().unwrap();
    let of_port = rules.filter(|rule| rule["port"] == port);
    of_port.map(|rule| (number(rule, "rule"), number(rule, "frames"))).collect()
}

#[test]
fn rules_are_numbered_from_1_and_know_protocols_by_name() {
    in_the_switch(|tested| {
        let rules = json!([
            {"action": "deny", "protocol": "udp", "to_port": "53"},
            {"action": "count", "protocol": 6},
        ]);
        let switch = json!({"port": [{"adapter": "a", "acl": rules}]});
        let mut net = Net::new(tested, json!({"switch": switch}));
        let port = net.get("/v1/switches/sw0/ports/a");
        assert_eq!(
            (&port["acl"][0]["protocol"], &port["acl"][1]["protocol"]),
            (&json!("udp"), &json!("tcp"))
        );
        let mut dns = [&B[..], &A, &[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]].concat();
        dns.extend([10, 0, 0, 1, 10, 0, 0, 2, 16, 0, 0, 53, 0, 8, 0, 0]);
        dns.resize(60, 0);
        net.drops("a", &dns, "tx_switch_acl_deny");
        until("the rule to be counted", || hits(&net, "a") == [(1, 1), (2, 0)]);
    });
}

#[test]
fn rules_that_stay_keep_their_counts_and_others_begin_at_zero() {
    in_the_switch(|tested| {
        let all = json!({"action": "count"});
        let own = json!({"action": "count", "from_mac": "02:00:00:00:00:01"});
        let deny = json!({"action": "deny", "protocol": 6});
        let switch = json!({"port": [{"adapter": "a", "acl": [all, deny]}]});
        let mut net = Net::new(tested, json!({"switch": switch}));
        let set = |net: &Net, port: &str, rules: Value| {
            net.patch(&format!("/v1/switches/sw0/ports/{port}"), json!({"acl": rules}));
        };
        net.passes("a", &frame(B, A, 1), &["b"]);
        until("the rule to be counted", || hits(&net, "a") == [(1, 1), (2, 0)]);
        set(&net, "a", json!([own, deny, all]));
        assert_eq!(hits(&net, "a"), [(1, 0), (2, 0), (3, 1)], "another place");
        net.passes("a", &frame(B, A, 2), &["b"]);
        until("both to be counted", || hits(&net, "a") == [(1, 1), (2, 0), (3, 2)]);
        // The same rule at another port is another rule.
        set(&net, "b", json!([all]));
        assert_eq!(hits(&net, "a"), [(1, 1), (2, 0), (3, 2)]);
        assert_eq!(hits(&net, "b"), [(1, 0)]);
        set(&net, "a", json!([own]));
        assert_eq!(hits(&net, "a"), [(1, 1)]);
        set(&net, "a", json!([all, own]));
        assert_eq!(hits(&net, "a"), [(1, 0), (2, 1)], "it was removed in between");
    });
}

#[test]
fn addresses_of_a_switch_are_listed_with_port_and_age() {
    in_the_switch(|tested| {
        let settings = json!({"spoof_check": false, "vlan": {"id": 10}});
        let mut net = Net::new(tested, json!({"a": settings}));
        net.send("a", &frame(B, STRANGER, 1));
        let list = net.get("/v1/switches/sw0/fdb");
        let find = |mac: &str, vlan: Value| {
            let mut all = list.as_array().unwrap().iter();
            let entry = all.find(|entry| entry["mac"] == mac && entry["vlan"] == vlan);
            entry.unwrap_or_else(|| panic!("{mac} is not in {list:#}")).clone()
        };
        let learned = find("02:00:00:00:00:77", json!(10));
        let expected = json!({
            "mac": "02:00:00:00:00:77", "vlan": 10, "port": "a", "kind": "learned", "age_s": 0
        });
        assert_eq!(learned, expected);
        let own = find("02:00:00:00:00:01", json!(10));
        let expected = json!({
            "mac": "02:00:00:00:00:01", "vlan": 10, "port": "a", "kind": "static", "age_s": null
        });
        assert_eq!(own, expected);
        assert_eq!(find("02:00:00:00:00:99", json!(null))["port"], "uplink");
        let error = net.request(api::Method::GET, "/v1/switches/none/fdb", None).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    });
}

#[test]
fn counters_continue_when_an_attachment_changes() {
    on_every_path(|tested| {
        let mut net = Net::new(tested, json!({}));
        net.drops("a", &frame(B, C, 1), net.reason("tx_spoofed_mac", "tx_switch_spoofed_mac"));
        net.passes("a", &frame(B, A, 2), &["b"]);
        net.passes("b", &frame(A, B, 3), &["a"]);
        let before = net.host.port("n/a");
        assert_eq!((before.tx_frames, before.rx_frames), (2, 2), "with the greeting of the wire");
        // Another MTU is another device for the guest.
        net.drop_guest("a");
        net.set("a", json!({"attachment": {"mtu": 1400}}));
        let after = net.host.port("n/a");
        let counters = |port: &api::stats::PortStats| {
            (port.tx_frames, port.tx_bytes, port.rx_frames, port.rx_bytes, port.drops.clone())
        };
        assert_eq!(counters(&after), counters(&before));
        net.attach("a");
        net.passes("a", &frame(B, A, 4), &["b"]);
        assert_eq!(net.host.port("n/a").tx_frames, before.tx_frames + 1);
    });
}

#[test]
fn an_adapter_shows_its_link() {
    on_every_path(|tested| {
        let net = Net::new(tested, json!({}));
        for (state, is_up) in [("disable", false), ("enable", true), ("auto", true)] {
            net.set("a", json!({"link_state": state}));
            assert_eq!(net.actual("a")["link_up"], is_up, "{state}");
            assert_eq!(net.actual("b")["link_up"], true);
        }
    });
}

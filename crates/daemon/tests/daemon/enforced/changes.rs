//! Settings that change while guests are attached: each holds from the reply on, on the existing
//! connection.

use serde_json::json;

use crate::host::frame;
use crate::net::*;

#[test]
fn an_address_changes() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({}));
        let unknown = net.reason("tx_spoofed_mac", "tx_switch_mac_limit");
        net.set("a", json!({"mac": "02:00:00:00:00:77"}));
        net.passes("a", &frame(B, STRANGER, 1), &["b"]);
        net.passes("b", &frame(STRANGER, B, 2), &["a"]);
        net.passes("c", &frame(STRANGER, C, 3), &["a"]);
        net.passes("uplink", &frame(STRANGER, ELSEWHERE, 4), &["a"]);
        net.drops("a", &frame(B, A, 5), unknown);
        assert_eq!(net.guest("a").frontend().config(0, 6).unwrap(), STRANGER);
        net.set("a", json!({"mac": "02:00:00:00:00:01", "macs": ["02:00:00:00:00:77"]}));
        for mac in [A, STRANGER] {
            net.passes("a", &frame(B, mac, 6), &["b"]);
            net.passes("b", &frame(mac, B, 7), &["a"]);
            net.passes("uplink", &frame(mac, ELSEWHERE, 8), &["a"]);
        }
        net.set("a", json!({"macs": null}));
        net.drops("a", &frame(B, STRANGER, 9), unknown);
        net.passes("a", &frame(B, A, 10), &["b"]);
        // Another adapter may use it.
        net.set("b", json!({"macs": ["02:00:00:00:00:77"]}));
        net.passes("a", &frame(STRANGER, A, 11), &["b"]);
        net.assert_connected();
    });
}

#[test]
fn the_check_of_sources_is_turned_off_and_on() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({}));
        let reason = net.reason("tx_spoofed_mac", "tx_switch_mac_limit");
        for _ in 0..2 {
            net.drops("a", &frame(B, STRANGER, 1), reason);
            net.set("a", json!({"spoof_check": false}));
            net.passes("a", &frame(B, STRANGER, 2), &["b"]);
            net.passes("a", &frame(B, A, 3), &["b"]);
            net.set("a", json!({"spoof_check": true}));
        }
        net.drops("a", &frame(B, STRANGER, 4), reason);
        net.passes("a", &frame(B, A, 5), &["b"]);
        net.assert_connected();
    });
}

#[test]
fn what_was_learnt_of_a_guest_is_forgotten_when_it_is_checked() {
    in_the_switch(|way| {
        let port = |name| json!({"adapter": name, "unknown_unicast": false});
        let switch = json!({"port": [port("a"), port("b"), port("c")]});
        let mut net = Net::new(way, json!({"a": {"spoof_check": false}, "switch": switch}));
        net.passes("a", &frame(B, STRANGER, 1), &["b"]);
        net.passes("b", &frame(STRANGER, B, 2), &["a"]);
        net.set("a", json!({"spoof_check": true}));
        net.passes("b", &frame(STRANGER, B, 3), &["uplink"]);
        // Nor does it keep an address that another adapter gets.
        net.set("a", json!({"spoof_check": false}));
        net.passes("a", &frame(B, STRANGER, 4), &["b"]);
        net.set("c", json!({"macs": ["02:00:00:00:00:77"]}));
        net.passes("b", &frame(STRANGER, B, 5), &["c"]);
        net.drops("a", &frame(B, STRANGER, 6), "tx_switch_spoofed_mac");
        // Sources are checked on a VF, and again after a change back.
        net.set("c", json!({"macs": null}));
        net.passes("a", &frame(B, STRANGER, 7), &["b"]);
        net.set("a", json!({"path": "vf"}));
        net.set("a", json!({"spoof_check": true}));
        net.set("a", json!({"path": way.path}));
        net.drops("a", &frame(B, STRANGER, 8), "tx_switch_mac_limit");
        net.passes("b", &frame(STRANGER, B, 9), &["uplink"]);
    });
}

#[test]
fn another_switch_knows_nothing_of_what_the_one_before_has_learnt() {
    on(&["synthetic"], |way| {
        let unchecked = json!({"spoof_check": false});
        let mut net = Net::new(way, json!({"a": unchecked, "b": unchecked}));
        net.passes("a", &frame(B, STRANGER, 1), &["b"]);
        // The former port of a is now that of b.
        let mut state = net.get("/v1/state");
        let port = json!({"adapter": "b", "unknown_unicast": false});
        state["switch"][0]["name"] = json!("sw1");
        state["switch"][0]["port"] = json!([port]);
        let adapters = state["adapter"].as_array_mut().unwrap();
        adapters.retain(|adapter| adapter["name"] != "a");
        for adapter in adapters {
            adapter["switch"] = json!("sw1");
            adapter["path"] = json!("synthetic");
        }
        net.request(api::Method::PUT, "/v1/state?prune=true", Some(&state)).unwrap();
        net.drop_guest("a");
        net.passes("c", &frame(STRANGER, C, 2), &["uplink"]);
    });
}

#[test]
fn a_vlan_comes_changes_and_goes() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({"b": {"vlan": {"id": 200}}}));
        let (out, there) = (frame(ELSEWHERE, A, 1), frame(B, A, 2));
        let forbidden = net.reason("tx_vlan_forbidden", "tx_switch_vlan_forbidden");
        net.passes("a", &out, &["uplink"]);
        net.passes("a", &frame(C, A, 3), &["c"]);
        for (vlan, qos, tpid, proto) in [(100, 0, 0x8100, "802.1q"), (200, 3, 0x88a8, "802.1ad")] {
            net.set("a", json!({"vlan": {"id": vlan, "qos": qos, "proto": proto}}));
            let tag = |frame: &[u8]| tagged(frame, tpid, qos, vlan);
            net.arrives("a", &out, &[("uplink", &tag(&out))]);
            let back = frame(A, ELSEWHERE, 4);
            net.arrives("uplink", &tag(&back), &[("a", &back)]);
            assert!(net.send("uplink", &back).iter().all(|(to, _)| *to != "a"), "{way:?}");
            let (b, wire) = (("b", &there[..]), tag(&there));
            net.arrives("a", &there, &[if vlan == 200 { b } else { ("uplink", &wire[..]) }]);
        }
        // Omitted fields keep their values.
        net.set("a", json!({"vlan": {"qos": 7}}));
        net.arrives("a", &out, &[("uplink", &tagged(&out, 0x88a8, 7, 200))]);
        net.set("a", json!({"vlan": null, "trunks": ["10"]}));
        net.passes("a", &in_vlan(&out, 10), &["uplink"]);
        net.drops("a", &in_vlan(&out, 20), forbidden);
        net.set("a", json!({"vlan": {"id": 20}, "trunks": ["10", "20"]}));
        net.arrives("a", &out, &[("uplink", &in_vlan(&out, 20))]);
        net.passes("a", &in_vlan(&out, 20), &["uplink"]);
        net.set("a", json!({"vlan": null, "trunks": null}));
        net.passes("a", &out, &["uplink"]);
        net.passes("a", &frame(C, A, 5), &["c"]);
        net.drops("a", &in_vlan(&out, 20), forbidden);
        net.assert_connected();
    });
}

#[test]
fn a_guest_becomes_promiscuous_and_is_no_more() {
    on_every_path(|way| {
        let port = |name| json!({"adapter": name, "unknown_unicast": false});
        let mut net = Net::new(way, json!({"switch": {"port": [port("b"), port("c")]}}));
        let stray = frame(STRANGER, ELSEWHERE, 1);
        net.set("a", json!({"trust": true, "promiscuous": true}));
        net.passes("uplink", &stray, &["a"]);
        let refused =
            net.request(api::Method::PATCH, "/v1/adapters/a", Some(&json!({"trust": false})));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("promiscuous") && refused.contains("trust"), "{refused}");
        net.passes("uplink", &stray, &["a"]);
        net.set("a", json!({"trust": null, "promiscuous": null}));
        let usual: &[_] = if way.is_vf() { &[] } else { &["a"] }; // a switch floods
        net.passes("uplink", &stray, usual);
        net.assert_connected();
    });
}

#[test]
fn what_is_refused_leaves_all_as_it_was() {
    on_every_path(|way| {
        let mut net =
            Net::new(way, json!({"a": {"vlan": {"id": 100}}, "b": {"vlan": {"id": 100}}}));
        let wrong = [
            (json!({"vlan": {"id": 4095}}), "vlan.id"),
            (json!({"vlan": null, "mac": "02:00:00:00:00:03"}), "mac"), // of `c`, in its VLAN
            (json!({"vlan": null, "min_tx_mbps": 2, "max_tx_mbps": 1}), "min_tx_mbps"),
            (json!({"vlan": null, "spoof_check": "yes"}), "spoof_check"),
            (json!({"vlan": null, "spoofchk": false}), "spoofchk"),
        ];
        let before = net.get("/v1/adapters/a");
        for (patch, field) in wrong {
            let refused = net.request(api::Method::PATCH, "/v1/adapters/a", Some(&patch));
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(field), "{refused}");
        }
        assert_eq!(net.get("/v1/adapters/a"), before);
        let out = frame(ELSEWHERE, A, 1);
        net.arrives("a", &out, &[("uplink", &in_vlan(&out, 100))]);
        net.passes("a", &frame(B, A, 2), &["b"]);
        net.assert_connected();
    });
}

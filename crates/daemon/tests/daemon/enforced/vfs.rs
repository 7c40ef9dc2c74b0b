//! VFs with settings of their own, which apply to any adapter that names the VF, while it exists.

use serde_json::json;

use crate::host::frame;
use crate::net::*;

#[test]
fn settings_of_a_vf_hold_while_the_adapter_is_there() {
    on(&["vf"], |way| {
        let mut net = Net::new(way, json!({"a": {"vf": 3, "vlan": {"id": 10}}}));
        assert_eq!(net.actual("a")["vf"], 3);
        let out = frame(ELSEWHERE, A, 1);
        net.arrives("a", &out, &[("uplink", &in_vlan(&out, 10))]);
        let own = "/v1/nics/n/vfs/3";
        net.patch(own, json!({"vlan": {"id": 100, "qos": 6, "proto": "802.1ad"}}));
        net.arrives("a", &out, &[("uplink", &tagged(&out, 0x88a8, 6, 100))]);
        net.drops("a", &frame(B, STRANGER, 2), "tx_spoofed_mac");
        net.patch(own, json!({"spoof_check": false}));
        let strange = frame(ELSEWHERE, STRANGER, 3);
        net.arrives("a", &strange, &[("uplink", &tagged(&strange, 0x88a8, 6, 100))]);
        net.patch(own, json!({"vlan": null, "trunks": ["20"], "spoof_check": true}));
        net.passes("a", &in_vlan(&out, 20), &["uplink"]);
        net.drops("a", &in_vlan(&out, 10), "tx_vlan_forbidden");
        net.patch(own, json!({"link_state": "disable"}));
        net.drops("a", &in_vlan(&out, 20), "tx_link_down");
        // On another path the adapter's own settings apply.
        for path in ["synthetic", "vmq"] {
            net.set("a", json!({"path": path}));
            net.arrives("a", &out, &[("uplink", &in_vlan(&out, 10))]);
        }
        net.set("a", json!({"path": "vf"}));
        net.drops("a", &in_vlan(&out, 20), "tx_link_down");
        net.request(api::Method::DELETE, own, None).unwrap();
        net.arrives("a", &out, &[("uplink", &in_vlan(&out, 10))]);
        net.assert_connected();
    });
}

#[test]
fn a_vf_that_is_checked_announces_no_stranger() {
    on(&["vf"], |way| {
        let mut net = Net::new(way, json!({"a": {"vf": 3, "spoof_check": false}}));
        let announced = wire::rarp::announcement(wire::Mac(STRANGER));
        net.guest("a").frontend().send_rarp(STRANGER).unwrap();
        assert_eq!(net.guest("uplink").wait_for(1), [announced]);
        net.settle("b");
        net.patch("/v1/nics/n/vfs/3", json!({"spoof_check": true}));
        net.drops("a", &frame(B, STRANGER, 1), "tx_spoofed_mac");
        net.guest("a").frontend().send_rarp(STRANGER).unwrap();
        net.guest("a").frontend().config(0, 6).unwrap(); // the reply shows that all was handled
        net.passes("b", &frame(BROADCAST, B, 2), &["a", "c", "uplink"]);
    });
}

#[test]
fn a_vf_of_nobody_takes_no_part() {
    on(&["vf"], |way| {
        let mut net = Net::new(way, json!({}));
        net.patch("/v1/nics/n/vfs/3", json!({"mac": "02:00:00:00:00:77", "vlan": {"id": 100}}));
        // Its address stays reserved without a guest.
        net.drops("a", &frame(B, STRANGER, 1), "tx_spoofed_mac");
        net.passes("b", &frame(A, B, 2), &["a"]);
        let refused = json!({"vlan": {"id": 100}, "mac": "02:00:00:00:00:77"});
        let refused = net.request(api::Method::PATCH, "/v1/adapters/a", Some(&refused));
        assert!(refused.unwrap_err().to_string().contains("mac"));
        net.passes("a", &frame(B, A, 3), &["b"]);
    });
}

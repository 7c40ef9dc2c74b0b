//! Removed adapters, disabled VFs, and counters while a guest has its adapter.

use api::Method;
use serde_json::json;

use crate::host::{frame, until};
use crate::net::*;

#[test]
fn who_comes_next_gets_nothing_of_who_was_there() {
    on_every_path(|way| {
        let settings = json!({
            "vlan": {"id": 100}, "macs": ["02:00:00:00:00:77"], "spoof_check": false,
            "link_state": "enable", "storm_limit_pps": 1, "max_tx_mbps": 1,
            "mirror": {"direction": "both", "adapter": "b"},
        });
        let mut net = Net::new(way, json!({"a": settings}));
        let given = net.actual("a");
        let all = net.get("/v1/actual");
        let owner = &all["owners"][format!("n/vf{}", given["vf"])];
        assert_eq!(owner["holder"], if way.is_vf() { json!("a") } else { json!(null) });
        net.request(Method::DELETE, "/v1/adapters/a", None).unwrap();
        if let Some(index) = given["vf"].as_u64() {
            let all = net.get("/v1/actual");
            let vf = &all["actual"]["nics"][0]["vfs"][index as usize];
            assert_eq!((&vf["adapter"], &vf["vlan"]), (&json!(null), &json!(null)), "{vf}");
            assert_ne!(vf["mac"], "02:00:00:00:00:01");
        }
        // Its address is unknown now.
        net.drop_guest("a");
        let out = in_vlan(&frame(A, ELSEWHERE, 1), 100);
        assert!(net.send("uplink", &out).iter().all(|(_, got)| *got == out), "{way:?}");
        // A new adapter with the same address, VF and socket.
        let mut next = adapter("a", way.path, net.host.path().to_str().unwrap());
        next["vf"] = given["vf"].clone();
        if !way.is_vf() {
            next.as_object_mut().unwrap().remove("vf");
        }
        net.request(Method::PUT, "/v1/adapters/a", Some(&next)).unwrap();
        net.attach("a");
        net.host.wait_for_rings("n/a", 2);
        net.assert_path("a", way.path);
        assert_eq!(
            (&net.actual("a")["vf"], &net.actual("a")["queue"]),
            (&given["vf"], &given["queue"])
        );
        net.passes("a", &frame(ELSEWHERE, A, 2), &["uplink"]);
        net.passes("a", &frame(B, A, 3), &["b"]);
        net.passes("b", &frame(A, B, 4), &["a"]);
        for n in 0..10 {
            net.passes("a", &frame(BROADCAST, A, n), &["b", "c", "uplink"]);
        }
        let reason = net.reason("tx_spoofed_mac", "tx_switch_mac_limit");
        net.drops("a", &frame(B, STRANGER, 5), reason);
        assert!(net.send("uplink", &out).iter().all(|(to, _)| *to != "a"), "{way:?}");
        net.passes("uplink", &frame(A, ELSEWHERE, 6), &["a"]);
    });
}

#[test]
fn vfs_are_enabled_from_none_and_disabled_to_none() {
    on(&["vf"], |way| {
        let mut net = Net::new(way, json!({}));
        let num_vfs = |net: &Net, n: u16| {
            net.request(Method::PATCH, "/v1/nics/n", Some(&json!({"num_vfs": n})))
        };
        let busy = num_vfs(&net, 3).unwrap_err().to_string();
        assert!(busy.contains("num_vfs") && busy.contains("write 4 or 0"), "{busy}");
        net.assert_path("a", "vf");
        num_vfs(&net, 0).unwrap();
        for name in ["a", "b"] {
            net.assert_path(name, "vmq");
            assert_eq!(net.actual(name)["reason"], "VfDisabled");
        }
        net.passes("a", &frame(B, A, 1), &["b"]);
        num_vfs(&net, 1).unwrap();
        net.assert_path("a", "vf");
        net.assert_path("b", "vmq");
        assert_eq!(net.actual("b")["reason"], "NoFreeVf");
        net.passes("a", &frame(B, A, 2), &["b"]);
        net.passes("b", &frame(A, B, 3), &["a"]);
        let busy = num_vfs(&net, 2).unwrap_err().to_string();
        assert!(busy.contains("write 1 or 0"), "{busy}");
        num_vfs(&net, 0).unwrap();
        num_vfs(&net, 4).unwrap();
        net.assert_path("b", "vf");
        net.passes("b", &frame(C, B, 4), &["c"]);
        net.assert_connected();
    });
}

#[test]
fn counters_are_read_by_name_while_a_guest_has_the_adapter() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({}));
        let before = net.host.port("n/b");
        for n in 0..7 {
            net.passes("b", &frame(A, B, n), &["a"]);
            net.passes("a", &frame(B, A, n), &["b"]);
        }
        let port = |net: &Net| {
            let all = net.get("/v1/stats");
            let mut ports = all["ports"].as_array().unwrap().iter();
            ports.find(|port| port["name"] == "n/b").unwrap().clone()
        };
        // A lane counts a burst after returning its buffers.
        until("frames to be counted", || port(&net)["tx_frames"] == before.tx_frames + 7);
        let told = port(&net);
        assert_eq!(told["tx_bytes"], before.tx_bytes + 7 * 60);
        assert_eq!(told["rx_frames"], before.rx_frames + 7);
        assert_eq!(told["rx_bytes"], before.rx_bytes + 7 * 60);
        assert_eq!(told["rings_attached"], 2);
    });
}

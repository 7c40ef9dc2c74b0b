//! Forwarding between functions of a NIC. In the switch, frames go to their destination only.

use serde_json::json;

use crate::host::frame;
use crate::net::*;

fn bridged(tested: TestedPath, bridging: &str) -> Net {
    Net::new(tested, json!({"nic": {"bridging": bridging}}))
}

#[test]
fn a_veb_delivers_itself() {
    on_every_path(|tested| {
        let mut net = bridged(tested, "veb");
        for (from, mac) in [("a", A), ("b", B), ("c", C)] {
            for (to, dst) in
                [("a", A), ("b", B), ("c", C)].into_iter().filter(|(to, _)| *to != from)
            {
                net.passes(from, &frame(dst, mac, 1), &[to]);
            }
        }
    });
}

#[test]
fn a_vepa_sends_everything_out_and_takes_it_back() {
    on_every_path(|tested| {
        let mut net = bridged(tested, "vepa");
        // The switch is one function of the NIC, and its internal frames do not pass the NIC.
        let is_near = |other: &str| !tested.is_vf() && (other == "b" || tested.other() != "vf");
        for (to, dst) in [("b", B), ("c", C)] {
            let there = frame(dst, A, 1);
            if is_near(to) {
                net.passes("a", &there, &[to]);
            } else {
                net.passes("a", &there, &["uplink"]);
                net.passes("uplink", &there, &[to]);
            }
        }
        // A reflected frame does not return to its sender, nor arrive twice.
        let all = frame(BROADCAST, A, 2);
        let mut got = net.send("a", &all);
        got.extend(net.send("uplink", &all));
        got.sort();
        assert_eq!(got, ["b", "c", "uplink"].map(|name| (name, all.clone())), "{tested:?}");
    });
}

#[test]
fn an_isolated_bridge_keeps_functions_apart() {
    on_every_path(|tested| {
        let mut net = bridged(tested, "isolated");
        let is_near = |other: &str| !tested.is_vf() && (other == "b" || tested.other() != "vf");
        for (to, dst) in [("b", B), ("c", C)] {
            match is_near(to) {
                true => net.passes("a", &frame(dst, A, 1), &[to]),
                false => net.drops("a", &frame(dst, A, 1), "tx_isolated"),
            }
        }
        net.passes("a", &frame(ELSEWHERE, A, 2), &["uplink"]);
        net.passes("uplink", &frame(A, ELSEWHERE, 3), &["a"]);
        let near: Vec<_> = ["b", "c"].into_iter().filter(|other| is_near(other)).collect();
        net.passes("a", &frame(BROADCAST, A, 4), &[&near[..], &["uplink"]].concat());
    });
}

#[test]
fn the_bridge_changes_under_guests() {
    on_every_path(|tested| {
        let mut net = bridged(tested, "veb");
        net.passes("a", &frame(C, A, 1), &["c"]);
        let near = !tested.is_vf() && tested.other() != "vf";
        for (bridging, to) in [("vepa", vec!["uplink"]), ("isolated", vec![]), ("veb", vec!["c"])] {
            net.patch("/v1/nics/n", json!({"bridging": bridging}));
            net.passes("a", &frame(C, A, 2), if near { &["c"] } else { &to });
        }
        net.assert_connected();
    });
}

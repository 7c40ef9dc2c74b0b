//! Adapters whose guests migrate from or to another host.

use api::Method;
use serde_json::json;

use crate::host::*;
use crate::net::*;

#[test]
fn who_arrives_is_announced_with_all_its_addresses_in_all_its_vlans() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({}));
        let dir = net.host.socket("d");
        let mut d = adapter("d", way.path, dir.parent().unwrap().to_str().unwrap());
        d["macs"] = json!(["02:00:00:00:01:01", "02:00:00:00:01:02"]);
        d["trunks"] = json!(["10", "20-29"]);
        let step = |body| {
            let reply = net.request(Method::POST, "/v1/adapters/d/move", Some(&body));
            reply.unwrap_or_else(|error| panic!("{body}: {error}")).body
        };
        step(json!({"id": "m", "step": "arrive", "adapter": d}));
        assert_eq!(step(json!({"id": "m", "step": "take-over"}))["announced"], 22);
        // The first address in all 12 networks, the second in 4; only the wire receives tagged
        // frames.
        let macs = [[2, 0, 0, 0, 0, 4], [2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
        let all = macs.iter().flat_map(|mac| {
            let plain = wire::rarp::announcement(wire::Mac(*mac));
            let vlans = [10].into_iter().chain(20..30).map(move |vlan| in_vlan(&plain, vlan));
            [plain.to_vec()].into_iter().chain(vlans)
        });
        let all: Vec<_> = all.collect();
        // More than one batch; all receive the untagged ones, since the others are in no VLAN.
        assert_eq!(net.guest("uplink").wait_for(36), all);
        let untagged: Vec<_> = all.iter().filter(|frame| frame.len() == 60).cloned().collect();
        for other in ["a", "b", "c"] {
            assert_eq!(net.guest(other).wait_for(3), untagged);
        }
    });
}

/// The guest stops, its addresses are handed over, and the migration is undone: all frames sent
/// meanwhile arrive, in order and once.
#[test]
fn what_waited_for_who_left_comes_when_it_stays_after_all() {
    on(&PATHS, |way| {
        let mut net = Net::new(way, json!({}));
        let step = |net: &Net, body| {
            let reply = net.request(Method::POST, "/v1/adapters/a/move", Some(&body));
            reply.unwrap_or_else(|error| panic!("{body}: {error}")).body
        };
        step(&net, json!({"id": "m", "step": "leave"}));
        net.drop_guest("a");
        until("its rings to stop", || net.actual("a")["connected"] == false);
        let frames: Vec<_> = (0..50).map(|number| frame(A, B, number)).collect();
        frames[..40].iter().for_each(|frame| net.guest("b").send(frame));
        net.settle("b");
        for _ in 0..2 {
            let handed = step(&net, json!({"id": "m", "step": "hand-over"}));
            assert_eq!(handed["frames"].as_array().map(Vec::len), Some(40));
        }
        // Frames kept at the target, sent a second time by a mover that lost the reply.
        let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect();
        let late: Vec<String> = frames[40..].iter().map(hex).collect();
        for _ in 0..2 {
            step(&net, json!({"id": "m", "step": "frames", "from": 0, "frames": late}));
        }
        step(&net, json!({"id": "m", "step": "abort"}));
        net.attach("a");
        let got: Vec<_> = net.guest("a").wait_for(50);
        assert_eq!(got, frames);
    });
}

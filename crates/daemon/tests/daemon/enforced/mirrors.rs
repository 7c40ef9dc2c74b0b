//! Mirrors: receivers of copies, and the frames copied.

use serde_json::{Value, json};

use crate::host::{frame, until};
use crate::net::*;

/// Sends frames from and to `a`, and between others; returns the numbers of the frames copied to
/// `c`.
fn exchange(net: &mut Net) -> Vec<u32> {
    let (there, back) = (frame(B, A, 1), frame(A, B, 2));
    let (out, home) = (frame(ELSEWHERE, A, 3), frame(A, ELSEWHERE, 4));
    let beside = frame(ELSEWHERE, B, 5);
    let all =
        [("a", &there, "b"), ("b", &back, "a"), ("a", &out, "uplink"), ("uplink", &home, "a")];
    let mut copies = Vec::new();
    for (from, sent, to) in all.into_iter().chain([("b", &beside, "uplink")]) {
        for (who, got) in net.send(from, sent) {
            assert_eq!(got, *sent, "{:?}: at {who}", net.tested);
            match who {
                "c" => copies.push(crate::host::number(&got)),
                _ => assert_eq!(who, to, "{:?}", net.tested),
            }
        }
    }
    copies
}

#[test]
fn an_adapter_gets_copies_of_what_another_sends_and_receives() {
    on_every_path(|way| {
        for (direction, copied) in
            [("tx", vec![1, 3]), ("rx", vec![2, 4]), ("both", vec![1, 2, 3, 4])]
        {
            let mirror = json!({"direction": direction, "adapter": "c"});
            let mut net = Net::new(way, json!({"a": {"mirror": mirror}}));
            assert_eq!(exchange(&mut net), copied, "{way:?} {direction}");
            // It receives its own frames once.
            net.passes("b", &frame(C, B, 6), &["c"]);
        }
    });
}

#[test]
fn copies_are_as_the_adapter_sees_its_frames() {
    on_every_path(|way| {
        let mirror = json!({"direction": "both", "adapter": "c"});
        let a = json!({"vlan": {"id": 100, "qos": 5}, "mirror": mirror});
        let mut net = Net::new(way, json!({"a": a, "b": {"trunks": ["100"]}}));
        let out = frame(ELSEWHERE, A, 1);
        net.arrives("a", &out, &[("c", &out), ("uplink", &tagged(&out, 0x8100, 5, 100))]);
        for dst in [A, BROADCAST] {
            let home = frame(dst, ELSEWHERE, 2);
            let all: &[_] = &[("a", &home[..]), ("b", &in_vlan(&home, 100)), ("c", &home)];
            let got = net.send("uplink", &in_vlan(&home, 100));
            let wanted = all.iter().filter(|(to, _)| dst == BROADCAST || *to != "b");
            let wanted: Got = wanted.map(|(to, frame)| (*to, frame.to_vec())).collect();
            assert_eq!(got, wanted, "{way:?}");
        }
        let back = frame(A, B, 3);
        net.arrives("b", &in_vlan(&back, 100), &[("a", &back), ("c", &back)]);
        // A dropped frame does not count as sent.
        let reason = net.reason("tx_spoofed_mac", "tx_switch_mac_limit");
        net.drops("a", &frame(B, STRANGER, 4), reason);
    });
}

#[test]
fn a_mirror_comes_and_goes_under_a_guest() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({}));
        assert!(exchange(&mut net).is_empty());
        for (direction, copied) in
            [("tx", vec![1, 3]), ("both", vec![1, 2, 3, 4]), ("rx", vec![2, 4])]
        {
            net.set("a", json!({"mirror": {"direction": direction, "adapter": "c"}}));
            assert_eq!(exchange(&mut net), copied, "{way:?} {direction}");
        }
        net.set("a", json!({"mirror": null}));
        assert!(exchange(&mut net).is_empty());
        net.assert_connected();
    });
}

/// Number of occurrences of these bytes in a file.
fn count(file: &[u8], bytes: &[u8]) -> usize {
    file.windows(bytes.len()).filter(|window| *window == bytes).count()
}

#[test]
fn a_file_gets_copies_of_what_an_adapter_sends_and_receives() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({}));
        for (direction, copied) in [("tx", [1, 0]), ("rx", [0, 1]), ("both", [1, 1])] {
            let path = net.host.socket(&format!("{direction}.pcapng"));
            let mirror: Value = json!({"direction": direction, "file": path});
            net.set("a", json!({"mirror": mirror}));
            let (there, back) = (frame(B, A, 1), frame(A, B, 2));
            net.passes("a", &there, &["b"]);
            net.passes("b", &back, &["a"]);
            net.passes("b", &frame(C, B, 3), &["c"]);
            net.set("a", json!({"mirror": null}));
            let found = || {
                let file = std::fs::read(&path).unwrap();
                assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section of pcapng");
                assert_eq!(count(&file, &frame(C, B, 3)), 0);
                [count(&file, &there), count(&file, &back)]
            };
            until("copies to be written", || found() == copied);
        }
        net.assert_connected();
    });
}

#[test]
fn a_file_that_cannot_be_made_refuses_the_change() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({"a": {"vlan": {"id": 100}}}));
        let mirror = json!({"direction": "tx", "file": "/nonexistent/a.pcapng"});
        let patch = json!({"mirror": mirror, "vlan": null});
        let refused = net.request(api::Method::PATCH, "/v1/adapters/a", Some(&patch));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("/nonexistent/a.pcapng"), "{refused}");
        let out = frame(ELSEWHERE, A, 1);
        net.arrives("a", &out, &[("uplink", &in_vlan(&out, 100))]);
    });
}

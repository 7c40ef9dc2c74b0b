//! Links: link state in the guest, and forwarding without a link.

use serde_json::{Value, json};

use vhost_user::BackendRequest;

use crate::host::{frame, until};
use crate::net::*;

/// Bit 0 of the status, in the configuration of a network device (virtio 1.2, section 5.1.4).
const STATUS_AT: u32 = 6;

fn is_told_of_a_link(net: &mut Net, name: &str) -> bool {
    net.guest(name).frontend().config(STATUS_AT, 2).unwrap()[0] & 1 == 1
}

fn with(link: &str) -> Value {
    json!({"a": {"link_state": link}})
}

#[test]
fn without_a_link_nothing_passes() {
    on_every_path(|tested| {
        let mut net = Net::new(tested, with("disable"));
        for to in [B, C, ELSEWHERE, BROADCAST] {
            net.drops("a", &frame(to, A, 1), "tx_link_down");
        }
        for (from, mac) in [("b", B), ("c", C), ("uplink", ELSEWHERE)] {
            let got = net.send(from, &frame(A, mac, 2));
            assert!(got.iter().all(|(to, _)| *to == "uplink"), "{tested:?}: {from}: {got:?}");
        }
        net.passes("b", &frame(BROADCAST, B, 3), &["c", "uplink"]);
        net.passes("uplink", &frame(BROADCAST, ELSEWHERE, 4), &["b", "c"]);
        net.passes("b", &frame(C, B, 5), &["c"]);
        assert!(!is_told_of_a_link(&mut net, "a"));
        assert!(is_told_of_a_link(&mut net, "b"));
    });
}

#[test]
fn without_a_link_nobody_is_announced() {
    on_every_path(|tested| {
        // In the switch, a port without link has no VLAN, which must not mean the untagged one.
        let settings = json!({"link_state": "disable", "vlan": {"id": 100}});
        let mut net = Net::new(tested, json!({"a": settings}));
        net.guest("a").frontend().send_rarp(A).unwrap();
        assert!(!is_told_of_a_link(&mut net, "a"), "an answer, so the announcement was dealt with");
        net.passes("b", &frame(BROADCAST, B, 1), &["c", "uplink"]);
        // With a link it is announced, only there: by the daemon, and by itself.
        net.set("a", json!({"link_state": "auto"}));
        let announced = in_vlan(&wire::rarp::announcement(wire::Mac(A)), 100);
        assert_eq!(net.guest("uplink").wait_for(1), std::slice::from_ref(&announced));
        net.set("a", json!({"max_tx_mbps": 0}));
        net.guest("a").frontend().send_rarp(A).unwrap();
        assert!(is_told_of_a_link(&mut net, "a"));
        assert_eq!(net.guest("uplink").wait_for(1), [announced]);
        net.passes("b", &frame(BROADCAST, B, 2), &["c", "uplink"]);
    });
}

#[test]
fn with_a_link_all_passes() {
    on_every_path(|tested| {
        for link in ["auto", "enable"] {
            let mut net = Net::new(tested, with(link));
            net.passes("a", &frame(B, A, 1), &["b"]);
            net.passes("b", &frame(A, B, 2), &["a"]);
            net.passes("a", &frame(ELSEWHERE, A, 3), &["uplink"]);
            assert!(is_told_of_a_link(&mut net, "a"));
        }
    });
}

#[test]
fn a_link_goes_down_and_up_under_a_guest() {
    on_every_path(|tested| {
        let mut net = Net::new(tested, json!({}));
        for _ in 0..2 {
            net.set("a", json!({"link_state": "disable"}));
            net.drops("a", &frame(B, A, 1), "tx_link_down");
            assert!(!is_told_of_a_link(&mut net, "a"));
            net.set("a", json!({"link_state": null}));
            for other in ["b", "c", "uplink"] {
                let announced = net.guest(other).wait_for(1);
                assert_eq!(announced, [wire::rarp::announcement(wire::Mac(A))], "{other}");
            }
            net.passes("a", &frame(B, A, 2), &["b"]);
            net.passes("c", &frame(A, C, 3), &["a"]);
            assert!(is_told_of_a_link(&mut net, "a"));
        }
        net.assert_connected();
    });
}

#[test]
fn a_front_end_is_told_when_its_link_goes_up_or_down() {
    on_every_path(|tested| {
        let mut net = Net::new(tested, json!({}));
        let [mut a, mut b] =
            ["a", "b"].map(|name| net.guest(name).frontend().take_requests().unwrap());
        for (state, is_up) in [("disable", false), ("enable", true), ("disable", false)] {
            net.set("a", json!({"link_state": state}));
            let mut told = None;
            until("the front-end to be told", || {
                told = a.poll().unwrap();
                told.is_some()
            });
            assert_eq!(told, Some(BackendRequest::ConfigChangeMsg));
            assert_eq!(is_told_of_a_link(&mut net, "a"), is_up);
        }
        // The guests' view does not change: no guest is notified.
        net.set("a", json!({"max_tx_mbps": 100}));
        assert_eq!((a.poll().unwrap(), b.poll().unwrap()), (None, None));
    });
}

/// A front-end that does not read notifications has only its own channel closed.
#[test]
fn a_front_end_that_does_not_read_is_told_no_more() {
    let mut net = Net::new(TestedPath { path: "vf", lanes: 1 }, json!({}));
    let mut requests = net.guest("a").frontend().take_requests().unwrap();
    // About 280 fit into the socket.
    for round in 0..600 {
        let state = if round % 2 == 0 { "disable" } else { "enable" };
        net.set("a", json!({"link_state": state}));
    }
    let mut came = 0;
    while let Ok(request) = requests.poll() {
        assert!(request.is_some(), "{came} came, and the channel is still open");
        came += 1;
    }
    assert!((1..600).contains(&came), "{came}");
    net.set("a", json!({"link_state": "enable"}));
    assert!(is_told_of_a_link(&mut net, "a"), "the session goes on");
}

//! Rates and storm limits.

use std::time::Instant;

use serde_json::json;

use crate::host::frame;
use crate::net::*;

/// Frames of 60 bytes that may come at once beside a rate: 16 KiB, a burst before they are counted,
/// and one on its way.
const AHEAD: f64 = 16384.0 + 128.0 * 60.0;

/// Sends from `a` to `b` until so many frames have come; says how many bytes came in a second,
/// those aside that may come at once.
fn rate(net: &mut Net, frames: usize) -> f64 {
    let begin = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < frames {
        while net.guest("a").in_flight() < 64 {
            net.guest("a").send(&frame(B, A, sent));
            sent += 1;
        }
        received += net.guest("b").receive().len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    net.settle("a");
    (received as f64 * 60.0 - AHEAD) / seconds
}

#[test]
fn a_maximum_is_kept_in_the_long_run() {
    on_every_path(|way| {
        // 2 Mbit/s are 250 000 bytes a second.
        let mut net = Net::new(way, json!({"a": {"max_tx_mbps": 2}}));
        let kept = rate(&mut net, 800);
        assert!(kept <= 250_000.0, "{way:?}: {kept} bytes a second");
        // The others have no limit, and what they send to `a` is none of what it sends.
        let others = (0..200).map(|n| frame(A, B, n)).collect::<Vec<_>>();
        assert_eq!(net.send_all("b", &others).len(), 200);
        // Another one takes the place of the first: 6000 frames would take longer than is waited.
        net.set("a", json!({"max_tx_mbps": 1000}));
        rate(&mut net, 6000);
        net.set("a", json!({"max_tx_mbps": 2}));
        let kept = rate(&mut net, 800);
        assert!(kept <= 250_000.0, "{way:?}: {kept} bytes a second once it was set again");
        net.assert_connected();
    });
}

#[test]
fn shares_are_taken_and_told() {
    on_every_path(|way| {
        let shares = json!({"min_tx_mbps": 100, "max_tx_mbps": 1000, "tx_weight": 70});
        let mut net = Net::new(way, json!({"a": shares}));
        let told = net.get("/v1/adapters/a");
        for (field, value) in shares.as_object().unwrap() {
            assert_eq!(told[field], *value);
        }
        net.passes("a", &frame(B, A, 1), &["b"]);
        // One of the two does not take the other back.
        net.set("a", json!({"min_tx_mbps": 200}));
        let told = net.get("/v1/adapters/a");
        assert_eq!((&told["min_tx_mbps"], &told["max_tx_mbps"]), (&json!(200), &json!(1000)));
        net.passes("a", &frame(B, A, 2), &["b"]);
    });
}

/// Of 50 broadcasts in a row, which take some seconds at most, nearly all are lost.
fn storm(net: &mut Net) {
    let begin = Instant::now();
    let before = net.dropped("a");
    let frames = (0..50).map(|n| frame(BROADCAST, A, n)).collect::<Vec<_>>();
    let got = net.send_all("a", &frames);
    let most = 2 + begin.elapsed().as_secs();
    let passed = got.iter().filter(|(to, _)| *to == "b").count() as u64;
    assert!(passed <= most, "{passed} passed, at most {most} may");
    let reason = net.reason("tx_storm", "tx_switch_storm_broadcast");
    let dropped = net.dropped("a")[reason] - before.get(reason).unwrap_or(&0);
    assert_eq!(passed + dropped, 50, "{:?}", net.way);
}

#[test]
fn broadcasts_beyond_the_limit_are_dropped() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({"a": {"storm_limit_pps": 1}}));
        storm(&mut net);
        // It is no limit for others, nor for frames to one.
        let others = (0..50).map(|n| frame(BROADCAST, B, n)).collect::<Vec<_>>();
        assert_eq!(net.send_all("b", &others).len(), 150);
        let unicasts = (0..50).map(|n| frame(B, A, n)).collect::<Vec<_>>();
        assert_eq!(net.send_all("a", &unicasts).len(), 50);
        net.set("a", json!({"storm_limit_pps": null}));
        let all = (0..50).map(|n| frame(BROADCAST, A, n)).collect::<Vec<_>>();
        assert_eq!(net.send_all("a", &all).len(), 150);
        net.set("a", json!({"storm_limit_pps": 1}));
        storm(&mut net);
        net.assert_connected();
    });
}

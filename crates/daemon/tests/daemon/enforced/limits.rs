//! Rates and storm limits.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::json;
use vhost_user::Features;
use wire::virtio_net::{FLAG_NEEDS_CSUM, GSO_TCPV4, HEADER_LEN, NetHeader};

use crate::guest::Guest;
use crate::host::frame;
use crate::net::*;

/// Frames of 60 bytes that may exceed a rate at once: 16 KiB, a burst before they are counted, and
/// one in flight.
const AHEAD: f64 = 16384.0 + 128.0 * 60.0;

/// Sends from `a` to `b` until so many frames have arrived; returns bytes per second, without the
/// initial burst.
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
        // The others have no limit, and frames to `a` do not count as sent by it.
        let others = (0..200).map(|n| frame(A, B, n)).collect::<Vec<_>>();
        assert_eq!(net.send_all("b", &others).len(), 200);
        // A new limit replaces the old one: 6000 frames would exceed the timeout.
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
        // Removing one limit does not remove the other.
        net.set("a", json!({"min_tx_mbps": 200}));
        let told = net.get("/v1/adapters/a");
        assert_eq!((&told["min_tx_mbps"], &told["max_tx_mbps"]), (&json!(200), &json!(1000)));
        net.passes("a", &frame(B, A, 2), &["b"]);
    });
}

/// Nearly all of 50 broadcasts in a row, sent within seconds, are dropped.
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
    assert_eq!(passed + dropped, 50, "{:?}", net.tested);
}

#[test]
fn broadcasts_beyond_the_limit_are_dropped() {
    on_every_path(|way| {
        let mut net = Net::new(way, json!({"a": {"storm_limit_pps": 1}}));
        storm(&mut net);
        // Other senders and unicast frames are not limited.
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

/// Header and payload bytes of each segment of a [`large`] frame, and the number of segments.
const HEADERS: usize = 14 + 20 + 20;
const SIZE: usize = 10;
const SEGMENTS: usize = 100;

/// A guest that sends frames to be segmented, and accepts only segmented ones.
fn leaving() -> Guest {
    let usual = Features::VERSION_1 | Features::MRG_RXBUF | Features::EVENT_IDX;
    Guest::wanting(usual | Features::CSUM | Features::HOST_TSO4)
}

/// TCP to be segmented into [`SEGMENTS`], with its header.
fn large(dst: [u8; 6], src: [u8; 6]) -> ([u8; HEADER_LEN], Vec<u8>) {
    let header = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: (HEADERS as u16).into(),
        gso_size: (SIZE as u16).into(),
        csum_start: 34.into(),
        csum_offset: 16.into(),
        num_buffers: 0.into(),
    };
    let mut frame = [dst, src].concat();
    frame.extend([0x08, 0, 0x45, 0]);
    frame.extend((40 + (SEGMENTS * SIZE) as u16).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    frame.resize(HEADERS + SEGMENTS * SIZE, 0x5a);
    (header.to_bytes(), frame)
}

#[test]
fn a_maximum_holds_for_frames_as_they_are_on_a_wire() {
    on_every_path(|way| {
        // 10 Mbit/s are 1 250 000 bytes a second.
        let mut net = Net::with_guests(way, json!({"a": {"max_tx_mbps": 10}}), leaving);
        let (header, frame) = large(B, A);
        let begin = Instant::now();
        let (sent, in_flight) = (100, 4);
        let mut segments = 0;
        for _ in 0..sent {
            while net.guest("a").in_flight() >= in_flight {
                segments += net.guest("b").receive().len();
            }
            net.guest("a").send_with(header, &frame);
        }
        while net.guest("a").in_flight() > 0 {
            segments += net.guest("b").receive().len();
        }
        let seconds = begin.elapsed().as_secs_f64();
        segments += net.guest("b").receive().len();
        assert!(segments >= 2 * SEGMENTS, "{segments} segments arrived");
        let on_wire = SEGMENTS * (HEADERS + SIZE);
        // Frames of the initial burst, and one burst in flight.
        let ahead = 16384 + 2 * in_flight * on_wire;
        let kept = (sent * on_wire - ahead) as f64 / seconds;
        assert!(kept <= 1_250_000.0, "{way:?}: {kept} bytes a second");
    });
}

#[test]
fn each_segment_of_a_broadcast_is_one_at_each_receiver_that_has_it_cut() {
    on_every_path(|way| {
        let settings = json!({"a": {"storm_limit_pps": 100}});
        let mut net = Net::with_guests(way, settings, leaving);
        let begin = Instant::now();
        let (header, frame) = large(BROADCAST, A);
        net.guest("a").send_with(header, &frame);
        net.settle("a");
        let before = net.dropped("a");
        let frames = (0..50).map(|n| crate::host::frame(BROADCAST, A, n)).collect::<Vec<_>>();
        let got = net.send_all("a", &frames);
        // A burst of 10, 100 a second; `b`, `c` and the wire used up 300.
        let granted = 11 + (begin.elapsed().as_secs_f64() * 100.0) as usize;
        let passed = got.iter().filter(|(to, _)| *to == "b").count();
        assert!(passed <= granted.saturating_sub(300), "{way:?}: {passed} passed");
        let reason = net.reason("tx_storm", "tx_switch_storm_broadcast");
        let dropped = net.dropped("a")[reason] - before.get(reason).unwrap_or(&0);
        assert_eq!(passed as u64 + dropped, 50, "{way:?}");
    });
}

#[test]
fn copies_for_the_peers_of_a_tunnel_count() {
    on_every_path(|way| {
        let ip = |n: u8| IpAddr::from(Ipv4Addr::new(127, 86, way.lanes as u8, n));
        let port = UdpSocket::bind((ip(1), 0)).unwrap().local_addr().unwrap().port();
        let peers = [2, 3, 4].map(ip);
        let sockets = peers.map(|peer| UdpSocket::bind((peer, port)).unwrap());
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let far = json!({"name": "far", "vni": 7, "port": port, "local": ip(1), "peers": peers});
        let settings = json!({"a": {"storm_limit_pps": 100}, "switch": {"vxlan": [far]}});
        let mut net = Net::new(way, settings);
        let arrived = || {
            let one = |socket: &UdpSocket| socket.recv(&mut [0; 2048]).is_ok();
            sockets.iter().map(|socket| (0..).take_while(|_| one(socket)).count()).sum::<usize>()
        };
        arrived(); // frames sent before
        let begin = Instant::now();
        let (mut sent, mut copies) = (0, 0);
        while begin.elapsed() < Duration::from_millis(500) {
            for _ in 0..20 {
                net.guest("a").send(&frame(STRANGER, A, sent));
                sent += 1;
            }
            net.settle("a");
            copies += arrived();
        }
        // Two copies of each frame are beyond the first: a burst of 10, 100 a second, and those of
        // a burst that passed before they were counted.
        let granted = 10.0 + begin.elapsed().as_secs_f64() * 100.0;
        let most = 1.5 * granted + 3.0 * 11.0;
        assert!(copies > 0 && copies as f64 <= most, "{way:?}: {copies} of {sent}, at most {most}");
        let reason = net.reason("tx_storm", "tx_switch_storm_unknown");
        assert!(net.dropped("a")[reason] > 0, "{way:?}");
        // Frames with one receiver are not limited.
        let known = (0..50).map(|n| frame(B, A, n)).collect::<Vec<_>>();
        assert_eq!(net.send_all("a", &known).len(), 50);
        net.assert_connected();
    });
}

//! Ports, tables and holds that change while frames flow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge::PortId;
use bridge::nic::{NicConfig, Table};

use super::kit::*;

const VF0: PortId = PortId::vf(0);
const VF1: PortId = PortId::vf(1);

/// Changes that the other thread makes while traffic flows.
const CHANGES: usize = 200;

/// Runs `change` again and again in a thread of its own, and `traffic` until that is done.
fn under_traffic(mut change: impl FnMut(usize) + Send, mut traffic: impl FnMut()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..CHANGES {
                change(i);
                std::thread::sleep(Duration::from_micros(50));
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            traffic();
            std::thread::yield_now();
        }
    });
}

/// Receives frames; every number must be the next, or a later one if `gaps`.
fn check_order(guest: &mut Guest, next: &mut u32, gaps: bool) -> u32 {
    let frames = guest.receive();
    for frame in &frames {
        let number = number(frame);
        assert!(number >= *next && (gaps || number == *next), "{number} after {next}");
        *next = number + 1;
    }
    frames.len() as u32
}

#[test]
fn a_receive_ring_comes_and_goes_and_others_lose_nothing() {
    let bench = Bench::new(vec![plain(0), plain(1), plain(2)], 2);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    let mut c = Guest::new();
    let port = bench.vf(2);
    let rings = &mut c;
    let (mut sent, mut b_next) = (0, 0);
    under_traffic(
        move |i| match i % 2 {
            0 => rings.attach_receive(port, 0),
            _ => drop(port.detach_receive(0).expect("it was attached")),
        },
        || {
            // C's ring holds 256 frames and is never emptied: the rest is dropped, and counted.
            while a.in_flight() < 60 && sent - b_next < 100 {
                a.post(&frame(mac(1), mac(0), sent, 60));
                a.post(&frame(mac(2), mac(0), sent, 60));
                sent += 1;
            }
            a.flush();
            check_order(&mut b, &mut b_next, false);
        },
    );
    a.settle();
    check_order(&mut b, &mut b_next, false);
    assert_eq!(b_next, sent, "frames to VF 1 have nothing to do with VF 2");
    assert!(sent > 100);
    let arrived = check_order(&mut c, &mut 0, true);
    let dropped = bench.count("n/vf2", "rx_drop_down") + bench.count("n/vf2", "rx_drop_no_buffer");
    assert_eq!(u64::from(arrived) + dropped, u64::from(sent));
    bench.expect("n/vf2", "rx_frames", arrived.into());
    bench.expect("n/vf2", "rings_attached", 0);
}

#[test]
fn a_transmit_ring_comes_and_goes_and_loses_nothing() {
    let bench = Bench::new(vec![plain(0), plain(1)], 2);
    let [mut b] = bench.guests([VF1]);
    let mut a = Guest::new();
    let port = bench.vf(0);
    let (mut sent, mut next) = (0, 0);
    for _ in 0..CHANGES {
        // Frames posted while the ring is detached wait for its next owner.
        while a.in_flight() < 200 {
            a.send(&frame(mac(1), mac(0), sent, 60));
            sent += 1;
        }
        let before = next;
        a.attach_transmit(port, 0);
        until("the first frames", || {
            check_order(&mut b, &mut next, false);
            next > before
        });
        let mut ring = port.detach_transmit(0).expect("it was attached");
        // All frames taken were delivered, and none is forwarded now.
        let stopped = ring.stop();
        let done = a.pair.tx.used_len();
        std::thread::sleep(Duration::from_micros(100));
        assert_eq!((ring.stop(), a.pair.tx.used_len()), (stopped, done));
        assert!(port.detach_transmit(0).is_none());
        check_order(&mut b, &mut next, false);
    }
    a.attach_transmit(port, 0);
    a.attach_transmit(port, 0); // replaces the ring before
    a.settle();
    check_order(&mut b, &mut next, false);
    assert_eq!(next, sent);
}

#[test]
fn a_burst_sees_one_table() {
    let in_vlan = |vid| {
        let vfs = vec![Some(access(0, vid))];
        NicConfig { vfs, ..NicConfig::default() }
    };
    let bench = Bench::of(in_vlan(100), 1, 1);
    let [mut a, mut uplink] = bench.guests([VF0, PortId::UPLINK]);
    let tables = [200, 100].map(|vid| Table::build(&in_vlan(vid)).unwrap());
    let (mut sent, mut arrived) = (0, 0);
    let mut seen = [0; 2];
    let mut check = |uplink: &mut Guest, arrived: &mut u32| {
        for got in uplink.receive() {
            let plain = frame(OUTSIDE, mac(0), *arrived, 60);
            let vlans = [100, 200].map(|vid| tagged(&plain, 0x8100, vid));
            let vlan = vlans.iter().position(|whole| *whole == got);
            seen[vlan.expect("a frame in one of the two VLANs")] += 1;
            *arrived += 1;
        }
    };
    under_traffic(
        |i| bench.set_table(tables[i % 2].clone()),
        || {
            while sent - arrived < 150 {
                a.post(&frame(OUTSIDE, mac(0), sent, 60));
                sent += 1;
            }
            a.flush();
            check(&mut uplink, &mut arrived);
        },
    );
    a.settle();
    check(&mut uplink, &mut arrived);
    assert_eq!(arrived, sent);
    assert!(seen.iter().all(|n| *n > 0), "both tables were used: {seen:?}");
}

#[test]
fn a_function_that_goes_stops_its_port() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut a, mut b, mut uplink] = bench.guests([VF0, VF1, PortId::UPLINK]);
    let without = NicConfig { vfs: vec![Some(plain(0)), None], ..NicConfig::default() };
    bench.set_table(Table::build(&without).unwrap());
    b.send(&frame(mac(0), mac(1), 1, 60));
    b.settle();
    bench.expect("n/vf1", "tx_drop_no_function", 1);
    let out = frame(mac(1), mac(0), 1, 60);
    a.send(&out);
    assert_eq!(uplink.wait_for(1), [out]);
    assert!(a.receive().is_empty() && b.receive().is_empty());
}

#[test]
fn a_table_may_name_functions_without_a_port() {
    let bench = Bench::new(vec![plain(0)], 1);
    let [mut a, mut uplink] = bench.guests([VF0, PortId::UPLINK]);
    let more = NicConfig {
        pf: Some(plain(9)),
        vfs: (0..255).map(|n| (n != 9).then(|| plain(n as u8))).collect(),
        ..NicConfig::default()
    };
    bench.set_table(Table::build(&more).unwrap());
    let group = frame(wire::Mac::BROADCAST, mac(0), 1, 60);
    a.send(&frame(mac(200), mac(0), 0, 60));
    a.settle();
    bench.expect("n/vf0", "tx_drop_no_match", 1);
    a.send(&group);
    assert_eq!(uplink.wait_for(1), [group]);
}

#[test]
fn held_frames_wait_where_they_are() {
    let bench = Bench::new(vec![plain(0), plain(1)], 2);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    bench.fabric.pause_tx();
    assert!(bench.fabric.wait_tx_paused(std::time::Duration::from_secs(10)));
    for i in 0..100 {
        a.send(&frame(mac(1), mac(0), i, 60));
    }
    bench.wait_for_rounds(100);
    assert_eq!(a.in_flight(), 100);
    assert!(b.receive().is_empty());
    // Their receiver may detach and attach meanwhile.
    drop(bench.vf(1).detach_receive(0));
    bench.wait_for_rounds(2);
    b.attach_receive(bench.vf(1), 0);
    bench.fabric.resume_tx();
    let numbers: Vec<u32> = b.wait_for(100).iter().map(|frame| number(frame)).collect();
    assert!(numbers.into_iter().eq(0..100));
    bench.expect("n/vf1", "rx_drop_down", 0);
}

#[test]
fn an_injected_frame_reaches_its_vlan() {
    let vfs = vec![access(0, 100), access(1, 100), access(2, 200), plain(3)];
    let bench = Bench::new(vfs, 1);
    let nic = &bench.fabric.nics()[0];
    let ids = [0, 1, 2, 3].map(PortId::vf);
    let mut guests = bench.guests(ids);
    let mut uplink = Guest::new();
    uplink.attach(bench.uplink());
    let frame = wire::rarp::announcement(mac(0));
    assert_eq!(nic.inject(bench.vf(0), &frame), 2);
    assert_eq!(guests[1].wait_for(1), [frame]);
    assert_eq!(uplink.wait_for(1), [tagged(&frame, 0x8100, 100)]);
    assert_eq!(nic.inject(bench.vf(3), &frame), 1);
    assert_eq!(uplink.wait_for(1), [frame]);
    assert!(guests.iter_mut().all(|guest| guest.receive().is_empty()));
    // No receiver, or no such port.
    drop(bench.uplink().detach_receive(0));
    assert_eq!(nic.inject(bench.vf(3), &frame), 0);
    bench.expect("n/uplink", "rx_drop_down", 1);
}

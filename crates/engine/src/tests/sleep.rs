//! Sleep of lanes: wake-ups, and events that must not keep them awake.

use std::time::Duration;

use bridge::PortId;
use virtq::Features;

use super::kit::*;

const VF0: PortId = PortId::vf(0);
const VF1: PortId = PortId::vf(1);

/// Features of every kind of event suppression.
fn suppressions() -> impl Iterator<Item = Features> {
    let packed = [Features::empty(), Features::PACKED];
    packed.into_iter().flat_map(|kind| [kind, kind | Features::EVENT_IDX])
}

#[test]
fn a_kick_wakes_a_sleeping_lane() {
    for features in suppressions() {
        let bench = Bench::new(vec![plain(0), plain(1)], 2);
        let shape = Shape { features, ..Shape::default() };
        let (mut a, mut b) = (Guest::with(shape), Guest::with(shape));
        a.attach(bench.vf(0));
        b.attach(bench.vf(1));
        for i in 0..5 {
            bench.wait_for_sleep();
            let there = frame(mac(1), mac(0), i, 60);
            assert!(a.send(&there), "a lane that sleeps must have asked for a kick");
            assert_eq!(b.wait_for(1), [there]);
            bench.wait_for_sleep();
            let back = frame(mac(0), mac(1), i, 60);
            assert!(b.send(&back));
            assert_eq!(a.wait_for(1), [back]);
        }
    }
}

#[test]
fn an_attachment_wakes_a_sleeping_lane() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut b] = bench.guests([VF1]);
    for i in 0..5 {
        bench.wait_for_sleep();
        // Posted before there is anyone to kick.
        let mut a = Guest::new();
        let early = frame(mac(1), mac(0), i, 60);
        a.post(&early);
        a.pair.tx.publish();
        a.attach(bench.vf(0));
        assert_eq!(b.wait_for(1), [early]);
    }
}

#[test]
fn a_silent_lane_sleeps_and_a_busy_one_asks_for_no_kicks() {
    for features in suppressions() {
        // Long enough that on a busy machine, too, a guest has its turn before the lane sleeps.
        let bench = Bench::patient(vec![plain(0), plain(1)], Duration::from_millis(500));
        let [mut b] = bench.guests([VF1]);
        let mut a = Guest::with(Shape { features, ..Shape::default() });
        a.attach(bench.vf(0));
        bench.wait_for_sleep();
        assert!(bench.count("0", "sleeps") > 0);
        // Awake at last after the first of these, it needs no kick for some of the later ones.
        until("a frame that needs no kick", || {
            let kicked = a.send(&frame(mac(1), mac(0), 0, 60));
            a.settle();
            b.receive();
            !kicked
        });
    }
}

#[test]
fn a_broken_transmit_ring_lets_its_lane_sleep_and_others_go_on() {
    let bench = Bench::new(vec![plain(0), plain(1), plain(2)], 1);
    let [mut bad, mut a, mut b] = bench.guests([VF0, VF1, PortId::vf(2)]);
    // Buffers before the one that breaks the rules are still forwarded.
    let last = frame(mac(2), mac(0), 1, 60);
    bad.post(&last);
    bad.break_transmit();
    assert_eq!(b.wait_for(1), [last]);
    bench.expect("n/vf0", "tx_fault_outside_memory", 1);
    until("the front-end to be told", || is_signalled(&bad.pair.error));
    bench.wait_for_sleep();
    for i in 0..200 {
        bad.send(&frame(mac(2), mac(0), 2, 60)); // must not wake a lane
        bad.pair.kick();
        let good = frame(mac(2), mac(1), i, 60);
        a.send(&good);
        assert_eq!(b.wait_for(1), [good]);
    }
    bench.wait_for_sleep();
    assert_eq!(bad.in_flight(), 201, "nothing more is taken from a broken ring");
    assert!(!is_signalled(&bad.pair.error), "it is said once");
    let faults = bench.vf(0).faults();
    assert_eq!(faults, [("transmit", virtq::Fault::OutsideMemory, 1)]);
    assert!(bench.vf(1).faults().is_empty());

    // A new guest on the same port has no fault.
    let mut new = Guest::new();
    new.attach(bench.vf(0));
    let good = frame(mac(2), mac(0), 3, 60);
    new.send(&good);
    assert_eq!(b.wait_for(1), [good]);
}

#[test]
fn a_ring_without_a_kick_is_polled_until_it_is_broken() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut b] = bench.guests([VF1]);
    let mut a = Guest::new();
    a.attach_receive(bench.vf(0), 0);
    a.attach_transmit_with(bench.vf(0), 0, None);
    for i in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(1)); // else the lane would be awake anyway
        let there = frame(mac(1), mac(0), i, 60);
        a.post(&there);
        a.pair.tx.publish();
        assert_eq!(b.wait_for(1), [there]);
    }
    a.break_transmit();
    until("the front-end to be told", || is_signalled(&a.pair.error));
    bench.wait_for_sleep();
}

#[test]
fn a_broken_receive_ring_disturbs_no_other_guest() {
    let bench = Bench::new(vec![plain(0), plain(1), plain(2)], 1);
    let [mut a, mut b] = bench.guests([VF0, PortId::vf(2)]);
    let mut bad = Guest::empty(Shape::default());
    bad.pair.refill_with(1);
    bad.break_receive();
    bad.attach(bench.vf(1));
    for i in 0..100 {
        let group = frame(wire::Mac::BROADCAST, mac(0), i, 60);
        a.send(&frame(mac(1), mac(0), i, 60));
        a.send(&group);
        assert_eq!(b.wait_for(1), [group]);
    }
    a.settle();
    assert_eq!(bad.frames().len(), 1, "the one buffer before the bad one");
    bench.expect("n/vf1", "rx_drop_no_buffer", 199);
    bench.expect("n/vf1", "rx_fault_outside_memory", 1);
    until("the front-end to be told", || is_signalled(&bad.pair.error));
    // Its other ring still works.
    let good = frame(mac(2), mac(1), 7, 60);
    bad.send(&good);
    assert_eq!(b.wait_for(1), [good]);
    bench.wait_for_sleep();
}

/// Sleeps of the lane.
fn sleeps(bench: &Bench) -> u64 {
    bench.count("0", "sleeps")
}

#[test]
fn a_sender_over_its_limit_lets_its_lane_sleep() {
    for features in suppressions() {
        let limited = bridge::nic::Function {
            share: bridge::nic::Share { max_mbit: 1, ..bridge::nic::Share::default() },
            ..plain(0)
        };
        let bench = Bench::new(vec![limited, plain(1), plain(2)], 1);
        let [mut b, mut c] = bench.guests([VF1, PortId::vf(2)]);
        let mut a = Guest::with(Shape { features, ..Shape::default() });
        a.attach(bench.vf(0));
        bench.wait_for_sleep();
        let before = sleeps(&bench);
        // The first burst is a debt of half a second and more.
        for i in 0..80 {
            a.post(&frame(mac(2), mac(0), i, 1500));
        }
        a.flush();
        // A kick of another wakes the lane meanwhile.
        for i in 0..20 {
            let there = frame(mac(0), mac(1), i, 60);
            b.send(&there);
            assert_eq!(a.wait_for(1), [there]);
            bench.wait_for_sleep();
        }
        let numbers: Vec<u32> = c.wait_for(80).iter().map(|frame| number(frame)).collect();
        assert!(numbers.into_iter().eq(0..80));
        assert!(sleeps(&bench) > before + 10, "it sleeps while frames wait");
        bench.wait_for_sleep();
    }
}

#[test]
fn a_closed_budget_lets_its_lane_sleep_and_others_wake_it() {
    let mut net = Net::new(2, 1, 1);
    let capacity =
        bridge::nic::Capacity { packets_per_second: Some(1), ..bridge::nic::Capacity::default() };
    let budget = bridge::nic::Budget::new(capacity, crate::lane::clock::now_ns());
    net.budget = Some(std::sync::Arc::new(std::sync::Mutex::new(budget)));
    let adapters = [Path::Vf, Path::Vf].map(Adapter::plain);
    net.apply(&adapters);
    let mut guests = net.guests();
    // Another NIC on the same lane.
    let nic = net.bench.fabric.add_nic("other");
    let ports = [0, 1].map(|n| net.bench.fabric.add_port(&nic, &format!("o/{n}"), 1).unwrap());
    let config = bridge::nic::NicConfig {
        vfs: vec![Some(plain(0)), Some(plain(1))],
        ..bridge::nic::NicConfig::default()
    };
    let plug = |n: u8| crate::Plug {
        port: ports[usize::from(n)].clone(),
        location: crate::PortLocation::Function(PortId::vf(n)),
        share: bridge::nic::Share::default(),
    };
    let table = bridge::nic::Table::build(&config).unwrap();
    nic.set_snapshot(crate::ForwardingSnapshot::new(crate::SnapshotSpec::new(
        table,
        vec![plug(0), plug(1)],
    )));
    let [mut a, mut b] = [Guest::new(), Guest::new()];
    a.attach(&ports[0]);
    b.attach(&ports[1]);

    for i in 0..200 {
        guests[0].post(&frame(mac(1), mac(0), i, 60));
    }
    guests[0].flush();
    until("frames to pass", || guests[0].in_flight() < 200);
    let before = sleeps(&net.bench);
    until("the lane to sleep and to look again", || sleeps(&net.bench) > before + 5);
    assert!(guests[0].in_flight() > 0, "they wait for minutes");
    for i in 0..50 {
        let there = frame(mac(1), mac(0), i, 60);
        a.send(&there);
        assert_eq!(b.wait_for(1), [there]);
    }
    // Without the budget the frames pass.
    net.budget = None;
    net.apply(&adapters);
    guests[0].settle();
    assert_eq!(guests[1].receive().len(), 200);
    net.bench.wait_for_sleep();
}

#[test]
fn a_new_snapshot_brings_no_new_tokens() {
    let share = bridge::nic::Share { max_mbit: 1, ..bridge::nic::Share::default() };
    let limited = bridge::nic::Function { share, ..plain(0) };
    let quiet = bridge::nic::Function { storm_limit: 1, ..plain(1) };
    let vfs = vec![Some(limited), Some(quiet)];
    let config = bridge::nic::NicConfig { vfs, ..bridge::nic::NicConfig::default() };
    let bench = Bench::of(config.clone(), 1, 1);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    let start = std::time::Instant::now();
    for i in 0..100 {
        a.post(&frame(mac(1), mac(0), i, 1500));
    }
    a.flush();
    until("the first burst", || a.in_flight() < 100);
    for i in 0..50 {
        bench.set_table(bridge::nic::Table::build(&config).unwrap());
        bench.wait_for_rounds(2);
        b.send(&frame(wire::Mac::BROADCAST, mac(1), i, 60));
        b.settle();
    }
    // The burst overdrew the bucket by two thirds of a second's worth, and of groups one may pass
    // in a second.
    let is_early = start.elapsed() < Duration::from_millis(500);
    let (groups, passed) = (a.receive().len(), b.receive().len());
    assert!(passed >= port::BURST && groups >= 1);
    assert!(!is_early || (groups, passed) == (1, port::BURST), "{groups} and {passed} passed");
}

#[test]
fn the_longest_time_between_two_rounds_is_counted() {
    let bench = Bench::patient(vec![plain(0), plain(1)], Duration::from_secs(3600));
    let [_a, _b] = bench.guests([VF0, VF1]);
    bench.wait_for_rounds(10);
    let held = Duration::from_millis(50);
    // The lane waits for the lock of this ring.
    let silence = bench.vf(0).lock_transmit(0);
    std::thread::sleep(2 * held);
    drop(silence);
    let held_ns = held.as_nanos() as u64;
    until("the gap to be counted", || bench.lanes("poll_gap_ns_max") >= held_ns);
}

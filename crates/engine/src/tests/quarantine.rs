//! Ports in quarantine after their guests' memory stalled a lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge::PortId;
use host::stall::Stall;

use super::kit::*;
use crate::{Port, QuarantineNews};

const VF0: PortId = PortId::vf(0);
const VF1: PortId = PortId::vf(1);
const STOOD: Duration = Duration::from_millis(5);

fn owner(port: &Arc<Port>) -> Option<u32> {
    Some(port.id)
}

/// Ports taken off by the last stalls, with their quiet times.
fn begun(bench: &Bench) -> Vec<(String, u64)> {
    let begun = |news| match news {
        QuarantineNews::Begun { port, quiet, .. } => Some((port, quiet.as_secs())),
        _ => None,
    };
    bench.fabric.take_quarantine_news(usize::MAX).into_iter().filter_map(begun).collect()
}

/// One stall of a lane, from begin to end.
fn stall(bench: &Bench, stall: Stall) -> Vec<(String, u64)> {
    let now = Instant::now();
    bench.fabric.quarantine.charge("0", stall, false, now);
    bench.fabric.quarantine.end_stall("0", STOOD, false, now);
    begun(bench)
}

fn wait_for_return(bench: &Bench, ports: usize) {
    let mut ended = 0;
    until("ports to come back", || {
        let news = bench.fabric.take_quarantine_news(usize::MAX);
        ended += news.iter().filter(|it| matches!(it, QuarantineNews::Ended { .. })).count();
        ended >= ports
    });
}

/// Frames both ways, of all sizes.
fn exchange(a: &mut Guest, b: &mut Guest, numbers: std::ops::Range<u32>) {
    for i in numbers {
        let len = 18 + (i as usize * 97) % 1490;
        let (there, back) = (frame(mac(1), mac(0), i, len), frame(mac(0), mac(1), i, len));
        a.send(&there);
        b.send(&back);
        assert_eq!(b.wait_for(1), [there]);
        assert_eq!(a.wait_for(1), [back]);
    }
}

#[test]
fn ports_in_quarantine_are_served_by_their_own_lane_and_come_back() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    exchange(&mut a, &mut b, 0..10);
    assert_eq!(bench.count("quarantine", "frames"), 0);
    let both = Stall { source: owner(bench.vf(0)), target: owner(bench.vf(1)) };
    let begun = stall(&bench, both);
    assert_eq!(begun, [("n/vf0".to_owned(), 1), ("n/vf1".to_owned(), 1)]);
    let on_lane = bench.count("0", "frames");
    exchange(&mut a, &mut b, 10..60);
    assert_eq!(bench.count("quarantine", "frames"), 100);
    assert_eq!(bench.count("0", "frames"), on_lane);
    bench.expect("n/vf0", "rx_frames", 60);
    bench.expect("n/vf1", "quarantines", 1);
    wait_for_return(&bench, 2);
    exchange(&mut a, &mut b, 60..70);
    bench.expect("0", "frames", on_lane + 20);
    bench.expect("n/vf1", "rx_frames", 70);
}

#[test]
fn frames_keep_their_order_while_ports_go_and_come_back() {
    const IN_FLIGHT: u32 = 16;
    let bench = Bench::new(vec![plain(0), plain(1)], 2);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    let both = Stall { source: owner(bench.vf(0)), target: owner(bench.vf(1)) };
    stall(&bench, both);
    let (mut sent, mut received, mut ended) = (0, 0, 0);
    until("both to come back", || {
        while sent - received < IN_FLIGHT {
            a.send(&frame(mac(1), mac(0), sent, 60));
            sent += 1;
        }
        for bytes in b.receive() {
            assert_eq!(number(&bytes), received, "lost, duplicated or reordered");
            received += 1;
        }
        let news = bench.fabric.take_quarantine_news(usize::MAX);
        ended += news.iter().filter(|it| matches!(it, QuarantineNews::Ended { .. })).count();
        ended == 2
    });
    for bytes in b.wait_for((sent - received) as usize) {
        assert_eq!(number(&bytes), received);
        received += 1;
    }
    assert!(bench.count("quarantine", "frames") > 0);
}

#[test]
fn a_session_that_starts_in_quarantine_is_served_there() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [a, mut b] = bench.guests([VF0, VF1]);
    stall(&bench, Stall { source: owner(bench.vf(0)), target: None });
    bench.vf(0).detach_all();
    drop(a);
    let [mut a] = bench.guests([VF0]);
    assert!(bench.vf(0).is_attached());
    exchange(&mut a, &mut b, 0..10);
    assert_eq!(bench.count("quarantine", "frames"), 10, "what the one in quarantine sent");
    bench.vf(0).detach_all();
    assert!(!bench.vf(0).is_attached());
    bench.expect("n/vf0", "rings_attached", 0);
}

#[test]
fn a_port_is_removed_while_it_is_in_quarantine() {
    let mut bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [_a, mut b] = bench.guests([VF0, VF1]);
    let (nic, port) = (bench.fabric.nics()[0].clone(), bench.vf(0).clone());
    stall(&bench, Stall { source: owner(&port), target: None });
    b.send(&frame(mac(0), mac(1), 1, 60));
    b.settle();
    bench.fabric.remove_port(&nic, &port);
    assert!(stall(&bench, Stall { source: owner(&port), target: None }).is_empty());
    b.send(&frame(mac(0), mac(1), 2, 60));
    b.settle();
}

#[test]
fn a_port_without_memory_of_a_guest_is_charged_nothing() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [_a] = bench.guests([VF0]);
    let (known, other) = (owner(bench.vf(0)), owner(bench.uplink()));
    assert_eq!(stall(&bench, Stall { source: other, target: None }), []);
    let begun = stall(&bench, Stall { source: other, target: known });
    assert_eq!(begun, [("n/vf0".to_owned(), 1)]);
}

#[test]
fn quiet_times_grow_for_the_one_that_all_stalls_have_in_common() {
    let bench = Bench::new(vec![plain(0), plain(1), plain(2)], 1);
    let _guests = bench.guests([VF0, VF1, PortId::vf(2)]);
    let [a, b, c] = [0, 1, 2].map(|n| owner(bench.vf(n)));
    let mut times = Vec::new();
    for (source, target) in [(a, b), (a, b), (c, b)] {
        times.push(stall(&bench, Stall { source, target }));
        bench.fabric.quarantine.release_all();
    }
    let vf = |n: u8, quiet: u64| (format!("n/vf{n}"), quiet);
    // Both grow, until one of them stalled a lane together with another.
    let expected = [[vf(0, 1), vf(1, 1)], [vf(0, 2), vf(1, 2)], [vf(2, 1), vf(1, 4)]];
    assert_eq!(times, expected);
    assert_eq!(stall(&bench, Stall { source: a, target: b }), [vf(0, 1), vf(1, 8)]);
    bench.fabric.quarantine.release_all();
    // Off the lanes the target alone is touched.
    let (now, both) = (Instant::now(), Stall { source: c, target: b });
    bench.fabric.quarantine.charge("quarantine", both, true, now);
    assert_eq!(begun(&bench), [vf(1, 16)]);
    bench.fabric.quarantine.end_stall("quarantine", STOOD, true, now);
}

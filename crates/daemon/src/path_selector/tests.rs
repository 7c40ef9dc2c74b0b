//! Choice, hysteresis and rate limit.

use proptest::prelude::*;

use super::*;

const NORTH_SOUTH: TrafficSample = traffic(100_000, 1500, 100);
const EAST_WEST: TrafficSample = traffic(100_000, 1500, 0);

/// One second of this many frames of that size, with this share to and from the wire.
const fn traffic(frames: u64, size: u64, wire_percent: u64) -> TrafficSample {
    let half = FrameCount { frames: frames / 2, bytes: frames / 2 * size };
    let wire = frames / 2 * wire_percent / 100;
    let wire = FrameCount { frames: wire, bytes: wire * size };
    TrafficSample {
        interval_ms: 1000,
        sent: half,
        received: half,
        sent_to_wire: wire,
        received_from_wire: wire,
    }
}

/// Decisions over a number of intervals of the same traffic.
fn over(
    selector: &mut PathSelector,
    traffic: TrafficSample,
    intervals: usize,
) -> Vec<PathDecision> {
    (0..intervals).filter_map(|_| selector.observe("web", &traffic)).collect()
}

#[test]
fn traffic_between_guests_goes_to_the_switch_and_that_to_the_wire_to_a_vf() {
    let mut selector = PathSelector::default();
    assert_eq!(over(&mut selector, NORTH_SOUTH, 20), [], "it has a VF");
    assert_eq!(over(&mut selector, EAST_WEST, 4), [], "too soon");
    let decisions = over(&mut selector, EAST_WEST, 1);
    assert_eq!(
        (decisions.len(), decisions[0].to, decisions[0].suppressed),
        (1, PathInForce::Synthetic, false)
    );
    assert_eq!(selector.suited()["web"], PathInForce::Synthetic);
    let text = decisions[0].to_string();
    assert_eq!(
        text,
        "vf -> synthetic: 0 % of its frames go to or from the wire (under 30 % for 5 intervals), \
         100000 frames/s of 1500 bytes"
    );
    assert_eq!(over(&mut selector, EAST_WEST, 20), []);
    let back = over(&mut selector, NORTH_SOUTH, 20);
    assert_eq!((back.len(), back[0].to), (1, PathInForce::Vf));
    assert!(back[0].to_string().contains("100 % of its frames go to or from the wire (over 70 %"));
}

#[test]
fn little_small_and_mixed_traffic_stays() {
    for (what, traffic) in [
        ("little", traffic(9_000, 1500, 0)),
        ("nothing", traffic(0, 0, 0)),
        ("small", traffic(1_000_000, 64, 0)),
        ("mixed", traffic(100_000, 1500, 30)),
        ("mixed", traffic(100_000, 1500, 70)),
        ("no interval", TrafficSample { interval_ms: 0, ..EAST_WEST }),
    ] {
        for path in [PathInForce::Vf, PathInForce::Synthetic] {
            let mut selector = PathSelector::default();
            selector.resume("web", path);
            assert_eq!(over(&mut selector, traffic, 50), [], "{what}");
        }
    }
    let mut selector = PathSelector::default();
    selector.resume("web", PathInForce::Synthetic);
    assert_eq!(over(&mut selector, traffic(100_000, 64, 100), 50).len(), 1, "VFs win at any size");
}

#[test]
fn a_break_begins_the_count_anew() {
    let mut selector = PathSelector::default();
    for _ in 0..10 {
        assert_eq!(over(&mut selector, EAST_WEST, 4), []);
        assert_eq!(over(&mut selector, traffic(10, 1500, 0), 1), []);
    }
}

#[test]
fn too_many_changes_are_told_once_and_end_with_the_window() {
    let rules = PathRules { changes_max: 2, window_ms: 60_000, ..PathRules::default() };
    let mut selector = PathSelector::new(rules);
    assert_eq!(over(&mut selector, EAST_WEST, 5).len(), 1); // at 5 s
    assert_eq!(over(&mut selector, NORTH_SOUTH, 5).len(), 1); // at 10 s
    let suppressed = over(&mut selector, EAST_WEST, 50);
    assert_eq!((suppressed.len(), suppressed[0].suppressed), (1, true));
    assert!(suppressed[0].to_string().contains("suppressed, at most 2 changes in 1 min"));
    assert_eq!(selector.suited()["web"], PathInForce::Vf);
    let at_last = over(&mut selector, EAST_WEST, 5); // at 65 s the first is out of the window
    assert_eq!((at_last.len(), at_last[0].suppressed), (1, false));
}

#[test]
fn adapters_do_not_know_of_each_other() {
    let mut selector = PathSelector::default();
    for _ in 0..5 {
        selector.observe("a", &EAST_WEST);
        selector.observe("b", &NORTH_SOUTH);
    }
    let suited = selector.suited();
    assert_eq!((suited["a"], suited["b"]), (PathInForce::Synthetic, PathInForce::Vf));
    selector.retain(|name| name == "b");
    assert_eq!(selector.suited().len(), 1);
}

fn any_traffic() -> impl Strategy<Value = TrafficSample> {
    let amount = || {
        (0u64..1_000_000, 0u64..1_000_000_000)
            .prop_map(|(frames, bytes)| FrameCount { frames, bytes })
    };
    (0u64..5_000, amount(), amount(), amount(), amount()).prop_map(
        |(interval_ms, sent, received, sent_to_wire, received_from_wire)| TrafficSample {
            interval_ms,
            sent,
            received,
            sent_to_wire,
            received_from_wire,
        },
    )
}

proptest! {
    #[test]
    fn constant_traffic_changes_a_path_once_at_most(traffic in any_traffic(), from_switch: bool) {
        let mut selector = PathSelector::default();
        if from_switch {
            selector.resume("web", PathInForce::Synthetic);
        }
        prop_assert!(over(&mut selector, traffic, 100).len() <= 1);
    }

    /// For any traffic: a bounded number of changes per window, a minimum distance between them,
    /// and each to another path.
    #[test]
    fn changes_are_bounded(
        all in prop::collection::vec((any_traffic(), 1usize..12), 1..60),
        alternating: bool,
        changes_max in 0usize..4,
        intervals in 1u32..6,
        window_ms in 1_000u64..100_000,
    ) {
        let rules = PathRules { changes_max, intervals, window_ms, ..PathRules::default() };
        let mut selector = PathSelector::new(rules);
        let (mut now_ms, mut at) = (0, 0u32);
        let mut changes: Vec<(u64, u32, PathInForce)> = Vec::new();
        for (i, (traffic, times)) in all.into_iter().enumerate() {
            let traffic = match alternating {
                true => [EAST_WEST, NORTH_SOUTH][i % 2],
                false => traffic,
            };
            for _ in 0..times {
                at += 1;
                now_ms += traffic.interval_ms;
                if let Some(decision) = selector.observe("web", &traffic).filter(|one| !one.suppressed) {
                    changes.push((now_ms, at, decision.to));
                }
            }
        }
        for (i, (when, at, to)) in changes.iter().enumerate() {
            let within = changes[..=i].iter().filter(|(other, ..)| when - other < window_ms);
            prop_assert!(within.count() <= changes_max.max(1));
            prop_assert!(changes_max > 0);
            let before = i.checked_sub(1).map_or((0, PathInForce::Vf), |i| (changes[i].1, changes[i].2));
            prop_assert!(at - before.0 >= intervals);
            prop_assert_ne!(*to, before.1);
        }
    }

    #[test]
    fn no_counts_are_too_large(frames: u64, bytes: u64, wire: u64, interval_ms: u64) {
        let amount = FrameCount { frames, bytes };
        let wire = FrameCount { frames: wire, bytes };
        let traffic = TrafficSample { interval_ms, sent: amount, received: amount, sent_to_wire: wire, received_from_wire: wire };
        prop_assert!(traffic.profile().wire_permille <= 1000);
        PathSelector::default().observe("web", &traffic);
    }
}

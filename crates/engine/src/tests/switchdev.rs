//! Switchdev mode: the pipes between functions and representors, and the rules that lead off them.

use std::sync::Arc;

use bridge::PortId;
use bridge::matching::{MacPrefix, Match};
use bridge::nic::{LinkState, NicConfig, PortVlan, Rule, RuleTarget, Table, VlanProtocol};
use wire::{Mac, Vid};

use super::kit::*;
use crate::RuleHits;

const VF0: PortId = PortId::vf(0);
const VF1: PortId = PortId::vf(1);

/// An uplink and two VFs.
pub(super) fn config(rules: Vec<Rule>) -> NicConfig {
    let vfs = vec![Some(plain(0)), Some(plain(1))];
    NicConfig { vfs, switchdev: Some(rules), ..NicConfig::default() }
}

pub(super) fn rule(from: PortId, dst: Mac, to: RuleTarget) -> Rule {
    let dst_mac = Some(MacPrefix { mac: dst, len: 48 });
    Rule { from, matches: Match { dst_mac, ..Match::default() }, to, pop: false, push: None }
}

fn representor(bench: &Bench, of: PortId) -> Guest {
    let guest = Guest::new();
    guest.attach(bench.representor(of));
    guest
}

/// Puts rules in force, with counters of their own.
pub(super) fn apply(bench: &Bench, config: &NicConfig) -> Vec<Arc<RuleHits>> {
    let rules = config.switchdev.as_ref().map_or(0, Vec::len);
    let hits: Vec<Arc<RuleHits>> = (0..rules).map(|_| Arc::default()).collect();
    bench.set_rules(Table::build(config).unwrap(), hits.clone());
    hits
}

#[test]
fn a_pipe_carries_all_frames_both_ways_and_to_no_other_port() {
    for lanes in [1, 2] {
        let bench = Bench::of(config(Vec::new()), lanes, 1);
        let ends = [PortId::UPLINK, VF0, VF1];
        let mut far = bench.guests(ends);
        let mut near = ends.map(|of| representor(&bench, of));
        for (at, src) in [(0, OUTSIDE), (1, mac(0)), (2, mac(1))] {
            // To a neighbour, to all, to an unknown address: the host switches.
            for (i, dst) in [mac(1), mac(0), Mac::BROADCAST, OUTSIDE].into_iter().enumerate() {
                let there = frame(dst, src, i as u32, 60 + i);
                far[at].send(&there);
                assert_eq!(near[at].wait_for(1), [&there[..]]);
                let back = tagged(&frame(src, dst, i as u32, 100), 0x8100, 7);
                near[at].send(&back);
                assert_eq!(far[at].wait_for(1), [&back[..]]);
            }
        }
        for guest in far.iter_mut().chain(&mut near) {
            guest.settle();
            assert!(guest.receive().is_empty());
        }
        bench.expect("n/vf0", "tx_frames", 4);
        bench.expect("n/vf0-rep", "rx_frames", 4);
    }
}

#[test]
fn rules_lead_off_the_pipe_and_count() {
    let vlan = PortVlan { vid: Vid::new(9).unwrap(), qos: 2, protocol: VlanProtocol::Ieee8021Q };
    let push = Rule { push: Some(vlan), ..rule(VF0, OUTSIDE, RuleTarget::Port(PortId::UPLINK)) };
    let pop = Rule { pop: true, ..rule(PortId::UPLINK, mac(0), RuleTarget::Port(VF0)) };
    let rules = vec![
        rule(VF0, mac(1), RuleTarget::Port(VF1)),
        push,
        pop,
        rule(VF0, Mac::BROADCAST, RuleTarget::Drop),
        rule(VF1, mac(0), RuleTarget::Representor),
    ];
    let config = config(rules);
    let bench = Bench::of(config.clone(), 1, 1);
    let hits = apply(&bench, &config);
    let [mut a, mut b, mut wire] = bench.guests([VF0, VF1, PortId::UPLINK]);
    let [mut rep_a, mut rep_b] = [VF0, VF1].map(|of| representor(&bench, of));

    // One burst, of which each goes its own way.
    let frames = [mac(1), OUTSIDE, Mac::BROADCAST, mac(7), mac(1)];
    let frames: Vec<Vec<u8>> =
        frames.iter().zip(0..).map(|(dst, i)| frame(*dst, mac(0), i, 64)).collect();
    frames.iter().for_each(|it| a.post(it));
    a.flush();
    assert_eq!(b.wait_for(2), [&frames[0][..], &frames[4][..]]);
    assert_eq!(wire.wait_for(1), [tagged(&frames[1], 0x8100, 0x4009)]);
    assert_eq!(rep_a.wait_for(1), [&frames[3][..]]);

    let inner = frame(mac(0), OUTSIDE, 1, 60);
    for sent in [tagged(&inner, 0x88a8, 5), inner.clone()] {
        wire.send(&sent);
        assert_eq!(a.wait_for(1), [&inner[..]], "without a tag, whether it had one or not");
    }
    let back = frame(mac(0), mac(1), 1, 60);
    b.send(&back);
    assert_eq!(rep_b.wait_for(1), [&back[..]]);
    a.settle();

    let counted: Vec<(u64, u64)> = hits.iter().map(|hits| hits.get()).collect();
    assert_eq!(counted, [(2, 128), (1, 64), (2, 124), (1, 64), (1, 60)]);
    bench.expect("n/vf0", "tx_drop_rule", 1);
    bench.expect("n/vf0", "tx_uplink_frames", 1);
    bench.expect("n/vf0", "rx_uplink_frames", 2);
}

#[test]
fn frames_of_the_host_match_no_rule() {
    let config =
        config(vec![rule(VF0, mac(1), RuleTarget::Drop), rule(VF1, mac(1), RuleTarget::Drop)]);
    let bench = Bench::of(config.clone(), 1, 1);
    let hits = apply(&bench, &config);
    let [mut b] = bench.guests([VF1]);
    let mut rep = representor(&bench, VF1);
    let there = frame(mac(1), mac(0), 1, 60);
    rep.send(&there);
    assert_eq!(b.wait_for(1), [there]);
    assert!(hits.iter().all(|hits| hits.get() == (0, 0)));
}

#[test]
fn a_link_that_is_down_takes_nothing_from_either_end_nor_by_a_rule() {
    let mut config = config(vec![rule(VF0, mac(1), RuleTarget::Port(VF1))]);
    config.vfs[1].as_mut().unwrap().link = LinkState::Disable;
    let bench = Bench::of(config.clone(), 1, 1);
    let hits = apply(&bench, &config);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    let mut rep = representor(&bench, VF1);
    a.send(&frame(mac(1), mac(0), 1, 60));
    rep.send(&frame(mac(1), mac(0), 2, 60));
    b.send(&frame(mac(0), mac(1), 3, 60));
    [&mut a, &mut b, &mut rep].into_iter().for_each(Guest::settle);
    for label in ["n/vf0", "n/vf1", "n/vf1-rep"] {
        bench.expect(label, "tx_drop_link_down", 1);
    }
    assert_eq!(hits[0].get(), (1, 60), "it was matched all the same");
    assert!([a, b, rep].iter_mut().all(|guest| guest.receive().is_empty()));
}

#[test]
fn limits_and_checks_of_the_sender_hold() {
    let mut config = config(Vec::new());
    config.vfs[0].as_mut().unwrap().storm_limit = 10;
    let bench = Bench::of(config.clone(), 1, 1);
    let [mut a] = bench.guests([VF0]);
    let mut rep = representor(&bench, VF0);
    a.send(&frame(mac(1), mac(5), 0, 60));
    for i in 0..20 {
        a.post(&frame(Mac::BROADCAST, mac(0), i, 60));
    }
    a.flush();
    a.settle();
    bench.expect("n/vf0", "tx_drop_spoofed_mac", 1);
    let stopped = bench.count("n/vf0", "tx_drop_storm");
    assert!((9..=19).contains(&stopped), "{stopped}");
    assert_eq!(rep.receive().len() as u64, 20 - stopped);
}

#[test]
fn rules_change_while_frames_flow_and_none_is_lost_or_doubled() {
    let with = config(vec![rule(VF0, mac(1), RuleTarget::Port(VF1))]);
    let without = config(Vec::new());
    let bench = Bench::of(without.clone(), 2, 1);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    let mut rep = representor(&bench, VF0);
    let (mut hits, mut direct, mut slow) = (Vec::<Arc<RuleHits>>::new(), Vec::new(), Vec::new());
    for i in 0..2000 {
        if i % 50 == 0 {
            let config = if i % 100 == 0 { &with } else { &without };
            hits.extend(apply(&bench, config));
        }
        until("room in the ring", || a.in_flight() < 64);
        a.send(&frame(mac(1), mac(0), i, 60));
        direct.extend(b.receive().iter().map(|it| number(it)));
        slow.extend(rep.receive().iter().map(|it| number(it)));
    }
    a.settle();
    direct.extend(b.receive().iter().map(|it| number(it)));
    slow.extend(rep.receive().iter().map(|it| number(it)));
    assert!(direct.is_sorted() && slow.is_sorted(), "none overtakes another on its way");
    let counted: u64 = hits.iter().map(|hits| hits.get().0).sum();
    assert_eq!(counted, direct.len() as u64);
    let mut all = [direct, slow].concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..2000), "{all:?}");
}

#[test]
fn an_announcement_goes_the_way_of_the_functions_frames() {
    let bench = Bench::of(config(Vec::new()), 1, 1);
    let mut rep = representor(&bench, VF0);
    let [mut b] = bench.guests([VF1]);
    let announcement = frame(Mac::BROADCAST, mac(9), 0, 60);
    assert_eq!(bench.fabric.nics()[0].inject(bench.vf(0), &announcement), 1);
    assert_eq!(rep.wait_for(1), [announcement]);
    assert!(b.receive().is_empty());
}

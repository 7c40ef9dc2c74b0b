//! Traces against what the lanes really do: random settings and frames through real ports.
//!
//! Each frame is traced, and then sent. The trace must name the receivers with their bytes and each
//! counter that moves, and must itself change nothing. `PROPTEST_CASES` scales the number of
//! worlds; each has up to 64 frames.

mod stand;
mod worlds;

use bridge::nic::{NicConfig, RuleTarget};
use bridge::{DropReason, PortId};
use proptest::prelude::*;
use wire::Mac;

use super::kit::*;
use super::switchdev::{config as switchdev_config, rule};
use crate::trace::{FrameTrace, TraceResult};
use stand::{Stand, trace};
use worlds::{SwitchWorld, any_frame, any_switch_world};

/// Worlds of each property.
fn worlds() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    // A missing frame costs a long wait, so shrinking of a failure is limited.
    ProptestConfig {
        cases: cases.unwrap_or(24),
        max_shrink_time: 20_000,
        ..ProptestConfig::default()
    }
}

/// The last step of a trace.
fn last(trace: &FrameTrace) -> (&'static str, &'static str, Option<&'static str>, String) {
    let stage = trace.stages.last().expect("a stage");
    let step = stage.steps.last().expect("a step");
    let dropped = match step.result {
        TraceResult::Dropped(reason) => Some(reason.name),
        TraceResult::Passed | TraceResult::Off => None,
    };
    (stage.stage, step.rule, dropped, step.detail.clone())
}

proptest! {
    #![proptest_config(worlds())]

    #[test]
    fn a_trace_of_a_nic_with_its_switch_is_what_happens(world in any_switch_world()) {
        let SwitchWorld { adapters, .. } = &world;
        let mut net = Net::new(adapters.len(), 1, 1);
        let Some(mut stand) = Stand::of_net(&mut net, &world) else { return Ok(()) };
        for (number, sent) in world.frames.iter().enumerate() {
            stand.check(sent.from, &sent.bytes(number))?;
        }
    }

    #[test]
    fn a_trace_of_a_nic_without_a_switch_is_what_happens(
        config in super::model::any_nic(),
        mode in prop_oneof![
            2 => Just(bridge::nic::Mode::Veb),
            1 => Just(bridge::nic::Mode::Vepa),
            1 => Just(bridge::nic::Mode::Isolated),
        ],
        uplink_up in prop::bool::weighted(0.8),
        frames in prop::collection::vec(any_frame(6), 1..64),
    ) {
        let mut config = NicConfig { mode, uplink_up, ..config };
        // Functions with a MAC that is taken in their VLAN are left out.
        while bridge::nic::Table::build(&config).is_err() {
            config.vfs.pop();
        }
        let bench = Bench::of(config.clone(), 1, 1);
        let ids = (1..6).map(PortId).filter(|id| config.function(*id).is_some());
        let ids: Vec<PortId> = [PortId::UPLINK].into_iter().chain(ids).collect();
        let mut stand = Stand::of_bench(&bench, ids.iter().map(|id| bench.port(*id)));
        for (number, sent) in frames.iter().enumerate() {
            stand.check(sent.from % ids.len(), &sent.bytes(number))?;
        }
    }

    #[test]
    fn a_trace_of_switchdev_mode_is_what_happens(
        targets in prop::collection::vec((0_u8..3, 0_u8..4, 0_usize..4), 0..5),
        edits in prop::collection::vec((any::<bool>(), prop::option::of(1_u16..4)), 5),
        frames in prop::collection::vec(any_frame(6), 1..64),
    ) {
        let function = |n: u8| if n == 0 { PortId::UPLINK } else { PortId::vf(n - 1) };
        let rules = targets.iter().zip(&edits).map(|((from, dst, to), (pop, push))| {
            let to = match to {
                0 => RuleTarget::Drop,
                1 => RuleTarget::Representor,
                to => RuleTarget::Port(function((*to as u8 + from) % 3)),
            };
            let is_port = matches!(to, RuleTarget::Port(_));
            let push = push.filter(|_| is_port).map(|vid| wire::Vid::new(vid).unwrap().into());
            let pop = *pop && is_port;
            bridge::nic::Rule { pop, push, ..rule(function(*from), mac(*dst), to) }
        });
        let config = switchdev_config(rules.collect());
        prop_assume!(bridge::nic::Table::build(&config).is_ok());
        let bench = Bench::of(config.clone(), 1, 1);
        let hits = super::switchdev::apply(&bench, &config);
        let ids = [0, 1, 2].map(function);
        let far = ids.iter().map(|id| bench.port(*id));
        let near = ids.iter().map(|id| bench.representor(*id));
        let mut stand = Stand::of_bench(&bench, far.chain(near));
        for (number, sent) in frames.iter().enumerate() {
            let before: Vec<_> = hits.iter().map(|hits| hits.get()).collect();
            drop(trace(&stand, sent.from, &sent.bytes(number)));
            prop_assert_eq!(before, hits.iter().map(|hits| hits.get()).collect::<Vec<_>>());
            stand.check(sent.from, &sent.bytes(number))?;
        }
    }
}

/// Each reason of the bridges for which a frame of this net is dropped.
#[test]
fn the_last_step_names_the_reason() {
    let adapters = [
        Adapter::plain(Path::Vf),
        Adapter::new(Path::Synthetic, Tags::Access(5)),
        Adapter::plain(Path::Vmq),
    ];
    let mut net = Net::new(3, 1, 1);
    net.apply_with(&adapters, |settings| super::filters::filter(settings, &[switch_port(2)]));
    let stand = Stand::of_adapters(&mut net, &[true; 3]);
    let to = |dst: Mac, src: u8| frame(dst, mac(src), 1, 60);
    let dns = super::filters::udp((mac(0), mac(2)), (4000, 53), 1);
    let link_local = Mac([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
    for (from, frame, stage, rule, reason) in [
        (0, to(mac(2), 1), "nic", "spoof check", DropReason::SpoofedMac),
        (0, tagged(&to(mac(2), 0), 0x8100, 7), "nic", "VLAN", DropReason::VlanForbidden),
        (0, to(mac(0), 0), "nic", "destination", DropReason::Hairpin),
        (3, to(mac(7), 7), "switch", "destination", DropReason::Hairpin),
        (1, tagged(&to(mac(2), 1), 0x8100, 7), "switch", "VLAN", DropReason::VlanForbidden),
        (1, to(link_local, 1), "switch", "reserved group", DropReason::LinkLocal),
        (1, to(mac(0), 2), "switch", "learning", DropReason::MacLimit),
        (2, dns, "switch", "ACL", DropReason::AclDeny),
        (2, to(mac(7), 0), "switch", "static addresses", DropReason::SpoofedMac),
    ] {
        let traced = trace(&stand, from, &frame);
        let (at, last_rule, dropped, detail) = last(&traced);
        let expected = reason.name().replace('-', "_");
        let found = (at, last_rule, dropped);
        assert_eq!(found, (stage, rule, Some(&*expected)), "{detail}: {traced:#?}");
        assert_eq!(traced.drops.len(), 1);
        assert_eq!((traced.drops[0].reason.name, traced.drops[0].frames), (&*expected, 1));
        assert!(traced.deliveries.is_empty());
    }
}

#[test]
fn a_trace_shows_entries_edits_paths_and_limits() {
    let adapters = [
        Adapter::new(Path::Vf, Tags::Access(5)),
        Adapter::new(Path::Synthetic, Tags::Access(5)),
        Adapter::new(Path::Vmq, Tags::Trunk { native: 0, vids: vec![5] }),
    ];
    let mut net = Net::new(3, 1, 1);
    net.apply_with(&adapters, |settings| {
        let vf = settings.nic.vfs[0].as_mut().unwrap();
        (vf.share.max_mbit, vf.storm_limit) = (100, 7);
    });
    let stand = Stand::of_adapters(&mut net, &[true; 3]);
    let traced = trace(&stand, 0, &frame(Mac::BROADCAST, mac(0), 1, 60));
    let stages: Vec<_> = traced.stages.iter().map(|stage| stage.stage).collect();
    assert_eq!(stages, ["ring", "nic", "switch"]);
    assert_eq!(traced.limits, [("max_tx_mbps", 100), ("storm_limit_pps", 7)]);
    let to: Vec<_> = traced.deliveries.iter().map(|it| (&*it.port, it.path)).collect();
    assert_eq!(to, [("n/uplink", "uplink"), ("n/a1", "synthetic"), ("n/a2", "synthetic")]);
    let edits: Vec<_> = traced.deliveries.iter().map(|it| it.edit).collect();
    let push = port::VlanEdit::Push([0x81, 0, 0, 5]);
    assert_eq!(edits, [push, port::VlanEdit::None, push]);
    let direct = trace(&stand, 0, &frame(mac(2), mac(0), 1, 60));
    assert_eq!(direct.deliveries[0].path, "vmq");
    let (.., detail) = last(&direct);
    assert_eq!(detail, "to n/a2 (queue 2)");
    let text: Vec<_> = direct.stages[1].steps.iter().map(|step| &*step.detail).collect();
    assert!(text.contains(&"02:00:00:00:00:03 in VLAN 5: address of n/a2 (queue 2)"), "{text:?}");
}

#[test]
fn without_guests_a_trace_says_so() {
    let mut net = Net::new(2, 1, 1);
    net.apply(&[Adapter::plain(Path::Vf), Adapter::plain(Path::Synthetic)]);
    let stand = Stand::of_adapters(&mut net, &[false; 2]);
    let traced = trace(&stand, 0, &frame(mac(1), mac(0), 1, 60));
    assert!(traced.stages[0].steps[0].detail.contains("no transmit ring runs"));
    let drops: Vec<_> = traced.drops.iter().map(|it| (&*it.port, it.counter)).collect();
    assert_eq!(drops, [("n/a1", "rx_down")]);
    assert!(traced.deliveries.is_empty());
    // A VF without an adapter.
    let adapters = [Adapter::plain(Path::Vf), Adapter::plain(Path::Vf)];
    let settings = net.settings(&adapters);
    net.put(net.snapshot(&adapters[..1], settings));
    let (stage, rule, dropped, detail) = last(&trace(&stand, 0, &frame(mac(1), mac(0), 1, 60)));
    assert_eq!((stage, rule, dropped), ("nic", "egress", Some("no_match")));
    assert_eq!(detail, "no adapter is attached there");
}

//! Random NICs and frames against the model, and the properties that matter most.

use proptest::prelude::*;
use wire::Vid;

use super::model::{Model, apply, with_second};
use super::random::{any_burst, any_config, any_source, honest};
use super::{header, mac};
use crate::nic::*;
use crate::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn agrees_with_the_model(
        config in any_config(), from in any_source(), mut headers in any_burst(), honestly: bool,
        seconds: u64, has_snapshots: bool,
    ) {
        let (table, model) = match (Table::build(&config), Model::new(&config)) {
            (Ok(table), Some(model)) => (table, model),
            (Err(ConfigError::DuplicateMac { .. }), None) => return Ok(()),
            (table, _) => panic!("table and model differ about {config:?}: {table:?}"),
        };
        if honestly {
            honest(&config, from, &mut headers);
        }
        let mut out = Verdicts::new();
        let mut flows = Flows::new();
        // Once for a cache that knows nothing, once for one that does, with a pause between.
        let second = |n: usize| seconds >> (n % 64) & 1 == 1;
        let snapshots: Vec<_> = headers.iter().enumerate().map(|(n, header)| with_second(header, second(n))).collect();
        let snapshots = if has_snapshots { &snapshots[..] } else { &[] };
        let mut summary = table.classify_with_snapshots(from, &headers, snapshots, &mut flows, &mut out);
        let first = out.clone();
        for _ in 0..16 {
            summary = table.classify_with_snapshots(from, &headers, snapshots, &mut flows, &mut out);
        }
        prop_assert_eq!(&*first, &*out);
        // An unknown second tag is rejected, and a longer snapshot requested.
        let model_actions = |second: fn(bool) -> bool| -> Vec<_> {
            let headers = headers.iter().enumerate().take(BURST);
            headers.map(|(n, header)| model.action(from, header, second(seconds >> (n % 64) & 1 == 1))).collect()
        };
        let expected = if has_snapshots { model_actions(|second| second) } else { model_actions(|_| true) };
        let differs = model_actions(|_| true) != model_actions(|_| false);
        prop_assert_eq!(out.wants_snapshots(), !has_snapshots && differs);
        let actions: Vec<_> = out.iter().map(|verdict| verdict.action()).collect();
        prop_assert_eq!(&actions, &expected);
        let same = actions.iter().all(|action| *action == actions[0]);
        match summary {
            Summary::Empty => prop_assert!(headers.is_empty()),
            Summary::Uniform(verdict) => prop_assert!(same && verdict == out[0]),
            Summary::Mixed => prop_assert!(!same),
        }
    }

    #[test]
    fn receivers_and_edits_agree_with_the_model(
        config in any_config(), from in any_source(), mut headers in any_burst(),
    ) {
        let (Ok(table), Some(model)) = (Table::build(&config), Model::new(&config)) else {
            return Ok(());
        };
        honest(&config, from, &mut headers);
        let mut out = Verdicts::new();
        let snapshots: Vec<_> = headers.iter().map(|header| with_second(header, false)).collect();
        table.classify_with_snapshots(from, &headers, &snapshots, &mut Flows::new(), &mut out);
        for (header, verdict) in headers.iter().zip(out.iter()) {
            let vid = table.vid(from, header);
            let receivers: Vec<PortId> = match verdict.action() {
                Action::Port(port) => vec![port],
                Action::Flood(_) => table.receivers(from, header).collect(),
                Action::Drop(_) => continue,
            };
            if verdict.is_flood() {
                prop_assert_eq!(&receivers, &model.receivers(from, header, vid));
            }
            prop_assert!(!receivers.is_empty() && !receivers.contains(&from));
            for to in receivers {
                // No function gets what is not of its VLANs, or while its link is down.
                prop_assert!(model.is_in(to, vid) && model.is_up(to) && table.is_up(to), "to {} from {}", to, from);
                let edit = table.edit_of(from, to, header);
                prop_assert_eq!(apply(edit, header), model.edited(from, to, header));
                prop_assert!(table.edit(from, to).is_none_or(|all| all == edit), "{} {}", from, to);
            }
        }
    }
}

/// As many MACs as there may be, so that some are displaced in the table.
fn full_nic() -> NicConfig {
    let function = |n: u16| Function {
        extra_macs: (n + 64..MAX_MACS as u16).step_by(64).map(mac).collect(),
        vlan: (n % 2 == 1).then(|| Vid::new(n).unwrap().into()),
        ..Function::new(mac(n))
    };
    NicConfig { vfs: (0..64).map(|n| Some(function(n))).collect(), ..NicConfig::default() }
}

#[track_caller]
fn compare(table: &Table, model: &Model<'_>, from: PortId, headers: &[[u8; 16]; BURST]) {
    let mut out = Verdicts::new();
    let mut flows = Flows::new();
    let expected = headers.map(|header| model.action(from, &header, false));
    for _ in 0..17 {
        table.classify(from, headers, &mut flows, &mut out);
        for ((header, verdict), expected) in headers.iter().zip(out.iter()).zip(expected) {
            assert_eq!(verdict.action(), expected, "{from}: {header:02x?}");
        }
    }
}

#[test]
fn a_full_nic_agrees_with_the_model() {
    let config = full_nic();
    let (table, model) = (Table::build(&config).unwrap(), Model::new(&config).unwrap());
    for from in [PortId::UPLINK, PortId::vf(0), PortId::vf(1)] {
        for start in (0..MAX_MACS as u16 + 640).step_by(BURST) {
            compare(
                &table,
                &model,
                from,
                &std::array::from_fn(|n| {
                    let dst = start + n as u16;
                    // From the right function most of the time, from its neighbour else.
                    let src =
                        mac((dst / 64 * 64 + from.0.saturating_sub(2)) ^ u16::from(n % 8 == 0));
                    let tag = (from == PortId::UPLINK).then_some((0x8100, dst % 2 * (dst % 64)));
                    header(mac(dst), src, tag)
                }),
            );
        }
    }
}

/// An unknown MAC whose place in the table is taken must not pass for the one that is there.
#[test]
fn strangers_are_not_mistaken_for_members() {
    let config = full_nic();
    let (table, model) = (Table::build(&config).unwrap(), Model::new(&config).unwrap());
    for start in (MAX_MACS as u16..60_000).step_by(BURST) {
        let sources = std::array::from_fn(|n| header(mac(1), mac(start + n as u16), None));
        compare(&table, &model, PortId::vf(0), &sources);
        let destinations = std::array::from_fn(|n| header(mac(start + n as u16), mac(0), None));
        compare(&table, &model, PortId::vf(0), &destinations);
        compare(&table, &model, PortId::UPLINK, &destinations);
    }
}

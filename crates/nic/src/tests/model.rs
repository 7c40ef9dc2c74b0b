//! Random NICs and frames against a model in a hash map, and the properties that matter most.

use std::collections::HashMap;

use proptest::prelude::*;
use wire::ethernet::Frame;
use wire::vlan::Tag;
use wire::{Mac, Vid};

use super::{head, mac};
use crate::*;

/// The rules as a reader of the crate's documentation would write them down.
struct Model<'a> {
    config: &'a NicConfig,
    macs: HashMap<(Mac, u16), PortId>,
}

impl<'a> Model<'a> {
    /// `None` if two functions share a MAC in a VLAN.
    fn new(config: &'a NicConfig) -> Option<Self> {
        let mut macs = HashMap::new();
        for n in 1..PortId::COUNT as u16 {
            let Some(function) = of(config, PortId(n)) else {
                continue;
            };
            let vid = function.vlan.map_or(0, |vid| vid.get());
            for mac in [function.mac].iter().chain(&function.extra_macs) {
                if macs.insert((*mac, vid), PortId(n)).is_some() {
                    return None;
                }
            }
        }
        Some(Self { config, macs })
    }

    fn members(&self, vid: u16) -> Vec<PortId> {
        (1..PortId::COUNT as u16)
            .map(PortId)
            .filter(|port| {
                of(self.config, *port).is_some_and(|f| f.vlan.map_or(0, |vid| vid.get()) == vid)
            })
            .collect()
    }

    fn judge(&self, from: PortId, head: &[u8; 16]) -> Action {
        let frame = Frame::new(head).unwrap();
        let tag = Tag::parse(head).unwrap();
        let function = of(self.config, from);
        if from != PortId::UPLINK && function.is_none() {
            return Action::Drop(DropReason::NoFunction);
        }
        let spoofed = function.is_some_and(|function| {
            function.spoof_check
                && function.mac != frame.src()
                && !function.extra_macs.contains(&frame.src())
        });
        if spoofed {
            return Action::Drop(DropReason::SpoofedMac);
        }
        if frame.src().is_multicast() {
            return Action::Drop(DropReason::SourceMulticast);
        }
        let vid = match (function, tag) {
            (Some(Function { vlan: Some(_), .. }), Some(_)) => None,
            (Some(Function { vlan: Some(vid), .. }), None) => Some(vid.get()),
            (Some(Function { vlan: None, .. }), Some(tag)) if tag.vid != 0 => None,
            (Some(Function { vlan: None, .. }), _) => Some(0),
            (None, tag) => Some(tag.map_or(0, |tag| tag.vid)),
        };
        let Some(vid) = vid else {
            return Action::Drop(DropReason::VlanForbidden);
        };
        if frame.dst().is_multicast() {
            if from == PortId::UPLINK && self.members(vid).is_empty() {
                return Action::Drop(DropReason::NoMatch);
            }
            return Action::Flood;
        }
        match self.macs.get(&(frame.dst(), vid)) {
            Some(port) if *port == from => Action::Drop(DropReason::Hairpin),
            Some(port) => Action::Port(*port),
            None if from == PortId::UPLINK => Action::Drop(DropReason::NoMatch),
            None => Action::Port(PortId::UPLINK),
        }
    }
}

fn of(config: &NicConfig, port: PortId) -> Option<&Function> {
    match port {
        PortId::UPLINK => None,
        PortId::PF => config.pf.as_ref(),
        _ => config.vfs.get(usize::from(port.vf_index()?))?.as_ref(),
    }
}

fn any_function() -> impl Strategy<Value = Option<Function>> {
    let vlan = prop_oneof![Just(None), prop_oneof![Just(1), Just(2), Just(4094)].prop_map(Some)];
    let one = (0_u16..40, prop::collection::vec(0_u16..40, 0..3), vlan, any::<bool>());
    prop::option::weighted(
        0.9,
        one.prop_map(|(first, more, vlan, spoof_check)| Function {
            mac: mac(first),
            extra_macs: more.into_iter().map(mac).collect(),
            vlan: vlan.map(|vid| Vid::new(vid).unwrap()),
            spoof_check,
        }),
    )
}

fn any_config() -> impl Strategy<Value = NicConfig> {
    (any_function(), prop::collection::vec(any_function(), 0..6))
        .prop_map(|(pf, vfs)| NicConfig { pf, vfs })
}

fn any_mac() -> impl Strategy<Value = Mac> {
    prop_oneof![
        20 => (0_u16..40).prop_map(mac),
        2 => Just(Mac::BROADCAST),
        1 => Just(Mac([1, 0, 0x5e, 0, 0, 1])),
        1 => any::<[u8; 6]>().prop_map(Mac),
    ]
}

fn any_head() -> impl Strategy<Value = [u8; 16]> {
    let vid = prop_oneof![Just(0_u16), Just(1), Just(2), Just(4094), Just(4095)];
    let tag = (prop_oneof![Just(0x8100_u16), Just(0x88a8), Just(0x9100)], vid, 0_u16..16)
        .prop_map(|(tpid, vid, priority)| (tpid, priority << 12 | vid));
    (any_mac(), any_mac(), prop::option::weighted(0.4, tag))
        .prop_map(|(dst, src, tag)| head(dst, src, tag))
}

/// Frames of a few flows, so that bursts alike, nearly alike and mixed all occur.
fn any_burst() -> impl Strategy<Value = Vec<[u8; 16]>> {
    let flows = prop::collection::vec((any_head(), 1_usize..20), 0..20);
    // As likely as not, flows differ in their TCIs only.
    (flows, any::<bool>()).prop_map(|(mut flows, same)| {
        if let (true, Some(&(first, _))) = (same, flows.first()) {
            flows.iter_mut().for_each(|(head, _)| head[..14].copy_from_slice(&first[..14]));
        }
        let repeated = flows.into_iter().flat_map(|(head, n)| vec![head; n]);
        repeated.take(BURST + 3).collect()
    })
}

/// Makes most sources valid, or nearly every frame would be dropped as spoofed.
fn honest(config: &NicConfig, from: PortId, heads: &mut [[u8; 16]]) {
    let Some(function) = of(config, from) else {
        return;
    };
    for head in heads.iter_mut().filter(|head| head[15] % 4 != 3) {
        let macs: Vec<_> = [function.mac].iter().chain(&function.extra_macs).copied().collect();
        let any = usize::from(head[5]) % macs.len();
        head[6..12].copy_from_slice(&macs[any].0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn agrees_with_the_model(
        config in any_config(), from in (0_u16..9).prop_map(PortId), mut heads in any_burst(), honestly: bool,
    ) {
        let (table, model) = match (Table::build(&config), Model::new(&config)) {
            (Ok(table), Some(model)) => (table, model),
            (Err(ConfigError::DuplicateMac { .. }), None) => return Ok(()),
            (table, _) => panic!("table and model differ about {config:?}: {table:?}"),
        };
        if honestly {
            honest(&config, from, &mut heads);
        }
        let mut out = Verdicts::new();
        let mut flows = Flows::new();
        // Once for a cache that knows nothing, once for one that does, with a pause between.
        let mut summary = table.classify(from, &heads, &mut flows, &mut out);
        let first = out.clone();
        for _ in 0..16 {
            summary = table.classify(from, &heads, &mut flows, &mut out);
        }
        prop_assert_eq!(&*first, &*out);
        let expected: Vec<_> = heads.iter().take(BURST).map(|head| model.judge(from, head)).collect();
        let judged: Vec<_> = out.iter().map(|verdict| verdict.action()).collect();
        prop_assert_eq!(&judged, &expected);
        let same = judged.iter().all(|action| *action == judged[0]);
        match summary {
            Summary::Empty => prop_assert!(heads.is_empty()),
            Summary::Uniform(verdict) => prop_assert!(same && verdict == out[0]),
            Summary::Mixed => prop_assert!(!same),
        }
    }

    #[test]
    fn vlans_are_isolated_and_nothing_comes_back(
        config in any_config(), from in (0_u16..9).prop_map(PortId), mut heads in any_burst(),
    ) {
        let Ok(table) = Table::build(&config) else { return Ok(()) };
        honest(&config, from, &mut heads);
        let vlan = |port| of(&config, port).map(|f| f.vlan.map_or(0, |vid| vid.get()));
        let mut out = Verdicts::new();
        table.classify(from, &heads, &mut Flows::new(), &mut out);
        for (head, verdict) in heads.iter().zip(out.iter()) {
            let vid = table.vid(from, head);
            let receivers: Vec<PortId> = match verdict.action() {
                Action::Port(port) => vec![port],
                Action::Flood => {
                    let group = table.flood_ports(vid);
                    prop_assert_eq!(group.iter().filter(|port| **port == from).count(), 1);
                    group.iter().copied().filter(|port| *port != from).collect()
                }
                Action::Drop(_) => continue,
            };
            prop_assert!(!receivers.is_empty() && !receivers.contains(&from));
            let tagged = Tag::parse(head).unwrap().is_some_and(|tag| tag.vid != 0);
            for to in receivers {
                if to != PortId::UPLINK {
                    prop_assert_eq!(vlan(to), Some(vid), "to {} from {}", to, from);
                }
                if from != PortId::UPLINK {
                    prop_assert_eq!(vlan(from), Some(vid));
                }
                // What `edit` promises to be true of every frame between two ports.
                match table.edit(from, to) {
                    VlanEdit::None => prop_assert_eq!(tagged, false),
                    VlanEdit::Pop => prop_assert!(tagged && from == PortId::UPLINK),
                    VlanEdit::Push(tci) => prop_assert!(!tagged && to == PortId::UPLINK && tci == vid),
                }
            }
        }
    }
}

/// As many MACs as there may be, so that some are displaced in the table.
fn full_nic() -> NicConfig {
    let function = |n: u16| Function {
        extra_macs: (n + 64..MAX_MACS as u16).step_by(64).map(mac).collect(),
        vlan: (n % 2 == 1).then(|| Vid::new(n).unwrap()),
        ..Function::new(mac(n))
    };
    NicConfig { pf: None, vfs: (0..64).map(|n| Some(function(n))).collect() }
}

#[track_caller]
fn compare(table: &Table, model: &Model<'_>, from: PortId, heads: &[[u8; 16]; BURST]) {
    let mut out = Verdicts::new();
    let mut flows = Flows::new();
    for _ in 0..17 {
        table.classify(from, heads, &mut flows, &mut out);
        for (head, verdict) in heads.iter().zip(out.iter()) {
            assert_eq!(verdict.action(), model.judge(from, head), "{from}: {head:02x?}");
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
                    head(mac(dst), src, tag)
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
        let sources = std::array::from_fn(|n| head(mac(1), mac(start + n as u16), None));
        compare(&table, &model, PortId::vf(0), &sources);
        let destinations = std::array::from_fn(|n| head(mac(start + n as u16), mac(0), None));
        compare(&table, &model, PortId::vf(0), &destinations);
        compare(&table, &model, PortId::UPLINK, &destinations);
    }
}

//! The switch on the PF: what it sends, what it receives, and its neighbours with queues.

use wire::{Mac, Vid};

use super::{classify, function, header, mac, receivers, tag, vf};
use crate::nic::*;
use crate::*;

const UPLINK: PortId = PortId::UPLINK;
const PF: PortId = PortId::PF;
const GROUP: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
const HAIRPIN: Action = Action::Drop(DropReason::Hairpin);
const DOWN: Action = Action::Drop(DropReason::LinkDown);
const NO_MATCH: Action = Action::Drop(DropReason::NoMatch);

/// VF 0 untagged, VF 1 in VLAN 7. Behind the PF 30 untagged and 31 in VLAN 7; queue 0 untagged with
/// MAC 40, queue 1 in VLAN 7 with MAC 41.
fn config() -> NicConfig {
    NicConfig {
        vfs: vec![Some(function(0, None)), Some(function(1, Some(7)))],
        queues: vec![Some(function(40, None)), Some(function(41, Some(7)))],
        switch: Some(vec![Filter { mac: mac(30), vid: 0 }, Filter { mac: mac(31), vid: 7 }]),
        ..NicConfig::default()
    }
}

/// Asserts a frame's destination port and tag edit.
#[track_caller]
fn goes(from: PortId, (src, dst, vid): (u16, u16, u16), to: PortId, edit: VlanEdit) {
    assert_eq!(classify(&config(), from, src, mac(dst), vid), Action::Port(to));
    let table = Table::build(&config()).unwrap();
    assert_eq!(table.edit_of(from, to, &header(mac(dst), mac(src), tag(vid))), edit);
    assert_eq!(table.edit(from, to), Some(edit));
}

#[test]
fn what_the_switch_sends() {
    // From any MAC, in any VLAN.
    for src in [30, 500, 0] {
        goes(PF, (src, 0, 0), vf(0), VlanEdit::None);
        goes(PF, (src, 1, 7), vf(1), VlanEdit::Pop);
        for vid in [0, 7, 9, 4094, 4095] {
            goes(PF, (src, 600, vid), UPLINK, VlanEdit::None);
        }
    }
    goes(PF, (30, 0, 7), UPLINK, VlanEdit::None);
    let group = Action::Drop(DropReason::SourceMulticast);
    let table = Table::build(&config()).unwrap();
    let mut out = Verdicts::new();
    table.classify(PF, &[header(mac(0), GROUP, None)], &mut Flows::new(), &mut out);
    assert_eq!(out[0].action(), group);
    assert_eq!(table.vid(PF, &header(mac(0), mac(30), tag(9))), 9);
}

#[test]
fn what_the_switch_receives() {
    goes(UPLINK, (500, 30, 0), PF, VlanEdit::None);
    goes(UPLINK, (500, 31, 7), PF, VlanEdit::None);
    goes(vf(0), (0, 30, 0), PF, VlanEdit::None);
    goes(vf(1), (1, 31, 0), PF, VlanEdit::Push([0x81, 0, 0, 7]));
    // Whatever is unknown, from the uplink and in every VLAN.
    for vid in [0, 7, 9, 4094] {
        goes(UPLINK, (500, 600, vid), PF, VlanEdit::None);
    }
    assert_eq!(classify(&config(), UPLINK, 500, mac(600), 4095), NO_MATCH);
    assert_eq!(classify(&config(), vf(0), 0, mac(600), 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config(), vf(0), 0, mac(600), 0), [UPLINK, PF]);
    let real = NicConfig { floods_unknown: false, ..config() };
    assert_eq!(classify(&real, vf(0), 0, mac(600), 0), Action::Port(UPLINK));
    assert_eq!(classify(&real, UPLINK, 500, mac(600), 9), Action::Port(PF));
}

#[test]
fn the_switch_hears_all_groups() {
    for dst in [GROUP, Mac::BROADCAST] {
        for (vid, expected) in
            [(0, vec![PF, vf(0)]), (7, vec![PF, vf(1)]), (9, vec![PF]), (4094, vec![PF])]
        {
            assert_eq!(classify(&config(), UPLINK, 500, dst, vid), Action::Flood(Flood::Group));
            assert_eq!(receivers(&config(), UPLINK, 500, dst, vid), expected);
        }
        assert_eq!(classify(&config(), UPLINK, 500, dst, 4095), NO_MATCH);
        assert_eq!(receivers(&config(), vf(1), 1, dst, 0), [UPLINK, PF]);
        for (vid, expected) in [(0, vec![UPLINK, vf(0)]), (7, vec![UPLINK, vf(1)])] {
            assert_eq!(receivers(&config(), PF, 30, dst, vid), expected);
        }
        for vid in [9, 4094, 4095] {
            assert_eq!(classify(&config(), PF, 30, dst, vid), Action::Flood(Flood::Group));
            assert_eq!(receivers(&config(), PF, 30, dst, vid), [UPLINK]);
        }
    }
}

#[test]
fn what_is_on_the_switch_does_not_come_back_to_it() {
    for mode in [Mode::Veb, Mode::Vepa, Mode::Isolated] {
        let config = NicConfig { mode, ..config() };
        for (dst, vid) in [(30, 0), (31, 7), (40, 0), (41, 7)] {
            assert_eq!(classify(&config, PF, 500, mac(dst), vid), HAIRPIN, "{dst} in {mode:?}");
        }
    }
    // The same address in another VLAN is another's.
    assert_eq!(classify(&config(), PF, 500, mac(41), 0), Action::Port(UPLINK));
    // Without a switch, a queue has no owner on the PF.
    let pf = Some(function(100, None));
    let config = NicConfig { pf, switch: None, ..config() };
    assert_eq!(classify(&config, PF, 100, mac(40), 0), Action::Port(PortId::queue(0)));
    let vepa = NicConfig { mode: Mode::Vepa, ..config };
    assert_eq!(receivers(&vepa, UPLINK, 40, Mac::BROADCAST, 0), [PF, vf(0)]);
    assert_eq!(classify(&vepa, UPLINK, 40, mac(40), 0), HAIRPIN);
}

#[test]
fn promiscuous_functions_hear_the_switch_in_their_vlan() {
    let mut config = config();
    let vf1 = config.vfs[1].as_mut().unwrap();
    (vf1.promiscuous, vf1.trust) = (true, true);
    assert_eq!(classify(&config, PF, 30, mac(600), 7), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config, PF, 30, mac(600), 7), [UPLINK, vf(1)]);
    assert_eq!(classify(&config, PF, 30, mac(600), 9), Action::Port(UPLINK));
    assert_eq!(receivers(&config, UPLINK, 500, mac(600), 7), [PF, vf(1)]);
    let real = NicConfig { floods_unknown: false, ..config };
    assert_eq!(classify(&real, PF, 30, mac(600), 7), Action::Port(UPLINK));
}

#[test]
fn the_switch_is_up_without_an_uplink() {
    let mut config = NicConfig { uplink_up: false, ..config() };
    config.vfs[0].as_mut().unwrap().link = LinkState::Enable;
    let table = Table::build(&config).unwrap();
    assert!(table.has(PF) && table.is_up(PF));
    assert_eq!(classify(&config, PF, 30, mac(0), 0), Action::Port(vf(0)));
    assert_eq!(classify(&config, vf(0), 0, mac(30), 0), Action::Port(PF));
    assert_eq!(classify(&config, vf(0), 0, mac(600), 0), Action::Port(PF));
    assert_eq!(receivers(&config, vf(0), 0, Mac::BROADCAST, 0), [PF]);
    assert_eq!(receivers(&config, PF, 30, Mac::BROADCAST, 0), [vf(0)]);
    for vid in [0, 9, 4095] {
        assert_eq!(classify(&config, PF, 30, mac(600), vid), DOWN);
    }
    assert_eq!(classify(&config, PF, 30, Mac::BROADCAST, 9), DOWN);
}

#[test]
fn a_vepa_with_a_switch() {
    let config = NicConfig { mode: Mode::Vepa, ..config() };
    assert_eq!(classify(&config, PF, 30, mac(0), 0), Action::Port(UPLINK));
    assert_eq!(classify(&config, vf(0), 0, mac(30), 0), Action::Port(UPLINK));
    assert_eq!(receivers(&config, PF, 30, Mac::BROADCAST, 0), [UPLINK]);
    // A reflected frame reaches all but the sender's side: the owner of queue 0 is on the switch,
    // which already served its neighbours.
    assert_eq!(classify(&config, UPLINK, 30, mac(0), 0), Action::Port(vf(0)));
    assert_eq!(classify(&config, UPLINK, 0, mac(40), 0), Action::Port(PortId::queue(0)));
    for src in [30, 40] {
        assert_eq!(receivers(&config, UPLINK, src, Mac::BROADCAST, 0), [vf(0)]);
        assert_eq!(classify(&config, UPLINK, src, mac(30), 0), HAIRPIN);
        assert_eq!(classify(&config, UPLINK, src, mac(40), 0), HAIRPIN);
        assert_eq!(classify(&config, UPLINK, src, mac(600), 0), NO_MATCH);
    }
    assert_eq!(receivers(&config, UPLINK, 0, Mac::BROADCAST, 0), [PF]);
}

#[test]
fn an_isolated_switch_talks_to_the_uplink_only() {
    let config = NicConfig { mode: Mode::Isolated, ..config() };
    let isolated = Action::Drop(DropReason::Isolated);
    assert_eq!(classify(&config, PF, 30, mac(0), 0), isolated);
    assert_eq!(classify(&config, vf(0), 0, mac(30), 0), isolated);
    assert_eq!(classify(&config, vf(0), 0, mac(600), 0), Action::Port(UPLINK));
    assert_eq!(receivers(&config, vf(0), 0, Mac::BROADCAST, 0), [UPLINK]);
    assert_eq!(receivers(&config, PF, 30, Mac::BROADCAST, 0), [UPLINK]);
    assert_eq!(classify(&config, UPLINK, 500, mac(30), 0), Action::Port(PF));
    assert_eq!(receivers(&config, UPLINK, 500, Mac::BROADCAST, 0), [PF, vf(0)]);
}

#[track_caller]
fn refused(change: impl FnOnce(&mut NicConfig), text: &str) {
    let mut config = config();
    change(&mut config);
    assert_eq!(Table::build(&config).unwrap_err().to_string(), text);
}

#[track_caller]
fn refused_filters(filters: Vec<Filter>, text: &str) {
    refused(|config| config.switch = Some(filters), text);
}

#[test]
fn refusals() {
    let filter = |n, vid| Filter { mac: mac(n), vid };
    refused(
        |config| config.pf = Some(function(100, None)),
        "PF: switch: a switch beside settings of the PF; allowed is one of the two",
    );
    refused_filters(
        vec![filter(30, 0), filter(1, 7)],
        "PF: switch[1]: 02:00:00:00:00:01 is also mac of VF 1 in VLAN 7; \
         within a VLAN each MAC is allowed once",
    );
    refused_filters(
        vec![filter(30, 0), filter(40, 0)],
        "PF: switch[1]: 02:00:00:00:00:28 is also mac of queue 0 in the untagged network; \
         within a VLAN each MAC is allowed once",
    );
    refused_filters(
        vec![filter(30, 9), filter(31, 9), filter(30, 9)],
        "PF: switch[2]: 02:00:00:00:00:1e is also switch[0] of PF in VLAN 9; \
         within a VLAN each MAC is allowed once",
    );
    refused_filters(
        vec![filter(30, 4095)],
        "PF: switch[0]: VLAN 4095 is out of range; allowed are 0, for untagged, to 4094",
    );
    refused_filters(
        vec![Filter { mac: GROUP, vid: 0 }],
        "PF: switch[0]: 33:33:00:00:00:01 is a multicast address; \
         allowed is a unicast one, whose first byte is even",
    );
    let many = (0..4094).flat_map(|vid| (50..58).map(move |n| filter(n, vid + 1)));
    let many: Vec<_> = many.chain((60..73).map(|n| filter(n, 0))).collect();
    refused_filters(
        many.clone(),
        "PF: switch: 32765 addresses beside 4 pairs of a MAC and a VLAN of functions and queues; \
         allowed are up to 32768 together",
    );
    let filters = NicConfig { switch: Some(many[1..].to_vec()), ..config() };
    assert!(Table::build(&filters).is_ok());
    let to = MirrorTarget::Port(PF);
    refused(
        |config| {
            config.vfs[0].as_mut().unwrap().mirror =
                Some(FunctionMirror { way: MirroredFrames::Both, to })
        },
        "VF 0: mirror: frames cannot go to PF; \
         allowed is the uplink or another function that exists",
    );
}

/// However many VLANs the switch is in, the table of MACs has its addresses only.
#[test]
fn a_switch_costs_the_functions_nothing() {
    let with = Table::build(&NicConfig { switch: Some(vec![]), ..config() }).unwrap();
    let without = Table::build(&NicConfig { switch: None, ..config() }).unwrap();
    assert_eq!(format!("{:?}", with.macs), format!("{:?}", without.macs));
    let everywhere = (1..=Vid::MAX).map(|vid| with.members(vid).len()).sum::<usize>();
    assert_eq!(everywhere, 2 * usize::from(Vid::MAX) + 1);
}

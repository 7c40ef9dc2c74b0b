//! One case for each rule, and for each refusal of a configuration.

use wire::{HeaderSnapshot, Mac};

use super::{function, header, mac, vf};
use crate::nic::*;
use crate::*;

const CTAG: u16 = 0x8100;
const STAG: u16 = 0x88a8;
const GROUP: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
const PF: PortId = PortId::PF;
const UPLINK: PortId = PortId::UPLINK;

/// PF 100 and VFs 0 to 2 untagged, VF 2 unchecked with MACs 2 and 20; VFs 3 and 4 in VLAN 7 with
/// VF 4 having MACs 4 and 40; VF 5 in VLAN 8 with VF 3's MAC; VF 6 without a function.
fn config() -> NicConfig {
    let several = |n, vlan, more, spoof_check| Function {
        extra_macs: vec![mac(more)],
        spoof_check,
        ..function(n, vlan)
    };
    NicConfig {
        pf: Some(function(100, None)),
        vfs: vec![
            Some(function(0, None)),
            Some(function(1, None)),
            Some(several(2, None, 20, false)),
            Some(function(3, Some(7))),
            Some(several(4, Some(7), 40, true)),
            Some(function(3, Some(8))),
            None,
        ],
        ..NicConfig::default()
    }
}

fn to(port: PortId) -> Action {
    Action::Port(port)
}

/// Checks a frame alone, and in a burst where it is not alike the rest.
#[track_caller]
fn check(from: PortId, dst: Mac, src: Mac, tag: Option<(u16, u16)>, expected: Action) {
    let table = Table::build(&config()).unwrap();
    let mut out = Verdicts::new();
    let frame = header(dst, src, tag);
    let snapshots = [HeaderSnapshot::of_frame(&frame)];
    let summary =
        table.classify_with_snapshots(from, &[frame], &snapshots, &mut Flows::new(), &mut out);
    assert_eq!(out.as_slice().iter().map(|v| v.action()).collect::<Vec<_>>(), [expected]);
    assert_eq!(summary, Summary::Uniform(out[0]));
    let other = header(mac(999), mac(998), None);
    let snapshots = [other, frame, other].map(|header| HeaderSnapshot::of_frame(&header));
    table.classify_with_snapshots(
        from,
        &[other, frame, other],
        &snapshots,
        &mut Flows::new(),
        &mut out,
    );
    assert_eq!(out[1].action(), expected, "in a mixed burst");
}

#[test]
fn unicast() {
    check(vf(0), mac(1), mac(0), None, to(vf(1)));
    check(vf(0), mac(20), mac(0), None, to(vf(2)));
    check(vf(0), mac(100), mac(0), None, to(PF));
    check(PF, mac(0), mac(100), None, to(vf(0)));
    check(vf(0), mac(500), mac(0), None, to(UPLINK));
    check(UPLINK, mac(0), mac(500), None, to(vf(0)));
    check(UPLINK, mac(501), mac(500), None, Action::Drop(DropReason::NoMatch));
    check(vf(0), mac(0), mac(0), None, Action::Drop(DropReason::Hairpin));
    check(vf(2), mac(20), mac(2), None, Action::Drop(DropReason::Hairpin));
}

#[test]
fn vlans_are_apart() {
    check(vf(3), mac(4), mac(3), None, to(vf(4)));
    check(vf(3), mac(0), mac(3), None, to(UPLINK));
    check(vf(0), mac(3), mac(0), None, to(UPLINK));
    check(vf(5), mac(4), mac(3), None, to(UPLINK));
    check(UPLINK, mac(3), mac(500), Some((CTAG, 0xe007)), to(vf(3)));
    check(UPLINK, mac(3), mac(500), Some((STAG, 8)), to(vf(5)));
    for tag in [None, Some((CTAG, 0)), Some((CTAG, 9)), Some((STAG, 4095))] {
        check(UPLINK, mac(3), mac(500), tag, Action::Drop(DropReason::NoMatch));
    }
    check(UPLINK, mac(0), mac(500), Some((CTAG, 7)), Action::Drop(DropReason::NoMatch));
    check(UPLINK, mac(0), mac(500), Some((CTAG, 0x2000)), to(vf(0)));
}

#[test]
fn groups_are_flooded() {
    for dst in [Mac::BROADCAST, GROUP] {
        check(vf(0), dst, mac(0), None, Action::Flood(Flood::Group));
        check(vf(5), dst, mac(3), None, Action::Flood(Flood::Group));
        check(UPLINK, dst, mac(500), None, Action::Flood(Flood::Group));
        check(UPLINK, dst, mac(500), Some((STAG, 7)), Action::Flood(Flood::Group));
        check(UPLINK, dst, mac(500), Some((CTAG, 9)), Action::Drop(DropReason::NoMatch));
        check(vf(0), dst, mac(1), None, Action::Drop(DropReason::SpoofedMac));
    }
}

#[test]
fn sources_are_checked_first() {
    let spoofed = Action::Drop(DropReason::SpoofedMac);
    check(vf(0), mac(1), mac(1), None, spoofed);
    check(vf(0), mac(1), mac(1), Some((CTAG, 7)), spoofed);
    check(vf(0), mac(1), Mac::BROADCAST, None, spoofed);
    check(vf(0), mac(1), Mac::ZERO, None, spoofed);
    check(vf(4), mac(3), mac(40), None, to(vf(3)));
    check(vf(4), mac(3), mac(3), None, spoofed);
    check(vf(4), mac(3), mac(41), None, spoofed);
    // Unchecked, any source will do, but no group.
    check(vf(2), mac(1), mac(1), None, to(vf(1)));
    let group = Action::Drop(DropReason::SourceMulticast);
    check(vf(2), mac(1), GROUP, None, group);
    check(vf(2), mac(1), GROUP, Some((CTAG, 7)), group);
    check(UPLINK, mac(1), GROUP, None, group);
}

#[test]
fn tags_from_functions() {
    let forbidden = Action::Drop(DropReason::VlanForbidden);
    for tpid in [CTAG, STAG] {
        check(vf(0), mac(1), mac(0), Some((tpid, 7)), forbidden);
        check(vf(0), mac(1), mac(0), Some((tpid, 4095)), forbidden);
        check(vf(0), mac(1), mac(0), Some((tpid, 0xe000)), to(vf(1)));
        check(vf(3), mac(4), mac(3), Some((tpid, 7)), forbidden);
        check(vf(3), mac(4), mac(3), Some((tpid, 0)), forbidden);
        check(vf(3), Mac::BROADCAST, mac(3), Some((tpid, 0)), forbidden);
    }
    // Other types are no tags.
    check(vf(3), mac(4), mac(3), Some((0x9100, 7)), to(vf(4)));
}

#[test]
fn ports_without_a_function() {
    for from in [vf(6), vf(7), vf(254), PortId(u16::MAX)] {
        check(from, mac(1), mac(0), None, Action::Drop(DropReason::NoFunction));
        assert!(!Table::build(&config()).unwrap().has(from));
    }
    let empty = Table::build(&NicConfig::default()).unwrap();
    let mut out = Verdicts::new();
    empty.classify(UPLINK, &[header(Mac::BROADCAST, mac(1), None)], &mut Flows::new(), &mut out);
    assert_eq!(out[0].action(), Action::Drop(DropReason::NoMatch));
}

#[test]
fn summaries() {
    let table = Table::build(&config()).unwrap();
    let mut out = Verdicts::new();
    assert_eq!(table.classify(vf(0), &[], &mut Flows::new(), &mut out), Summary::Empty);
    assert!(out.is_empty());
    let one = header(mac(1), mac(0), None);
    let mut also_one = one;
    also_one[14] ^= 0xff;
    // 70 frames: six are beyond a burst.
    assert_eq!(table.classify(vf(0), &[one; 70], &mut Flows::new(), &mut out).port(), Some(vf(1)));
    assert_eq!(out.len(), BURST);
    assert_eq!(
        table.classify(vf(0), &[one, also_one], &mut Flows::new(), &mut out).port(),
        Some(vf(1))
    );
    // Two addresses of one function.
    let several = [header(mac(2), mac(0), None), header(mac(20), mac(0), None)];
    assert_eq!(table.classify(vf(0), &several, &mut Flows::new(), &mut out).port(), Some(vf(2)));
    let two = [one, header(mac(100), mac(0), None)];
    assert_eq!(table.classify(vf(0), &two, &mut Flows::new(), &mut out), Summary::Mixed);
    assert_eq!(out.len(), 2);
    let flood = header(GROUP, mac(0), None);
    assert_eq!(
        table.classify(vf(0), &[flood; 3], &mut Flows::new(), &mut out),
        Summary::Uniform(Verdict::FLOOD)
    );
}

#[test]
fn frames_that_differ_in_their_tags_only() {
    let table = Table::build(&config()).unwrap();
    let mut out = Verdicts::new();
    let from_uplink = |tag| header(mac(3), mac(500), tag);
    let burst = [Some((CTAG, 7)), Some((CTAG, 8)), Some((STAG, 7)), None].map(from_uplink);
    assert_eq!(table.classify(UPLINK, &burst, &mut Flows::new(), &mut out), Summary::Mixed);
    let actions: Vec<_> = out.iter().map(|verdict| verdict.action()).collect();
    let no_match = Action::Drop(DropReason::NoMatch);
    assert_eq!(actions, [to(vf(3)), to(vf(5)), to(vf(3)), no_match]);
    // The same TPID throughout: nothing but the TCI tells these apart.
    let burst = [Some((STAG, 7)), Some((STAG, 7)), Some((STAG, 8))].map(from_uplink);
    assert_eq!(table.classify(UPLINK, &burst, &mut Flows::new(), &mut out), Summary::Mixed);
    let actions: Vec<_> = out.iter().map(|verdict| verdict.action()).collect();
    assert_eq!(actions, [to(vf(3)), to(vf(3)), to(vf(5))]);
}

#[test]
fn receivers_and_edits() {
    let table = Table::build(&config()).unwrap();
    let members = |from, tag| {
        let header = header(Mac::BROADCAST, mac(500), tag);
        table.receivers(from, &header).collect::<Vec<_>>()
    };
    assert_eq!(members(UPLINK, None), [PF, vf(0), vf(1), vf(2)]);
    assert_eq!(members(vf(0), None), [UPLINK, PF, vf(1), vf(2)]);
    assert_eq!(members(UPLINK, Some((CTAG, 7))), [vf(3), vf(4)]);
    assert_eq!(members(vf(3), None), [UPLINK, vf(4)]);
    assert_eq!(members(UPLINK, Some((STAG, 0xe008))), [vf(5)]);
    for vid in [1, 9, 4095] {
        assert!(members(UPLINK, Some((CTAG, vid))).is_empty());
    }
    assert_eq!(table.edit(vf(3), UPLINK), Some(VlanEdit::Push([0x81, 0, 0, 7])));
    assert_eq!(table.edit(UPLINK, vf(3)), Some(VlanEdit::Pop));
    assert_eq!(table.edit(vf(3), vf(4)), Some(VlanEdit::None));
    assert_eq!(table.edit(vf(0), UPLINK), Some(VlanEdit::None));
    assert_eq!(table.edit(UPLINK, PF), Some(VlanEdit::None));
    let tagged = header(mac(3), mac(500), Some((CTAG, 0xe007)));
    assert_eq!(table.vid(UPLINK, &tagged), 7);
    assert_eq!(table.vid(vf(0), &tagged), 0);
    assert_eq!(table.vid(vf(5), &tagged), 8);
}

#[track_caller]
fn refused(change: impl FnOnce(&mut NicConfig), text: &str) {
    let mut config = config();
    change(&mut config);
    assert_eq!(Table::build(&config).unwrap_err().to_string(), text);
}

#[test]
fn refusals_name_function_and_field() {
    refused(
        |config| config.vfs[1].as_mut().unwrap().mac = Mac::ZERO,
        "VF 1: mac: 00:00:00:00:00:00 is no address; allowed is any other unicast one",
    );
    refused(
        |config| config.pf.as_mut().unwrap().extra_macs = vec![mac(9), GROUP],
        "PF: extra_macs[1]: 33:33:00:00:00:01 is a multicast address; \
         allowed is a unicast one, whose first byte is even",
    );
    refused(
        |config| config.vfs[2].as_mut().unwrap().extra_macs[0] = mac(100),
        "VF 2: extra_macs[0]: 02:00:00:00:00:64 is also mac of PF in the untagged network; \
         within a VLAN each MAC is allowed once",
    );
    refused(
        |config| config.vfs[5].as_mut().unwrap().vlan = Some(wire::Vid::new(7).unwrap().into()),
        "VF 5: mac: 02:00:00:00:00:03 is also mac of VF 3 in VLAN 7; \
         within a VLAN each MAC is allowed once",
    );
    refused(
        |config| config.vfs.resize(256, None),
        "vfs: 256 VFs are too many; allowed are up to 255",
    );
    refused(
        |config| config.vfs[0].as_mut().unwrap().extra_macs = (1000..9191).map(mac).collect(),
        "VF 0: extra_macs: the NIC has 8193 MACs up to here; \
         allowed are up to 8192 of all functions together",
    );
}

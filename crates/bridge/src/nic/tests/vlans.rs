//! VLANs beyond a plain access port: priorities, service tags, trunks.

use wire::{HeaderSnapshot, Mac, Vid};

use super::{function, header, mac, vf};
use crate::nic::*;
use crate::*;

const CTAG: u16 = 0x8100;
const STAG: u16 = 0x88a8;
const UPLINK: PortId = PortId::UPLINK;

fn port_vlan(vid: u16, qos: u8, protocol: VlanProtocol) -> Option<PortVlan> {
    Some(PortVlan { vid: Vid::new(vid).unwrap(), qos, protocol })
}

fn trunk(vids: &[u16]) -> Vids {
    vids.iter().map(|vid| Vid::new(*vid).unwrap()).collect()
}

/// VF 0 access port of VLAN 7 with priority 5, VF 1 of 7 by a service tag with priority 3; VF 2
/// trunk of 7 and 8; VF 3 trunk of 8 and 9 whose native VLAN is 7, priority 1; VF 4 untagged.
fn config() -> NicConfig {
    let q = VlanProtocol::Ieee8021Q;
    let vfs = vec![
        Function { vlan: port_vlan(7, 5, q), ..function(0, None) },
        Function { vlan: port_vlan(7, 3, VlanProtocol::Ieee8021Ad), ..function(1, None) },
        Function { trunk: trunk(&[7, 8]), ..function(2, None) },
        Function { vlan: port_vlan(7, 1, q), trunk: trunk(&[8, 9]), ..function(3, None) },
        function(4, None),
    ];
    NicConfig { vfs: vfs.into_iter().map(Some).collect(), ..NicConfig::default() }
}

fn action_of(from: PortId, header: [u8; 16]) -> Action {
    let table = Table::build(&config()).unwrap();
    let mut out = Verdicts::new();
    let snapshots = [
        HeaderSnapshot::of_frame(&header),
        HeaderSnapshot::EMPTY,
        HeaderSnapshot::of_frame(&header),
    ];
    table.classify_with_snapshots(
        from,
        &[header, [0; 16], header],
        &snapshots,
        &mut Flows::new(),
        &mut out,
    );
    assert_eq!(out[0], out[2]);
    table.classify_with_snapshots(from, &[header], &snapshots[..1], &mut Flows::new(), &mut out);
    out[0].action()
}

#[track_caller]
fn goes(from: PortId, src: u16, dst: u16, tag: Option<(u16, u16)>, to: PortId, edit: VlanEdit) {
    let header = header(mac(dst), mac(src), tag);
    assert_eq!(action_of(from, header), Action::Port(to));
    let table = Table::build(&config()).unwrap();
    assert_eq!(table.edit_of(from, to, &header), edit);
    assert!(table.edit(from, to).is_none_or(|all| all == edit));
}

#[track_caller]
fn forbidden(from: PortId, src: u16, tag: (u16, u16)) {
    let frame = header(mac(99), mac(src), Some(tag));
    assert_eq!(action_of(from, frame), Action::Drop(DropReason::VlanForbidden));
}

#[test]
fn a_tag_that_is_put_on_has_the_priority_and_protocol_of_its_port() {
    goes(vf(0), 0, 99, None, UPLINK, VlanEdit::Push([0x81, 0, 0xa0, 7]));
    goes(vf(1), 1, 99, None, UPLINK, VlanEdit::Push([0x88, 0xa8, 0x60, 7]));
    goes(UPLINK, 99, 0, Some((CTAG, 7)), vf(0), VlanEdit::Pop);
    goes(UPLINK, 99, 0, Some((STAG, 0xe007)), vf(0), VlanEdit::Pop);
    goes(UPLINK, 99, 1, Some((CTAG, 7)), vf(1), VlanEdit::Pop);
    goes(vf(0), 0, 1, None, vf(1), VlanEdit::None);
}

#[test]
fn customer_tags_are_payload_beneath_a_service_tag() {
    let push = VlanEdit::Push([0x88, 0xa8, 0x60, 7]);
    for tci in [0, 7, 100, 4095] {
        goes(vf(1), 1, 99, Some((CTAG, tci)), UPLINK, push);
        goes(vf(1), 1, 0, Some((CTAG, tci)), vf(0), VlanEdit::None);
        forbidden(vf(1), 1, (STAG, tci));
        forbidden(vf(0), 0, (CTAG, tci));
    }
}

#[test]
fn a_trunk_sends_the_tags_of_its_list() {
    goes(vf(2), 2, 99, Some((CTAG, 8)), UPLINK, VlanEdit::None);
    goes(vf(2), 2, 99, Some((STAG, 0x6007)), UPLINK, VlanEdit::None);
    goes(vf(2), 2, 99, None, UPLINK, VlanEdit::None);
    goes(vf(2), 2, 99, Some((CTAG, 0x6000)), UPLINK, VlanEdit::None);
    for vid in [1, 6, 9, 4095] {
        forbidden(vf(2), 2, (CTAG, vid));
    }
    goes(vf(2), 2, 0, Some((CTAG, 7)), vf(0), VlanEdit::Pop);
    goes(vf(2), 2, 3, Some((CTAG, 8)), vf(3), VlanEdit::None);
    goes(vf(2), 2, 3, Some((CTAG, 7)), vf(3), VlanEdit::Pop);
    goes(vf(2), 2, 4, None, vf(4), VlanEdit::None);
    goes(vf(2), 2, 4, Some((CTAG, 8)), UPLINK, VlanEdit::None);
}

#[test]
fn a_trunk_receives_the_tags_of_its_list() {
    goes(vf(0), 0, 2, None, vf(2), VlanEdit::Push([0x81, 0, 0xa0, 7]));
    goes(UPLINK, 99, 2, Some((STAG, 8)), vf(2), VlanEdit::None);
    goes(UPLINK, 99, 2, None, vf(2), VlanEdit::None);
    let outside = header(mac(2), mac(99), Some((CTAG, 9)));
    assert_eq!(action_of(UPLINK, outside), Action::Drop(DropReason::NoMatch));
    let table = Table::build(&config()).unwrap();
    let group = |tag| {
        let header = header(Mac::BROADCAST, mac(99), tag);
        table.receivers(UPLINK, &header).collect::<Vec<_>>()
    };
    assert_eq!(group(Some((CTAG, 7))), [vf(0), vf(1), vf(2), vf(3)]);
    assert_eq!(group(Some((CTAG, 8))), [vf(2), vf(3)]);
    assert_eq!(group(Some((CTAG, 9))), [vf(3)]);
    assert_eq!(group(None), [vf(2), vf(4)]);
}

#[test]
fn a_native_vlan_is_untagged_on_its_trunk() {
    let tag = [0x81, 0, 0x20, 7];
    goes(vf(3), 3, 99, None, UPLINK, VlanEdit::Push(tag));
    goes(vf(3), 3, 99, Some((CTAG, 0xe000)), UPLINK, VlanEdit::Retag(tag));
    goes(vf(3), 3, 99, Some((CTAG, 9)), UPLINK, VlanEdit::None);
    goes(vf(3), 3, 0, Some((CTAG, 0xe000)), vf(0), VlanEdit::Pop);
    goes(vf(3), 3, 2, Some((CTAG, 0xe000)), vf(2), VlanEdit::Retag(tag));
    goes(vf(3), 3, 0, None, vf(0), VlanEdit::None);
    goes(UPLINK, 99, 3, Some((CTAG, 7)), vf(3), VlanEdit::Pop);
    goes(UPLINK, 99, 3, Some((CTAG, 9)), vf(3), VlanEdit::None);
    // It is in the list neither as a tag nor untagged.
    forbidden(vf(3), 3, (CTAG, 7));
    let untagged = header(mac(3), mac(99), None);
    assert_eq!(action_of(UPLINK, untagged), Action::Drop(DropReason::NoMatch));
    let table = Table::build(&config()).unwrap();
    assert_eq!(table.edit(vf(3), UPLINK), None);
    assert_eq!(table.edit(vf(0), vf(3)), None);
}

/// Receivers remove a priority tag and classify by the next one, as Linux does.
#[test]
fn a_priority_tag_hides_no_other_tag() {
    let config = config();
    let table = Table::build(&config).unwrap();
    let to_wire = |port: PortId, n: u16, tags: &[(u16, u16)]| {
        let mut frame = [mac(99).0, mac(n).0].concat();
        for (tpid, tci) in tags {
            frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        frame.extend([0x08, 0]);
        let (header, snapshots) =
            (*frame.first_chunk().unwrap(), [HeaderSnapshot::of_frame(&frame)]);
        let mut out = Verdicts::new();
        table.classify(port, &[header], &mut Flows::new(), &mut out);
        // Without the snapshot it is refused, and the snapshot asked for.
        let is_function = port != UPLINK;
        let forbidden = Action::Drop(DropReason::VlanForbidden);
        assert!(!is_function || out.wants_snapshots() && out[0].action() == forbidden);
        table.classify_with_snapshots(port, &[header], &snapshots, &mut Flows::new(), &mut out);
        assert!(!out.wants_snapshots());
        out[0].action() != forbidden
    };
    // Untagged, with a service tag, a trunk without a native VLAN, one with, and the wire.
    for first in [(CTAG, 0), (CTAG, 0xe000), (CTAG, 0x1000), (STAG, 0)] {
        for second in [(CTAG, 8), (STAG, 8), (CTAG, 0), (CTAG, 9)] {
            for n in [2, 3, 4] {
                assert!(to_wire(vf(n), n.into(), &[first]));
                assert!(!to_wire(vf(n), n.into(), &[first, second]), "VF {n}");
                assert!(!to_wire(vf(n), n.into(), &[first, (CTAG, 0), second]), "VF {n}");
            }
            assert!(to_wire(UPLINK, 99, &[first, second]) == to_wire(UPLINK, 99, &[first]));
        }
    }
    assert!(to_wire(vf(1), 1, &[(CTAG, 0)]) && !to_wire(vf(1), 1, &[(CTAG, 0), (CTAG, 8)]));
}

#[test]
fn spoof_check_holds_in_every_vlan() {
    for tag in [None, Some((CTAG, 7)), Some((CTAG, 8)), Some((CTAG, 1))] {
        let spoofed = header(mac(0), mac(1), tag);
        assert_eq!(action_of(vf(2), spoofed), Action::Drop(DropReason::SpoofedMac));
    }
}

#[test]
fn a_vlan_is_a_wall_without_spoof_check_too() {
    let mut config = config();
    config.vfs.iter_mut().flatten().for_each(|function| function.spoof_check = false);
    let table = Table::build(&config).unwrap();
    let mut out = Verdicts::new();
    for (n, tag) in [(0, (CTAG, 7)), (1, (STAG, 7)), (2, (CTAG, 9)), (3, (CTAG, 7)), (4, (CTAG, 7))]
    {
        let frame = header(mac(99), mac(77), Some(tag));
        table.classify(vf(n), &[frame], &mut Flows::new(), &mut out);
        assert_eq!(out[0].action(), Action::Drop(DropReason::VlanForbidden), "VF {n}");
    }
}

#[track_caller]
fn refused(vlan: Option<PortVlan>, trunk: Vids, text: &str) {
    let function = Function { vlan, trunk, ..function(0, None) };
    let config = NicConfig { vfs: vec![Some(function)], ..NicConfig::default() };
    assert_eq!(Table::build(&config).unwrap_err().to_string(), text);
}

#[test]
fn refusals() {
    let none = Vids::default;
    refused(
        port_vlan(7, 8, VlanProtocol::Ieee8021Q),
        none(),
        "VF 0: qos: 8 is too large; allowed are 0 to 7",
    );
    refused(
        port_vlan(7, 0, VlanProtocol::Ieee8021Ad),
        trunk(&[1, 2]),
        "VF 0: trunk: 2 VLANs beside an 802.1ad VLAN, under which the guest's tags are payload; \
         allowed is an empty trunk, or an 802.1Q VLAN",
    );
    let all = trunk(&(1..=4094).collect::<Vec<_>>());
    let many = |n: u16| Some(Function { trunk: all.clone(), ..function(n, None) });
    let config = |n| NicConfig { vfs: (0..n).map(many).collect(), ..NicConfig::default() };
    assert!(Table::build(&config(8)).is_ok());
    assert_eq!(
        Table::build(&config(9)).unwrap_err().to_string(),
        "VF 8: trunk: the NIC has 36855 pairs of a MAC and a VLAN up to here; \
         allowed are up to 32768 of all functions together",
    );
}

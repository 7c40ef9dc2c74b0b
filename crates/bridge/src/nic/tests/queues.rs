//! Receive queues: what they receive, and what they never do.

use wire::{Mac, Vid};

use super::{function, header, mac, vf};
use crate::nic::*;
use crate::*;

const UPLINK: PortId = PortId::UPLINK;
const CTAG: u16 = 0x8100;
const DOWN: Action = Action::Drop(DropReason::LinkDown);

const fn queue(n: u8) -> PortId {
    PortId::queue(n)
}

/// VF 0 untagged, VF 1 in VLAN 7. Queue 0 untagged with MACs 10, 11 and 12, queue 1 in VLAN 7 with
/// MAC 20, no queue 2, queue 3 a trunk of 7 and 8 with MAC 30.
fn config() -> NicConfig {
    let trunk = [7, 8].map(|vid| Vid::new(vid).unwrap());
    let several = Function {
        extra_macs: vec![mac(11)],
        guest_macs: vec![mac(12)],
        trust: true,
        ..function(10, None)
    };
    let trunk = Function { trunk: trunk.into_iter().collect(), ..function(30, None) };
    NicConfig {
        vfs: vec![Some(function(0, None)), Some(function(1, Some(7)))],
        queues: vec![Some(several), Some(function(20, Some(7))), None, Some(trunk)],
        ..NicConfig::default()
    }
}

fn action_of(config: &NicConfig, from: PortId, frame: [u8; 16]) -> Action {
    let table = Table::build(config).unwrap();
    let mut out = Verdicts::new();
    let other = header(mac(700), mac(701), None);
    table.classify(from, &[other, frame, other], &mut Flows::new(), &mut out);
    let mixed = out[1];
    table.classify(from, &[frame], &mut Flows::new(), &mut out);
    assert_eq!(out[0], mixed, "alone and among others");
    out[0].action()
}

#[track_caller]
fn goes(from: PortId, src: u16, dst: u16, tag: Option<u16>, to: PortId, edit: VlanEdit) {
    let frame = header(mac(dst), mac(src), tag.map(|vid| (CTAG, vid)));
    assert_eq!(action_of(&config(), from, frame), Action::Port(to));
    let table = Table::build(&config()).unwrap();
    assert_eq!(table.edit_of(from, to, &frame), edit);
    assert_eq!(table.edit(from, to), Some(edit));
}

#[test]
fn port_numbers() {
    assert_eq!((queue(0), queue(254)), (PortId(257), PortId(511)));
    assert_eq!((PORTS, vf(254)), (512, PortId(256)));
    assert_eq!((queue(3).queue_index(), queue(3).vf_index()), (Some(3), None));
    assert_eq!((vf(254).queue_index(), vf(254).vf_index()), (None, Some(254)));
    for port in [UPLINK, PortId::PF] {
        assert_eq!((port.queue_index(), port.vf_index()), (None, None));
    }
    let names =
        [UPLINK, PortId::PF, vf(254), queue(0), queue(254)].map(|port| PortName(port).to_string());
    assert_eq!(names, ["uplink", "PF", "VF 254", "queue 0", "queue 254"]);
}

#[test]
fn frames_for_a_queue_come_from_uplink_and_functions() {
    for dst in [10, 11, 12] {
        goes(UPLINK, 500, dst, None, queue(0), VlanEdit::None);
        goes(vf(0), 0, dst, None, queue(0), VlanEdit::None);
    }
    goes(UPLINK, 500, 20, Some(7), queue(1), VlanEdit::Pop);
    goes(vf(1), 1, 20, None, queue(1), VlanEdit::None);
    goes(UPLINK, 500, 30, Some(8), queue(3), VlanEdit::None);
    goes(UPLINK, 500, 30, None, queue(3), VlanEdit::None);
    goes(vf(1), 1, 30, None, queue(3), VlanEdit::Push([0x81, 0, 0, 7]));
    // VLANs are apart for queues too.
    goes(vf(0), 0, 20, None, UPLINK, VlanEdit::None);
    let outside = header(mac(20), mac(500), Some((CTAG, 8)));
    assert_eq!(action_of(&config(), UPLINK, outside), Action::Drop(DropReason::NoMatch));
    let table = Table::build(&config()).unwrap();
    assert!(table.has(queue(0)) && table.has(queue(3)) && table.is_up(queue(1)));
    assert!(!table.has(queue(2)) && !table.has(queue(4)) && !table.is_up(queue(2)));
}

#[test]
fn a_queue_sends_nothing_and_hears_no_flood() {
    let mut config = config();
    for queue in config.queues.iter_mut().flatten() {
        (queue.promiscuous, queue.all_multicast, queue.trust) = (true, true, true);
        queue.share.min_mbit = 100;
        queue.storm_limit = 5;
    }
    let sent = header(mac(0), mac(10), None);
    assert_eq!(action_of(&config, queue(0), sent), Action::Drop(DropReason::NoFunction));
    let unknown = header(mac(501), mac(500), None);
    assert_eq!(action_of(&config, UPLINK, unknown), Action::Drop(DropReason::NoMatch));
    assert_eq!(action_of(&config, vf(0), header(mac(501), mac(0), None)), Action::Port(UPLINK));
    let table = Table::build(&config).unwrap();
    let members = |tag| {
        let header = header(Mac::BROADCAST, mac(500), tag);
        table.receivers(UPLINK, &header).collect::<Vec<_>>()
    };
    assert_eq!((members(None), members(Some((CTAG, 7)))), (vec![vf(0)], vec![vf(1)]));
    assert_eq!((table.share(queue(0)), table.storm_limit(queue(0))), (Share::default(), 0));
}

#[test]
fn the_link_of_a_queue() {
    let mut config = NicConfig { uplink_up: false, ..config() };
    let frame = header(mac(20), mac(1), None);
    assert_eq!(action_of(&config, vf(1), frame), DOWN);
    config.vfs[1].as_mut().unwrap().link = LinkState::Enable;
    assert_eq!(action_of(&config, vf(1), frame), DOWN);
    config.queues[1].as_mut().unwrap().link = LinkState::Enable;
    assert_eq!(action_of(&config, vf(1), frame), Action::Port(queue(1)));
    config.uplink_up = true;
    config.queues[1].as_mut().unwrap().link = LinkState::Disable;
    assert_eq!(action_of(&config, vf(1), frame), DOWN);
    assert!(!Table::build(&config).unwrap().is_up(queue(1)));
}

#[test]
fn modes() {
    let to_queue = header(mac(10), mac(0), None);
    let vepa = NicConfig { mode: Mode::Vepa, ..config() };
    assert_eq!(action_of(&vepa, vf(0), to_queue), Action::Port(UPLINK));
    assert_eq!(action_of(&vepa, UPLINK, to_queue), Action::Port(queue(0)));
    let isolated = NicConfig { mode: Mode::Isolated, ..config() };
    assert_eq!(action_of(&isolated, vf(0), to_queue), Action::Drop(DropReason::Isolated));
    assert_eq!(action_of(&isolated, UPLINK, to_queue), Action::Port(queue(0)));
}

#[test]
fn a_queue_is_mirrored_in_what_it_receives() {
    for (way, copied) in [
        (MirroredFrames::Ingress, true),
        (MirroredFrames::Both, true),
        (MirroredFrames::Egress, false),
    ] {
        let mut config = config();
        let to = MirrorTarget::Port(vf(0));
        config.queues[1].as_mut().unwrap().mirror = Some(FunctionMirror { way, to });
        let table = Table::build(&config).unwrap();
        let mut copies = Vec::new();
        let frame = header(mac(20), mac(500), Some((CTAG, 7)));
        table.mirror(UPLINK, &frame, Verdict::port(queue(1)), |copy| copies.push(copy));
        let copy = MirrorCopy { of: queue(1), to, edit: VlanEdit::Pop };
        assert_eq!(copies, if copied { vec![copy] } else { vec![] });
    }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut NicConfig), text: &str) {
    let mut config = config();
    change(&mut config);
    assert_eq!(Table::build(&config).unwrap_err().to_string(), text);
}

#[test]
fn refusals_name_queue_and_field() {
    refused(
        |config| config.queues[0].as_mut().unwrap().extra_macs[0] = mac(0),
        "queue 0: extra_macs[0]: 02:00:00:00:00:00 is also mac of VF 0 in the untagged network; \
         within a VLAN each MAC is allowed once",
    );
    refused(
        |config| config.queues[3].as_mut().unwrap().mac = mac(20),
        "queue 3: mac: 02:00:00:00:00:14 is also mac of queue 1 in VLAN 7; \
         within a VLAN each MAC is allowed once",
    );
    refused(
        |config| config.queues[1].as_mut().unwrap().mac = Mac::ZERO,
        "queue 1: mac: 00:00:00:00:00:00 is no address; allowed is any other unicast one",
    );
    refused(
        |config| config.queues.resize(256, None),
        "queues: 256 queues are too many; allowed are up to 255",
    );
    let mirror =
        |to| Some(FunctionMirror { way: MirroredFrames::Both, to: MirrorTarget::Port(to) });
    refused(
        |config| config.vfs[0].as_mut().unwrap().mirror = mirror(queue(1)),
        "VF 0: mirror: frames cannot go to queue 1; \
         allowed is the uplink or another function that exists",
    );
    refused(
        |config| config.queues[0].as_mut().unwrap().extra_macs = (1000..9191).map(mac).collect(),
        "queue 0: extra_macs: the NIC has 8195 MACs up to here; \
         allowed are up to 8192 of all functions together",
    );
}

#[test]
fn there_can_be_255_queues() {
    let queues = (0..255).map(|n| Some(function(1000 + n, None))).collect();
    let config = NicConfig { queues, ..config() };
    let frame = header(mac(1254), mac(0), None);
    assert_eq!(action_of(&config, vf(0), frame), Action::Port(queue(254)));
    assert_eq!(config.function(queue(254)).unwrap().mac, mac(1254));
    assert_eq!(config.used_queues().count(), 255);
}

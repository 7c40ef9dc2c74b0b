//! The bridge's modes, and mirrors.

use wire::Mac;

use super::{classify, function, header, mac, receivers, vf};
use crate::nic::*;
use crate::*;

const UPLINK: PortId = PortId::UPLINK;
const PF: PortId = PortId::PF;
const HAIRPIN: Action = Action::Drop(DropReason::Hairpin);

/// PF 100; VF 0 with MACs 0 and 10, VF 1, VF 2 in VLAN 7.
fn config(mode: Mode) -> NicConfig {
    NicConfig {
        pf: Some(function(100, None)),
        vfs: vec![
            Some(Function { extra_macs: vec![mac(10)], ..function(0, None) }),
            Some(function(1, None)),
            Some(function(2, Some(7))),
        ],
        mode,
        ..NicConfig::default()
    }
}

#[test]
fn a_vepa_sends_everything_to_the_wire() {
    let mut config = config(Mode::Vepa);
    assert_eq!(classify(&config, vf(0), 0, mac(1), 0), Action::Port(UPLINK));
    assert_eq!(classify(&config, vf(0), 10, mac(100), 0), Action::Port(UPLINK));
    assert_eq!(classify(&config, vf(0), 0, mac(500), 0), Action::Port(UPLINK));
    assert_eq!(classify(&config, vf(0), 0, mac(10), 0), HAIRPIN);
    assert_eq!(classify(&config, vf(0), 0, Mac::BROADCAST, 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config, vf(0), 0, Mac::BROADCAST, 0), [UPLINK]);
    config.pf.as_mut().unwrap().promiscuous = true;
    assert_eq!(classify(&config, vf(0), 0, mac(500), 0), Action::Port(UPLINK));
}

#[test]
fn what_a_vepa_gets_back_does_not_return_to_its_sender() {
    let mut config = config(Mode::Vepa);
    assert_eq!(classify(&config, UPLINK, 0, mac(1), 0), Action::Port(vf(1)));
    assert_eq!(classify(&config, UPLINK, 500, mac(1), 0), Action::Port(vf(1)));
    assert_eq!(classify(&config, UPLINK, 10, mac(0), 0), HAIRPIN);
    assert_eq!(classify(&config, UPLINK, 0, Mac::BROADCAST, 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config, UPLINK, 10, Mac::BROADCAST, 0), [PF, vf(1)]);
    assert_eq!(receivers(&config, UPLINK, 500, Mac::BROADCAST, 0), [PF, vf(0), vf(1)]);
    config.pf.as_mut().unwrap().promiscuous = true;
    assert_eq!(classify(&config, UPLINK, 0, mac(501), 0), Action::Port(PF));
    assert_eq!(classify(&config, UPLINK, 100, mac(501), 0), Action::Drop(DropReason::NoMatch));
}

#[test]
fn a_veb_does_not_reflect() {
    let config = config(Mode::Veb);
    assert_eq!(classify(&config, UPLINK, 0, mac(10), 0), Action::Port(vf(0)));
    assert_eq!(receivers(&config, UPLINK, 0, Mac::BROADCAST, 0), [PF, vf(0), vf(1)]);
}

#[test]
fn isolated_functions_talk_to_the_uplink_only() {
    let mut config = config(Mode::Isolated);
    let isolated = Action::Drop(DropReason::Isolated);
    assert_eq!(classify(&config, vf(0), 0, mac(1), 0), isolated);
    assert_eq!(classify(&config, vf(0), 0, mac(100), 0), isolated);
    assert_eq!(classify(&config, PF, 100, mac(0), 0), isolated);
    assert_eq!(classify(&config, vf(0), 0, mac(10), 0), HAIRPIN);
    assert_eq!(classify(&config, vf(0), 0, mac(500), 0), Action::Port(UPLINK));
    assert_eq!(classify(&config, UPLINK, 500, mac(0), 0), Action::Port(vf(0)));
    assert_eq!(classify(&config, vf(0), 0, Mac::BROADCAST, 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config, vf(0), 0, Mac::BROADCAST, 0), [UPLINK]);
    assert_eq!(receivers(&config, UPLINK, 500, Mac::BROADCAST, 0), [PF, vf(0), vf(1)]);
    config.pf.as_mut().unwrap().promiscuous = true;
    assert_eq!(classify(&config, vf(0), 0, mac(500), 0), Action::Port(UPLINK));
    assert_eq!(classify(&config, UPLINK, 500, mac(501), 0), Action::Port(PF));
}

/// Copies of a frame, from a NIC on which VF 0 and VF 2 are mirrored.
fn copies(
    way: MirroredFrames,
    to: MirrorTarget,
    from: PortId,
    frame: [u8; 16],
) -> Vec<(PortId, MirrorTarget, VlanEdit)> {
    let mut config = config(Mode::Veb);
    for n in [0, 2] {
        config.vfs[n].as_mut().unwrap().mirror = Some(FunctionMirror { way, to });
    }
    let table = Table::build(&config).unwrap();
    assert!(table.is_mirrored());
    let mut out = Verdicts::new();
    table.classify(from, &[frame], &mut Flows::new(), &mut out);
    let mut copies = Vec::new();
    table.mirror(from, &frame, out[0], |copy| copies.push((copy.of, copy.to, copy.edit)));
    copies
}

#[test]
fn mirrors_of_what_is_sent_and_of_what_is_received() {
    let to = MirrorTarget::Port(PF);
    let sent = header(mac(500), mac(0), None);
    let received = header(mac(0), mac(500), None);
    let copy = vec![(vf(0), to, VlanEdit::None)];
    assert_eq!(copies(MirroredFrames::Egress, to, vf(0), sent), copy);
    assert_eq!(copies(MirroredFrames::Ingress, to, vf(0), sent), []);
    assert_eq!(copies(MirroredFrames::Both, to, vf(0), sent), copy);
    assert_eq!(copies(MirroredFrames::Ingress, to, UPLINK, received), copy);
    assert_eq!(copies(MirroredFrames::Egress, to, UPLINK, received), []);
    assert_eq!(copies(MirroredFrames::Both, to, UPLINK, received), copy);
    let group = header(Mac::BROADCAST, mac(1), None);
    assert_eq!(copies(MirroredFrames::Ingress, to, vf(1), group), copy);
    assert_eq!(copies(MirroredFrames::Both, to, vf(1), header(mac(100), mac(1), None)), []);
}

#[test]
fn a_mirror_shows_frames_as_the_function_sees_them() {
    let to = MirrorTarget::Capture(3);
    let tagged = header(mac(2), mac(500), Some((0x8100, 7)));
    assert_eq!(copies(MirroredFrames::Both, to, UPLINK, tagged), [(vf(2), to, VlanEdit::Pop)]);
    let untagged = header(mac(500), mac(2), None);
    assert_eq!(copies(MirroredFrames::Both, to, vf(2), untagged), [(vf(2), to, VlanEdit::None)]);
}

#[test]
fn mirrors_show_nothing_that_was_dropped_and_nothing_to_its_sender() {
    let to = MirrorTarget::Port(PF);
    assert_eq!(copies(MirroredFrames::Both, to, vf(0), header(mac(1), mac(1), None)), []);
    assert_eq!(copies(MirroredFrames::Both, to, vf(0), header(mac(10), mac(0), None)), []);
    assert_eq!(copies(MirroredFrames::Both, to, PF, header(mac(0), mac(100), None)), []);
    let mut config = config(Mode::Veb);
    config.vfs[0].as_mut().unwrap().mirror = Some(FunctionMirror { way: MirroredFrames::Both, to });
    config.pf.as_mut().unwrap().link = LinkState::Disable;
    let table = Table::build(&config).unwrap();
    let frame = header(mac(500), mac(0), None);
    table.mirror(vf(0), &frame, Verdict::port(UPLINK), |copy| panic!("{copy:?}"));
}

#[test]
fn without_a_mirror_there_is_nothing_to_ask() {
    let table = Table::build(&config(Mode::Veb)).unwrap();
    assert!(!table.is_mirrored());
    let frame = header(mac(1), mac(0), None);
    table.mirror(vf(0), &frame, Verdict::port(vf(1)), |copy| panic!("{copy:?}"));
}

#[test]
fn a_mirror_needs_another_port() {
    for (to, name) in [(vf(0), "VF 0"), (vf(9), "VF 9"), (PortId::vf(254), "VF 254")] {
        let mut config = config(Mode::Veb);
        let mirror = FunctionMirror { way: MirroredFrames::Both, to: MirrorTarget::Port(to) };
        config.vfs[0].as_mut().unwrap().mirror = Some(mirror);
        assert_eq!(
            Table::build(&config).unwrap_err().to_string(),
            format!(
                "VF 0: mirror: frames cannot go to {name}; allowed is the uplink or another function that exists"
            ),
        );
    }
}

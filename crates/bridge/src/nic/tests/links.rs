//! Link states, and what promiscuous and multicast modes receive.

use wire::Mac;

use super::{classify, function, header, mac, receivers, vf};
use crate::nic::*;
use crate::*;

const UPLINK: PortId = PortId::UPLINK;
const PF: PortId = PortId::PF;
const GROUP: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
const DOWN: Action = Action::Drop(DropReason::LinkDown);
const NO_MATCH: Action = Action::Drop(DropReason::NoMatch);

/// PF 100, VF 0 to 3: auto, enabled, enabled, disabled.
fn config() -> NicConfig {
    let linked = |n, link| Some(Function { link, ..function(n, None) });
    NicConfig {
        pf: Some(function(100, None)),
        vfs: vec![
            linked(0, LinkState::Auto),
            linked(1, LinkState::Enable),
            linked(2, LinkState::Enable),
            linked(3, LinkState::Disable),
        ],
        ..NicConfig::default()
    }
}

#[test]
fn a_disabled_link_is_down_both_ways() {
    let config = config();
    assert_eq!(classify(&config, vf(3), 3, mac(0), 0), DOWN);
    assert_eq!(classify(&config, vf(3), 3, Mac::BROADCAST, 0), DOWN);
    assert_eq!(classify(&config, vf(0), 0, mac(3), 0), DOWN);
    assert_eq!(classify(&config, UPLINK, 500, mac(3), 0), DOWN);
    assert_eq!(receivers(&config, UPLINK, 500, Mac::BROADCAST, 0), [PF, vf(0), vf(1), vf(2)]);
    let table = Table::build(&config).unwrap();
    assert!(!table.is_up(vf(3)) && table.has(vf(3)) && table.is_up(vf(0)) && table.is_up(UPLINK));
}

#[test]
fn without_an_uplink_enabled_links_talk_with_each_other() {
    let config = NicConfig { uplink_up: false, ..config() };
    assert_eq!(classify(&config, vf(1), 1, mac(2), 0), Action::Port(vf(2)));
    assert_eq!(classify(&config, vf(1), 1, Mac::BROADCAST, 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config, vf(1), 1, Mac::BROADCAST, 0), [vf(2)]);
    // Automatic ones are down with it, and so is the way out.
    assert_eq!(classify(&config, vf(0), 0, mac(1), 0), DOWN);
    assert_eq!(classify(&config, vf(1), 1, mac(0), 0), DOWN);
    assert_eq!(classify(&config, PF, 100, mac(1), 0), DOWN);
    assert_eq!(classify(&config, vf(1), 1, mac(500), 0), DOWN);
    assert_eq!(classify(&config, UPLINK, 500, mac(1), 0), DOWN);
    let mut alone = config;
    alone.vfs[2] = None;
    assert_eq!(classify(&alone, vf(1), 1, Mac::BROADCAST, 0), DOWN);
}

fn with_pf(change: impl Fn(&mut Function)) -> NicConfig {
    let mut config = config();
    config.pf.as_mut().into_iter().for_each(change);
    config
}

#[test]
fn promiscuous_functions_receive_what_is_for_nobody_known() {
    let config = with_pf(|pf| pf.promiscuous = true);
    assert_eq!(classify(&config, UPLINK, 500, mac(501), 0), Action::Port(PF));
    assert_eq!(classify(&config, UPLINK, 500, mac(0), 0), Action::Port(vf(0)));
    assert_eq!(classify(&config, vf(0), 0, mac(501), 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config, vf(0), 0, mac(501), 0), [UPLINK, PF]);
    assert_eq!(classify(&config, vf(0), 0, mac(1), 0), Action::Port(vf(1)));
    // Not back to itself.
    assert_eq!(classify(&config, PF, 100, mac(501), 0), Action::Port(UPLINK));
    let mut both = config.clone();
    let vf0 = both.vfs[0].as_mut().unwrap();
    (vf0.promiscuous, vf0.trust) = (true, true);
    assert_eq!(classify(&both, UPLINK, 500, mac(501), 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&both, UPLINK, 500, mac(501), 0), [PF, vf(0)]);
    assert_eq!(classify(&NicConfig { uplink_up: false, ..both }, vf(1), 1, mac(501), 0), DOWN);
}

#[test]
fn the_bridge_of_a_real_card_floods_only_what_comes_from_the_wire() {
    let config = NicConfig { floods_unknown: false, ..with_pf(|pf| pf.promiscuous = true) };
    assert_eq!(classify(&config, UPLINK, 500, mac(501), 0), Action::Port(PF));
    assert_eq!(classify(&config, vf(0), 0, mac(501), 0), Action::Port(UPLINK));
}

#[test]
fn promiscuous_functions_keep_to_their_vlan() {
    let config = with_pf(|pf| {
        pf.promiscuous = true;
        pf.vlan = Some(wire::Vid::new(7).unwrap().into());
    });
    assert_eq!(classify(&config, UPLINK, 500, mac(501), 0), NO_MATCH);
    assert_eq!(classify(&config, vf(0), 0, mac(501), 0), Action::Port(UPLINK));
    let table = Table::build(&config).unwrap();
    let mut out = Verdicts::new();
    let vlans = [7, 8, 7].map(|vid| header(mac(501), mac(500), Some((0x8100, vid))));
    table.classify(UPLINK, &vlans, &mut Flows::new(), &mut out);
    let actions: Vec<_> = out.iter().map(|verdict| verdict.action()).collect();
    assert_eq!(actions, [Action::Port(PF), NO_MATCH, Action::Port(PF)]);
}

#[test]
fn groups_go_to_those_who_joined() {
    let mut config = config();
    config.vfs[0].as_mut().unwrap().groups = Some(vec![]);
    config.vfs[1].as_mut().unwrap().groups = Some(vec![Mac([1, 0, 0x5e, 0, 0, 1]), GROUP]);
    assert_eq!(receivers(&config, UPLINK, 500, GROUP, 0), [PF, vf(1), vf(2)]);
    let everyone = [PF, vf(0), vf(1), vf(2)];
    assert_eq!(receivers(&config, UPLINK, 500, Mac::BROADCAST, 0), everyone);
    let vf0 = config.vfs[0].as_mut().unwrap();
    (vf0.all_multicast, vf0.trust) = (true, true);
    assert_eq!(receivers(&config, UPLINK, 500, GROUP, 0), everyone);
    let vf0 = config.vfs[0].as_mut().unwrap();
    (vf0.all_multicast, vf0.promiscuous) = (false, true);
    assert_eq!(receivers(&config, UPLINK, 500, GROUP, 0), everyone);
}

#[test]
fn a_group_that_nobody_joined_is_for_nobody() {
    let mut config = config();
    config.pf = None;
    config.vfs.iter_mut().flatten().for_each(|function| function.groups = Some(vec![]));
    assert_eq!(classify(&config, UPLINK, 500, GROUP, 0), NO_MATCH);
    assert_eq!(classify(&config, UPLINK, 500, Mac::BROADCAST, 0), Action::Flood(Flood::Group));
    assert_eq!(classify(&config, vf(0), 0, GROUP, 0), Action::Flood(Flood::Group));
    assert_eq!(receivers(&config, vf(0), 0, GROUP, 0), [UPLINK]);
}

#[track_caller]
fn refused(change: impl Fn(&mut Function), text: &str) {
    let mut config = config();
    config.vfs[0].as_mut().into_iter().for_each(change);
    assert_eq!(Table::build(&config).unwrap_err().to_string(), text);
}

#[test]
fn what_takes_trust() {
    let untrusted = "the function is not trusted; allowed with trust = true";
    refused(|vf| vf.promiscuous = true, &format!("VF 0: promiscuous: {untrusted}"));
    refused(|vf| vf.all_multicast = true, &format!("VF 0: all_multicast: {untrusted}"));
    refused(|vf| vf.guest_macs = vec![mac(50)], &format!("VF 0: guest_macs: {untrusted}"));
    let mut config = config();
    let vf0 = config.vfs[0].as_mut().unwrap();
    (vf0.trust, vf0.guest_macs) = (true, vec![mac(50)]);
    assert_eq!(classify(&config, vf(1), 1, mac(50), 0), Action::Port(vf(0)));
    assert_eq!(classify(&config, vf(0), 50, mac(1), 0), Action::Port(vf(1)));
    refused(
        |vf| (vf.trust, vf.guest_macs) = (true, vec![mac(1)]),
        "VF 1: mac: 02:00:00:00:00:01 is also guest_macs[0] of VF 0 in the untagged network; \
         within a VLAN each MAC is allowed once",
    );
}

#[test]
fn other_refusals() {
    refused(
        |vf| vf.groups = Some(vec![GROUP, mac(9)]),
        "VF 0: groups[1]: 02:00:00:00:00:09 is no group address; \
         allowed is a multicast one, whose first byte is odd",
    );
    refused(
        |vf| vf.groups = Some(vec![GROUP; 257]),
        "VF 0: groups: 257 are too many; allowed are up to 256",
    );
    refused(
        |vf| vf.share = Share { min_mbit: 101, max_mbit: 100, ..Share::default() },
        "VF 0: min_tx_rate: 101 Mbit/s is above max_tx_rate, 100 Mbit/s; allowed are 0 to 100",
    );
    for weight in [0, 101] {
        refused(
            |vf| vf.share.weight = weight,
            &format!("VF 0: weight: {weight} is out of range; allowed are 1 to 100"),
        );
    }
}

//! Drops by the switch's ACLs and guards; no frame may bypass them.

use bridge::matching::Match;
use bridge::switch::{Acl, Rule, RuleAction};
use wire::Mac;

use super::kit::*;
use crate::AclHits;

const DNS: u16 = 53;

/// A UDP frame over IPv4 with its number.
pub(super) fn udp(
    (dst, src): (Mac, Mac),
    (src_port, dst_port): (u16, u16),
    number: u32,
) -> Vec<u8> {
    let mut bytes = [dst.0, src.0].concat();
    bytes.extend([8, 0, 0x45, 0, 0, 64, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([src_port.to_be_bytes(), dst_port.to_be_bytes(), [0, 44], [0, 0]].concat());
    bytes.extend(number.to_be_bytes());
    bytes.resize(14 + 64, number as u8);
    bytes
}

fn rule(action: RuleAction, dst_port: Option<u16>) -> Rule {
    let dst_port = dst_port.map(|port| port..=port);
    Rule { matches: Match { dst_port, ..Match::default() }, action }
}

/// Counts all, and denies DNS.
fn no_dns() -> Acl {
    let rules = vec![rule(RuleAction::Count, None), rule(RuleAction::Deny, Some(DNS))];
    Acl { rules, default_allow: true }
}

/// Puts the list on these ports.
pub(super) fn filter(settings: &mut Settings, ports: &[bridge::PortId]) {
    settings.switch.acls = vec![no_dns()];
    for port in ports {
        settings.switch.ports[port.index()].as_mut().unwrap().acl = Some(0);
    }
}

/// Waits until the lanes have added the hits of each rule.
pub(super) fn expect_hits(hits: &AclHits, expected: [u64; 2]) {
    until("the hits", || [0, 1].map(|rule| hits.get(rule)) == expected);
}

/// No guest has another frame.
pub(super) fn expect_nothing(guests: &mut [Guest]) {
    guests.iter_mut().for_each(Guest::settle);
    for (n, guest) in guests.iter_mut().enumerate() {
        assert_eq!(guest.receive(), Vec::<Vec<u8>>::new(), "at guest {n}");
    }
}

#[test]
fn frames_that_an_acl_denies_are_dropped_and_counted() {
    for lanes in [1, 2] {
        let adapters = [Path::Synthetic, Path::Synthetic, Path::Vf, Path::Vmq];
        let adapters = adapters.map(|path| Adapter::new(path, Tags::Access(9)));
        let mut net = Net::new(4, lanes, 1);
        net.hits = std::sync::Arc::new(AclHits::new(2));
        // On adapter 0's port, and on the uplink: frames from the NIC.
        net.apply_with(&adapters, |settings| {
            filter(settings, &[switch_port(0), bridge::PortId::UPLINK]);
        });
        let mut guests = net.guests();
        let mut denied = 0;
        for (from, to, filtered) in
            [(0, 1, true), (0, 2, true), (0, 3, true), (1, 0, false), (2, 0, true), (2, 3, false)]
        {
            let way = (mac(to as u8), mac(from as u8));
            let frames: Vec<Vec<u8>> =
                (0..40).map(|i| udp(way, (4000, [DNS, 80][i % 2]), i as u32)).collect();
            frames.iter().for_each(|frame| guests[from].post(frame));
            guests[from].flush();
            let passes = |frame: &&Vec<u8>| !filtered || frame[37] != DNS as u8;
            let good: Vec<&[u8]> = frames.iter().filter(passes).map(|frame| &frame[..]).collect();
            assert_eq!(guests[to].wait_for(good.len()), good, "{from} to {to}");
            denied += if filtered { 1 } else { 0 };
            expect_hits(&net.hits, [denied * 40, denied * 20]);
            if (from, to) == (0, 3) {
                net.bench.expect("n/a0", "tx_drop_switch_acl_deny", 60);
            }
        }
        net.bench.expect("n/a2", "tx_drop_switch_acl_deny", 20);
        net.bench.expect("n/a1", "tx_drop_switch_acl_deny", 0);
        expect_nothing(&mut guests);
    }
}

#[test]
fn a_dhcp_guard_stops_servers_and_not_clients() {
    let adapters = [Path::Synthetic, Path::Synthetic, Path::Vf].map(Adapter::plain);
    let net = Net::new(3, 1, 1);
    net.apply_with(&adapters, |settings| {
        let guarded = &mut settings.switch.ports[..2]; // the uplink and adapter 0
        guarded.iter_mut().flatten().for_each(|port| port.dhcp_guard = true);
    });
    let mut guests = net.guests();
    for from in [0, 1, 2, 3] {
        let src = if from == 3 { OUTSIDE } else { mac(from as u8) };
        let request = udp((Mac::BROADCAST, src), (68, 67), 1);
        guests[from].send(&request);
        for to in (0..4).filter(|to| *to != from) {
            assert_eq!(guests[to].wait_for(1), [&request[..]]);
        }
        let reply = udp((Mac::BROADCAST, src), (67, 68), 2);
        guests[from].send(&reply);
        // The NIC has no guards: receivers on the same side get it.
        let hear: &[usize] = match from {
            0 => &[],
            1 => &[0, 2, 3],
            2 => &[3],
            _ => &[2],
        };
        hear.iter().for_each(|to| assert_eq!(guests[*to].wait_for(1), [&reply[..]]));
        expect_nothing(&mut guests);
    }
    for (label, dropped) in [("n/a0", 1), ("n/a1", 0), ("n/a2", 1), ("n/uplink", 1)] {
        net.bench.expect(label, "tx_drop_switch_dhcp_guard", dropped);
    }
}

#[test]
fn a_frame_rewritten_after_the_check_is_delivered_as_checked() {
    const CHECKED: usize = wire::HeaderSnapshot::LEN;
    for (from, to) in [
        (Path::Synthetic, Path::Synthetic),
        (Path::Synthetic, Path::Vmq),
        (Path::Synthetic, Path::Vf),
        (Path::Vf, Path::Synthetic),
    ] {
        for tags in [Tags::Access(0), Tags::Access(9)] {
            let adapters = [from, to].map(|path| Adapter::new(path, tags.clone()));
            let net = Net::new(2, 1, 1);
            net.apply_with(&adapters, |settings| {
                let ports = if from == Path::Vf { 0..1 } else { 0..2 };
                filter(settings, &ports.map(bridge::PortId).collect::<Vec<_>>());
            });
            let [mut good, mut bad] = [Guest::new(), Guest::new()];
            good.attach(net.port(1));
            bad.attach_treacherous(net.port(0), 0);
            for i in 0..20 {
                let mut there = udp((mac(1), mac(0)), (4000, 80), i);
                there.resize(78 + 20 * i as usize, 0x99);
                bad.send(&there);
                let got = good.wait_for(1).remove(0);
                // The classified bytes are unchanged; the rest was not checked.
                let checked = there.len().min(CHECKED);
                assert_eq!(got[..checked], there[..checked]);
                assert!(got[checked..].iter().all(|byte| *byte == TREASON));
                assert_eq!(got.len(), there.len());
                bad.settle();
            }
        }
    }
}

//! Each drop reason, provoked through a real ring, and found under its name.

use bridge::nic::{Function, LinkState, Mode, NicConfig, RuleTarget};
use bridge::switch::Storm;
use bridge::{PortId, matching};
use wire::Mac;

use super::filters::{filter, udp};
use super::kit::*;
use super::switchdev;
use crate::drops::DROPS;

const VF0: PortId = PortId::vf(0);
const GROUP: Mac = Mac([1, 0, 0x5e, 0, 0, 1]);
/// Without an owner.
const STRANGER: Mac = mac_of(0x77);

const fn mac_of(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

/// Waits until VF or adapter 0 has counted a drop.
fn expect(bench: &Bench, label: &str, counter: &str) {
    let name = format!("{}_drop_{}", &counter[..2], &counter[3..]);
    until(&format!("{counter} of {label}"), || {
        // Rings without a kick are polled only while the lane is awake.
        bench.wait_for_rounds(1);
        bench.count(label, &name) > 0
    });
}

/// VF 0 of a NIC sends a frame, which its port counts.
fn nic_drops(counter: &str, config: NicConfig, frames: &[Vec<u8>]) {
    let bench = Bench::of(config, 1, 1);
    let [mut guest, _other] = bench.guests([VF0, PortId::vf(1)]);
    frames.iter().for_each(|frame| guest.post(frame));
    guest.flush();
    expect(&bench, "n/vf0", counter);
}

/// Adapter 0 of a switch sends a frame, which its port counts.
fn switch_drops(counter: &str, change: impl FnOnce(&mut Settings), frame: &[u8]) {
    let mut net = Net::new(2, 1, 1);
    net.floods_unknown = true;
    net.apply_with(&[Path::Synthetic, Path::Synthetic].map(Adapter::plain), change);
    let mut guests = net.guests();
    guests[0].send(frame);
    expect(&net.bench, "n/a0", counter);
}

/// VF 0 sends a frame to VF 1, whose port counts it.
fn receiver_drops(counter: &str, receiver: Option<(Shape, usize)>) {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut sender] = bench.guests([VF0]);
    let receiver = receiver.map(|(shape, buffers)| {
        let mut guest = Guest::empty(shape);
        guest.pair.refill_with(buffers);
        guest.attach(bench.vf(1));
        guest
    });
    sender.send(&frame(mac(1), mac(0), 1, 100));
    expect(&bench, "n/vf1", counter);
    drop(receiver);
}

/// VF 0 sends a frame with this virtio header through another ring than usual.
fn ring_drops(counter: &str, header: [u8; 12], ring: impl FnOnce(&Guest) -> Ring) {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let mut guest = Guest::new();
    bench.vf(0).attach_transmit(0, Box::new(ring(&guest)));
    guest.post_with(header, &frame(mac(1), mac(0), 1, 100));
    guest.flush();
    expect(&bench, "n/vf0", counter);
}

type Ring = port::virtio_net::TransmitRing;

fn nic() -> NicConfig {
    NicConfig { vfs: vec![Some(plain(0)), Some(plain(1))], ..NicConfig::default() }
}

fn with_vf0(function: Function) -> NicConfig {
    NicConfig { vfs: vec![Some(function), Some(plain(1))], ..NicConfig::default() }
}

fn port_0(settings: &mut Settings) -> &mut bridge::switch::PortConfig {
    settings.switch.ports[1].as_mut().unwrap()
}

/// An IPv4 packet of a router: ICMP redirect.
fn redirect() -> Vec<u8> {
    let mut bytes = udp((Mac::BROADCAST, mac(0)), (0, 0), 1);
    bytes[14 + 9] = matching::ICMP;
    bytes[34] = 5;
    bytes
}

/// Provokes a drop that counts there.
fn provoke(counter: &str) {
    let to_1 = |src: Mac, len: usize| frame(mac(1), src, 1, len);
    let good = to_1(mac(0), 60);
    let tagged = tagged(&good, 0x8100, 5);
    let from_group = to_1(Mac([3, 0, 0, 0, 0, 1]), 60);
    let own = frame(mac(0), mac(0), 1, 60);
    match counter {
        "tx_runt" => nic_drops(counter, nic(), &[good[..13].to_vec()]),
        "tx_oversize" => nic_drops(counter, nic(), &[to_1(mac(0), FRAME_MAX as usize + 1)]),
        "tx_offload" => {
            let mut kind_7 = [0; 12];
            kind_7[1] = 7;
            ring_drops(counter, kind_7, Guest::leaving);
        }
        "tx_disabled" => ring_drops(counter, [0; 12], |guest| guest.leaving().discarding()),
        "tx_unplugged" => {
            let net = Net::new(1, 1, 1);
            net.guests()[0].send(&good);
            expect(&net.bench, "n/a0", counter);
        }
        "tx_no_function" => {
            let bench = Bench::of(nic(), 1, 1);
            let [mut guest] = bench.guests([VF0]);
            let none = NicConfig { vfs: vec![None, Some(plain(1))], ..NicConfig::default() };
            bench.set_table(bridge::nic::Table::build(&none).unwrap());
            guest.send(&good);
            expect(&bench, "n/vf0", counter);
        }
        "tx_link_down" => {
            let down = Function { link: LinkState::Disable, ..plain(0) };
            nic_drops(counter, with_vf0(down), std::slice::from_ref(&good));
            let down = |settings: &mut Settings| {
                settings.switch.ports[1] = None;
                settings.switch.statics.retain(|entry| entry.port != switch_port(0));
            };
            switch_drops(counter, down, &good);
        }
        "tx_storm" => {
            let limited = Function { storm_limit: 1, ..plain(0) };
            let all = vec![frame(Mac::BROADCAST, mac(0), 1, 60); 9];
            nic_drops(counter, with_vf0(limited), &all);
        }
        "tx_rule" => {
            let rules = vec![switchdev::rule(VF0, mac(1), RuleTarget::Drop)];
            let config = switchdev::config(rules);
            let bench = Bench::of(config.clone(), 1, 1);
            switchdev::apply(&bench, &config);
            bench.guests([VF0])[0].send(&good);
            expect(&bench, "n/vf0", counter);
        }
        "tx_spoofed_mac" => nic_drops(counter, nic(), &[to_1(mac(1), 60)]),
        "tx_source_multicast" => {
            let unchecked = Function { spoof_check: false, ..plain(0) };
            nic_drops(counter, with_vf0(unchecked), &[from_group]);
        }
        "tx_vlan_forbidden" => nic_drops(counter, nic(), &[tagged]),
        "tx_hairpin" => nic_drops(counter, nic(), &[own]),
        "tx_no_match" => {
            let bench = Bench::of(nic(), 1, 1);
            bench.guests([PortId::UPLINK])[0].send(&frame(STRANGER, OUTSIDE, 1, 60));
            expect(&bench, "n/uplink", counter);
        }
        "tx_isolated" => nic_drops(counter, NicConfig { mode: Mode::Isolated, ..nic() }, &[good]),
        name if name.starts_with("tx_switch_") => provoke_in_switch(name),
        "rx_no_buffer" => receiver_drops(counter, Some((Shape::default(), 0))),
        "rx_too_small" => {
            let small = Shape { mergeable: false, buffer: 12 + 50, ..Shape::default() };
            receiver_drops(counter, Some((small, 4)));
        }
        "rx_down" => receiver_drops(counter, None),
        other => panic!("no frame provokes {other}"),
    }
}

/// Provokes a drop that the switch counts there.
fn provoke_in_switch(counter: &str) {
    let good = frame(mac(1), mac(0), 1, 60);
    let own = frame(mac(0), mac(0), 1, 60);
    let storm = Storm { broadcast: Some(0), multicast: Some(0), unknown: Some(0) };
    let same = |_: &mut Settings| ();
    match counter {
        "tx_switch_spoofed_mac" => switch_drops(counter, same, &frame(mac(1), mac(1), 1, 60)),
        "tx_switch_source_multicast" => {
            switch_drops(counter, same, &frame(mac(1), Mac([3, 0, 0, 0, 0, 1]), 1, 60))
        }
        "tx_switch_vlan_forbidden" => switch_drops(counter, same, &tagged(&good, 0x8100, 5)),
        "tx_switch_hairpin" => switch_drops(counter, same, &own),
        "tx_switch_no_match" => {
            let others = |settings: &mut Settings| {
                settings.switch.ports[2] = None;
                settings.switch.ports[0] = None;
                settings.switch.statics.retain(|entry| entry.port == switch_port(0));
            };
            switch_drops(counter, others, &frame(STRANGER, mac(0), 1, 60));
        }
        "tx_switch_isolated" => {
            let isolate = |settings: &mut Settings| {
                settings.switch.ports.iter_mut().skip(1).flatten().for_each(|it| it.isolated = true)
            };
            switch_drops(counter, isolate, &good);
        }
        "tx_switch_link_local" => {
            switch_drops(counter, same, &frame(Mac([1, 0x80, 0xc2, 0, 0, 0xe]), mac(0), 1, 60));
        }
        "tx_switch_hidden_header" => {
            let guard = |settings: &mut Settings| port_0(settings).dhcp_guard = true;
            switch_drops(counter, guard, &udp((mac(1), mac(0)), (1, 2), 1)[..20]);
        }
        "tx_switch_dhcp_guard" => {
            let guard = |settings: &mut Settings| port_0(settings).dhcp_guard = true;
            switch_drops(counter, guard, &udp((Mac::BROADCAST, mac(0)), (67, 68), 1));
        }
        "tx_switch_router_guard" => {
            let guard = |settings: &mut Settings| port_0(settings).router_guard = true;
            switch_drops(counter, guard, &redirect());
        }
        "tx_switch_acl_deny" => {
            let no_dns = |settings: &mut Settings| filter(settings, &[switch_port(0)]);
            switch_drops(counter, no_dns, &udp((mac(1), mac(0)), (1, 53), 1));
        }
        "tx_switch_mac_limit" => switch_drops(counter, same, &frame(mac(1), STRANGER, 1, 60)),
        "tx_switch_storm_broadcast" | "tx_switch_storm_multicast" | "tx_switch_storm_unknown" => {
            let to = match counter {
                "tx_switch_storm_broadcast" => Mac::BROADCAST,
                "tx_switch_storm_multicast" => GROUP,
                _ => STRANGER,
            };
            let limit = |settings: &mut Settings| port_0(settings).storm = storm;
            switch_drops(counter, limit, &frame(to, mac(0), 1, 60));
        }
        other => panic!("no frame provokes {other}"),
    }
}

#[test]
fn every_drop_reason_is_counted_under_its_name() {
    for counter in DROPS.iter().flat_map(|drop| drop.counters()) {
        println!("{counter}"); // shown if it fails
        provoke(counter);
    }
}

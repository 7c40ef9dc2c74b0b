//! Each drop reason, provoked through a real ring: found under its name in the counters, in a
//! capture and, before the frame is sent, in a trace.

use std::sync::Arc;

use bridge::nic::{Function, LinkState, Mode, NicConfig, RuleTarget};
use bridge::switch::Storm;
use bridge::{PortId, matching};
use port::capture::live::Direction;
use wire::Mac;

use super::capture::{Capture, all_of, dropped};
use super::filters::{filter, udp};
use super::kit::*;
use super::switchdev;
use crate::Port;
use crate::capture::CaptureSpec;
use crate::drops::DROPS;

const VF0: PortId = PortId::vf(0);
const GROUP: Mac = Mac([1, 0, 0x5e, 0, 0, 1]);
/// Without an owner.
const STRANGER: Mac = mac_of(0x77);

const fn mac_of(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

/// Drops that a trace does not foresee: it is of a frame without offloads, assumes that a
/// function's storm limit has room, and does not look at the buffers of receivers.
const UNFORESEEN: [&str; 4] = ["tx_offload", "tx_storm", "rx_no_buffer", "rx_too_small"];

/// Witness of a drop: a trace of the frame, and a capture of dropped frames.
struct Witness<'a> {
    bench: &'a Bench,
    /// Port and counter of each drop in the trace.
    traced: Vec<(String, &'static str)>,
    capture: Capture,
}

impl Witness<'_> {
    /// Traces a frame before it is sent from a port, and begins the capture.
    fn of<'a>(bench: &'a Bench, from: &Arc<Port>, frame: &[u8]) -> Witness<'a> {
        let traced = bench.fabric.nics()[0].trace(from, frame).unwrap();
        let traced = traced.drops.into_iter().map(|drop| (drop.port, drop.counter)).collect();
        let capture = Capture::of(bench, CaptureSpec { dropped: true, ..all_of(&[]) });
        Witness { bench, traced, capture }
    }

    /// Waits until the port with this label has counted a drop: then the capture has it as often,
    /// and no other, and the trace had it.
    fn expect(mut self, label: &str, counter: &'static str) {
        let name = format!("{}_drop_{}", &counter[..2], &counter[3..]);
        let mut frames = Vec::new();
        until(&format!("{counter} of {label}"), || {
            // Rings without a kick are polled only while the lane is awake.
            self.bench.wait_for_rounds(1);
            frames.extend(self.capture.frames());
            let count = self.bench.count(label, &name);
            count > 0 && count == frames.len() as u64
        });
        let direction = if counter.starts_with("tx_") { Direction::In } else { Direction::Out };
        for frame in &frames {
            let found = (&*frame.port, dropped(frame), frame.direction);
            assert_eq!(found, (label, Some(counter), direction));
        }
        let foreseen = (!UNFORESEEN.contains(&counter)).then(|| (label.to_owned(), counter));
        assert_eq!(self.traced, foreseen.into_iter().collect::<Vec<_>>(), "trace of {counter}");
    }
}

/// VF 0 of a NIC sends a frame, which its port counts.
fn nic_drops(counter: &'static str, config: NicConfig, frames: &[Vec<u8>]) {
    let bench = Bench::of(config, 1, 1);
    let [mut guest, _other, _wire] = bench.guests([VF0, PortId::vf(1), PortId::UPLINK]);
    let witness = Witness::of(&bench, bench.vf(0), &frames[0]);
    frames.iter().for_each(|frame| guest.post(frame));
    guest.flush();
    witness.expect("n/vf0", counter);
}

/// Adapter 0 of a switch sends a frame, which its port counts.
fn switch_drops(counter: &'static str, change: impl FnOnce(&mut Settings), frame: &[u8]) {
    let mut net = Net::new(2, 1, 1);
    net.floods_unknown = true;
    net.apply_with(&[Path::Synthetic, Path::Synthetic].map(Adapter::plain), change);
    let mut guests = net.guests();
    let witness = Witness::of(&net.bench, net.port(0), frame);
    guests[0].send(frame);
    witness.expect("n/a0", counter);
}

/// VF 0 sends a frame to VF 1, whose port counts it.
fn receiver_drops(counter: &'static str, receiver: Option<(Shape, usize)>) {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut sender] = bench.guests([VF0]);
    let receiver = receiver.map(|(shape, buffers)| {
        let mut guest = Guest::empty(shape);
        guest.pair.refill_with(buffers);
        guest.attach(bench.vf(1));
        guest
    });
    let sent = frame(mac(1), mac(0), 1, 100);
    let witness = Witness::of(&bench, bench.vf(0), &sent);
    sender.send(&sent);
    witness.expect("n/vf1", counter);
    drop(receiver);
}

/// VF 0 sends a frame with this virtio header through another ring than usual.
fn ring_drops(counter: &'static str, header: [u8; 12], ring: impl FnOnce(&Guest) -> Ring) {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [_receiver] = bench.guests([PortId::vf(1)]);
    let mut guest = Guest::new();
    bench.vf(0).attach_transmit(0, Box::new(ring(&guest)));
    let sent = frame(mac(1), mac(0), 1, 100);
    let witness = Witness::of(&bench, bench.vf(0), &sent);
    guest.post_with(header, &sent);
    guest.flush();
    witness.expect("n/vf0", counter);
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
fn provoke(counter: &'static str) {
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
            let mut guests = net.guests();
            let witness = Witness::of(&net.bench, net.port(0), &good);
            guests[0].send(&good);
            witness.expect("n/a0", counter);
        }
        "tx_no_function" => {
            let bench = Bench::of(nic(), 1, 1);
            let [mut guest] = bench.guests([VF0]);
            let none = NicConfig { vfs: vec![None, Some(plain(1))], ..NicConfig::default() };
            bench.set_table(bridge::nic::Table::build(&none).unwrap());
            let witness = Witness::of(&bench, bench.vf(0), &good);
            guest.send(&good);
            witness.expect("n/vf0", counter);
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
            let [mut guest] = bench.guests([VF0]);
            let witness = Witness::of(&bench, bench.vf(0), &good);
            guest.send(&good);
            witness.expect("n/vf0", counter);
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
            let [mut wire] = bench.guests([PortId::UPLINK]);
            let stray = frame(STRANGER, OUTSIDE, 1, 60);
            let witness = Witness::of(&bench, bench.uplink(), &stray);
            wire.send(&stray);
            witness.expect("n/uplink", counter);
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
fn provoke_in_switch(counter: &'static str) {
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
fn every_drop_reason_is_counted_captured_and_traced_under_its_name() {
    for counter in DROPS.iter().flat_map(|drop| drop.counters()) {
        println!("{counter}"); // shown if it fails
        provoke(counter);
    }
}

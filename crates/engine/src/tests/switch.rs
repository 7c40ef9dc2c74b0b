//! The switch on the PF: queues past it, budgets, traffic across both stages, and mirrors.

use bridge::PortId;
use bridge::nic::{Budget, Capacity, MirrorTarget, MirroredFrames};
use bridge::switch::{Beyond, Learning, SwitchMirror};
use wire::Mac;

use super::filters::{expect_hits, expect_nothing, filter};
use super::kit::*;
use crate::AclHits;

#[test]
fn frames_of_a_queue_bypass_the_switch() {
    for lanes in [1, 2] {
        let adapters = [Path::Vf, Path::Vmq, Path::Synthetic].map(Adapter::plain);
        let mut net = Net::new(3, lanes, 1);
        net.hits = std::sync::Arc::new(AclHits::new(2));
        net.apply_with(&adapters, |settings| filter(settings, &[bridge::PortId::UPLINK]));
        let mut guests = net.guests();
        for (from, src) in [(0, mac(0)), (3, OUTSIDE)] {
            let there = frame(mac(1), src, 1, 60);
            guests[from].send(&there);
            assert_eq!(guests[1].wait_for(1), [there]);
        }
        net.bench.wait_for_sleep();
        assert_eq!(net.hits.get(0), 0, "nothing entered the switch");
        assert!(net.state.fdb.is_empty());

        // Frames for an adapter on the switch enter it, and so do broadcasts, once.
        let there = frame(mac(2), OUTSIDE, 2, 60);
        guests[3].send(&there);
        assert_eq!(guests[2].wait_for(1), [there]);
        let all = frame(Mac::BROADCAST, OUTSIDE, 3, 60);
        guests[3].send(&all);
        (0..3).for_each(|n| assert_eq!(guests[n].wait_for(1), [&all[..]]));
        expect_hits(&net.hits, [2, 0]);
        assert_eq!(net.state.fdb.get(OUTSIDE, 0), Some(bridge::PortId::UPLINK));
        expect_nothing(&mut guests);
    }
}

/// A budget of a frame a second, of which 64 may come at once: then it is closed for a long time.
fn tiny_budget() -> std::sync::Arc<std::sync::Mutex<Budget>> {
    let capacity = Capacity { packets_per_second: Some(1), ..Capacity::default() };
    std::sync::Arc::new(std::sync::Mutex::new(Budget::new(capacity, crate::lane::clock::now_ns())))
}

#[test]
fn frames_between_adapters_on_the_switch_do_not_enter_the_nic() {
    let adapters = [Path::Synthetic, Path::Vmq].map(Adapter::plain);
    let mut net = Net::new(2, 2, 1);
    net.budget = Some(tiny_budget());
    net.apply(&adapters);
    let mut guests = net.guests();
    for i in 0..500 {
        let (from, to) = (i as usize % 2, 1 - i as usize % 2);
        let there = frame(mac(to as u8), mac(from as u8), i, 60);
        guests[from].send(&there);
        assert_eq!(guests[to].wait_for(1), [there], "a budget that nothing is charged to");
    }
}

#[test]
fn a_budget_limits_frames() {
    // From the uplink a frame is a hop, and from adapter to adapter it is two.
    for (paths, from, to, most) in [
        ([Path::Vf, Path::Synthetic], 2, 0, 64),
        ([Path::Vf, Path::Synthetic], 2, 1, 64),
        ([Path::Vf, Path::Vmq], 2, 1, 64),
        ([Path::Vf, Path::Synthetic], 0, 1, 32),
        ([Path::Vf, Path::Synthetic], 1, 0, 32),
        ([Path::Vf, Path::Vf], 1, 0, 32),
    ] {
        let mut net = Net::new(2, 1, 1);
        net.budget = Some(tiny_budget());
        net.apply(&paths.map(Adapter::plain));
        let mut guests = net.guests();
        let src = if from == 2 { OUTSIDE } else { mac(from as u8) };
        for i in 0..200 {
            guests[from].post(&frame(mac(to as u8), src, i, 60));
        }
        guests[from].flush();
        until("the first frames", || guests[from].in_flight() < 200);
        net.bench.wait_for_rounds(50);
        let passed = 200 - guests[from].in_flight();
        // Overdrawn by a burst at most.
        assert!((most..=most + 64).contains(&passed), "{passed} from {from} to {to} of {paths:?}");
        assert_eq!(guests[to].receive().len(), passed);
        // With a larger budget the rest follows; no frame was lost.
        net.budget = None;
        net.apply(&paths.map(Adapter::plain));
        guests[from].settle();
        assert_eq!(guests[to].receive().len(), 200 - passed);
    }
}

#[test]
fn a_native_vlan_at_the_uplink_has_no_tag_in_the_nic() {
    for guarded in [false, true] {
        // VLAN 5 of the switch is the NIC's untagged one.
        let adapters = [
            Adapter::new(Path::Synthetic, Tags::Access(5)),
            Adapter::new(Path::Synthetic, Tags::Trunk { native: 0, vids: vec![5, 6] }),
            Adapter::plain(Path::Vf),
            Adapter::new(Path::Vf, Tags::Access(6)),
            Adapter::new(Path::Vf, Tags::Trunk { native: 0, vids: vec![6] }),
        ];
        let net = Net::new(5, 1, 1);
        net.apply_with(&adapters, |settings| native_uplink(settings, guarded));
        let mut guests = net.guests();
        for len in [18, 19, 60, 200, 1518] {
            for (from, tag) in [(0, None), (1, Some(5)), (2, None), (5, None)] {
                let src = if from == 5 { OUTSIDE } else { mac(from as u8) };
                let plain = frame(Mac::BROADCAST, src, 1, len);
                let sent = tag.map_or(plain.clone(), |vid| tagged(&plain, 0x8100, vid));
                guests[from].send(&sent);
                let tag5 = tagged(&plain, 0x8100, 5);
                for (to, seen) in [(0, &plain), (1, &tag5), (2, &plain), (5, &plain)] {
                    if to != from {
                        assert_eq!(guests[to].wait_for(1), [&seen[..]], "{from} to {to}");
                    }
                }
            }
        }
        // VF 4 is in the NIC's untagged network too.
        guests.iter_mut().for_each(Guest::settle);
        assert_eq!(guests[4].receive().len(), 20);
        expect_nothing(&mut guests);

        // A second tag behind that of the native VLAN would appear, and hop into its VLAN.
        let hop = tagged(&frame(Mac::BROADCAST, mac(1), 2, 60), 0x8100, 6);
        let hop = tagged(&hop, 0x8100, 5);
        guests[1].send(&hop);
        let inner = tagged(&frame(Mac::BROADCAST, mac(1), 2, 60), 0x8100, 6);
        assert_eq!(guests[0].wait_for(1), [inner]);
        expect_nothing(&mut guests);
        net.bench.expect("n/a1", "tx_drop_vlan_forbidden", 1);
        // And so would one behind a priority tag.
        let inner = tagged(&frame(Mac::BROADCAST, mac(1), 3, 60), 0x8100, 6);
        let inner = tagged(&inner, 0x8100, 0);
        guests[1].send(&tagged(&inner, 0x8100, 5));
        if !guarded {
            // A guard sees through no more than two tags.
            assert_eq!(guests[0].wait_for(1), [inner]);
            net.bench.expect("n/a1", "tx_drop_vlan_forbidden", 2);
        }
        expect_nothing(&mut guests);
    }
}

fn native_uplink(settings: &mut Settings, guarded: bool) {
    let vid = |n| wire::Vid::new(n).unwrap();
    let uplink = settings.switch.ports[0].as_mut().unwrap();
    let native = bridge::switch::Native::Vlan(vid(5));
    uplink.vlans = bridge::switch::Vlans::Trunk { allowed: bridge::switch::VidSet::all(), native };
    for entry in &mut settings.switch.statics {
        if entry.port == bridge::PortId::UPLINK && entry.vlan.is_none() {
            entry.vlan = Some(vid(5));
        }
    }
    let filters = settings.nic.switch.as_mut().unwrap();
    filters.retain(|filter| filter.vid != 0);
    filters.iter_mut().filter(|filter| filter.vid == 5).for_each(|filter| filter.vid = 0);
    if guarded {
        settings.switch.ports.iter_mut().flatten().for_each(|port| port.dhcp_guard = true);
    }
}

#[test]
fn mirrors_of_both_stops_each_get_one_copy() {
    for tags in [Tags::Access(0), Tags::Access(5)] {
        for lanes in [1, 2] {
            mirrors(&tags, lanes);
        }
    }
}

/// VF 0 is mirrored by the NIC, and adapter 1's port by the switch.
fn mirrors(tags: &Tags, lanes: usize) {
    let paths = [Path::Vf, Path::Synthetic, Path::Vf];
    let adapters = paths.map(|path| Adapter::new(path, tags.clone()));
    let mut net = Net::new(3, lanes, 1);
    let (port, mut capture) = net.listener("capture");
    net.captures.push(port);
    let (port, mut tap) = net.listener("tap");
    net.taps.push((switch_port(3), port));
    net.apply_with(&adapters, |settings| {
        let to = MirrorTarget::Capture(0);
        let vf = settings.nic.vfs[0].as_mut().unwrap();
        vf.mirror = Some(bridge::nic::FunctionMirror { way: MirroredFrames::Both, to });
        let none = bridge::switch::Vlans::Trunk {
            allowed: bridge::switch::VidSet::new(),
            native: bridge::switch::Native::Refused,
        };
        let port =
            bridge::switch::PortConfig { vlans: none, ..bridge::switch::PortConfig::access(None) };
        settings.switch.ports.push(Some(port));
        let both = vec![switch_port(1)];
        let mirror = SwitchMirror { to: switch_port(3), ingress: both.clone(), egress: both };
        settings.switch.mirrors.push(mirror);
    });
    let mut guests = net.guests();
    // From, to, whether it is seen at VF 0, and at the switch: without the tag that is on the PF.
    for (from, dst, at_vf, at_switch) in [
        (0, mac(1), true, true),
        (1, mac(0), true, true),
        (0, mac(2), true, false),
        (2, mac(1), false, true),
        (0, Mac::BROADCAST, true, true),
        (1, Mac::BROADCAST, true, true),
        (2, Mac::BROADCAST, true, true),
    ] {
        let sent = frame(dst, mac(from as u8), 1, 60);
        guests[from].send(&sent);
        guests[from].settle();
        let seen = |at: bool, frame: Vec<u8>| if at { vec![frame] } else { vec![] };
        assert_eq!(capture.receive(), seen(at_vf, sent.clone()), "VF 0: {from} to {dst}");
        assert_eq!(tap.receive(), seen(at_switch, sent), "switch: {from} to {dst}");
    }
    guests.iter_mut().for_each(|guest| drop(guest.receive()));
    // Spoofed frames are dropped in the first stage without a copy; so are frames that the switch
    // forbids.
    guests[0].send(&frame(mac(1), mac(7), 1, 60));
    guests[0].settle();
    guests[1].send(&tagged(&frame(mac(0), mac(1), 1, 60), 0x8100, 9));
    guests[1].settle();
    assert!(capture.receive().is_empty() && tap.receive().is_empty());
    expect_nothing(&mut guests);
}

#[test]
fn a_flood_without_receivers_in_the_second_stage_is_no_drop() {
    let mut adapters = [Path::Vf, Path::Synthetic, Path::Vf].map(Adapter::plain);
    adapters[1].tags = Tags::Access(5);
    let net = Net::of(&adapters, 1);
    let mut guests = net.guests();
    // VLAN 0 of the switch has no member.
    let all = frame(Mac::BROADCAST, mac(0), 1, 60);
    guests[0].send(&all);
    guests[2..].iter_mut().for_each(|guest| assert_eq!(guest.wait_for(1), [&all[..]]));
    // And the uplink of the NIC is down.
    net.apply_with(&adapters, |settings| settings.nic.uplink_up = false);
    guests[1].send(&frame(Mac::BROADCAST, mac(1), 2, 60));
    expect_nothing(&mut guests);
    for label in ["n/a0", "n/a1"] {
        for none in ["tx_drop_switch_no_match", "tx_drop_link_down", "tx_drop_no_match"] {
            assert_eq!(net.bench.count(label, none), 0, "{none} of {label}");
        }
    }
}

#[test]
fn unknown_addresses_are_no_storm() {
    let adapters = [Path::Vf, Path::Synthetic].map(Adapter::plain);
    let mut net = Net::new(2, 1, 1);
    net.floods_unknown = true;
    net.apply_with(&adapters, |settings| {
        settings.nic.vfs[0].as_mut().unwrap().storm_limit = 1;
    });
    let mut guests = net.guests();
    for i in 0..100 {
        let out = frame(OUTSIDE, mac(0), i, 60);
        guests[0].send(&out);
        assert_eq!(guests[2].wait_for(1), [out]);
    }
    // One group frame may pass at once, and stopped ones are not mirrored.
    let (port, mut capture) = net.listener("capture");
    net.captures.push(port);
    net.apply_with(&adapters, |settings| {
        let vf = settings.nic.vfs[0].as_mut().unwrap();
        vf.storm_limit = 1;
        vf.mirror = Some(bridge::nic::FunctionMirror {
            way: MirroredFrames::Egress,
            to: MirrorTarget::Capture(0),
        });
    });
    for i in 0..10 {
        guests[0].post(&frame(Mac::BROADCAST, mac(0), i, 60));
    }
    guests[0].flush();
    guests[0].settle();
    net.bench.expect("n/a0", "tx_drop_storm", 9);
    assert_eq!(guests[2].receive().len(), 1);
    assert_eq!(capture.receive().len(), 1);
}

#[test]
fn an_injected_frame_reaches_both_sides() {
    let adapters = [Path::Vf, Path::Synthetic, Path::Vmq].map(Adapter::plain);
    let net = Net::of(&adapters, 2);
    let mut guests = net.guests();
    let nic = &net.bench.fabric.nics()[0];
    for from in 0..3 {
        let here = wire::rarp::announcement(mac(from as u8));
        assert_eq!(nic.inject(net.port(from), &here), 3);
        for to in (0..4).filter(|to| *to != from) {
            assert_eq!(guests[to].wait_for(1), [here]);
        }
    }
    expect_nothing(&mut guests);
    assert_eq!(
        net.bench.fabric.nics()[0].snapshot().port(PortId::PF).map(|port| &port.label),
        None
    );
}

#[test]
fn the_switch_learns_nothing_from_a_disabled_ring() {
    let net = Net::new(1, 1, 1);
    net.apply_with(&[Adapter::plain(Path::Synthetic)], |settings| {
        let port = settings.switch.ports[switch_port(0).index()].as_mut().unwrap();
        port.learning = Learning { limit: 8, beyond: Beyond::Drop };
    });
    let mut guest = Guest::new();
    let mut send = |is_disabled: bool, source: Mac| {
        let ring = guest.leaving();
        let ring = if is_disabled { ring.discarding() } else { ring };
        net.port(0).attach_transmit(0, Box::new(ring));
        guest.post_with([0; 12], &frame(Mac::BROADCAST, source, 0, 60));
        guest.flush();
        guest.settle();
        net.state.fdb.get(source, 0)
    };
    assert_eq!(send(true, mac(7)), None);
    assert_eq!(send(false, mac(8)), Some(switch_port(0)));
    net.bench.expect("n/a0", "tx_drop_disabled", 1);
}

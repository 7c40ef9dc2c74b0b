//! One case for each rule of the second layer.

use wire::Mac;

use super::*;

const GROUP: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);

fn ports(ports: &[u16]) -> Vec<PortId> {
    ports.iter().copied().map(PortId).collect()
}

fn limit(limit: u32, beyond: Beyond) -> PortConfig {
    PortConfig { learning: Learning { limit, beyond }, ..access(0) }
}

fn fixed(mac: Mac, vlan: u16, port: u16) -> StaticEntry {
    StaticEntry { mac, vlan: Vid::new(vlan).ok(), port: PortId(port) }
}

#[test]
fn addresses_are_learned() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0), access(0)]);
    assert_eq!(bench.send(1, mac(2), mac(1)), UNKNOWN);
    assert_eq!(bench.send(2, mac(1), mac(2)), to(1));
    assert_eq!(bench.send(1, mac(2), mac(1)), to(2));
    assert_eq!(bench.send(1, mac(1), mac(1)), dropped(DropReason::Hairpin));
    assert_eq!(bench.send(1, mac(1), mac(3)), dropped(DropReason::Hairpin));
    assert_eq!(bench.send(0, mac(3), mac(4)), to(1));
    let fdb = &bench.state.fdb;
    assert_eq!((fdb.len(), fdb.len_of(PortId(1)), fdb.len_of(PortId(0))), (4, 2, 1));
    assert_eq!(fdb.get(mac(3), 0), Some(PortId(1)));
    assert_eq!(fdb.get(mac(3), 1), None);
    let mut entries: Vec<_> = fdb.entries().collect();
    entries.sort_by_key(|entry| entry.mac);
    let entry = |n, port| Entry { mac: mac(n), vid: 0, port: PortId(port), ticks: 0 };
    assert_eq!(entries, [entry(1, 1), entry(2, 2), entry(3, 1), entry(4, 0)]);
}

#[test]
fn addresses_move() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0), access(0)]);
    bench.send(1, mac(9), mac(1));
    // Within one burst the last sender wins, for the whole burst.
    let burst = [frame(mac(1), mac(3), None), frame(mac(3), mac(1), None)];
    let hairpin = dropped(DropReason::Hairpin);
    assert_eq!(bench.burst(2, &burst), [hairpin, hairpin]);
    assert_eq!(bench.state.fdb.get(mac(1), 0), Some(PortId(2)));
    assert_eq!(bench.state.fdb.len_of(PortId(1)), 0);
    assert_eq!(bench.send(0, mac(1), mac(8)), to(2));
}

/// A frame between known addresses, in a burst that moves one of them.
#[test]
fn what_a_burst_teaches_holds_for_all_of_it() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0), access(0)]);
    for (port, n) in [(1, 1), (1, 2), (2, 3), (0, 4)] {
        bench.send(port, Mac::BROADCAST, mac(n));
    }
    let burst = [frame(mac(3), mac(2), None), frame(mac(4), mac(3), None)];
    assert_eq!(bench.burst(1, &burst), [dropped(DropReason::Hairpin), to(0)]);
    // The same with the order reversed.
    let burst = [frame(mac(1), mac(4), None), frame(mac(4), mac(1), None)];
    assert_eq!(bench.burst(2, &burst), [dropped(DropReason::Hairpin); 2]);
}

/// Tagged and untagged frames of one address, between known addresses.
#[test]
fn each_vlan_learns_for_itself() {
    for first_tagged in [true, false] {
        let port = || trunk(&[7], Native::Vlan(vid(9)));
        let mut bench = Bench::of([port(), port()]);
        bench.send(0, Mac::BROADCAST, mac(1));
        bench.send(1, Mac::BROADCAST, mac(2));
        bench.send_tagged(1, Mac::BROADCAST, mac(2), 7);
        let mut burst = [Some((0x8100, 7)), None].map(|tag| frame(mac(2), mac(1), tag));
        if !first_tagged {
            burst.reverse();
        }
        assert_eq!(bench.burst(0, &burst), [to(1), to(1)]);
        assert_eq!(bench.state.fdb.get(mac(1), 7), Some(PortId(0)));
    }
}

#[test]
fn ageing() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0)]);
    bench.send(1, mac(9), mac(1));
    bench.send(1, mac(9), mac(2));
    for ticks in 1..=3 {
        assert_eq!(bench.state.fdb.tick(), 0);
        let here = |entry: &Entry| entry.port == PortId(1);
        assert!(bench.state.fdb.entries().filter(here).all(|entry| entry.ticks == ticks));
        assert_eq!(bench.send(0, mac(2), mac(8)), to(1));
    }
    bench.send(1, mac(9), mac(1));
    assert_eq!(bench.state.fdb.tick(), 1);
    assert_eq!(bench.send(0, mac(1), mac(8)), to(1));
    assert_eq!(bench.send(0, mac(2), mac(8)), UNKNOWN);
    assert_eq!(bench.state.fdb.len(), 2);
    let forgotten = [(); 4].map(|()| bench.state.fdb.tick());
    assert_eq!(forgotten, [0, 0, 1, 1]);
    assert!(bench.state.fdb.is_empty());
}

#[test]
fn flushing() {
    let uplink = PortConfig::uplink();
    let mut bench = Bench::of([uplink.clone(), uplink]);
    let fill = |bench: &mut Bench| {
        for (port, vlan, n) in [(0, 1, 1), (0, 2, 2), (1, 1, 3), (1, 2, 4)] {
            bench.send_tagged(port, Mac::BROADCAST, mac(n), vlan);
        }
    };
    let left = |bench: &Bench| {
        let mut left: Vec<_> = bench.state.fdb.entries().map(|entry| entry.mac.0[5]).collect();
        left.sort_unstable();
        left
    };
    let all = Flush::default();
    let (port, vid) = (Some(PortId(1)), Some(2));
    for (which, expected) in [
        (Flush { port, ..all }, vec![1, 2]),
        (Flush { vid, ..all }, vec![1, 3]),
        (Flush { port, vid }, vec![1, 2, 3]),
        (all, vec![]),
    ] {
        fill(&mut bench);
        assert_eq!(bench.state.fdb.flush(which), 4 - expected.len());
        assert_eq!(left(&bench), expected);
        assert_eq!(bench.state.fdb.len(), expected.len());
    }
}

#[test]
fn limits_of_ports() {
    let (pass, stop) = (Beyond::Forward, Beyond::Drop);
    let mut bench = Bench::of([limit(1, pass), limit(1, stop), limit(0, pass), limit(0, stop)]);
    let broadcast = |bench: &mut Bench, port, n| bench.send(port, Mac::BROADCAST, mac(n));
    let over = dropped(DropReason::MacLimit);
    assert_eq!(broadcast(&mut bench, 0, 1), FLOOD);
    assert_eq!(broadcast(&mut bench, 0, 2), FLOOD);
    assert_eq!(bench.send(2, mac(2), mac(9)), UNKNOWN);
    assert_eq!(broadcast(&mut bench, 1, 3), FLOOD);
    assert_eq!(broadcast(&mut bench, 1, 4), over);
    assert_eq!(broadcast(&mut bench, 1, 3), FLOOD);
    // Not even one of another's, and its owner keeps it.
    assert_eq!(broadcast(&mut bench, 1, 1), over);
    assert_eq!(bench.send(2, mac(1), mac(9)), to(0));
    assert_eq!(bench.state.fdb.get(mac(9), 0), None);
    assert_eq!(broadcast(&mut bench, 3, 5), over);
    // Removed entries make room.
    bench.state.fdb.flush(Flush { port: Some(PortId(1)), vid: None });
    assert_eq!(broadcast(&mut bench, 1, 4), FLOOD);
    assert_eq!(bench.state.fdb.len(), 2);
}

#[test]
fn a_burst_brings_few_addresses() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0)]);
    let frames: Vec<_> = (0..20).map(|n| frame(Mac::BROADCAST, mac(n), None)).collect();
    for burst in 1..=3 {
        assert_eq!(bench.burst(1, &frames), [FLOOD; 20]);
        assert_eq!(bench.state.fdb.len(), (burst * LEARN_MAX).min(20));
    }
}

#[test]
fn the_switch_as_a_whole_has_a_limit() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0)]);
    for n in 0..1300 {
        bench.send(0, Mac::BROADCAST, mac(n));
    }
    assert_eq!((bench.state.fdb.len(), bench.state.fdb.capacity()), (1024, 1024));
    assert_eq!(bench.send(1, mac(1299), mac(9999)), UNKNOWN);
    assert_eq!(bench.send(1, mac(500), mac(9999)), to(0));
    for size in [0, 65537] {
        assert_eq!(Fdb::new(size, 1).unwrap_err(), CapacityError(size));
    }
    assert_eq!(Fdb::new(65536, 1).unwrap().capacity(), 65536);
    assert_eq!(CapacityError(0).to_string(), "capacity: 0 addresses; allowed are 1 to 65536");
}

#[test]
fn static_entries() {
    let config = SwitchConfig {
        statics: vec![fixed(mac(1), 0, 1), fixed(mac(2), 0, 2), fixed(mac(2), 7, 0)],
        ..switch([PortConfig::uplink(), limit(0, Beyond::Drop), access(0)])
    };
    let mut bench = Bench::new(&config);
    assert_eq!(bench.send(0, mac(1), mac(9)), to(1));
    assert_eq!(bench.send(1, mac(2), mac(1)), to(2));
    assert_eq!(bench.send(2, mac(2), mac(2)), dropped(DropReason::Hairpin));
    assert_eq!(bench.send(1, mac(2), mac(3)), dropped(DropReason::MacLimit));
    assert_eq!(bench.send(2, mac(1), mac(3)), to(1));
    for port in [0, 2] {
        assert_eq!(bench.send(port, mac(3), mac(1)), dropped(DropReason::SpoofedMac));
        // Also in a burst of several flows.
        let burst = [frame(mac(1), mac(9), None), frame(mac(1), mac(1), None)];
        assert_eq!(bench.burst(port, &burst)[1], dropped(DropReason::SpoofedMac));
    }
    // In another VLAN it is another's.
    assert_eq!(bench.send_tagged(0, Mac::BROADCAST, mac(2), 7), dropped(DropReason::NoMatch));
    // Nothing of that was learned, and no ageing forgets a static entry.
    assert_eq!(bench.state.fdb.get(mac(1), 0), None);
    let forgotten: usize = (0..9).map(|_| bench.state.fdb.tick()).sum();
    assert!(forgotten > 0 && bench.state.fdb.is_empty());
    assert_eq!(bench.send(0, mac(1), mac(9)), to(1));
    // An address that was learned elsewhere before is the entry's at once.
    let mut bench = Bench::of([PortConfig::uplink(), access(0), access(0)]);
    bench.send(0, Mac::BROADCAST, mac(1));
    bench.swap(&config);
    assert_eq!(bench.send(2, mac(1), mac(3)), to(1));
    assert_eq!(bench.send(0, mac(3), mac(1)), dropped(DropReason::SpoofedMac));
}

#[test]
fn as_many_static_entries_as_there_may_be() {
    let statics: Vec<_> = (0..MAX_STATICS as u16).map(|n| fixed(mac(n + 1), 0, n % 2)).collect();
    let config = SwitchConfig { statics, ..switch([access(0), access(0), access(0)]) };
    let mut bench = Bench::new(&config);
    for first in (0..MAX_STATICS as u16).step_by(BURST) {
        let numbers = first..first + BURST as u16;
        let frames: Vec<_> =
            numbers.clone().map(|n| frame(mac(n + 1), mac((n ^ 2) + 1), None)).collect();
        let expected = |port, other| if port == other { to(1 - port) } else { to(port) };
        for port in [0, 1] {
            let got = bench.burst(port, &frames);
            for (n, got) in numbers.clone().zip(got) {
                let hairpin = dropped(DropReason::Hairpin);
                let spoofed = dropped(DropReason::SpoofedMac);
                assert_eq!(got, if n % 2 == port { hairpin } else { spoofed }, "{n}");
            }
        }
        let got = bench.burst(
            2,
            &frames.iter().map(|f| [&f[..6], &mac(60000).0, &f[12..]].concat()).collect::<Vec<_>>(),
        );
        assert!(numbers.zip(got).all(|(n, got)| got == expected(n % 2, 2)));
    }
}

#[test]
fn access_ports() {
    let mut bench = Bench::of([access(0), access(7), access(7), access(8)]);
    let forbidden = dropped(DropReason::VlanForbidden);
    assert_eq!(bench.send(1, Mac::BROADCAST, mac(1)), FLOOD);
    assert_eq!(bench.send(2, mac(1), mac(2)), to(1));
    assert_eq!(bench.send(3, mac(1), mac(3)), dropped(DropReason::NoMatch));
    for tpid in [0x8100, 0x88a8] {
        for tci in [0, 0xe000, 7, 8, 4095] {
            let tagged = [frame(mac(1), mac(2), Some((tpid, tci)))];
            assert_eq!(bench.burst(2, &tagged), [forbidden]);
            let expected = if tci & 0xfff == 0 { dropped(DropReason::NoMatch) } else { forbidden };
            assert_eq!(bench.burst(0, &tagged), [expected]);
        }
    }
    // Other types are no tags.
    assert_eq!(bench.burst(2, &[frame(mac(1), mac(2), Some((0x9100, 7)))]), [to(1)]);
}

#[test]
fn trunks() {
    let mut bench = Bench::of([
        PortConfig::uplink(),
        trunk(&[7, 8], Native::Vlan(vid(9))),
        trunk(&[7], Native::Refused),
        access(9),
    ]);
    let forbidden = dropped(DropReason::VlanForbidden);
    for tci in [7, 0xf007, 8, 9, 0, 0xe000] {
        assert_eq!(bench.send_tagged(1, Mac::BROADCAST, mac(1), tci), FLOOD, "{tci}");
    }
    assert_eq!(bench.send(1, Mac::BROADCAST, mac(1)), FLOOD);
    for tci in [1, 10, 4095] {
        assert_eq!(bench.send_tagged(1, mac(2), mac(1), tci), forbidden);
    }
    assert_eq!(bench.send_tagged(2, mac(1), mac(2), 7), to(1));
    for tci in [0, 8, 9] {
        assert_eq!(bench.send_tagged(2, mac(1), mac(2), tci), forbidden);
    }
    assert_eq!(bench.send(2, mac(1), mac(2)), forbidden);
    // The native VLAN is one with the access port's, and no other is.
    assert_eq!(bench.send(3, mac(1), mac(3)), to(1));
    assert_eq!(bench.send_tagged(0, mac(1), mac(4), 9), to(1));
    assert_eq!(bench.send(0, mac(1), mac(4)), dropped(DropReason::NoMatch));
    let header = |tag| *frame(mac(1), mac(2), tag).first_chunk().unwrap();
    assert_eq!(bench.table.vid(PortId(1), &header(Some((0x8100, 0xe007)))), 7);
    assert_eq!(bench.table.vid(PortId(1), &header(Some((0x8100, 0xe000)))), 9);
    assert_eq!(bench.table.vid(PortId(1), &header(None)), 9);
    assert_eq!(bench.table.vid(PortId(0), &header(None)), 0);
}

/// Receivers remove a priority tag and classify by the next one, as Linux does.
#[test]
fn a_priority_tag_hides_no_other_tag() {
    let service = |vlan| {
        let tagging = Tagging { qos: 0, service: true };
        PortConfig { tagging, ..access(vlan) }
    };
    let ports = [
        PortConfig::uplink(),
        access(0),
        trunk(&[7, 8], Native::Untagged),
        trunk(&[7, 8], Native::Vlan(vid(9))),
        service(9),
    ];
    let hello = |from: u16, tags: &[(u16, u16)]| {
        let plain = frame(Mac::BROADCAST, mac(from), None);
        let tag = |frame: Vec<u8>, (tpid, tci): &(u16, u16)| {
            let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
            [&frame[..12], &tag, &frame[12..]].concat()
        };
        tags.iter().rev().fold(plain, tag)
    };
    for guarded in [false, true] {
        let guard = |port| PortConfig { dhcp_guard: guarded, ..port };
        let mut bench = Bench::of(ports.clone().map(guard));
        let forbidden = dropped(DropReason::VlanForbidden);
        for first in [(0x8100, 0), (0x8100, 0xe000), (0x88a8, 0)] {
            for second in [(0x8100, 8), (0x88a8, 8), (0x8100, 0)] {
                for from in 1..=4 {
                    let one = hello(from, &[first]);
                    let sends = from < 4 || first.0 == 0x8100;
                    let expected = if sends { FLOOD } else { forbidden };
                    assert_eq!(bench.burst(from, std::slice::from_ref(&one)), [expected]);
                    let two = [hello(from, &[first, second]), one];
                    let three = hello(from, &[first, (0x8100, 0), second]);
                    let burst = [&two[..], &[three]].concat();
                    assert_eq!(bench.burst(from, &burst), [forbidden, expected, forbidden]);
                    assert_eq!(bench.burst(from, &vec![two[0].clone(); 64]), [forbidden; 64]);
                }
                // The NIC has looked at what it hands on.
                assert_eq!(bench.burst(0, &[hello(5, &[first, second])]), [FLOOD]);
            }
        }
        assert_eq!(bench.burst(2, &[hello(2, &[(0x8100, 8), (0x8100, 10)])]), [FLOOD]);
    }
}

#[test]
fn edits() {
    let bench = Bench::of([
        PortConfig::uplink(),
        trunk(&[7], Native::Vlan(vid(9))),
        access(7),
        access(9),
        access(0),
    ]);
    let edit = |from, to, tci: Option<u16>| {
        let header = frame(mac(1), mac(2), tci.map(|tci| (0x88a8, tci)));
        bench.table.edit(PortId(from), PortId(to), header.first_chunk().unwrap())
    };
    // From access ports, alike for all.
    assert_eq!(edit(2, 0, None), VlanEdit::Push([0x81, 0, 0, 7]));
    assert_eq!(edit(2, 1, None), VlanEdit::Push([0x81, 0, 0, 7]));
    assert_eq!(edit(3, 0, None), VlanEdit::Push([0x81, 0, 0, 9]));
    assert_eq!(edit(3, 1, None), VlanEdit::None);
    assert_eq!(edit(4, 0, None), VlanEdit::None);
    assert_eq!(edit(4, 0, Some(0xe000)), VlanEdit::None);
    assert!([2, 3, 4].iter().all(|port| bench.table.edits_alike(PortId(*port))));
    // From trunks.
    assert!([0, 1, 5].iter().all(|port| !bench.table.edits_alike(PortId(*port))));
    assert_eq!(edit(0, 2, Some(7)), VlanEdit::Pop);
    assert_eq!(edit(0, 1, Some(7)), VlanEdit::None);
    assert_eq!(edit(0, 1, Some(0xe009)), VlanEdit::Pop);
    assert_eq!(edit(1, 0, None), VlanEdit::Push([0x81, 0, 0, 9]));
    assert_eq!(edit(1, 0, Some(0xb000)), VlanEdit::Retag([0x88, 0xa8, 0xb0, 9]));
    assert_eq!(edit(1, 3, Some(0xb000)), VlanEdit::Pop);
    assert_eq!(edit(1, 3, None), VlanEdit::None);
    assert_eq!(edit(0, 4, Some(0xb000)), VlanEdit::None);
}

#[test]
fn service_tags_and_priorities() {
    let tagging = |qos, service| PortConfig { tagging: Tagging { qos, service }, ..access(7) };
    let ports = [PortConfig::uplink(), tagging(5, false), tagging(3, true), access(7)];
    let mut bench = Bench::of(ports);
    let header = |tag| *frame(mac(1), mac(2), tag).first_chunk::<16>().unwrap();
    let edit = |from, to, tag| bench.table.edit(PortId(from), PortId(to), &header(tag));
    let customer = Some((0x8100, 9));
    assert_eq!(edit(1, 0, None), VlanEdit::Push([0x81, 0, 0xa0, 7]));
    assert_eq!(edit(2, 0, None), VlanEdit::Push([0x88, 0xa8, 0x60, 7]));
    assert_eq!(edit(2, 0, customer), VlanEdit::Push([0x88, 0xa8, 0x60, 7]));
    assert_eq!(edit(2, 3, customer), VlanEdit::None, "payload stays");
    assert_eq!(edit(0, 2, Some((0x88a8, 7))), VlanEdit::Pop);
    // Only a port with a service tag may send customer tags, and no port a service tag.
    let mut passes = |from, tag| {
        let [action] = bench.burst(from, &[frame(mac(1), mac(2), tag)])[..] else { unreachable!() };
        action != dropped(DropReason::VlanForbidden)
    };
    assert!(passes(2, customer) && passes(2, None));
    assert!(!passes(2, Some((0x88a8, 9))) && !passes(1, customer) && !passes(3, customer));
    let build = |config| Table::build(&switch([config, access(0)])).unwrap_err().to_string();
    let wrong = [tagging(8, false), PortConfig { vlans: Vlans::Access(None), ..tagging(0, true) }];
    let errors = wrong.map(build);
    assert!(errors[0].contains("tagging.qos: 8"), "{}", errors[0]);
    assert!(errors[1].contains("tagging.service: true"), "{}", errors[1]);
}

#[test]
fn floods() {
    let deaf = PortConfig { flood_unknown: false, ..access(7) };
    let alone = PortConfig { isolated: true, ..access(7) };
    let mut bench =
        Bench::of([PortConfig::uplink(), access(7), deaf, alone.clone(), alone, access(8)]);
    let table = &bench.table;
    let lists = |from, vid| {
        [Flood::Group, Flood::Unknown].map(|flood| table.flood_ports(PortId(from), vid, flood))
    };
    assert_eq!(lists(1, 7), [ports(&[0, 1, 2, 3, 4]), ports(&[0, 1, 3, 4])]);
    assert_eq!(lists(3, 7), [ports(&[0, 1, 2]), ports(&[0, 1])]);
    assert_eq!(lists(5, 8), [ports(&[0, 5]), ports(&[0, 5])]);
    assert_eq!(lists(0, 0), [ports(&[0]), ports(&[0])]);
    for vid in [4095, 4096, u16::MAX] {
        assert!(lists(0, vid).iter().all(|list| list.is_empty()));
    }
    let no_match = dropped(DropReason::NoMatch);
    assert_eq!(bench.send(0, Mac::BROADCAST, mac(9)), no_match);
    assert_eq!(bench.send_tagged(0, Mac::BROADCAST, mac(9), 7), FLOOD);
    assert_eq!(bench.send_tagged(0, GROUP, mac(9), 8), FLOOD);
    assert_eq!(bench.send_tagged(0, mac(10), mac(9), 8), UNKNOWN);
    assert_eq!(bench.send_tagged(0, mac(10), mac(9), 9), no_match);
    assert_eq!(bench.send(1, GROUP, GROUP), dropped(DropReason::SourceMulticast));
}

#[test]
fn unknown_addresses_need_not_be_flooded() {
    let deaf = PortConfig { flood_unknown: false, ..access(0) };
    let mut bench = Bench::of([deaf.clone(), deaf]);
    assert_eq!(bench.send(0, mac(2), mac(1)), dropped(DropReason::NoMatch));
    assert_eq!(bench.send(0, GROUP, mac(1)), FLOOD);
    assert_eq!(bench.send(1, mac(1), mac(2)), to(0));
}

#[test]
fn isolated_ports() {
    let alone = PortConfig { isolated: true, ..access(0) };
    let mut bench = Bench::of([PortConfig::uplink(), alone.clone(), alone, access(0)]);
    for port in 0..4 {
        assert_eq!(bench.send(port, Mac::BROADCAST, mac(port)), FLOOD);
    }
    assert_eq!(bench.send(1, mac(2), mac(1)), dropped(DropReason::Isolated));
    assert_eq!(bench.send(1, mac(1), mac(1)), dropped(DropReason::Hairpin));
    for (from, port) in [(1, 0), (1, 3), (0, 1), (3, 2)] {
        assert_eq!(bench.send(from, mac(port), mac(from)), to(port));
    }
    let burst = [0, 2, 3].map(|n| frame(mac(n), mac(1), None));
    assert_eq!(bench.burst(1, &burst), [to(0), dropped(DropReason::Isolated), to(3)]);
}

#[test]
fn groups_of_one_link() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0)]);
    for last in 0..=255 {
        let dst = Mac([0x01, 0x80, 0xc2, 0, 0, last]);
        let expected = if last < 16 { dropped(DropReason::LinkLocal) } else { FLOOD };
        assert_eq!(bench.send(1, dst, mac(1)), expected);
    }
    bench.send(1, Mac([0x01, 0x80, 0xc2, 0, 0, 0]), mac(9));
    assert_eq!(bench.state.fdb.get(mac(9), 0), None);
}

#[test]
fn storms() {
    let storm = Storm { broadcast: Some(100), multicast: Some(0), unknown: Some(20) };
    let mut bench = Bench::of([PortConfig::uplink(), PortConfig { storm, ..access(0) }, access(0)]);
    let count = |bench: &mut Bench, dst: Mac, reason| {
        let got = bench.burst(1, &vec![frame(dst, mac(1), None); BURST]);
        let passed = got.iter().take_while(|action| matches!(action, Action::Flood(_))).count();
        assert!(got[passed..].iter().all(|action| *action == dropped(reason)));
        passed
    };
    // At once a tenth of a second's worth, and one.
    assert_eq!(count(&mut bench, Mac::BROADCAST, DropReason::StormBroadcast), 11);
    assert_eq!(count(&mut bench, Mac::BROADCAST, DropReason::StormBroadcast), 0);
    assert_eq!(count(&mut bench, GROUP, DropReason::StormMulticast), 0);
    assert_eq!(count(&mut bench, mac(9), DropReason::StormUnknown), 3);
    assert_eq!(bench.send(2, Mac::BROADCAST, mac(2)), FLOOD);
    bench.now_ns += 30_000_000;
    assert_eq!(count(&mut bench, Mac::BROADCAST, DropReason::StormBroadcast), 3);
    // A known address is no storm; and frames of several kinds are charged in their order.
    bench.now_ns += 50_000_000;
    let burst = [mac(2), mac(9), mac(2), mac(9), GROUP].map(|dst| frame(dst, mac(1), None));
    let multicast = dropped(DropReason::StormMulticast);
    let unknown = dropped(DropReason::StormUnknown);
    assert_eq!(bench.burst(1, &burst), [to(2), UNKNOWN, to(2), unknown, multicast]);
}

#[test]
fn ports_that_are_not_there() {
    let config = SwitchConfig { ports: vec![Some(access(0)), None], ..SwitchConfig::default() };
    let mut bench = Bench::new(&config);
    for port in [1, 2, 511, u16::MAX] {
        assert_eq!(bench.send(port, mac(1), mac(2)), dropped(DropReason::LinkDown));
        assert!(!bench.table.has(PortId(port)) && !bench.table.needs_snapshots(PortId(port)));
    }
    let mut bench = Bench::new(&SwitchConfig::default());
    assert_eq!(bench.send(0, Mac::BROADCAST, mac(2)), dropped(DropReason::LinkDown));
}

#[test]
fn mirrors() {
    let mirror = |to, ingress: &[u16], egress: &[u16]| SwitchMirror {
        to: PortId(to),
        ingress: ports(ingress),
        egress: ports(egress),
    };
    let config = SwitchConfig {
        mirrors: vec![mirror(4, &[1], &[1]), mirror(3, &[], &[0, 2])],
        ..switch([PortConfig::uplink(), access(0), access(0), access(7), access(0)])
    };
    let mut bench = Bench::new(&config);
    assert_eq!(bench.table.mirror_port(0), Some(PortId(4)));
    assert_eq!(bench.table.mirror_port(1), Some(PortId(3)));
    assert_eq!(bench.table.mirror_port(2), None);
    let mut sent = |from, dst, src, expected: &[u32]| {
        bench.send(from, dst, src);
        assert_eq!(bench.out.mirrors(), expected, "{from} to {dst}");
    };
    // Port 4 is flooded anyway, and needs no copy.
    sent(1, Mac::BROADCAST, mac(1), &[0b10]);
    sent(4, Mac::BROADCAST, mac(4), &[0b10]);
    sent(2, Mac::BROADCAST, mac(2), &[0b10]);
    // Sent and received.
    sent(1, mac(2), mac(1), &[0b11]);
    sent(2, mac(1), mac(2), &[0b01]);
    sent(4, mac(2), mac(4), &[0b10]);
    // To whom the copy would go, or from them.
    sent(1, mac(4), mac(1), &[]);
    sent(4, mac(1), mac(4), &[]);
    // Also what is dropped.
    sent(1, mac(1), mac(1), &[0b01]);
    sent(1, mac(2), GROUP, &[0b01]);
    let burst = [mac(1), mac(4), mac(2)].map(|dst| frame(dst, mac(1), None));
    bench.burst(1, &burst);
    assert_eq!(bench.out.mirrors(), [0b01, 0, 0b11]);
    bench.burst(3, &burst[..1]);
    assert!(bench.out.mirrors().is_empty());
}

#[test]
fn a_copy_has_the_tag_that_its_port_sees() {
    let both =
        |to, port| SwitchMirror { to: PortId(to), ingress: ports(&[port]), egress: ports(&[port]) };
    let config = SwitchConfig {
        mirrors: vec![both(3, 0), both(4, 1)],
        ..switch([PortConfig::uplink(), access(7), access(7), access(0), access(0)])
    };
    let table = Bench::new(&config).table;
    let plain: [u8; 16] = frame(mac(2), mac(1), None)[..16].try_into().unwrap();
    let tagged: [u8; 16] = frame(mac(1), mac(9), Some((0x8100, 7)))[..16].try_into().unwrap();
    let push = VlanEdit::Push([0x81, 0, 0, 7]);
    assert_eq!(table.mirror_edit(1, PortId(1), &plain), VlanEdit::None, "as it sent it");
    assert_eq!(table.mirror_edit(0, PortId(1), &plain), push, "as the uplink gets it");
    assert_eq!(table.mirror_edit(1, PortId(2), &plain), VlanEdit::None);
    assert_eq!(table.mirror_edit(1, PortId(0), &tagged), VlanEdit::Pop);
    assert_eq!(table.mirror_edit(0, PortId(0), &tagged), VlanEdit::None);
    assert_eq!(table.mirror_edit(9, PortId(0), &tagged), VlanEdit::None, "there is none");
}

#[test]
fn stale_addresses_do_not_lead_out_of_their_vlan() {
    let ports = |vlan| [PortConfig::uplink(), access(7), access(vlan)];
    let mut bench = Bench::of(ports(7));
    bench.send(2, Mac::BROADCAST, mac(2));
    assert_eq!(bench.send(1, mac(2), mac(1)), to(2));
    bench.swap(&switch(ports(8)));
    assert_eq!(bench.send(1, mac(2), mac(1)), UNKNOWN);
    let burst = [mac(2), Mac::BROADCAST].map(|dst| frame(dst, mac(1), None));
    assert_eq!(bench.burst(1, &burst), [UNKNOWN, FLOOD]);
    assert!(!bench.table.flood_ports(PortId(1), 7, Flood::Unknown).contains(&PortId(2)));
    // The same when the port is gone.
    bench.swap(&switch(ports(7).into_iter().take(2)));
    assert_eq!(bench.send(1, mac(2), mac(1)), UNKNOWN);
}

#[test]
fn summaries() {
    let mut bench = Bench::of([PortConfig::uplink(), access(0), access(0)]);
    bench.send(2, Mac::BROADCAST, mac(2));
    bench.send(2, Mac::BROADCAST, mac(3));
    assert!(bench.burst(1, &[]).is_empty());
    assert_eq!(bench.summary, Summary::Empty);
    let one = frame(mac(2), mac(1), None);
    let mut also_one = one.clone();
    also_one[14] ^= 0xff;
    // 70 frames: six are beyond a burst.
    assert_eq!(bench.burst(1, &vec![one.clone(); 70]).len(), BURST);
    assert_eq!(bench.summary.port(), Some(PortId(2)));
    bench.burst(1, &[one.clone(), also_one]);
    assert_eq!(bench.summary.port(), Some(PortId(2)));
    bench.burst(1, &[one.clone(), frame(mac(3), mac(1), None)]);
    assert_eq!(bench.summary.port(), Some(PortId(2)));
    bench.burst(1, &[one, frame(mac(9), mac(1), None)]);
    assert_eq!(bench.summary, Summary::Mixed);
    bench.burst(1, &vec![frame(GROUP, mac(1), None); 3]);
    assert_eq!(bench.summary, Summary::Uniform(Verdict::FLOOD));
}

//! Each setting is the same on each path; and what only the switch enforces.

use super::*;

/// Adapter `a` with these settings, once on each path, beside `b` on the switch and `c` on a VF.
fn on_each_path(settings: Value, mut test: impl FnMut(&str, &mut World<'_>)) {
    for path in ["vf", "vmq", "synthetic"] {
        let mut a = adapter("a", 1, path);
        a.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let others = json!([a, adapter("b", 2, "synthetic"), adapter("c", 3, "vf")]);
        let compiled = compiled(&with(document(), "/adapter", others));
        assert!(compiled.nics[0].adapter("a").is_some(), "{path}");
        test(path, &mut World::new(&compiled.nics[0]));
    }
}

#[test]
fn sources_are_checked_on_each_path() {
    on_each_path(json!({"macs": [mac(11).to_string()]}), |path, world| {
        assert_eq!(world.send("a", mac(99), mac(1)), got(&["wire"]), "{path}");
        assert_eq!(world.send("a", mac(99), mac(11)), got(&["wire"]), "{path}");
        assert_eq!(world.send("b", mac(11), mac(2)), got(&["a"]), "{path}");
        for src in [12, 2, 3] {
            assert_eq!(world.send("a", mac(99), mac(src)), got(&[]), "{path}");
            let why = world.dropped();
            assert!(why == ["spoofed-mac"] || why == ["mac-limit"], "{path}: {why:?}");
        }
    });
    on_each_path(json!({"spoof_check": false}), |path, world| {
        assert!(world.send("a", mac(99), mac(12)).contains_key("wire"), "{path}");
    });
}

#[test]
fn an_access_vlan_is_a_wall_on_each_path() {
    on_each_path(json!({"vlan": {"id": 5}}), |path, world| {
        assert_eq!(world.send("a", mac(99), mac(1)), got(&["wire@5"]), "{path}");
        assert_eq!(world.send("a", Mac::BROADCAST, mac(1)), got(&["wire@5"]), "{path}");
        assert_eq!(world.send_tagged("wire", mac(1), mac(99), 5), got(&["a"]), "{path}");
        assert!(!world.send("wire", mac(1), mac(99)).contains_key("a"), "{path}");
        assert!(!world.send_tagged("a", mac(99), mac(1), 6).contains_key("wire@6"), "{path}");
        assert!(world.dropped().contains(&"vlan-forbidden"), "{path}");
    });
}

#[test]
fn priorities_and_service_tags_are_put_on_on_each_path() {
    on_each_path(json!({"vlan": {"id": 5, "qos": 3}}), |path, world| {
        assert_eq!(world.send("a", mac(99), mac(1)), got(&["wire@5/3"]), "{path}");
    });
    on_each_path(json!({"vlan": {"id": 5, "proto": "802.1ad"}}), |path, world| {
        assert_eq!(world.send("a", mac(99), mac(1)), got(&["wire@s5"]), "{path}");
        assert_eq!(
            world.send_tagged("a", mac(99), mac(1), 7),
            got(&["wire@s5"]),
            "{path}: payload"
        );
        assert_eq!(world.send_tagged("wire", mac(1), mac(99), 5), got(&["a"]), "{path}");
    });
}

#[test]
fn a_trunk_is_a_trunk_on_each_path() {
    on_each_path(json!({"trunks": ["5-7"], "vlan": {"id": 4}}), |path, world| {
        assert_eq!(world.send_tagged("a", mac(99), mac(1), 6), got(&["wire@6"]), "{path}");
        assert_eq!(world.send("a", mac(99), mac(1)), got(&["wire@4"]), "{path}");
        assert_eq!(world.send_tagged("a", mac(99), mac(1), 4), got(&["wire@4"]), "{path}");
        assert_eq!(world.send_tagged("a", mac(99), mac(1), 8), got(&[]), "{path}");
        assert_eq!(world.dropped(), ["vlan-forbidden"], "{path}");
        assert_eq!(world.send_tagged("wire", mac(1), mac(99), 7), got(&["a@7"]), "{path}");
        assert_eq!(world.send_tagged("wire", mac(1), mac(99), 4), got(&["a"]), "{path}");
    });
    on_each_path(json!({"trunks": ["5"]}), |path, world| {
        assert_eq!(world.send("a", mac(99), mac(1)), got(&["wire"]), "{path}");
        assert_eq!(world.send("b", mac(1), mac(2)), got(&["a"]), "{path}");
        assert_eq!(world.send_tagged("wire", mac(1), mac(99), 5), got(&["a@5"]), "{path}");
    });
}

#[test]
fn a_link_that_is_down_carries_nothing_on_each_path() {
    on_each_path(json!({"link_state": "disable"}), |path, world| {
        assert!(!world.nic.adapter("a").unwrap().link_up);
        assert_eq!(world.send("a", mac(2), mac(1)), got(&[]), "{path}");
        for (from, src) in [("b", 2), ("c", 3), ("wire", 99)] {
            let to = world.send(from, mac(1), mac(src));
            assert!(to.keys().all(|name| name == "wire"), "{path}: {from}: {to:?}");
        }
        assert_eq!(world.send("wire", Mac::BROADCAST, mac(99)), got(&["b", "c"]), "{path}");
        // The address stays reserved meanwhile.
        assert_eq!(world.send("b", mac(99), mac(1)), got(&[]), "{path}");
    });
    let live = LiveLinks { uplinks_down: ["nic0".to_owned()].into(), ..LiveLinks::default() };
    let enabled = but(3, "link_state", json!("enable"));
    let enabled = with(enabled, "/adapter/0/link_state", json!("enable"));
    let compiled = compiled_after(&enabled, &live, None);
    let up = |name: &str| compiled.nics[0].adapter(name).unwrap().link_up;
    assert_eq!([up("v"), up("w"), up("q"), up("s"), up("t")], [true, false, false, true, false]);
    let mut world = World::new(&compiled.nics[0]);
    assert_eq!(world.send("s", mac(1), mac(4)), got(&["v"]));
    assert_eq!(world.send("s", mac(5), mac(4)), got(&[]));
}

#[test]
fn mirrors_see_the_same_frames_on_each_path() {
    for (direction, sends, receives) in [("tx", 1, 0), ("rx", 0, 1), ("both", 1, 1)] {
        let mirror = json!({"direction": direction, "file": "/var/tmp/a.pcapng"});
        on_each_path(json!({"mirror": mirror}), |path, world| {
            let target = MonitorTarget::File("/var/tmp/a.pcapng".into());
            let (label, field) = ("a".into(), "adapter[0].mirror".into());
            let monitor = Monitor { label, field, target };
            assert_eq!(world.nic.monitors, [monitor], "{path}");
            for (from, dst, src, expected) in [
                ("a", 99, 1, sends),
                ("a", 2, 1, sends),
                ("a", 3, 1, sends),
                ("wire", 1, 99, receives),
                ("b", 1, 2, receives),
                ("c", 1, 3, receives),
                ("b", 99, 2, 0),
            ] {
                world.send(from, mac(dst), mac(src));
                assert_eq!(world.copies.len(), expected, "{path} {direction}: {from} to {dst}");
            }
            world.send("wire", Mac::BROADCAST, mac(99));
            assert_eq!(world.copies.len(), receives, "{path} {direction}");
        });
    }
    let tap = but(3, "mirror", json!({"direction": "both", "adapter": "t"}));
    let compiled = compiled(&tap);
    let mut world = World::new(&compiled.nics[0]);
    assert_eq!(world.nic.monitors[0].target, MonitorTarget::Adapter("t".into()));
    assert_eq!(world.send("s", mac(1), mac(4)), got(&["v"]));
    assert_eq!(world.copies, ["s"]);
}

#[test]
fn shares_and_storm_limits_go_along() {
    let settings =
        json!({"tx_weight": 40, "min_tx_mbps": 5, "max_tx_mbps": 50, "storm_limit_pps": 100});
    on_each_path(settings, |path, world| {
        let plug = world.nic.adapter("a").unwrap();
        assert_eq!(plug.share, bridge::nic::Share { weight: 40, min_mbit: 5, max_mbit: 50 });
        match plug.location {
            PortLocation::Function(port) => {
                assert_eq!(world.nic.table.share(port), plug.share, "{path}");
                assert_eq!(world.nic.table.storm_limit(port), 100, "{path}");
            }
            PortLocation::Switch(_) => {
                // A tenth of a second's worth at once.
                let mut passes = || !world.send("a", Mac::BROADCAST, mac(1)).is_empty();
                let passed = (0..50).filter(|_| passes()).count();
                assert!((10..=12).contains(&passed), "{path}: {passed}");
                assert_eq!(world.dropped(), ["storm-broadcast"], "{path}");
            }
            PortLocation::Piped(_) | PortLocation::Representor(_) => panic!("a NIC in mode legacy"),
        }
    });
}

#[test]
fn a_promiscuous_adapter_hears_what_is_for_nobody_known_on_each_path() {
    on_each_path(json!({"trust": true, "promiscuous": true}), |path, world| {
        for (from, src) in [("wire", 99), ("b", 2), ("c", 3)] {
            assert!(world.send(from, mac(77), mac(src)).contains_key("a"), "{path}: {from}");
        }
        assert_eq!(world.send("wire", mac(3), mac(99)), got(&["c"]), "{path}");
    });
}

#[test]
fn what_vfs_send_to_the_wire_does_not_bother_a_switch_that_cannot_want_it() {
    on_each_path(json!({}), |path, world| {
        assert_eq!(world.send("c", mac(77), mac(3)), got(&["wire"]), "{path}");
    });
    // Any address may be behind an unchecked port; on the VF, adapter a decides.
    on_each_path(json!({"spoof_check": false}), |path, world| {
        world.send("a", Mac::BROADCAST, mac(44));
        let expected = if path == "vf" { "wire" } else { "a" };
        assert!(world.send("c", mac(44), mac(3)).contains_key(expected), "{path}");
    });
}

#[test]
fn a_named_vf_has_its_own_settings_but_the_adapters_address() {
    let entry = json!([{"index": 2, "vlan": {"id": 7, "qos": 3}, "max_tx_mbps": 70}]);
    let named = with(but(0, "vf", json!(2)), "/nic/0/vf", entry);
    let named = with(named, "/adapter/0/max_tx_mbps", json!(10));
    let compiled = compiled(&named);
    let nic = &compiled.nics[0];
    assert_eq!(nic.adapter("v").unwrap().location, PortLocation::Function(bridge::PortId::vf(2)));
    assert_eq!(nic.adapter("v").unwrap().share.max_mbit, 70);
    let mut world = World::new(nic);
    assert_eq!(world.send("v", mac(99), mac(1)), got(&["wire@7/3"]));
    let elsewhere = with(named, "/adapter/0/path", json!("synthetic"));
    let compiled = super::compiled(&elsewhere);
    let mut world = World::new(&compiled.nics[0]);
    assert_eq!(world.nic.adapter("v").unwrap().share.max_mbit, 10);
    assert_eq!(world.send("v", mac(99), mac(1)), got(&["wire"]));
}

#[test]
fn ports_enforce_what_only_a_switch_does() {
    let port = |port: Value| {
        let port = with(port, "/adapter", json!("s"));
        with(document(), "/switch/0/port", json!([port]))
    };
    let answer = frame(mac(5), mac(4), None, &DHCP_ANSWER);
    let guarded = compiled(&port(json!({"dhcp_guard": true})));
    let mut world = World::new(&guarded.nics[0]);
    assert_eq!(world.send_frame("s", &answer), got(&[]));
    assert_eq!(world.dropped(), ["dhcp-guard"]);
    let acl = json!([
        {"action": "count", "protocol": 17},
        {"action": "deny", "to_mac": mac(5).to_string(), "from_ip": "10.0.0.0/8", "to_port": "60-70", "protocol": 17},
    ]);
    let filtered = compiled(&port(json!({"acl": acl})));
    let mut world = World::new(&filtered.nics[0]);
    assert_eq!(world.send_frame("s", &answer), got(&[]));
    assert_eq!((world.dropped(), world.counters.clone()), (vec!["acl-deny"], vec![1, 1]));
    assert_eq!(world.send("s", mac(5), mac(4)), got(&["t"]), "not IP");
    assert_eq!(filtered.nics[0].switch.as_ref().unwrap().acls, ["s"]);

    let two = json!([{"adapter": "s", "isolated": true}, {"adapter": "t", "isolated": true}]);
    let apart = compiled(&with(document(), "/switch/0/port", two));
    let mut world = World::new(&apart.nics[0]);
    assert_eq!(world.send("s", mac(5), mac(4)), got(&[]));
    assert_eq!(world.dropped(), ["isolated"]);
    assert_eq!(world.send("s", mac(1), mac(4)), got(&["v"]));

    let deaf = compiled(&port(json!({"unknown_unicast": false})));
    let mut world = World::new(&deaf.nics[0]);
    assert_eq!(world.send("t", mac(77), mac(5)), got(&["q", "wire"]));
}

#[test]
fn only_unchecked_ports_learn_and_only_so_much() {
    let unchecked = but(3, "spoof_check", json!(false));
    let few = with(unchecked, "/switch/0/port", json!([{"adapter": "s", "max_macs": 1}]));
    let compiled = compiled(&few);
    let mut world = World::new(&compiled.nics[0]);
    let unknown = world.send("t", mac(44), mac(5));
    assert_eq!(unknown, got(&["q", "s", "wire"]));
    assert!(world.send("s", mac(99), mac(44)).contains_key("wire"));
    assert_eq!(world.send("t", mac(44), mac(5)), got(&["s"]), "learned");
    assert!(world.send("s", mac(99), mac(45)).contains_key("wire"), "beyond the most it passes");
    assert_eq!(world.send("t", mac(45), mac(5)), unknown, "and is not learned");
}

#[test]
fn the_uplinks_port_may_carry_less_and_call_one_vlan_native() {
    let uplink = json!([{"adapter": "uplink", "trunks": ["5-6"], "native_vlan": 5}]);
    let mut document = with(document(), "/switch/0/port", uplink);
    for (n, vlan) in [(3, 5), (4, 6)] {
        document = with(document, &format!("/adapter/{n}/vlan"), json!({"id": vlan}));
    }
    let compiled = compiled(&document);
    let nic = &compiled.nics[0];
    let mut world = World::new(nic);
    assert!(matches!(world.location("v"), Some(PortLocation::Switch(_))), "PortPolicy");
    assert_eq!(world.send("s", mac(99), mac(4)), got(&["wire"]));
    assert_eq!(world.send("t", mac(99), mac(5)), got(&["wire@6"]));
    assert_eq!(world.send("v", mac(99), mac(1)), got(&["w", "q"]), "not on the uplink");
    assert_eq!(world.send("wire", mac(4), mac(99)), got(&["s"]));
    assert_eq!(world.send_tagged("wire", mac(5), mac(99), 6), got(&["t"]));
    let filters = nic.config.switch.as_ref().unwrap();
    let vids: Vec<_> = filters.iter().map(|filter| (filter.mac, filter.vid)).collect();
    assert_eq!(vids, [(mac(4), 0), (mac(5), 6)]);
}

#[test]
fn static_addresses_follow_their_adapter() {
    let entry = json!([
        {"mac": mac(50).to_string(), "port": "a"}, {"mac": mac(51).to_string(), "port": "uplink"},
    ]);
    for path in ["vf", "vmq", "synthetic"] {
        let adapters =
            json!([adapter("a", 1, path), adapter("b", 2, "synthetic"), adapter("c", 3, "vf")]);
        let document = with(document(), "/adapter", adapters);
        let compiled = compiled(&with(document, "/switch/0/static", entry.clone()));
        let mut world = World::new(&compiled.nics[0]);
        for (from, src) in [("b", 2), ("c", 3), ("wire", 99)] {
            assert_eq!(world.send(from, mac(50), mac(src)), got(&["a"]), "{path}: {from}");
        }
        assert_eq!(world.send("a", mac(99), mac(50)), got(&["wire"]), "{path}");
        assert_eq!(world.send("b", mac(51), mac(2)), got(&["wire"]), "{path}");
    }
}

#[test]
fn a_budget_is_a_part_of_the_cards() {
    let nic = |permille: u32| {
        let nic =
            json!({"name": "n", "total_vfs": 0, "profile": "xl710", "budget_permille": permille});
        compiled(&json!({"version": 1, "nic": [nic]})).nics.remove(0).capacity
    };
    assert_eq!(nic(0), None);
    let tenth = bridge::nic::Capacity {
        wire_mbit: Some(4_000),
        pcie_mbit: Some(9_000),
        packets_per_second: Some(3_900_000),
    };
    assert_eq!(nic(100), Some(tenth));
}

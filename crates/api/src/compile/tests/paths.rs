//! Three paths, one network; and what stays when a path changes.

use super::*;

#[test]
fn adapters_of_all_paths_reach_each_other_and_the_wire_and_nobody_twice() {
    let compiled = compiled(&document());
    let nic = &compiled.nics[0];
    let vf = |n| Some(PortLocation::Function(bridge::PortId::vf(n)));
    let mut world = World::new(nic);
    assert_eq!([world.location("v"), world.location("w")], [vf(0), vf(1)]);
    assert_eq!(nic.adapter("q").unwrap().queue, Some(bridge::PortId::queue(0)));
    assert!(matches!(world.location("s"), Some(PortLocation::Switch(_))));
    let all = [("v", 1), ("w", 2), ("q", 3), ("s", 4), ("t", 5), ("wire", 99)];
    for (from, src) in all {
        for (to, dst) in all.iter().filter(|(to, _)| *to != from) {
            assert_eq!(world.send(from, mac(*dst), mac(src)), got(&[to]), "{from} to {to}");
        }
        let others: Vec<&str> = all.iter().map(|(to, _)| *to).filter(|to| *to != from).collect();
        assert_eq!(world.send(from, Mac::BROADCAST, mac(src)), got(&others), "{from} to all");
        assert_eq!(world.dropped(), Vec::<&str>::new());
    }
}

#[test]
fn a_frame_from_the_wire_for_a_queue_goes_past_the_switch() {
    let compiled = compiled(&document());
    let nic = &compiled.nics[0];
    let (mut flows, mut out) = (bridge::nic::Flows::new(), bridge::Verdicts::new());
    let mut way = |dst: u8| {
        let head = FrameHeader::of_frame(&frame(mac(dst), mac(99), None, &[])).unwrap().0;
        nic.table.classify(bridge::PortId::UPLINK, &[head], &mut flows, &mut out);
        out.as_slice()[0].action()
    };
    assert_eq!(way(3), bridge::Action::Port(bridge::PortId::queue(0)));
    assert_eq!(way(4), bridge::Action::Port(bridge::PortId::PF));
    assert_eq!(way(1), bridge::Action::Port(bridge::PortId::vf(0)));
}

#[test]
fn frames_to_a_vf_of_a_card_go_to_the_wire() {
    let mut document = but(0, "vf", json!(1));
    document["nic"][0] = json!({
        "name": "nic0", "kind": "pci", "device": "0000:01:00.0", "num_vfs": 2, "vmq_queues": 2,
        "uplink": {"socket": "/run/shunt/wire.sock"},
    });
    document["adapter"].as_array_mut().unwrap().remove(1); // the other on a VF
    let on_vf = compiled(&document);
    let mut world = World::new(&on_vf.nics[0]);
    assert_eq!(world.location("v"), None);
    for (from, n) in [("q", 3), ("s", 4), ("t", 5)] {
        assert_eq!(world.send(from, mac(1), mac(n)), got(&["wire"]), "{from}");
    }
    assert_eq!(world.send("wire", mac(1), mac(99)), got(&[]), "never flooded");
    let on_switch = compiled(&with(document, "/adapter/0/path", json!("synthetic")));
    let mut world = World::new(&on_switch.nics[0]);
    assert_eq!(world.send("s", mac(1), mac(4)), got(&["v"]));
    assert_eq!(world.send("wire", mac(1), mac(99)), got(&["v"]));
}

#[test]
fn a_change_of_path_changes_the_place_and_nothing_else() {
    let before = compiled(&document());
    let number = |compiled: &Compiled, name: &str| {
        compiled.nics[0].switch.as_ref().unwrap().numbers.get(name)
    };
    let (s, t) = (number(&before, "s"), number(&before, "t"));
    assert!(s.is_some() && t.is_some() && number(&before, "v").is_none());
    // s moves to a VF, v to the switch, and q from its queue.
    let mut moved = but(3, "path", json!("vf"));
    for (n, path, weight) in [(3, "vf", 10), (0, "synthetic", 0), (2, "synthetic", 0)] {
        moved = with(moved, &format!("/adapter/{n}/path"), json!(path));
        moved = with(moved, &format!("/adapter/{n}/iov_weight"), json!(weight));
    }
    let live = LiveLinks::default();
    let during = compiled_after(&moved, &live, Some(&before));
    let switch = during.nics[0].switch.as_ref().unwrap();
    assert_eq!((number(&during, "s"), number(&during, "t")), (s, t), "kept for the way back");
    assert!(!switch.left.contains(&t.unwrap()) && !switch.left.contains(&s.unwrap()));
    let mut world = World::new(&during.nics[0]);
    assert!(matches!(world.location("s"), Some(PortLocation::Function(_))));
    for (from, src) in [("v", 1), ("w", 2), ("q", 3), ("s", 4), ("t", 5)] {
        for (to, dst) in [("v", 1), ("w", 2), ("q", 3), ("s", 4), ("t", 5)] {
            let expected = if from == to { got(&[]) } else { got(&[to]) };
            assert_eq!(world.send(from, mac(dst), mac(src)), expected, "{from} to {to}");
        }
    }
    let after = compiled_after(&document(), &live, Some(&during));
    assert_eq!((number(&after, "s"), number(&after, "t")), (s, t));
    // The number of a removed adapter is reported, and not reused for a new one.
    let gone = with(moved, "/adapter", json!([adapter("new", 9, "synthetic")]));
    let gone = compiled_after(&gone, &live, Some(&during));
    let switch = gone.nics[0].switch.as_ref().unwrap();
    assert!(switch.left.contains(&t.unwrap()) && switch.left.contains(&s.unwrap()));
    assert!(![s, t].contains(&number(&gone, "new")));
}

#[test]
fn who_may_learn_less_than_before_forgets() {
    let left = |after: &Compiled| after.nics[0].switch.as_ref().unwrap().left.clone();
    let port = |after: &Compiled| after.nics[0].switch.as_ref().unwrap().numbers.get("s").unwrap();
    let (live, open) = (LiveLinks::default(), but(3, "spoof_check", json!(false)));
    let first = compiled(&open);
    assert!(left(&compiled_after(&open, &live, Some(&first))).is_empty());
    let checked = compiled_after(&document(), &live, Some(&first));
    assert_eq!(left(&checked), [port(&first)]);
    assert!(left(&compiled_after(&document(), &live, Some(&checked))).is_empty());
    // On a VF the adapter may have been checked meanwhile.
    let mut moved = with(open.clone(), "/adapter/3/path", json!("vf"));
    moved = with(moved, "/adapter/3/iov_weight", json!(10));
    let away = compiled_after(&moved, &live, Some(&first));
    assert!(left(&compiled_after(&open, &live, Some(&away))).is_empty());
    assert_eq!(left(&compiled_after(&document(), &live, Some(&away))), [port(&first)]);
}

#[test]
fn what_has_no_path_is_connected_to_nothing() {
    let bare = with(but(0, "switch", Value::Null), "/adapter/0/nic", json!("nic0"));
    let off = with(bare, "/nic/0/num_vfs", json!(0));
    let compiled = compiled(&off);
    let nic = &compiled.nics[0];
    assert_eq!(nic.adapter("v"), None);
    assert!(nic.config.vfs.iter().all(Option::is_none) && nic.config.vfs.len() == 4);
    assert_eq!(
        World::new(nic).location("w").map(|location| matches!(location, PortLocation::Switch(_))),
        Some(true)
    );
}

#[test]
fn vfs_without_an_adapter_have_addresses_of_their_own() {
    let of = |document: &Value| compiled(document).nics[0].config.vfs.clone();
    let entry = json!([{"index": 3, "trust": true}, {"index": 2, "mac": "02:00:00:00:00:f2"}]);
    let with_entry = with(document(), "/nic/0/vf", entry);
    let (usual, set) = (of(&document()), of(&with_entry));
    let mac_of = |vfs: &[Option<bridge::nic::Function>], n: usize| vfs[n].as_ref().unwrap().mac;
    assert_eq!(mac_of(&usual, 3), mac_of(&set, 3), "derived from name and index");
    assert_ne!(mac_of(&usual, 2), mac_of(&usual, 3));
    assert!(set[3].as_ref().unwrap().trust && !usual[3].as_ref().unwrap().trust);
    assert_eq!(mac_of(&set, 2), Mac([2, 0, 0, 0, 0, 0xf2]));
    let derived = mac_of(&usual, 3);
    assert!(!derived.is_multicast() && derived.0[0] & 2 == 2);
    let taken = of(&but(4, "mac", json!(derived.to_string())));
    assert_ne!(mac_of(&taken, 3), derived, "another function has it");
    let fewer = of(&with(document(), "/nic/0/num_vfs", json!(3)));
    assert!(fewer[2].is_some() && fewer[3].is_none());
}

#[test]
fn a_pf_that_a_guest_has_is_a_function() {
    let pf = json!({"mac": mac(9).to_string(), "attachment": {"socket": "/run/pf"}, "promiscuous": true});
    let document = json!({"version": 1, "nic": [{
        "name": "nic0", "total_vfs": 1, "num_vfs": 1, "pf": pf, "uplink": {"socket": "/run/wire"},
    }]});
    let compiled = compiled(&document);
    let mut world = World::new(&compiled.nics[0]);
    assert_eq!(world.send("wire", mac(9), mac(99)), got(&["pf"]));
    assert_eq!(world.send("wire", mac(77), mac(99)), got(&["pf"]), "it is promiscuous");
    assert_eq!(world.send("pf", mac(99), mac(9)), got(&["wire"]));
    assert_eq!(world.send("pf", mac(99), mac(8)), got(&[]));
    assert_eq!(world.dropped(), ["spoofed-mac"]);
}

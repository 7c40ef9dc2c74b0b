//! Switchdev mode: pipes, links, rules, and what is refused.

use model::state::FunctionName;

use super::*;

/// A NIC in switchdev mode, two adapters on its VFs, an uplink.
fn document() -> Value {
    let adapter = |name: &str, n: u8| {
        json!({
            "name": name, "nic": "nic0", "vf": n, "mac": mac(n + 1).to_string(), "iov_weight": 1,
            "attachment": {"socket": format!("/run/shunt/{name}.sock")},
        })
    };
    json!({
        "version": 1,
        "nic": [{
            "name": "nic0", "mode": "switchdev", "total_vfs": 3, "num_vfs": 3,
            "uplink": {"socket": "/run/shunt/wire.sock"},
        }],
        "adapter": [adapter("a", 0), adapter("b", 1)],
    })
}

fn ruled(rules: Value) -> Value {
    with(document(), "/nic/0/rule", rules)
}

/// With these representors up.
fn up(functions: &[FunctionName]) -> LiveLinks {
    let up = functions.iter().map(|function| ("nic0".to_owned(), *function));
    LiveLinks { representors_up: up.collect(), ..LiveLinks::default() }
}

const ALL: [FunctionName; 4] =
    [FunctionName::Uplink, FunctionName::Vf(0), FunctionName::Vf(1), FunctionName::Vf(2)];

#[test]
fn frames_go_through_pipes_and_only_rules_lead_off_them() {
    let rules = json!([
        {"from": "vf0", "to": "drop", "priority": 9},
        {"from": "vf0", "to": "vf1", "to_mac": mac(2).to_string()},
        {"from": "vf0", "to": "representor", "ethertype": 2054, "priority": 5},
        {"from": "uplink", "to": "vf0", "vlan": 7},
    ]);
    let compiled = compiled_after(&ruled(rules), &up(&ALL), None);
    let mut world = World::silent(&compiled.nics[0]);
    assert_eq!(world.send("a", mac(2), mac(1)), got(&["b"]));
    assert_eq!(world.send("a", mac(3), mac(1)), got(&["pf0vf0"]), "ARP is excepted");
    let ipv4 = frame(mac(3), mac(1), None, &DHCP_ANSWER);
    assert_eq!((world.send_frame("a", &ipv4), world.dropped()), (got(&[]), vec!["rule"]));
    assert_eq!(world.send("b", mac(1), mac(2)), got(&["pf0vf1"]), "rules are for one function");
    assert_eq!(world.send("pf0vf1", mac(1), mac(2)), got(&["b"]), "and for what it sends");
    assert_eq!(world.send("wire", mac(1), mac(99)), got(&["p0"]));
    assert_eq!(world.send_tagged("wire", mac(1), mac(99), 7), got(&["a@7"]));
    assert_eq!(world.send("p0", mac(1), mac(1)), got(&["wire"]));
    // In the order in which they are tried, with the document's numbers.
    assert_eq!(compiled.nics[0].rules, [1, 3, 2, 0]);
}

#[test]
fn a_link_is_its_representors() {
    let rules = json!([{"from": "vf0", "to": "vf1"}]);
    let document = ruled(rules);
    for (functions, uplink, a, b) in [
        (&ALL[..], true, true, true),
        (&ALL[..2], true, true, false),
        (&ALL[1..], false, true, true),
        (&[], false, false, false),
    ] {
        let compiled = compiled_after(&document, &up(functions), None);
        let nic = &compiled.nics[0];
        let of = |name: &str| nic.adapter(name).unwrap().link_up;
        assert_eq!((nic.config.uplink_up, of("a"), of("b")), (uplink, a, b), "{functions:?}");
        let vf = |n| nic.table.is_up(bridge::PortId::vf(n));
        assert_eq!((vf(0), vf(1)), (a, b));
        let mut world = World::silent(nic);
        world.send("a", mac(2), mac(1));
        assert_eq!(world.dropped(), if a { vec![] } else { vec!["link-down"] });
    }
    // The wire's own link counts, too.
    let live = LiveLinks { uplinks_down: ["nic0".to_owned()].into(), ..up(&ALL) };
    assert!(!compiled_after(&document, &live, None).nics[0].config.uplink_up);
}

#[test]
fn checks_of_a_function_stay_and_rules_wait_for_vfs() {
    let rules = json!([{"from": "vf2", "to": "drop"}, {"from": "vf0", "to": "vf2"}]);
    let mut document = ruled(rules);
    document["nic"][0]["num_vfs"] = json!(2);
    let compiled = compiled_after(&document, &up(&ALL), None);
    assert!(compiled.nics[0].rules.is_empty());
    let mut world = World::silent(&compiled.nics[0]);
    assert_eq!((world.send("a", mac(2), mac(9)), world.dropped()), (got(&[]), vec!["spoofed-mac"]));
    assert_eq!(world.send("a", mac(2), mac(1)), got(&["pf0vf0"]));
}

#[test]
fn what_a_bridge_means_is_refused_with_its_field_and_what_does_it_instead() {
    let refused = |document: &Value, field: &str, words: &str| {
        let problems = tried(document, &LiveLinks::default(), None).expect_err(field);
        let told = problems.to_string();
        assert_eq!(problems.problems.len(), 1, "{told}");
        assert_eq!(problems.problems[0].path, field, "{told}");
        assert!(told.contains(words), "{told}");
    };
    for (field, value, words) in [
        ("vlan", json!({"id": 5}), "push_vlan"),
        ("trunks", json!(["5"]), "the host's bridge"),
        ("link_state", json!("enable"), "ip link set its representor"),
        ("mirror", json!({"direction": "rx", "file": "/x"}), "tc or tcpdump"),
    ] {
        let document = with(document(), &format!("/adapter/0/{field}"), value);
        refused(&document, &format!("adapter[0].{field}"), words);
    }
    let vf = json!([{"index": 2, "vlan": {"id": 5}}]);
    refused(&with(document(), "/nic/0/vf", vf), "nic[0].vf[0].vlan", "switchdev");
    for (profile, has_mode) in [("x520", false), ("82576", false), ("xl710", false), ("cx6", true)]
    {
        let document = with(document(), "/nic/0/profile", json!(profile));
        match has_mode {
            true => drop(compiled(&document)),
            false => refused(&document, "nic[0].mode", "EOPNOTSUPP"),
        }
    }
    // Still enforced: addresses, spoof check, rates.
    let kept =
        json!({"min_tx_mbps": 5, "max_tx_mbps": 50, "spoof_check": false, "storm_limit_pps": 7});
    let mut document = document();
    for (field, value) in kept.as_object().unwrap() {
        document["adapter"][0][field] = value.clone();
    }
    let compiled = compiled(&document);
    let nic = &compiled.nics[0];
    let plug = nic.adapter("a").unwrap();
    let PortLocation::Piped(port) = plug.location else { panic!("no pipe: {plug:?}") };
    let storm_limit = nic.table.storm_limit(port);
    assert_eq!((plug.share.min_mbit, plug.share.max_mbit, storm_limit), (5, 50, 7));
}

//! Cards in a document: NICs of kind `pci`.

use serde_json::{Value, json};

use super::super::{Attachment, Drift, Facts, NicMode, State, allocate, transition};
use super::{state, with};

/// A card with two VFs, an uplink and a switch with one adapter.
fn document() -> Value {
    json!({
        "version": 1,
        "nic": [{
            "name": "nic0", "kind": "pci", "device": "0000:01:00.0", "num_vfs": 2, "total_vfs": 4,
            "uplink": "packet:eth0", "drift": "repair", "mode": "switchdev",
            "vf": [{
                "index": 1, "mac": "02:00:00:00:00:01", "spoof_check": false, "trust": true,
                "vlan": {"id": 7, "qos": 3, "proto": "802.1ad"}, "link_state": "enable",
                "min_tx_mbps": 10, "max_tx_mbps": 100, "driver": "vfio-pci", "query_rss": true,
            }],
        }],
        "switch": [{"name": "sw0", "nic": "nic0"}],
        "adapter": [{
            "name": "web", "switch": "sw0", "mac": "02:00:00:00:00:02", "attachment": "tap:web0",
        }],
    })
}

/// Problem of a document with one change, as its field and its text.
fn problem(pointer: &str, value: Value) -> (String, String) {
    let problems = State::parse(&with(document(), pointer, value)).expect_err(pointer);
    assert_eq!(problems.problems.len(), 1, "{problems}");
    (problems.problems[0].path.clone(), problems.to_string())
}

#[test]
fn a_card_has_a_device_and_what_linux_can_set() {
    let nic = &state(&document()).nics[0];
    assert_eq!((nic.device.as_deref(), nic.drift), (Some("0000:01:00.0"), Drift::Repair));
    // The card forwards, so the daemon makes no representors.
    assert_eq!((nic.mode, nic.is_switchdev()), (NicMode::Switchdev, false));
    assert_eq!(nic.representors().len(), 0);
    for device in ["eth0", "0000:01:1f.7", "ffff:ff:00.0"] {
        state(&with(document(), "/nic/0/device", json!(device)));
    }
    for device in ["", "0000:01:20.0", "0000:01:00.8", "01:00.0", "0000:01:0A.0", "a/b"] {
        let (field, text) = problem("/nic/0/device", json!(device));
        assert!(field == "nic[0].device" && text.contains("a PCI address such as"), "{text}");
    }
}

#[test]
fn settings_of_the_other_kind_are_refused() {
    let vf = |field: &str| format!("/nic/0/vf/0/{field}");
    let tap = json!({"attachment": "tap:pf", "mac": "02:00:00:00:00:0f"});
    let cases = [
        ("/nic/0/device".to_owned(), Value::Null, "is missing"),
        ("/nic/0/profile".to_owned(), json!("x520"), "needs kind soft"),
        ("/nic/0/bridging".to_owned(), json!("vepa"), "needs kind soft"),
        ("/nic/0/rule".to_owned(), json!([{"from": "vf0", "to": "drop"}]), "needs kind soft"),
        (vf("macs"), json!(["02:00:00:00:00:05"]), "Linux has no interface for it"),
        (vf("trunks"), json!(["5"]), "Linux has no interface for it"),
        (vf("promiscuous"), json!(true), "Linux has no interface for it"),
        (vf("tx_weight"), json!(20), "Linux has no interface for it"),
        (vf("storm_limit_pps"), json!(20), "Linux has no interface for it"),
        ("/adapter/0/iov_weight".to_owned(), json!(1), "needs the number of a VF"),
        ("/adapter/0/attachment".to_owned(), vf_interface(), "is for adapters with a VF of a card"),
        ("/nic/0/uplink".to_owned(), vf_interface(), "is for adapters with a VF of a card"),
    ];
    for (pointer, value, words) in cases {
        let change = match pointer.ends_with("trunks") {
            // A service tag excludes trunks on any NIC.
            true => with(document(), &vf("vlan/proto"), json!("802.1q")),
            false => document(),
        };
        let problems = State::parse(&with(change, &pointer, value)).expect_err(&pointer);
        let text = problems.to_string();
        assert!(problems.problems.len() == 1 && text.contains(words), "{pointer}: {text}");
        let at = problems.problems[0].path.replace(['[', ']'], "/").replace("/.", "/");
        let at = at.strip_suffix(".kind").unwrap_or(&at);
        assert_eq!(format!("/{}", at.replace('.', "/")), pointer, "{text}");
    }
    // The PF of a NIC with a switch is refused for that as well.
    let pf = State::parse(&with(document(), "/nic/0/pf", tap)).unwrap_err().to_string();
    assert!(pf.contains("needs kind soft"), "{pf}");
    let vf = json!({"driver": "vfio-pci", "query_rss": false});
    let nic = json!({
        "name": "n", "total_vfs": 1, "vf": [vf], "drift": "repair", "device": "eth0",
    });
    let text = State::parse(&json!({"version": 1, "nic": [nic]})).unwrap_err().to_string();
    assert_eq!(text.matches("needs kind pci").count(), 4, "{text}");
}

fn vf_interface() -> Value {
    json!({"kind": "vf", "interface": "net1", "netns": "web"})
}

#[test]
fn an_adapter_on_a_card_has_a_vf_and_its_interface() {
    let adapter = json!({
        "name": "db", "nic": "nic0", "mac": "02:00:00:00:00:03", "iov_weight": 100,
        "vlan": {"id": 7}, "max_tx_mbps": 50, "attachment": vf_interface(),
    });
    let document = with(document(), "/adapter/-", adapter);
    let parsed = state(&document);
    let allocations = allocate(&parsed, &Facts::default());
    let given = |name: &str| allocations.iter().find(|given| given.adapter == name).unwrap();
    assert_eq!((given("db").vf, given("web").vf), (Some(0), None), "VF 1 has its own settings");
    let Attachment::VfInterface(vf) = &parsed.adapters[1].attachment else { panic!() };
    assert_eq!((vf.mtu, vf.ip.len()), (1500, 0));
    let cases = [
        ("/adapter/1/attachment", json!("tap:db0"), "is no attachment to a VF of nic0, a card"),
        ("/adapter/1/attachment", json!("vf:net1"), "netns: is missing"),
        ("/adapter/1/macs", json!(["02:00:00:00:00:05"]), "Linux has no interface for it"),
        ("/adapter/1/attachment/gateway", json!(["10.0.0.1"]), "needs an IPv4 address in ip"),
        ("/nic/0/kind", json!("soft"), "is for adapters with a VF of a card"),
        ("/adapter/1/vf", json!(1), "has no interface: its driver is \"vfio-pci\""),
    ];
    for (pointer, value, words) in cases {
        let problems = State::parse(&with(document.clone(), pointer, value)).expect_err(pointer);
        assert!(problems.to_string().contains(words), "{pointer}: {problems}");
    }
    let soft = json!({"name": "soft0", "total_vfs": 1});
    let moved = with(with(document, "/nic/-", soft), "/adapter/1/nic", json!("soft0"));
    let problems = State::parse(&moved).unwrap_err();
    assert_eq!(problems.problems[0].path, "adapter[1].attachment.kind", "{problems}");
}

#[test]
fn an_adapter_of_a_switch_has_the_vf_that_it_names_on_path_vf() {
    let vm = json!({
        "name": "vm", "switch": "sw0", "mac": "02:00:00:00:00:03", "iov_weight": 100, "vf": 0,
        "vlan": {"id": 7}, "attachment": "vhost-user:/run/vm.sock",
    });
    let document = with(with(document(), "/adapter/-", vm), "/switch/0/iov", json!(true));
    let vf = |path: &str| {
        let parsed = state(&with(document.clone(), "/adapter/1/path", json!(path)));
        allocate(&parsed, &Facts::default())[1].vf
    };
    assert_eq!((vf("vf"), vf("vmq"), vf("synthetic")), (Some(0), None, None));
    let cases = [
        ("/adapter/1/vf", Value::Null, "needs the number of a VF of nic0, a card, in vf"),
        ("/adapter/1/attachment", json!("tap:vm0"), "excludes a VF of nic0, a card: only a VM"),
        ("/adapter/1/path", json!("auto"), "its guest has to take it"),
        ("/adapter/1/macs", json!(["02:00:00:00:00:05"]), "Linux has no interface for it"),
        ("/adapter/1/vf", json!(5), "vf"),
    ];
    for (pointer, value, words) in cases {
        let problems = State::parse(&with(document.clone(), pointer, value)).expect_err(pointer);
        let text = problems.to_string();
        assert!(problems.problems.len() == 1 && text.contains(words), "{pointer}: {text}");
    }
}

#[test]
fn a_card_belongs_to_one_nic_for_good() {
    let second = json!({"name": "nic1", "kind": "pci", "device": "0000:01:00.0"});
    let problems = State::parse(&with(document(), "/nic/-", second)).unwrap_err();
    assert!(problems.to_string().contains("is the card of NIC nic0 already"), "{problems}");
    let other = state(&with(document(), "/nic/0/device", json!("0000:02:00.0")));
    let problems = transition(&state(&document()), &other).unwrap_err();
    assert_eq!(problems.problems[0].path, "nic[0].device", "{problems}");
}

#[test]
fn the_number_of_vfs_changes_while_some_are_enabled() {
    let more = state(&with(document(), "/nic/0/num_vfs", json!(6)));
    assert_eq!((more.nics[0].num_vfs, more.nics[0].total_vfs), (6, 6), "the card decides");
    transition(&state(&document()), &more).unwrap();
}

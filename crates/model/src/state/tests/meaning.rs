//! Documents of valid form without a valid meaning.

use serde_json::{Value, json};

use super::super::{State, transition};
use super::{adapter, document, state, with};

/// Asserts that each document is refused with exactly one problem, at this field and with these
/// words.
fn refused(cases: &[(Value, &str, &str)]) {
    for (document, field, words) in cases {
        let problems = State::parse(document).expect_err(field);
        let told = problems.to_string();
        assert_eq!(problems.problems.len(), 1, "{told}");
        assert_eq!(problems.problems[0].path, *field, "{told}");
        assert!(told.contains(words), "{told}\nlacks {words}");
        let words: Vec<&str> = told.split_whitespace().collect();
        assert!(words.windows(2).all(|two| two[0] != two[1]), "a word twice in {told}");
    }
}

fn plus_adapter(changes: &[(&str, Value)]) -> Value {
    let mut new = adapter("new", 3, 0);
    for (pointer, value) in changes {
        new = with(new, pointer, value.clone());
    }
    with(document(), "/adapter/-", new)
}

#[test]
fn names_are_unique() {
    let nic = json!({"name": "nic0", "total_vfs": 0});
    let switch = json!({"name": "sw0", "nic": "nic1"});
    let two_nics = with(document(), "/nic/-", json!({"name": "nic1", "total_vfs": 0}));
    refused(&[
        (
            with(document(), "/nic/-", nic),
            "nic[1].name",
            r#""nic0" is the name of NIC nic0 already"#,
        ),
        (
            with(two_nics, "/switch/-", switch),
            "switch[1].name",
            "is the name of switch sw0 already",
        ),
        (plus_adapter(&[("/name", json!("db"))]), "adapter[2].name", "of adapter db already"),
        (plus_adapter(&[("/name", json!("uplink"))]), "adapter[2].name", "the reserved name"),
    ]);
}

#[test]
fn no_two_have_the_same_counters() {
    let named = |name: &str| plus_adapter(&[("/name", json!(name))]);
    let mut both = with(named("vf3"), "/adapter/-", adapter("nic0-vf3", 4, 0));
    refused(&[
        (named("pf"), "adapter[2].name", "the counter name of a function"),
        (both.clone(), "adapter[3].name", "the same counter name as another adapter"),
    ]);
    both["adapter"][3]["name"] = json!("nic1-vf3");
    State::parse(&both).unwrap();
    State::parse(&named("pf0vf2")).unwrap();
}

#[test]
fn references_lead_somewhere() {
    let port = |name: &str| json!({"adapter": name});
    let sw = |pointer: &str, value| with(document(), &format!("/switch/0{pointer}"), value);
    refused(&[
        (plus_adapter(&[("/switch", json!("sw9"))]), "adapter[2].switch", "such as sw0"),
        (
            plus_adapter(&[("/switch", Value::Null), ("/nic", json!("nic9"))]),
            "adapter[2].nic",
            "is no NIC; name a NIC of the document, such as nic0",
        ),
        (
            plus_adapter(&[("/nic", json!("nic0"))]),
            "adapter[2].nic",
            "\"nic0\" excludes switch \"sw0\"",
        ),
        (
            plus_adapter(&[("/switch", Value::Null)]),
            "adapter[2].switch",
            "is missing; name a switch, or a NIC with nic",
        ),
        (
            sw("/port/-", port("ghost")),
            "switch[0].port[1].adapter",
            "or an adapter of it such as web, db",
        ),
        (
            sw("/port/-", port("db")),
            "switch[0].port[1].adapter",
            "has settings in port db of switch sw0",
        ),
        (
            sw("/static/-", json!({"mac": "02:00:00:00:00:0b", "port": "ghost"})),
            "switch[0].static[1].port",
            "is not on switch sw0",
        ),
        (
            sw("/static/-", json!({"mac": "02:00:00:00:00:0a", "port": "web"})),
            "switch[0].static[1].mac",
            " of switch sw0 already",
        ),
        (
            with(document(), "/switch/-", json!({"name": "sw1", "nic": "nic0"})),
            "switch[1].nic",
            "is the NIC of switch sw0 already",
        ),
    ]);
    let orphan = json!({"version": 1, "switch": [{"name": "sw0", "nic": "nic0"}]});
    refused(&[(orphan, "switch[0].nic", "there is no NIC; create one first")]);
}

#[test]
fn addresses_are_unique_within_a_vlan_of_a_nic() {
    let same = json!("02:00:00:00:01:01"); // web's
    let vlan = json!({"id": 5});
    refused(&[
        (
            plus_adapter(&[("/mac", same.clone())]),
            "adapter[2].mac",
            "in this VLAN the address of adapter web",
        ),
        (plus_adapter(&[("/macs", json!([same]))]), "adapter[2].macs[0]", "of adapter web already"),
        (
            plus_adapter(&[("/mac", json!("02:00:00:00:00:0a"))]),
            "adapter[2].mac",
            " of switch sw0 already",
        ),
        (
            plus_adapter(&[("/mac", json!("02:00:00:00:00:f0")), ("/vlan", json!({"id": 9}))]),
            "adapter[2].mac",
            "of VF 0 of NIC nic0 already",
        ),
    ]);
    state(&plus_adapter(&[("/mac", same.clone()), ("/vlan", vlan)]));
    let elsewhere = with(document(), "/nic/-", json!({"name": "nic1", "total_vfs": 1}));
    let mut new = with(adapter("new", 1, 0), "/switch", Value::Null);
    new = with(new, "/nic", json!("nic1"));
    state(&with(elsewhere, "/adapter/-", new));
}

#[test]
fn sockets_are_unique() {
    let wire = json!("/run/shunt/wire.sock");
    let web = json!("/run/shunt/web.sock");
    refused(&[
        (
            plus_adapter(&[("/attachment/socket", wire)]),
            "adapter[2].attachment.socket",
            "uplink of NIC nic0",
        ),
        (
            plus_adapter(&[("/attachment/socket", web)]),
            "adapter[2].attachment.socket",
            "is the socket of attachment of adapter web already",
        ),
    ]);
}

#[test]
fn vfs_are_within_their_number_and_named_once() {
    let vf = |index: u16| json!({"index": index});
    let named = |first: Value, second: Value| {
        with(with(document(), "/adapter/0/vf", first), "/adapter/1/vf", second)
    };
    refused(&[
        (
            with(document(), "/nic/0/num_vfs", json!(5)),
            "nic[0].num_vfs",
            "write a number up to total_vfs, 4",
        ),
        (
            with(document(), "/nic/0/vf/-", vf(4)),
            "nic[0].vf[1].index",
            "is no VF of nic0; write a number, 0 to 3",
        ),
        (
            with(document(), "/nic/0/vf/-", vf(0)),
            "nic[0].vf[1].index",
            "is the index of VF 0 of NIC nic0 already",
        ),
        (with(document(), "/adapter/0/vf", json!(4)), "adapter[0].vf", "write a number, 0 to 3"),
        (named(json!(1), json!(1)), "adapter[1].vf", "is named by adapter web already"),
    ]);
    state(&named(json!(1), json!(2)));
}

#[test]
fn an_address_has_one_owner_and_other_settings_of_a_named_vf_win() {
    let own = |entry: Value| {
        let named = with(document(), "/adapter/0/vf", json!(1));
        with(named, "/nic/0/vf/-", with(entry, "/index", json!(1)))
    };
    let there = json!({"mac": "02:00:00:00:01:01"}); // web's address, in VLAN 3
    let on_two =
        with(own(json!({"vlan": {"id": 3}})), "/nic/0/vf/-", with(there, "/index", json!(2)));
    refused(&[
        (
            own(json!({"mac": "02:00:00:00:00:f1"})),
            "nic[0].vf[1].mac",
            "is set here and by adapter web",
        ),
        (
            own(json!({"macs": ["02:00:00:00:00:f1"]})),
            "nic[0].vf[1].macs",
            "leave it to the adapter",
        ),
        (
            with(on_two, "/nic/0/vf/2/vlan", json!({"id": 3})),
            "nic[0].vf[2].mac",
            "VF 1 of NIC nic0",
        ),
        (
            own(json!({"mirror": {"direction": "rx", "adapter": "web"}})),
            "nic[0].vf[1].mirror.adapter",
            "mirror to itself",
        ),
    ]);
    state(&own(json!({"mac": "02:00:00:00:01:01", "trust": true, "trunks": ["5-9"]})));
    state(&own(json!({"vlan": {"id": 3}, "max_tx_mbps": 10})));
}

#[test]
fn what_is_the_adapters_is_not_its_ports() {
    let port = |pointer: &str, value: Value| {
        with(document(), &format!("/switch/0/port/0{pointer}"), value)
    };
    let web =
        |pointer: &str, value: Value| with(document(), &format!("/adapter/0{pointer}"), value);
    let deaf = with(port("/unknown_unicast", json!(false)), "/adapter/1/trust", json!(true));
    let entry = json!({"mac": "02:00:00:00:00:0b", "port": "db", "vlan": 5});
    refused(&[
        (
            with(document(), "/switch/0/static/-", entry),
            "switch[0].static[1].vlan",
            "5 is no VLAN of adapter db; leave it out, or write one of its trunks",
        ),
        (port("/trunks", json!(["5"])), "switch[0].port[0].trunks", "set trunks of adapter db"),
        (port("/native_vlan", json!(5)), "switch[0].port[0].native_vlan", "set vlan of adapter db"),
        (port("/max_macs", json!(5)), "switch[0].port[0].max_macs", "set spoof_check = false of"),
        (web("/promiscuous", json!(true)), "adapter[0].promiscuous", "or set trust = true"),
        (
            with(deaf, "/adapter/1/promiscuous", json!(true)),
            "adapter[1].promiscuous",
            "contradicts unknown_unicast of its port on sw0",
        ),
    ]);
    state(&with(port("/max_macs", json!(5)), "/adapter/1/spoof_check", json!(false)));
    state(&web("/vlan", json!({"id": 5, "qos": 1, "proto": "802.1ad"})));
}

#[test]
fn a_pf_is_a_guests_or_a_switchs() {
    let socket = |path: &str| json!({"socket": path});
    let pf = |path: &str, mac: &str| json!({"mac": mac, "attachment": socket(path)});
    let nic = |pf: Value| {
        let vf = json!([{"index": 0, "mac": "02:00:00:00:00:f0"}]);
        json!({"version": 1, "nic": [{"name": "nic0", "total_vfs": 1, "vf": vf, "pf": pf}]})
    };
    refused(&[
        (
            with(document(), "/nic/0/pf", pf("/run/pf", "02:00:00:00:00:f1")),
            "nic[0].pf",
            "is used by switch sw0",
        ),
        (nic(pf("/run/pf", "02:00:00:00:00:f0")), "nic[0].vf[0].mac", "of pf of NIC nic0 already"),
    ]);
    state(&nic(with(pf("/run/pf", "02:00:00:00:00:f1"), "/promiscuous", json!(true))));
}

#[test]
fn a_budget_is_of_a_card_that_has_limits() {
    let budget = with(document(), "/nic/0/budget_permille", json!(100));
    refused(&[(budget.clone(), "nic[0].budget_permille", "write 0, or choose another profile")]);
    state(&with(budget, "/nic/0/profile", json!("xl710")));
}

#[test]
fn rates_and_trunks_make_sense() {
    let vf = |pointer: &str, value| with(document(), &format!("/nic/0/vf/0{pointer}"), value);
    let both = with(vf("/min_tx_mbps", json!(20)), "/nic/0/vf/0/max_tx_mbps", json!(10));
    let web = |pointer: &str, value| with(document(), &format!("/adapter/0{pointer}"), value);
    let uplink = |native: u16| {
        let port = json!({"adapter": "uplink", "trunks": ["5-9"], "native_vlan": native});
        with(document(), "/switch/0/port/-", port)
    };
    let service = with(vf("/trunks", json!(["5"])), "/nic/0/vf/0/vlan/proto", json!("802.1ad"));
    refused(&[
        (both, "nic[0].vf[0].min_tx_mbps", "write at most 10"),
        (service, "nic[0].vf[0].vlan.proto", "leave trunks out"),
        (web("/trunks", json!(["5-9", "9-12"])), "adapter[0].trunks[1]", "name each VLAN once"),
        (uplink(4), "switch[0].port[1].native_vlan", "is none of the trunks"),
    ]);
    state(&vf("/min_tx_mbps", json!(20)));
    state(&uplink(5));
    state(&with(web("/trunks", json!(["5-9"])), "/adapter/0/vlan", json!({"id": 4})));
}

#[test]
fn rules_that_no_frame_can_meet_are_refused() {
    let rule = |fields: Value| {
        let mut rule = json!({"action": "allow"});
        rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        with(document(), "/switch/0/port/0/acl", json!([rule]))
    };
    let at = |field: &str| format!("switch[0].port[0].acl[0].{field}");
    refused(&[
        (rule(json!({"to_port": "1"})), &at("protocol"), "\"any protocol\" has no ports"),
        (rule(json!({"from_port": "1", "protocol": 1})), &at("protocol"), "\"icmp\" has no ports"),
        (
            rule(json!({"from_ip": "10.0.0.0/8", "to_ip": "fd00::/8"})),
            &at("to_ip"),
            "another address family",
        ),
        (rule(json!({"from_ip": "10.0.0.0/8", "ethertype": 2054})), &at("ethertype"), "is not IP"),
        (
            rule(json!({"from_ip": "10.0.0.0/8", "ethertype": 34525})),
            &at("ethertype"),
            "the other IP version",
        ),
        (rule(json!({"ethertype": 33024})), &at("ethertype"), "is a tag"),
    ]);
    state(&rule(json!({"from_ip": "10.0.0.0/8", "to_ip": "10.0.0.1", "ethertype": 2048})));
}

#[test]
fn mirrors_have_one_target_that_is_another() {
    let mirror = |target: Value| {
        let mirror = with(target, "/direction", json!("both"));
        with(document(), "/adapter/0/mirror", mirror)
    };
    let at = "adapter[0].mirror";
    refused(&[
        (mirror(json!({})), at, "give adapter or file"),
        (mirror(json!({"adapter": "db", "file": "/x.pcapng"})), at, "give adapter or file"),
        (mirror(json!({"adapter": "web"})), "adapter[0].mirror.adapter", "mirror to itself"),
        (mirror(json!({"adapter": "ghost"})), "adapter[0].mirror.adapter", "that is on nic0"),
    ]);
    state(&mirror(json!({"adapter": "db"})));
    state(&mirror(json!({"file": "/var/tmp/x.pcapng"})));
}

#[test]
fn an_adapter_without_a_switch_has_no_lesser_path() {
    for path in ["vmq", "synthetic"] {
        let bare = [("/switch", Value::Null), ("/nic", json!("nic0")), ("/path", json!(path))];
        refused(&[(plus_adapter(&bare), "adapter[2].path", "needs a switch")]);
    }
}

#[test]
fn what_is_fixed_at_creation_does_not_change() {
    let from = state(&document());
    for (pointer, value, field, words) in [
        ("/nic/0/total_vfs", json!(8), "nic[0].total_vfs", "write 4, or delete and recreate nic0"),
        ("/nic/0/profile", json!("x520"), "nic[0].profile", r#"write "ideal", or delete"#),
        ("/nic/0/vmq_queues", json!(1), "nic[0].vmq_queues", "write 64"),
        (
            "/nic/0/num_vfs",
            json!(2),
            "nic[0].num_vfs",
            "cannot change while 3 VFs are enabled; write 3 or 0",
        ),
        ("/switch/0/iov", json!(false), "switch[0].iov", "write true, or delete and recreate sw0"),
    ] {
        let to = state(&with(document(), pointer, value));
        let problems = transition(&from, &to).unwrap_err();
        let told = problems.to_string();
        assert_eq!(problems.problems[0].path, field, "{told}");
        assert!(told.contains(words) && problems.problems.len() == 1, "{told}");
    }
    let off = state(&with(document(), "/nic/0/num_vfs", json!(0)));
    assert_eq!(transition(&from, &off), Ok(()));
    assert_eq!(transition(&off, &from), Ok(()));
    assert_eq!(transition(&from, &State::default()), Ok(()));
    assert_eq!(transition(&State::default(), &from), Ok(()));
}

#[test]
fn tags_that_are_payload_are_read_by_nobody() {
    let service = |id: u16| {
        let vlan = json!({"id": id, "proto": "802.1ad"});
        with(document(), "/adapter/0/vlan", vlan)
    };
    let port = json!({"adapter": "uplink", "trunks": ["5-9"], "native_vlan": 5});
    let native = |document| with(document, "/switch/0/port/-", port.clone());
    let trunk = |document: Value, at: &str| {
        let vlan = with(document, &format!("{at}/vlan"), json!({"id": 5}));
        with(vlan, &format!("{at}/trunks"), json!(["5-9"]))
    };
    let field = "adapter[0].vlan.proto";
    refused(&[
        (native(service(5)), field, "in VLAN 5, which port uplink of sw0 has without a tag"),
        (trunk(service(5), "/adapter/1"), field, "in VLAN 5, which adapter db has without a tag"),
        (trunk(service(5), "/nic/0/vf/0"), field, "write \"802.1q\", or choose another VLAN"),
    ]);
    state(&native(service(6)));
    state(&trunk(service(6), "/adapter/1"));
    state(&with(service(5), "/adapter/1/vlan", json!({"id": 5})));
}

#[test]
fn tunnels_have_networks_and_other_hosts_of_their_own() {
    let tunnel = json!({"name": "far", "vni": 7, "peers": ["10.0.0.2", "10.0.0.3"], "vlan": 5});
    let tunneled = with(document(), "/switch/0/vxlan", json!([tunnel]));
    let written = state(&tunneled).to_document();
    assert_eq!(written["switch"][0]["vxlan"][0]["port"], 4789);
    let entry = json!({"mac": "02:00:00:00:00:0b", "port": "far", "vlan": 5});
    let known = with(tunneled.clone(), "/switch/0/static/-", entry);
    assert!(State::parse(&known).is_ok());
    let port = json!({"adapter": "far", "isolated": true});
    assert!(State::parse(&with(tunneled.clone(), "/switch/0/port/-", port)).is_ok());
    let cases = [
        ("/switch/0/vxlan/0/vni", json!(0), "vni: 0 is out of range"),
        ("/switch/0/vxlan/0/vni", json!(1 << 24), "write a whole number, 1 to 16777215"),
        ("/switch/0/vxlan/0/name", json!("web"), r#"name: "web" is an adapter's name"#),
        ("/switch/0/vxlan/0/name", json!("uplink"), r#"name: "uplink" is the reserved name"#),
        ("/switch/0/vxlan/0/peers", json!([]), "peers: has no entry; name at least"),
        (
            "/switch/0/vxlan/0/peers",
            json!(vec!["10.0.0.2"; 65]),
            "has 65 entries; write at most 64",
        ),
        ("/switch/0/vxlan/0/peers/1", json!("host"), r#"peers: "host" is not allowed"#),
        (
            "/switch/0/vxlan/0/peers/1",
            json!("fd00::1"),
            r#"peers: "fd00::1" has another address family"#,
        ),
        ("/switch/0/vxlan/0/peers/1", json!("10.0.0.2"), r#"peers: "10.0.0.2" is named twice"#),
        (
            "/switch/0/vxlan/0/peers/1",
            json!("239.0.0.1"),
            r#"peers: "239.0.0.1" is not an address"#,
        ),
        (
            "/switch/0/vxlan/0/local",
            json!("fd00::1"),
            r#"local: "fd00::1" has another address family"#,
        ),
        ("/switch/0/vxlan/0/local", json!("10.0.0.3"), r#"peers: "10.0.0.3" is not an address"#),
        ("/switch/0/vxlan/0/mtu", json!(575), "mtu: 575 is out of range"),
    ];
    for (pointer, value, expected) in cases {
        let mut document = tunneled.clone();
        match document.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => document = with(document, pointer, value),
        }
        let told = State::parse(&document).unwrap_err().to_string();
        assert!(told.contains(expected), "{pointer}: {told}");
    }
    let second = |name: &str, vni: u32| json!({"name": name, "vni": vni, "peers": ["10.0.0.2"]});
    let refused = |tunnel: Value, expected: &str| {
        let document = with(tunneled.clone(), "/switch/0/vxlan/-", tunnel);
        let told = State::parse(&document).unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
    };
    refused(second("far", 8), r#""far" is the name of another tunnel of the switch"#);
    refused(second("near", 7), "vni: 7 is the network of tunnel far of switch sw0 already");
    let port = json!({"adapter": "far", "trunks": ["7"]});
    let told = State::parse(&with(tunneled.clone(), "/switch/0/port/-", port)).unwrap_err();
    assert!(told.to_string().contains("are the tunnel's; set vlan of tunnel far"), "{told}");
    let entry = json!({"mac": "02:00:00:00:00:0b", "port": "far"});
    let told = State::parse(&with(tunneled, "/switch/0/static/-", entry)).unwrap_err().to_string();
    assert!(told.contains(r#"vlan: "none" is not the VLAN of far; write 5"#), "{told}");
}

//! State of a file, and errors of its state document.

use serde_json::json;

use super::*;
use crate::state::{LinkState, State, VlanProto};

/// A NIC with a VF that has a guest and two that are free, and a switch on it; 12 lines.
const FILE: &str = "run_dir = \"/run/shunt\"\n[[nic]]\nname = \"nic0\"\nkind = \"soft\"\ntotal_vfs = 3\n\
    [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"vf0.sock\"\n\
    [[switch]]\nname = \"sw0\"\nnic = \"nic0\"\niov = true\n";

/// An adapter on it that is right but for the lines given, which start at line 17.
fn with_adapter(lines: &str) -> String {
    format!(
        "{FILE}[[adapter]]\nname = \"web\"\nmac = \"02:00:00:00:00:02\"\nswitch = \"sw0\"\n{lines}\n"
    )
}

const SOCKET: &str = "attachment = { socket = \"/run/shunt/web.sock\" }\n";

fn told(text: &str) -> String {
    match Config::parse("shunt.toml", text) {
        Ok(config) => panic!("no error: {config:?}"),
        Err(errors) => errors.to_string(),
    }
}

/// The errors of the adapter with these lines from line 18 on.
fn adapter(lines: &str) -> String {
    told(&with_adapter(&format!("{SOCKET}{lines}")))
}

#[test]
fn a_file_without_nics_is_the_empty_state() {
    let config = parse("");
    assert_eq!(config.state, State::default());
}

#[test]
fn the_file_as_a_state() {
    let config = parse(&with_adapter(&format!("{SOCKET}iov_weight = 50")));
    let vf0 = json!({
        "name": "nic0-vf0", "nic": "nic0", "vf": 0, "mac": "02:00:00:00:00:01", "iov_weight": 100,
        "vmq_weight": 0, "attachment": {"socket": "/run/shunt/vf0.sock"},
    });
    let web = json!({
        "name": "web", "switch": "sw0", "mac": "02:00:00:00:00:02", "iov_weight": 50,
        "attachment": {"socket": "/run/shunt/web.sock"},
    });
    let document = json!({
        "version": 1,
        "nic": [{"name": "nic0", "total_vfs": 3, "num_vfs": 3}],
        "switch": [{"name": "sw0", "nic": "nic0", "iov": true}],
        "adapter": [vf0, web],
    });
    assert_eq!(config.state, State::parse(&document).unwrap());
}

#[test]
fn every_setting_of_a_nic() {
    let text = "[[nic]]\nname = \"n\"\nkind = \"soft\"\nprofile = \"x520\"\nbridging = \"vepa\"\ntotal_vfs = 9\n\
        budget_permille = 10\nvmq_queues = 3\n\
        [nic.uplink]\nkind = \"vhost-user\"\nsocket = \"/u\"\nmode = \"client\"\n";
    let nic = json!({
        "name": "n", "profile": "x520", "bridging": "vepa", "total_vfs": 9, "num_vfs": 9,
        "budget_permille": 10, "vmq_queues": 3, "uplink": {"socket": "/u", "mode": "client"},
    });
    assert_eq!(parse(text).state, State::parse(&json!({"version": 1, "nic": [nic]})).unwrap());
}

#[test]
fn every_setting_of_a_pf_and_a_vf() {
    let both = "macs = [\"02:00:00:00:00:02\"]\nvlan = { id = 5, qos = 6 }\ntrunks = [\"8-10\", \"20\"]\n\
        spoof_check = false\ntrust = true\npromiscuous = true\nlink_state = \"disable\"\n\
        tx_weight = 3\nmin_tx_mbps = 10\nmax_tx_mbps = 20\nstorm_limit_pps = 1000\n\
        attachment.queue_pairs = 2\nattachment.mtu = 9000\nattachment.mergeable = false\n\
        attachment.indirect = false\nattachment.event_index = false\nattachment.in_order = true\n\
        attachment.packed = false\n";
    let text = format!(
        "[[nic]]\nname = \"n\"\nkind = \"soft\"\ntotal_vfs = 8\n\
         [nic.pf]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"/p\"\n{both}\
         [[nic.vf]]\nindex = 7\nmac = \"02:00:00:00:01:01\"\nattachment.socket = \"/v\"\n{}",
        both.replace("00:02\"", "01:02\"")
    );
    let function = |name: &str, byte: u8| {
        json!({
            "mac": format!("02:00:00:00:{byte:02x}:01"), "macs": [format!("02:00:00:00:{byte:02x}:02")],
            "vlan": {"id": 5, "qos": 6}, "trunks": ["8-10", "20"], "spoof_check": false, "promiscuous": true,
            "link_state": "disable", "min_tx_mbps": 10, "max_tx_mbps": 20, "tx_weight": 3,
            "storm_limit_pps": 1000,
            "attachment": {
                "socket": name, "queue_pairs": 2, "mtu": 9000, "mergeable": false, "indirect": false,
                "event_index": false, "in_order": true, "packed": false,
            },
        })
    };
    let mut vf = function("/v", 1);
    for (field, value) in [
        ("name", json!("n-vf7")),
        ("nic", json!("n")),
        ("vf", json!(7)),
        ("trust", json!(true)),
        ("iov_weight", json!(100)),
        ("vmq_weight", json!(0)),
    ] {
        vf[field] = value;
    }
    let nic = json!({"name": "n", "total_vfs": 8, "num_vfs": 8, "pf": function("/p", 0)});
    let expected = State::parse(&json!({"version": 1, "nic": [nic], "adapter": [vf]})).unwrap();
    assert_eq!(parse(&text).state, expected);
    let service = "[[nic]]\nname = \"n\"\nkind = \"soft\"\n[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"/v\"\n\
        vlan = { id = 5, proto = \"802.1ad\" }\nlink_state = \"enable\"\n";
    let state = parse(service).state;
    let vlan = state.adapters[0].settings.vlan.unwrap();
    assert_eq!((vlan.id, vlan.proto), (5, VlanProto::Dot1ad));
    assert_eq!(state.adapters[0].settings.link_state, LinkState::Enable);
}

#[test]
fn what_only_the_state_refuses_of_a_nic() {
    let nic = |lines: &str| told(&format!("[[nic]]\nname = \"n\"\nkind = \"soft\"\n{lines}\n"));
    insta::assert_snapshot!(nic("budget_permille = 5"), @"shunt.toml:4:19: NIC n, budget_permille: 5 limits the profile's capacity, and ideal has none; write 0, or choose another profile");
    let pf = "[nic.pf]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"/p\"\n";
    insta::assert_snapshot!(nic(&format!("{pf}[[switch]]\nname = \"s\"\nnic = \"n\"")), @r#"shunt.toml:4:1: NIC n, pf: "02:00:00:00:00:01" is used by switch s of this NIC; leave pf or the switch out"#);
    let odd: Vec<String> = (0..257).map(|i| format!("\"{}\"", 2 * i + 1)).collect();
    insta::assert_snapshot!(nic(&format!("{pf}trunks = [{}]", odd.join(","))), @"shunt.toml:7:1: NIC n, pf.trunks: has 257 entries; write at most 256");
    let vf = "[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"/v\"\n";
    insta::assert_snapshot!(nic(&format!("{vf}trunks = [{}]", odd.join(","))), @"shunt.toml:7:1: VF 0 of NIC n, trunks: has 257 entries; write at most 256");
}

#[test]
fn names_of_adapters_are_labels_and_differ_as_the_nics_do() {
    let nic = |name: &str, n: u8| {
        format!(
            "[[nic]]\nname = \"{name}\"\nkind = \"soft\"\n[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"{n}\"\n"
        )
    };
    let state = parse(&[nic("-", 0), nic("n-", 1), nic("-15-bytes-long-", 2)].concat()).state;
    let names: Vec<&str> = state.adapters.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["N--vf0", "n--vf0", "N-15-bytes-long--vf0"]);
}

#[test]
fn form() {
    insta::assert_snapshot!(adapter("iov_weight = 101"), @"shunt.toml:18:14: adapter web, iov_weight: 101 is out of range; write a whole number, 0 to 100");
    insta::assert_snapshot!(adapter("weight = 5"), @"shunt.toml:18:1: adapter web, weight: unknown field; did you mean tx_weight?");
    insta::assert_snapshot!(adapter("vlan = { id = 0x1000, prio = 1 }"), @r"
    shunt.toml:18:15: adapter web, vlan.id: 4096 is out of range; write a whole number, 1 to 4094
    shunt.toml:18:23: adapter web, vlan.prio: unknown field; expected one of id, proto, qos
    ");
    insta::assert_snapshot!(adapter("macs = [\"02:00:00:00:00:03\", \"03:00:00:00:00:03\"]"), @r#"shunt.toml:18:30: adapter web, macs: "03:00:00:00:00:03" is not allowed; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(adapter("max_tx_mbps = 1.5\nmin_tx_mbps = 99999999999999999999999"), @r"
    shunt.toml:18:15: adapter web, max_tx_mbps: 1.5 is not a whole number; write a whole number, 0 to 1000000
    shunt.toml:19:15: adapter web, min_tx_mbps: 18446744073709551615 is out of range; write a whole number, 0 to 1000000
    ");
    insta::assert_snapshot!(adapter("path = 2024-01-01"), @r#"shunt.toml:18:8: adapter web, path: 2024-01-01 is a date or a time; write "auto" or "vf" or "vmq" or "synthetic""#);
    insta::assert_snapshot!(told(&with_adapter("")), @r#"shunt.toml:13:1: adapter web, attachment: is missing; write a kind and its place, such as "tap:web0", "xdp:eth1" or "vhost-user:/run/shunt/web.sock", or a table with its fields"#);
    insta::assert_snapshot!(told("[switch]\nname = \"sw0\""), @"shunt.toml:1:2: switch: is a table; write tables, each with the header [[switch]]");
    insta::assert_snapshot!(told("adapter = [1]"), @"shunt.toml:1:12: adapter without name: 1 is a number; write tables, each with the header [[adapter]]");
    insta::assert_snapshot!(told("[[switch]]\nname = \"sw0\"\nnic = \"nic0\"\n[[switch.port]]\nadapter = \"uplink\"\n[[switch.port.acl]]\naction = \"drop\"\n"), @r#"shunt.toml:7:10: rule 1 of port uplink of switch sw0, action: "drop" is not allowed; write "allow" or "deny" or "count""#);
}

#[test]
fn meaning() {
    insta::assert_snapshot!(adapter("vf = 0"), @"shunt.toml:18:6: adapter web, vf: 0 is named by VF 0 of NIC nic0 already; choose another");
    insta::assert_snapshot!(adapter("vf = 3"), @"shunt.toml:18:6: adapter web, vf: 3 is no VF of nic0; write a number, 0 to 2");
    insta::assert_snapshot!(adapter("macs = [\"02:00:00:00:00:01\"]"), @r#"shunt.toml:18:9: adapter web, macs: "02:00:00:00:00:01" is in this VLAN the address of VF 0 of NIC nic0 already; choose another"#);
    insta::assert_snapshot!(adapter("nic = \"nic0\""), @r#"shunt.toml:18:7: adapter web, nic: "nic0" excludes switch "sw0"; remove nic (a switch is on a NIC already), or remove switch"#);
    insta::assert_snapshot!(told(&with_adapter(SOCKET).replace("\"sw0\"\nattach", "\"sw1\"\nattach")), @r#"shunt.toml:16:10: adapter web, switch: "sw1" is no switch; name a switch of the document, such as sw0"#);
    insta::assert_snapshot!(told(&with_adapter(SOCKET).replace("\"web\"", "\"nic0-vf0\"")), @r#"shunt.toml:14:8: adapter nic0-vf0, name: "nic0-vf0" is the name of VF 0 of NIC nic0 already; choose another"#);
}

#[test]
fn sockets_of_all_kinds_differ() {
    let socket = |path: &str| told(&with_adapter(&format!("attachment.socket = \"{path}\"")));
    insta::assert_snapshot!(socket("/run/shunt/vf0.sock"), @r#"shunt.toml:17:21: adapter web, attachment.socket: "/run/shunt/vf0.sock" is the socket of attachment of VF 0 of NIC nic0 already; choose another"#);
    insta::assert_snapshot!(socket("/run/shunt/./vf0.sock"), @r#"shunt.toml:17:21: adapter web, attachment.socket: "/run/shunt/vf0.sock" is the socket of attachment of VF 0 of NIC nic0 already; choose another"#);
    insta::assert_snapshot!(socket("/run/shunt/api.sock"), @r#"shunt.toml:17:21: adapter web, attachment.socket: "/run/shunt/api.sock" is a file of the daemon; choose another name"#);
}

#[test]
fn mistakes_beyond_those_that_are_shown_are_counted() {
    let text: String = (0..30).map(|_| "[[switch]]\nname = \"A\"\n").collect();
    let errors = Config::parse("shunt.toml", &text).unwrap_err();
    assert_eq!(
        (errors.problems.iter().len(), errors.more),
        (1, 0),
        "sixteen switches at most: {errors}"
    );
    let text: String = (0..30).map(|_| "[[adapter]]\nname = \"a\"\nmac = \"b\"\n").collect();
    let errors = Config::parse("shunt.toml", &text).unwrap_err();
    assert_eq!((errors.problems.iter().len(), errors.more), (20, 40));
}

//! Errors of wrong files. Each snapshot is the operator's output for the lines before it.

use super::*;

/// The errors of a whole file.
fn told(text: &str) -> String {
    match Config::parse("shunt.toml", text) {
        Ok(config) => panic!("no error: {config:?}"),
        Err(errors) => errors.to_string(),
    }
}

/// The errors of a file with one NIC; the lines given start at line 5.
fn nic(lines: &str) -> String {
    told(&format!("{HEAD}{lines}\n"))
}

/// The errors of a file with one VF that is right but for the lines given, which start at line 8.
fn vf(lines: &str) -> String {
    nic(&format!(
        "[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"vf0.sock\"\n{lines}"
    ))
}

/// The errors of a file whose VF has this address.
fn mac(value: &str) -> String {
    nic(&format!("[[nic.vf]]\nmac = {value}\nattachment.socket = \"vf0.sock\""))
}

/// The errors of a file whose VF has this socket.
fn socket(value: &str) -> String {
    nic(&format!("[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = {value}"))
}

/// The errors of the table `[lanes]` with these lines, which start at line 6.
fn lanes(lines: &str) -> String {
    nic(&format!("[lanes]\n{lines}"))
}

/// Another card's limits would be shown for a name that is not known.
#[test]
fn profiles() {
    use crate::profile::Profile;
    let names = Profile::names().iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
    let names = names.join(" or ");
    for (given, then) in [("e1000", "w"), ("x52", "did you mean \"x520\"? W")] {
        let told = nic(&format!("profile = \"{given}\""));
        let at = "shunt.toml:5:11: NIC nic0, profile:";
        assert_eq!(told, format!("{at} \"{given}\" is not allowed; {then}rite {names}"));
    }
    assert_eq!(Profile::named("e1000"), None);
    assert_eq!(Profile::named("Ideal"), None);
    for name in Profile::names() {
        let config = super::parse(&format!("{HEAD}profile = \"{name}\"\n"));
        assert_eq!(serde_json::json!(config.state.nics[0].profile), *name);
    }
}

#[test]
fn addresses() {
    insta::assert_snapshot!(mac("\"02:00:00:00:00\""), @r#"shunt.toml:6:7: VF 0 of NIC nic0, mac: "02:00:00:00:00" is not allowed; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("\"02-00-00-00-00-01\""), @r#"shunt.toml:6:7: VF 0 of NIC nic0, mac: "02-00-00-00-00-01" is not allowed; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("\"03:00:00:00:00:01\""), @r#"shunt.toml:6:7: VF 0 of NIC nic0, mac: "03:00:00:00:00:01" is not allowed; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("\"00:00:00:00:00:00\""), @r#"shunt.toml:6:7: VF 0 of NIC nic0, mac: "00:00:00:00:00:00" is not allowed; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("02:00:00:00:00:01"), @r#"shunt.toml:6:7: VF 0 of NIC nic0, mac: 02:00:00:00:00:01 is not a value (put text in quotes); write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("2"), @r#"shunt.toml:6:7: VF 0 of NIC nic0, mac: 2 is a number; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(nic("[[nic.vf]]\nattachment.socket = \"a\""), @r#"shunt.toml:5:1: VF 0 of NIC nic0, mac: is missing; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(vf("macs = [\"02:00:00:00:00:02\", \"ff:ff:ff:ff:ff:ff\", 7]"), @r#"
    shunt.toml:8:30: VF 0 of NIC nic0, macs: "ff:ff:ff:ff:ff:ff" is not allowed; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01"
    shunt.toml:8:51: VF 0 of NIC nic0, macs: 7 is a number; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01"
    "#);
    insta::assert_snapshot!(vf("macs = \"02:00:00:00:00:02\""), @r#"shunt.toml:8:8: VF 0 of NIC nic0, macs: "02:00:00:00:00:02" is a text; write a list, each entry a unicast MAC address, six hex pairs such as "02:00:00:00:00:01""#);
}

#[test]
fn numbers() {
    insta::assert_snapshot!(vf("vlan.id = 0"), @"shunt.toml:8:11: VF 0 of NIC nic0, vlan.id: 0 is out of range; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan.id = 4095"), @"shunt.toml:8:11: VF 0 of NIC nic0, vlan.id: 4095 is out of range; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan.id = \"100\""), @r#"shunt.toml:8:11: VF 0 of NIC nic0, vlan.id: "100" is a text; write a whole number, 1 to 4094"#);
    insta::assert_snapshot!(vf("vlan.id = [100, 200]"), @"shunt.toml:8:6: VF 0 of NIC nic0, vlan.id: is a list; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan.id = 0100"), @"shunt.toml:8:11: VF 0 of NIC nic0, vlan.id: a number has no leading zeros; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan.id = -1"), @"shunt.toml:8:11: VF 0 of NIC nic0, vlan.id: -1 is out of range; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("attachment.mtu = 67"), @"shunt.toml:8:18: VF 0 of NIC nic0, attachment.mtu: 67 is out of range; write a whole number, 68 to 65535");
    insta::assert_snapshot!(vf("attachment.mtu = 99999999999999999999999999999999999999999999"), @"shunt.toml:8:18: VF 0 of NIC nic0, attachment.mtu: 18446744073709551615 is out of range; write a whole number, 68 to 65535");
    insta::assert_snapshot!(vf("attachment.mtu = 1500.0"), @"shunt.toml:8:18: VF 0 of NIC nic0, attachment.mtu: 1500.0 is not a whole number; write a whole number, 68 to 65535");
    insta::assert_snapshot!(vf("attachment.queue_pairs = 17"), @"shunt.toml:8:26: VF 0 of NIC nic0, attachment.queue_pairs: 17 is out of range; write a whole number, 1 to 16");
    insta::assert_snapshot!(vf("attachment.queue_pairs = 2024-01-01"), @"shunt.toml:8:26: VF 0 of NIC nic0, attachment.queue_pairs: 2024-01-01 is a date or a time; write a whole number, 1 to 16");
}

#[test]
fn switches_and_words() {
    insta::assert_snapshot!(vf("spoof_check = \"yes\""), @r#"shunt.toml:8:15: VF 0 of NIC nic0, spoof_check: "yes" is a text; write true or false"#);
    insta::assert_snapshot!(vf("spoof_check = True"), @"shunt.toml:8:15: VF 0 of NIC nic0, spoof_check: True is not true: use lower case; write true or false");
    insta::assert_snapshot!(vf("attachment.mergeable = 1"), @"shunt.toml:8:24: VF 0 of NIC nic0, attachment.mergeable: 1 is a number; write true or false");
    insta::assert_snapshot!(vf("attachment.mode = \"sever\""), @r#"shunt.toml:8:19: VF 0 of NIC nic0, attachment.mode: "sever" is not allowed; did you mean "server"? Write "server" or "client""#);
    insta::assert_snapshot!(vf("attachment.mode = \"listen\""), @r#"shunt.toml:8:19: VF 0 of NIC nic0, attachment.mode: "listen" is not allowed; write "server" or "client""#);
    insta::assert_snapshot!(vf("attachment.mode = client"), @r#"shunt.toml:8:19: VF 0 of NIC nic0, attachment.mode: client is not a value (put text in quotes); write "server" or "client""#);
    insta::assert_snapshot!(vf("attachment.in_order ="), @"shunt.toml:8:22: VF 0 of NIC nic0, attachment.in_order: there is no value after =; write true or false");
}

#[test]
fn unknown_fields() {
    insta::assert_snapshot!(vf("spoofcheck = true"), @"shunt.toml:8:1: VF 0 of NIC nic0, spoofcheck: unknown field; did you mean spoof_check?");
    insta::assert_snapshot!(vf("vlan_id = 1"), @"shunt.toml:8:1: VF 0 of NIC nic0, vlan_id: unknown field; did you mean vlan?");
    insta::assert_snapshot!(vf("bandwidth = 1"), @"shunt.toml:8:1: VF 0 of NIC nic0, bandwidth: unknown field; expected one of attachment, driver, index, link_state, mac, macs, max_tx_mbps, min_tx_mbps, mirror, promiscuous, query_rss, spoof_check, storm_limit_pps, trunks, trust, tx_weight, vlan");
    insta::assert_snapshot!(vf("sleep = false"), @"shunt.toml:8:1: VF 0 of NIC nic0, sleep: unknown field; expected one of attachment, driver, index, link_state, mac, macs, max_tx_mbps, min_tx_mbps, mirror, promiscuous, query_rss, spoof_check, storm_limit_pps, trunks, trust, tx_weight, vlan");
    insta::assert_snapshot!(told("[[vf]]\nmac = \"02:00:00:00:00:01\""), @"shunt.toml:1:3: vf: unknown field; did you mean vpf?");
    insta::assert_snapshot!(lanes("cpu = [1]"), @"shunt.toml:6:1: lanes.cpu: unknown field; did you mean cpus?");
    insta::assert_snapshot!(nic("vfs = 8"), @"shunt.toml:5:1: NIC nic0, vfs: unknown field; did you mean vf?");
    insta::assert_snapshot!(nic("[nic.uplnk]\nmtu = 1500"), @"shunt.toml:5:6: NIC nic0, uplnk: unknown field; did you mean uplink?");
}

#[test]
fn tables_of_the_wrong_shape() {
    insta::assert_snapshot!(told("[nic]\nname = \"nic0\"\nkind = \"soft\""), @"shunt.toml:1:2: nic: is a table; write tables, each with the header [[nic]]");
    insta::assert_snapshot!(nic("[nic.vf]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"a\""), @"shunt.toml:5:6: NIC nic0, vf: is a table; write tables, each with the header [[nic.vf]]");
    insta::assert_snapshot!(nic("[[lanes]]\nsleep = true"), @"shunt.toml:5:3: lanes: is a list; write a table with its fields");
    insta::assert_snapshot!(nic("[[nic.pf]]\nmac = \"02:00:00:00:00:01\""), @"shunt.toml:5:7: NIC nic0, pf: is a list; write a table with its fields");
    insta::assert_snapshot!(nic("uplink = \"eth0\""), @r#"shunt.toml:5:10: NIC nic0, uplink: "eth0" is not allowed; write a kind and its place, such as "tap:web0", "xdp:eth1" or "vhost-user:/run/shunt/web.sock", or a table with its fields"#);
    insta::assert_snapshot!(nic("vf = [1]"), @"shunt.toml:5:7: VF 0 of NIC nic0: 1 is a number; write tables, each with the header [[nic.vf]]");
    insta::assert_snapshot!(nic("lanes = 2"), @"shunt.toml:5:1: NIC nic0, lanes: unknown field; expected one of bridging, budget_permille, device, drift, kind, mode, name, num_vfs, owner, pf, profile, representor, rule, total_vfs, uplink, vf, vmq_queues");
}

#[test]
fn nics() {
    insta::assert_snapshot!(nic("vlan = 5"), @"shunt.toml:5:1: NIC nic0, vlan: unknown field; expected one of bridging, budget_permille, device, drift, kind, mode, name, num_vfs, owner, pf, profile, representor, rule, total_vfs, uplink, vf, vmq_queues");
    insta::assert_snapshot!(told("[[nic]]"), @"shunt.toml:1:1: NIC without name, name: is missing; write 1 to 15 of the characters a-z, 0-9 and -");
    insta::assert_snapshot!(told("[[nic]]\nname = \"NIC 0\"\nkind = \"soft\""), @r#"shunt.toml:2:8: NIC NIC 0, name: "NIC 0" is not allowed; write 1 to 15 of the characters a-z, 0-9 and -"#);
    insta::assert_snapshot!(told("[[nic]]\nname = \"sixteen-bytes-it\"\nkind = \"vfio\""), @r#"
    shunt.toml:2:8: NIC sixteen-bytes-it, name: "sixteen-bytes-it" is not allowed; write 1 to 15 of the characters a-z, 0-9 and -
    shunt.toml:3:8: NIC sixteen-bytes-it, kind: "vfio" is not allowed; write "soft" or "pci"
    "#);
    insta::assert_snapshot!(nic("[[nic]]\nname = \"nic0\"\nkind = \"soft\""), @r#"shunt.toml:6:8: NIC nic0, name: "nic0" is the name of NIC nic0 already; choose another"#);
    insta::assert_snapshot!(nic("total_vfs = 256"), @"shunt.toml:5:13: NIC nic0, total_vfs: 256 is out of range; write a whole number, 0 to 255");
}

#[test]
fn attachments() {
    let uplink = |text: &str| nic(&format!("uplink = {text}"));
    let table = |text: &str| nic(&format!("[nic.uplink]\n{text}"));
    let kinds = AttachmentKind::ALL.map(|kind| format!("\"{kind}\"")).join(" or ");
    let told = table("kind = \"af-xdp\"");
    let at = "shunt.toml:6:8: NIC nic0, uplink.kind:";
    assert_eq!(told, format!("{at} \"af-xdp\" is not allowed; write {kinds}"));
    insta::assert_snapshot!(table("kind = \"vhost-user\""), @r#"shunt.toml:5:1: NIC nic0, uplink.socket: is missing; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
    insta::assert_snapshot!(table("kind = \"xdp\"\nsocket = \"a\""), @r#"
    shunt.toml:5:1: NIC nic0, uplink.interface: is missing; write the name of an interface: 1 to 15 bytes, none of them /, : or a blank, such as "eth1"
    shunt.toml:7:1: NIC nic0, uplink.socket: unknown field of kind xdp; expected one of busy_poll_us, filter, interface, kind, netns, queue_pairs, zero_copy
    "#);
    insta::assert_snapshot!(table("kind = \"xdp\"\ninterface = \"an/other\"\nqueue_pairs = 17"), @r#"
    shunt.toml:7:13: NIC nic0, uplink.interface: "an/other" is not allowed; write the name of an interface: 1 to 15 bytes, none of them /, : or a blank, such as "eth1"
    shunt.toml:8:15: NIC nic0, uplink.queue_pairs: 17 is out of range; write a whole number, 1 to 16
    "#);
    insta::assert_snapshot!(table("socket = \"vm/..\""), @r#"shunt.toml:6:10: NIC nic0, uplink.socket: "vm/.." is not allowed; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
    insta::assert_snapshot!(uplink("\"eth1\""), @r#"shunt.toml:5:10: NIC nic0, uplink: "eth1" is not allowed; write a kind and its place, such as "tap:web0", "xdp:eth1" or "vhost-user:/run/shunt/web.sock", or a table with its fields"#);
    insta::assert_snapshot!(uplink("\"xdp:\""), @r#"shunt.toml:5:10: NIC nic0, uplink.interface: "" is not allowed; write the name of an interface: 1 to 15 bytes, none of them /, : or a blank, such as "eth1""#);
    insta::assert_snapshot!(uplink("\"stream:lock\""), @r#"shunt.toml:5:10: NIC nic0, uplink: "/run/shunt/lock" is a file of the daemon; choose another name"#);
    insta::assert_snapshot!(uplink("\"vduse:control\""), @r#"shunt.toml:5:10: NIC nic0, uplink.name: "control" is reserved by the kernel; write another name"#);
    insta::assert_snapshot!(uplink("7"), @r#"shunt.toml:5:10: NIC nic0, uplink: 7 is a number; write a kind and its place, such as "tap:web0", "xdp:eth1" or "vhost-user:/run/shunt/web.sock", or a table with its fields"#);
    let again = "[[nic.vf]]\nmac = \"02:00:00:00:00:02\"\nattachment = \"tap:web0\"\n\
                 [[nic.vf]]\nmac = \"02:00:00:00:00:03\"\nattachment = { kind = \"xdp\", interface = \"web0\" }";
    insta::assert_snapshot!(nic(again), @r#"shunt.toml:10:42: VF 1 of NIC nic0, attachment.interface: "web0" is the interface of attachment of VF 0 of NIC nic0 already; choose another"#);
    let again = "uplink = \"stream:vf0.sock\"\n[[nic.vf]]\nmac = \"02:00:00:00:00:02\"\nattachment.socket = \"vf0.sock\"";
    insta::assert_snapshot!(nic(again), @r#"shunt.toml:8:21: VF 0 of NIC nic0, attachment.socket: "/run/shunt/vf0.sock" is the socket of uplink of NIC nic0 already; choose another"#);
}

#[test]
fn sockets() {
    insta::assert_snapshot!(socket("\"\""), @r#"shunt.toml:7:21: VF 0 of NIC nic0, attachment.socket: "" is not allowed; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
    insta::assert_snapshot!(socket("\"vm/..\""), @r#"shunt.toml:7:21: VF 0 of NIC nic0, attachment.socket: "vm/.." is not allowed; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
    insta::assert_snapshot!(socket("\"a\\u0000b\""), @r#"shunt.toml:7:21: VF 0 of NIC nic0, attachment.socket: "/run/shunt/a\u0000b" is not allowed; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
    insta::assert_snapshot!(socket(&format!("\"{}\"", "s".repeat(97))), @r#"shunt.toml:7:21: VF 0 of NIC nic0, attachment.socket: "/run/shunt/ssssssssssssssssssssssssssssssssssssssssssssssss... is 108 bytes long; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
    insta::assert_snapshot!(socket(&format!("\"/{}\"", "s".repeat(107))), @r#"shunt.toml:7:21: VF 0 of NIC nic0, attachment.socket: "/ssssssssssssssssssssssssssssssssssssssssssssssssssssssssss... is 108 bytes long; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
}

#[test]
fn the_run_directory() {
    insta::assert_snapshot!(told("run_dir = \"run\"\n[[nic]]\nname = \"a\"\nkind = \"soft\""), @r#"shunt.toml:1:11: run_dir: "run" is not allowed; write the absolute path of a directory, such as "/var/lib/shunt""#);
    insta::assert_snapshot!(told("run_dir = 7\n[[nic]]\nname = \"a\"\nkind = \"soft\""), @r#"shunt.toml:1:11: run_dir: 7 is a number; write the absolute path of a directory, such as "/var/lib/shunt""#);
    insta::assert_snapshot!(told("run_dir = \"/r\\u0000\"\n[[nic]]\nname = \"a\"\nkind = \"soft\""), @r#"shunt.toml:1:11: run_dir: "/r\u0000" is not allowed; write the absolute path of a directory, such as "/var/lib/shunt""#);
}

#[test]
fn lanes_and_cpus() {
    insta::assert_snapshot!(lanes("cpus = [1, 2, 1]"), @"shunt.toml:6:15: lanes.cpus: 1 is lanes.cpus[0] already; name each CPU once");
    insta::assert_snapshot!(lanes("cpus = []"), @"shunt.toml:6:1: lanes.cpus: has no entry; write at least one entry, or leave it out");
    insta::assert_snapshot!(lanes("cpus = 2"), @"shunt.toml:6:8: lanes.cpus: 2 is a number; write a list, each entry a whole number, 0 to 1023");
    insta::assert_snapshot!(lanes("cpus = [0, -1, 1024, \"3\"]"), @r#"
    shunt.toml:6:12: lanes.cpus: -1 is out of range; write a whole number, 0 to 1023
    shunt.toml:6:16: lanes.cpus: 1024 is out of range; write a whole number, 0 to 1023
    shunt.toml:6:22: lanes.cpus: "3" is a text; write a whole number, 0 to 1023
    "#);
    insta::assert_snapshot!(lanes("cpus = [0, all]"), @"shunt.toml:6:12: lanes.cpus: all is not a value (put text in quotes); write a whole number, 0 to 1023");
    insta::assert_snapshot!(lanes("poll_us = 2_000_000"), @"shunt.toml:6:11: lanes.poll_us: 2000000 is out of range; write a whole number, 0 to 1000000");
    insta::assert_snapshot!(lanes("yield_us = 0.5"), @"shunt.toml:6:12: lanes.yield_us: 0.5 is not a whole number; write a whole number, 0 to 1000000");
    insta::assert_snapshot!(lanes("cpu_latency_us = -1"), @"shunt.toml:6:18: lanes.cpu_latency_us: -1 is out of range; write a whole number, 0 to 1000000");
    insta::assert_snapshot!(lanes("cpu_latency_us = 1000001"), @"shunt.toml:6:18: lanes.cpu_latency_us: 1000001 is out of range; write a whole number, 0 to 1000000");
    insta::assert_snapshot!(lanes("cpu_latency_us = true"), @"shunt.toml:6:18: lanes.cpu_latency_us: true is true or false; write a whole number, 0 to 1000000");
    insta::assert_snapshot!(nic("cpu_latency_us = 0"), @"shunt.toml:5:1: NIC nic0, cpu_latency_us: unknown field; expected one of bridging, budget_permille, device, drift, kind, mode, name, num_vfs, owner, pf, profile, representor, rule, total_vfs, uplink, vf, vmq_queues");
    insta::assert_snapshot!(lanes("sleep = 0"), @"shunt.toml:6:9: lanes.sleep: 0 is a number; write true or false");
}

#[test]
fn grammar() {
    insta::assert_snapshot!(told("[lanes\ncpus = [0]"), @"shunt.toml:1:7: the header of a table is not closed; end it with ], such as [lanes]");
    insta::assert_snapshot!(told("[[nic]\nname = \"a\""), @"shunt.toml:1:7: the header of a list entry is not closed; end it with ]], such as [[nic]]");
    insta::assert_snapshot!(lanes("cpus = [0\npoll_us = 5"), @"shunt.toml:7:1: a list lacks a comma or its closing ] before this position; add it");
    insta::assert_snapshot!(lanes("poll_us 5"), @"shunt.toml:6:9: the name has no value; write = and a value, such as poll_us = 50");
    insta::assert_snapshot!(lanes("poll_us = 5 sleep = true"), @"shunt.toml:6:19: there is more than one value on the line; write one field a line, and text in quotes");
    insta::assert_snapshot!(lanes("poll_us = 5\npoll_us = 6"), @"shunt.toml:7:1: poll_us is written twice in its table; keep one of them");
    insta::assert_snapshot!(told("[nic]\nname = \"a\"\n[nic]\nname = \"b\""), @"shunt.toml:3:2: there are several tables nic; write the header of each as [[nic]]");
    insta::assert_snapshot!(nic("[switch]\nname = \"a\"\n[switch]\nname = \"b\""), @"shunt.toml:7:2: there are several tables switch; write the header of each as [[switch]]");
    insta::assert_snapshot!(nic("[nic.vf]\nindex = 0\n[nic.vf]\nindex = 1"), @"shunt.toml:7:6: there are several tables vf; write the header of each as [[nic.vf]]");
    insta::assert_snapshot!(told("run_dir = \"/run/shunt"), @r#"shunt.toml:1:22: unterminated string or invalid character; end the string with " on the same line"#);
    insta::assert_snapshot!(told("run_dir = \"C:\\shunt\""), @r#"shunt.toml:1:15: unknown escape in a string; write \\ for a backslash"#);
    insta::assert_snapshot!(told("= 3"), @"shunt.toml:1:1: this is not TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`; correct the line");
    insta::assert_snapshot!(told("2026-11-27T10:00:00  INFO ready"), @r#"shunt.toml:1:14: ":" is not TOML: invalid unquoted key, expected letters, numbers, `-`, `_`; correct the line"#);
    let broken = Config::parse("shunt.toml", "[[nic]\n").unwrap_err();
    assert_eq!(broken.problems[0].remedy, "end it with ]], such as [[nic]]");
}

#[test]
fn what_may_occur_only_once() {
    let second = |lines: &str| vf(&format!("vlan.id = 7\n[[nic.vf]]\n{lines}"));
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nattachment.socket = \"counters\""), @r#"shunt.toml:11:21: VF 1 of NIC nic0, attachment.socket: "/run/shunt/counters" is a file of the daemon; choose another name"#);
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nattachment.socket = \"./lock\""), @r#"shunt.toml:11:21: VF 1 of NIC nic0, attachment.socket: "/run/shunt/lock" is a file of the daemon; choose another name"#);
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nattachment.socket = \"/run/shunt/./vf0.sock\""), @r#"shunt.toml:11:21: VF 1 of NIC nic0, attachment.socket: "/run/shunt/vf0.sock" is the socket of attachment of VF 0 of NIC nic0 already; choose another"#);
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:01\"\nvlan.id = 7\nattachment.socket = \"b\""), @r#"shunt.toml:10:7: VF 1 of NIC nic0, mac: "02:00:00:00:00:01" is in this VLAN the address of VF 0 of NIC nic0 already; choose another"#);
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nattachment.socket = \"b\"\nindex = 0"), @"shunt.toml:12:9: VF 0 of NIC nic0, index: 0 is named by VF 0 of NIC nic0 already; choose another");
    insta::assert_snapshot!(vf("macs = [\"02:00:00:00:00:01\"]"), @r#"shunt.toml:8:9: VF 0 of NIC nic0, macs: "02:00:00:00:00:01" is in this VLAN the address of VF 0 of NIC nic0 already; choose another"#);
    let pf = "\n[nic.pf]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"pf.sock\"";
    insta::assert_snapshot!(vf(pf), @r#"shunt.toml:6:7: VF 0 of NIC nic0, mac: "02:00:00:00:00:01" is in this VLAN the address of pf of NIC nic0 already; choose another"#);
    let uplink = "\n[nic.uplink]\nkind = \"vhost-user\"\nsocket = \"vf0.sock\"\nmode = \"client\"";
    insta::assert_snapshot!(vf(uplink), @r#"shunt.toml:7:21: VF 0 of NIC nic0, attachment.socket: "/run/shunt/vf0.sock" is the socket of uplink of NIC nic0 already; choose another"#);
}

#[test]
fn numbers_of_things() {
    let two = "[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"a\"\n\
        [[nic.vf]]\nindex = 4\nmac = \"02:00:00:00:00:02\"\nattachment.socket = \"b\"";
    assert_eq!(parse(&format!("{HEAD}{two}")).state.nics[0].total_vfs, 5);
    insta::assert_snapshot!(nic(&format!("total_vfs = 4\n{two}")), @"shunt.toml:10:9: VF 4 of NIC nic0, index: 4 is no VF of nic0; write a number, 0 to 3");
    insta::assert_snapshot!(nic(&format!("total_vfs = 1\n{two}")), @"shunt.toml:10:9: VF 4 of NIC nic0, index: 4 is no VF of nic0; write a number, 0 to 0");
    let first_line = |text: String| text.lines().next().unwrap_or_default().to_owned();
    insta::assert_snapshot!(first_line(nic(&"[[nic.vf]]\n".repeat(256))), @"shunt.toml:5:7: NIC nic0, vf: has 256 entries; write at most 255");
    insta::assert_snapshot!(told(&"[[nic]]\nname = \"a\"\nkind = \"soft\"\n".repeat(17)), @"shunt.toml:1:3: nic: has 17 entries; write at most 16");
    let macs = "\"\",".repeat(4096 + 1);
    insta::assert_snapshot!(vf(&format!("macs = [{macs}]")), @"shunt.toml:8:1: VF 0 of NIC nic0, macs: has 4097 entries; write at most 4096");
    let cpus = "1,".repeat(64 + 1);
    insta::assert_snapshot!(lanes(&format!("cpus = [{cpus}]")), @"shunt.toml:6:1: lanes.cpus: has 65 entries; write at most 64");
}

#[test]
fn independent_mistakes_are_told_together_in_the_order_of_the_file() {
    let text = "rundir = \"/run\"\n[lanes]\ncpus = [0, 0]\nsleep = 7\n[[nic]]\nname = \"n\"\nkind = \"soft\"\n\
        [[nic.vf]]\nmac = \"x\"\nattachment.socket = \"a\"\n\
        [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nvlan.id = 9999\nattachment.socket = \"b\"\n[nic.uplink]\n";
    insta::assert_snapshot!(told(text), @r#"
    shunt.toml:1:1: rundir: unknown field; did you mean run_dir?
    shunt.toml:4:9: lanes.sleep: 7 is a number; write true or false
    shunt.toml:9:7: VF 0 of NIC n, mac: "x" is not allowed; write a unicast MAC address, six hex pairs such as "02:00:00:00:00:01"
    shunt.toml:13:11: VF 1 of NIC n, vlan.id: 9999 is out of range; write a whole number, 1 to 4094
    shunt.toml:15:1: NIC n, uplink.socket: is missing; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock"
    "#);
}

#[test]
fn twenty_are_shown_and_the_rest_is_counted() {
    let lines: String = (0..30).map(|i| format!("zz{i} = 1\n")).collect();
    let errors = Config::parse("shunt.toml", &format!("{lines}{HEAD}")).unwrap_err();
    assert_eq!((errors.problems.iter().len(), errors.more), (20, 10));
    let text = errors.to_string();
    assert_eq!(text.lines().count(), 21);
    insta::assert_snapshot!(text.lines().last().unwrap(), @"shunt.toml: and 10 more mistakes; correct these first");
}

#[test]
fn every_error_is_one_printable_line_that_names_the_file() {
    let hostile = "\"a\\nb\\u001b[31m\" = 1\n[lanes]\ncpus = [\"\"\"\nx\n\"\"\"]\n\
        [[nic]]\nname = \"\\u001b[2J\"\nkind = \"\"\"\nx\"\"\"\n";
    let errors = Config::parse("sh\nunt.toml", hostile).unwrap_err();
    assert_eq!(errors.problems.iter().len(), 4, "{errors}");
    for error in errors.problems.iter() {
        let line = error.to_string();
        assert!(line.starts_with("sh\\nunt.toml:"), "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    assert_eq!(errors.to_string().lines().count(), 4);
}

#[test]
fn a_megabyte_of_mistakes_is_refused_at_once() {
    let start = std::time::Instant::now();
    for line in [
        "a=x\n",
        "a='x\n",
        "[[nic]]\n",
        "[[adapter]]\n",
        "cpus = [\"\",\"\",\"\"]\n",
        "macs=[9,9,9,9]\n",
    ] {
        let text = line.repeat(MAX_FILE_BYTES / line.len());
        let errors = Config::parse("shunt.toml", &text).unwrap_err();
        assert!((1..=20).contains(&errors.problems.iter().len()), "{errors}");
    }
    let macs = "\"02:00:00:00:00:01\",".repeat(4096);
    let vf = format!(
        "[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nmacs = [{macs}]\nattachment.socket = \"a\"\n"
    );
    let errors = Config::parse("shunt.toml", &format!("{HEAD}{}", vf.repeat(10))).unwrap_err();
    assert_eq!(errors.more, 10 * (4096 + 1) - 1 + 9 - 20);
    // Two seconds of a test build, and minutes if each mistake cost a walk through the file.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

//! What wrong files are told. Each snapshot is what the operator sees for the lines before it.

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
    nic(&format!("[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nsocket = \"vf0.sock\"\n{lines}"))
}

/// The errors of a file whose VF has this address.
fn mac(value: &str) -> String {
    nic(&format!("[[nic.vf]]\nmac = {value}\nsocket = \"vf0.sock\""))
}

/// The errors of a file whose VF has this socket.
fn socket(value: &str) -> String {
    nic(&format!("[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nsocket = {value}"))
}

/// The errors of the table `[lanes]` with these lines, which start at line 6.
fn lanes(lines: &str) -> String {
    nic(&format!("[lanes]\n{lines}"))
}

/// Another card's limits would be shown for a name that is not known.
#[test]
fn profiles() {
    use ::model::profile::Profile;
    insta::assert_snapshot!(nic("profile = \"e1000\""), @r#"shunt.toml:5:11: nic[0].profile: "e1000" is not known; write "ideal" or "82576" or "cx6" or "x520" or "xl710""#);
    insta::assert_snapshot!(nic("profile = \"x52\""), @r#"shunt.toml:5:11: nic[0].profile: "x52" is not known; did you mean "x520"? Write "ideal" or "82576" or "cx6" or "x520" or "xl710""#);
    assert_eq!(Profile::named("e1000"), None);
    assert_eq!(Profile::named("Ideal"), None);
    for name in Profile::names() {
        let config = super::parse(&format!("{HEAD}profile = \"{name}\"\n"));
        assert_eq!(serde_json::json!(config.nics[0].profile), *name);
    }
}

#[test]
fn addresses() {
    insta::assert_snapshot!(mac("\"02:00:00:00:00\""), @r#"shunt.toml:6:7: nic[0].vf[0].mac: "02:00:00:00:00" is not a MAC address; write six hex pairs such as 02:00:00:00:00:01"#);
    insta::assert_snapshot!(mac("\"02-00-00-00-00-01\""), @r#"shunt.toml:6:7: nic[0].vf[0].mac: "02-00-00-00-00-01" is not a MAC address; write six hex pairs such as 02:00:00:00:00:01"#);
    insta::assert_snapshot!(mac("\"03:00:00:00:00:01\""), @r#"shunt.toml:6:7: nic[0].vf[0].mac: "03:00:00:00:00:01" is a multicast address, its first byte is odd; write a unicast MAC address in quotes, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("\"00:00:00:00:00:00\""), @r#"shunt.toml:6:7: nic[0].vf[0].mac: "00:00:00:00:00:00" is all zeros, which no function may have; write a unicast MAC address in quotes, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("02:00:00:00:00:01"), @r#"shunt.toml:6:7: nic[0].vf[0].mac: 02:00:00:00:00:01 is not a value (a text stands in quotes); write a unicast MAC address in quotes, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(mac("2"), @r#"shunt.toml:6:7: nic[0].vf[0].mac: 2 is a whole number; write a unicast MAC address in quotes, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(nic("[[nic.vf]]\nsocket = \"a\""), @r#"shunt.toml:5:1: nic[0].vf[0].mac: is missing; write a unicast MAC address in quotes, six hex pairs such as "02:00:00:00:00:01""#);
    insta::assert_snapshot!(vf("macs = [\"02:00:00:00:00:02\", \"ff:ff:ff:ff:ff:ff\", 7]"), @r#"
    shunt.toml:8:30: nic[0].vf[0].macs[1]: "ff:ff:ff:ff:ff:ff" is a multicast address, its first byte is odd; write a unicast MAC address in quotes, six hex pairs such as "02:00:00:00:00:01"
    shunt.toml:8:51: nic[0].vf[0].macs[2]: 7 is a whole number; write a unicast MAC address in quotes, six hex pairs such as "02:00:00:00:00:01"
    "#);
    insta::assert_snapshot!(vf("macs = \"02:00:00:00:00:02\""), @r#"shunt.toml:8:8: nic[0].vf[0].macs: "02:00:00:00:00:02" is a text; write a list of at most 4096 unicast MAC addresses such as ["02:00:00:00:00:01"]"#);
}

#[test]
fn numbers() {
    insta::assert_snapshot!(vf("vlan = 0"), @"shunt.toml:8:8: nic[0].vf[0].vlan: 0 is out of range; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan = 4095"), @"shunt.toml:8:8: nic[0].vf[0].vlan: 4095 is out of range; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan = \"100\""), @r#"shunt.toml:8:8: nic[0].vf[0].vlan: "100" is a text; write a whole number, 1 to 4094"#);
    insta::assert_snapshot!(vf("vlan = [100, 200]"), @"shunt.toml:8:8: nic[0].vf[0].vlan: [100, 200] is a list; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan = 0100"), @"shunt.toml:8:8: nic[0].vf[0].vlan: a number has no leading zeros; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("vlan = -1"), @"shunt.toml:8:8: nic[0].vf[0].vlan: -1 is out of range; write a whole number, 1 to 4094");
    insta::assert_snapshot!(vf("mtu = 67"), @"shunt.toml:8:7: nic[0].vf[0].mtu: 67 is out of range; write a whole number of bytes, 68 to 65535");
    insta::assert_snapshot!(vf("mtu = 99999999999999999999999999999999999999999999"), @"shunt.toml:8:7: nic[0].vf[0].mtu: 99999999999999999999999999999999999999999999 is out of range; write a whole number of bytes, 68 to 65535");
    insta::assert_snapshot!(vf("mtu = 1500.0"), @"shunt.toml:8:7: nic[0].vf[0].mtu: 1500.0 is a number with a fraction; write a whole number of bytes, 68 to 65535");
    insta::assert_snapshot!(vf("queue_pairs = 17"), @"shunt.toml:8:15: nic[0].vf[0].queue_pairs: 17 is out of range; write a whole number, 1 to 16");
    insta::assert_snapshot!(vf("queue_pairs = 2024-01-01"), @"shunt.toml:8:15: nic[0].vf[0].queue_pairs: 2024-01-01 is a date or a time; write a whole number, 1 to 16");
}

#[test]
fn switches_and_words() {
    insta::assert_snapshot!(vf("spoof_check = \"yes\""), @r#"shunt.toml:8:15: nic[0].vf[0].spoof_check: "yes" is a text; write true or false"#);
    insta::assert_snapshot!(vf("spoof_check = True"), @"shunt.toml:8:15: nic[0].vf[0].spoof_check: True is not true: small letters only; write true or false");
    insta::assert_snapshot!(vf("mergeable = 1"), @"shunt.toml:8:13: nic[0].vf[0].mergeable: 1 is a whole number; write true or false");
    insta::assert_snapshot!(vf("mode = \"sever\""), @r#"shunt.toml:8:8: nic[0].vf[0].mode: "sever" is not known; did you mean "server"? Write "server" or "client""#);
    insta::assert_snapshot!(vf("mode = \"listen\""), @r#"shunt.toml:8:8: nic[0].vf[0].mode: "listen" is not known; write "server" or "client""#);
    insta::assert_snapshot!(vf("mode = client"), @r#"shunt.toml:8:8: nic[0].vf[0].mode: client is not a value (a text stands in quotes); write "server" or "client""#);
    insta::assert_snapshot!(vf("in_order ="), @"shunt.toml:8:11: nic[0].vf[0].in_order: there is no value after =; write true or false");
}

#[test]
fn unknown_fields() {
    insta::assert_snapshot!(vf("spoofcheck = true"), @"shunt.toml:8:1: nic[0].vf[0].spoofcheck: unknown field in [[nic.vf]]; did you mean spoof_check? Allowed are index, mac, macs, vlan, vlan_qos, vlan_protocol, trunk, spoof_check, trust, promiscuous, link_state, weight, min_tx_mbps, max_tx_mbps, storm_limit, attachment, socket, mode, queue_pairs, mtu, mergeable, indirect, event_index, in_order, packed, offload");
    insta::assert_snapshot!(vf("vlan_id = 1"), @"shunt.toml:8:1: nic[0].vf[0].vlan_id: unknown field in [[nic.vf]]; did you mean vlan? Allowed are index, mac, macs, vlan, vlan_qos, vlan_protocol, trunk, spoof_check, trust, promiscuous, link_state, weight, min_tx_mbps, max_tx_mbps, storm_limit, attachment, socket, mode, queue_pairs, mtu, mergeable, indirect, event_index, in_order, packed, offload");
    insta::assert_snapshot!(vf("bandwidth = 1"), @"shunt.toml:8:1: nic[0].vf[0].bandwidth: unknown field in [[nic.vf]]; allowed are index, mac, macs, vlan, vlan_qos, vlan_protocol, trunk, spoof_check, trust, promiscuous, link_state, weight, min_tx_mbps, max_tx_mbps, storm_limit, attachment, socket, mode, queue_pairs, mtu, mergeable, indirect, event_index, in_order, packed, offload");
    insta::assert_snapshot!(vf("sleep = false"), @"shunt.toml:8:1: nic[0].vf[0].sleep: unknown field in [[nic.vf]]; it belongs in [lanes]. Allowed are index, mac, macs, vlan, vlan_qos, vlan_protocol, trunk, spoof_check, trust, promiscuous, link_state, weight, min_tx_mbps, max_tx_mbps, storm_limit, attachment, socket, mode, queue_pairs, mtu, mergeable, indirect, event_index, in_order, packed, offload");
    insta::assert_snapshot!(told("[[vf]]\nmac = \"02:00:00:00:00:01\""), @"shunt.toml:1:3: vf: unknown field at the top of the file; it belongs in [[nic]]. Allowed are run_dir, state_dir, api, lanes, limits, nic, switch, adapter, vpf");
    insta::assert_snapshot!(lanes("cpu = [1]"), @"shunt.toml:6:1: lanes.cpu: unknown field in [lanes]; did you mean cpus? Allowed are cpus, poll_us, yield_us, sleep, cpu_latency_us");
    insta::assert_snapshot!(nic("vfs = 8"), @"shunt.toml:5:1: nic[0].vfs: unknown field in [[nic]]; did you mean vf? Allowed are name, kind, profile, mode, bridging, total_vfs, budget_permille, vmq_queues, uplink, pf, vf, representor, rule");
    insta::assert_snapshot!(nic("[nic.uplnk]\nmtu = 1500"), @"shunt.toml:5:6: nic[0].uplnk: unknown field in [[nic]]; did you mean uplink? Allowed are name, kind, profile, mode, bridging, total_vfs, budget_permille, vmq_queues, uplink, pf, vf, representor, rule");
}

#[test]
fn tables_of_the_wrong_shape() {
    insta::assert_snapshot!(told("[nic]\nname = \"nic0\"\nkind = \"soft\""), @"shunt.toml:1:1: nic: [nic] is a table; write tables, each with the header [[nic]]");
    insta::assert_snapshot!(nic("[nic.vf]\nmac = \"02:00:00:00:00:01\"\nsocket = \"a\""), @"shunt.toml:5:1: nic[0].vf: [nic.vf] is a table; write tables, each with the header [[nic.vf]]");
    insta::assert_snapshot!(nic("[[lanes]]\nsleep = true"), @"shunt.toml:5:1: lanes: [[lanes]] is a list; write one table with the header [lanes]");
    insta::assert_snapshot!(nic("[[nic.pf]]\nmac = \"02:00:00:00:00:01\""), @"shunt.toml:5:1: nic[0].pf: [[nic.pf]] is a list; write one table with the header [nic.pf]");
    insta::assert_snapshot!(nic("uplink = \"eth0\""), @r#"shunt.toml:5:10: nic[0].uplink: "eth0" is not allowed; write a kind and its place, such as "tap:web0", "xdp:eth1" or "vhost-user:/run/shunt/web.sock", or a table with its fields"#);
    insta::assert_snapshot!(nic("vf = [1]"), @"shunt.toml:5:7: nic[0].vf[0]: 1 is a whole number; write tables, each with the header [[nic.vf]]");
    insta::assert_snapshot!(nic("lanes = 2"), @"shunt.toml:5:1: nic[0].lanes: unknown field in [[nic]]; it belongs at the top of the file. Allowed are name, kind, profile, mode, bridging, total_vfs, budget_permille, vmq_queues, uplink, pf, vf, representor, rule");
}

#[test]
fn nics() {
    insta::assert_snapshot!(nic("vlan = 5"), @"shunt.toml:5:1: nic[0].vlan: unknown field in [[nic]]; it belongs in [nic.pf] or in [[nic.vf]]. Allowed are name, kind, profile, mode, bridging, total_vfs, budget_permille, vmq_queues, uplink, pf, vf, representor, rule");
    insta::assert_snapshot!(told("[[nic]]"), @r#"
    shunt.toml:1:1: nic[0].name: is missing; write 1 to 15 of the characters a-z, 0-9 and -, in quotes
    shunt.toml:1:1: nic[0].kind: is missing; write "soft"
    "#);
    insta::assert_snapshot!(told("[[nic]]\nname = \"NIC 0\"\nkind = \"soft\""), @r#"shunt.toml:2:8: nic[0].name: "NIC 0" is not a name for a NIC; write 1 to 15 of the characters a-z, 0-9 and -, in quotes"#);
    insta::assert_snapshot!(told("[[nic]]\nname = \"sixteen-bytes-it\"\nkind = \"pci\""), @r#"
    shunt.toml:2:8: nic[0].name: "sixteen-bytes-it" is not a name for a NIC; write 1 to 15 of the characters a-z, 0-9 and -, in quotes
    shunt.toml:3:8: nic[0].kind: "pci" is not known; write "soft"
    "#);
    insta::assert_snapshot!(nic("[[nic]]\nname = \"nic0\"\nkind = \"soft\""), @r#"shunt.toml:6:8: nic[1].name: "nic0" is taken by nic[0].name (line 3) already; give each NIC a name of its own"#);
    insta::assert_snapshot!(nic("total_vfs = 256"), @"shunt.toml:5:13: nic[0].total_vfs: 256 is out of range; write a whole number, 0 to 255");
}

#[test]
fn attachments() {
    let uplink = |text: &str| nic(&format!("uplink = {text}"));
    let table = |text: &str| nic(&format!("[nic.uplink]\n{text}"));
    insta::assert_snapshot!(table("kind = \"af-xdp\""), @r#"shunt.toml:6:8: nic[0].uplink.kind: "af-xdp" is no kind; write "vhost-user" or "tap" or "packet" or "xdp" or "stream" or "pcap" or "vduse""#);
    insta::assert_snapshot!(table("kind = \"vhost-user\""), @r#"shunt.toml:5:1: nic[0].uplink.socket: is missing; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock""#);
    insta::assert_snapshot!(table("kind = \"xdp\"\nsocket = \"a\""), @r#"
    shunt.toml:5:1: nic[0].uplink.interface: is missing; write the name of an interface: 1 to 15 bytes, none of them /, : or a blank, such as "eth1"
    shunt.toml:7:1: nic[0].uplink.socket: is no field of kind xdp; write one of busy_poll_us, filter, interface, kind, netns, queue_pairs, zero_copy
    "#);
    insta::assert_snapshot!(table("kind = \"xdp\"\ninterface = \"an/other\"\nqueue_pairs = 17"), @r#"
    shunt.toml:7:13: nic[0].uplink.interface: "an/other" is not allowed; write the name of an interface: 1 to 15 bytes, none of them /, : or a blank, such as "eth1"
    shunt.toml:8:15: nic[0].uplink.queue_pairs: 17 is not allowed; write a whole number, 1 to 16
    "#);
    insta::assert_snapshot!(table("socket = \"vm/..\""), @r#"shunt.toml:6:10: nic[0].uplink.socket: "vm/.." is not the path of a socket; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(uplink("\"eth1\""), @r#"shunt.toml:5:10: nic[0].uplink: "eth1" is not allowed; write a kind and its place, such as "tap:web0", "xdp:eth1" or "vhost-user:/run/shunt/web.sock", or a table with its fields"#);
    insta::assert_snapshot!(uplink("\"xdp:\""), @r#"shunt.toml:5:10: nic[0].uplink.interface: "" is not allowed; write the name of an interface: 1 to 15 bytes, none of them /, : or a blank, such as "eth1""#);
    insta::assert_snapshot!(uplink("\"stream:lock\""), @r#"shunt.toml:5:10: nic[0].uplink.socket: "stream:lock" is a file of the daemon's own, so choose another name; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(uplink("\"vduse:control\""), @r#"shunt.toml:5:10: nic[0].uplink.name: "control" is what the kernel calls a file of its own; write another name"#);
    insta::assert_snapshot!(uplink("7"), @r#"shunt.toml:5:10: nic[0].uplink: 7 is a whole number; write a kind and its place in quotes, such as "xdp:eth1", or a table"#);
    let both = "attachment = \"tap:web0\"";
    insta::assert_snapshot!(vf(both), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "vf0.sock" is beside `attachment`, which has all of that; leave it out"#);
    let again = "[[nic.vf]]\nmac = \"02:00:00:00:00:02\"\nattachment = \"tap:web0\"\n\
                 [[nic.vf]]\nmac = \"02:00:00:00:00:03\"\nattachment = { kind = \"xdp\", interface = \"web0\" }";
    insta::assert_snapshot!(nic(again), @r#"shunt.toml:10:42: nic[0].vf[1].attachment.interface: "web0" is the interface of nic[0].vf[0].attachment already; choose another"#);
    let again = "uplink = \"stream:vf0.sock\"\n[[nic.vf]]\nmac = \"02:00:00:00:00:02\"\nsocket = \"vf0.sock\"";
    insta::assert_snapshot!(nic(again), @r#"shunt.toml:8:10: nic[0].vf[0].socket: "vf0.sock" is taken by nic[0].uplink.socket (line 5) already; give each attachment a socket of its own"#);
}

#[test]
fn sockets() {
    insta::assert_snapshot!(nic("[[nic.vf]]\nmac = \"02:00:00:00:00:01\""), @r#"shunt.toml:5:1: nic[0].vf[0].socket: is missing; write a path in quotes, such as "vf0.sock", or another attachment"#);
    insta::assert_snapshot!(socket("\"\""), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "" is not the path of a socket; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(socket("\"vm/..\""), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "vm/.." is not the path of a socket; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(socket("\"a\\u0000b\""), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "a\u0000b" is not the path of a socket; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(socket(&format!("\"{}\"", "s".repeat(97))), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "sssssssssssssssssssssssssssssssssssssssssssssssssssssssssss... is 108 bytes long with run_dir before it; a socket's path has at most 107, so shorten it or run_dir"#);
    insta::assert_snapshot!(socket(&format!("\"/{}\"", "s".repeat(107))), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "/ssssssssssssssssssssssssssssssssssssssssssssssssssssssssss... is 108 bytes long; a socket's path has at most 107, so shorten it"#);
}

#[test]
fn the_run_directory() {
    insta::assert_snapshot!(told("run_dir = \"run\"\n[[nic]]\nname = \"a\"\nkind = \"soft\""), @r#"shunt.toml:1:11: run_dir: "run" is not an absolute path; write an absolute path in quotes, such as "/run/shunt""#);
    insta::assert_snapshot!(told("run_dir = 7\n[[nic]]\nname = \"a\"\nkind = \"soft\""), @r#"shunt.toml:1:11: run_dir: 7 is a whole number; write an absolute path in quotes, such as "/run/shunt""#);
    insta::assert_snapshot!(told("run_dir = \"/r\\u0000\"\n[[nic]]\nname = \"a\"\nkind = \"soft\""), @r#"shunt.toml:1:11: run_dir: "/r\u0000" has a zero character; write an absolute path in quotes, such as "/run/shunt""#);
}

#[test]
fn lanes_and_cpus() {
    insta::assert_snapshot!(lanes("cpus = [1, 2, 1]"), @"shunt.toml:6:15: lanes.cpus[2]: CPU 1 is taken by lanes.cpus[0] (line 6) already; name each CPU once");
    insta::assert_snapshot!(lanes("cpus = []"), @"shunt.toml:6:8: lanes.cpus: [] names no CPU; list at least one, or leave cpus out for one lane that is not pinned");
    insta::assert_snapshot!(lanes("cpus = 2"), @"shunt.toml:6:8: lanes.cpus: 2 is a whole number; write a list of 1 to 64 different CPU numbers such as [2, 3], each 0 to 1023");
    insta::assert_snapshot!(lanes("cpus = [0, -1, 1024, \"3\"]"), @r#"
    shunt.toml:6:12: lanes.cpus[1]: -1 is out of range; write a whole number, 0 to 1023
    shunt.toml:6:16: lanes.cpus[2]: 1024 is out of range; write a whole number, 0 to 1023
    shunt.toml:6:22: lanes.cpus[3]: "3" is a text; write a whole number, 0 to 1023
    "#);
    insta::assert_snapshot!(lanes("cpus = [0, all]"), @"shunt.toml:6:12: lanes.cpus[1]: all is not a value (a text stands in quotes); write a list of 1 to 64 different CPU numbers such as [2, 3], each 0 to 1023");
    insta::assert_snapshot!(lanes("poll_us = 2_000_000"), @"shunt.toml:6:11: lanes.poll_us: 2_000_000 is out of range; write a whole number of microseconds, 0 to 1000000");
    insta::assert_snapshot!(lanes("yield_us = 0.5"), @"shunt.toml:6:12: lanes.yield_us: 0.5 is a number with a fraction; write a whole number of microseconds, 0 to 1000000");
    insta::assert_snapshot!(lanes("cpu_latency_us = -1"), @"shunt.toml:6:18: lanes.cpu_latency_us: -1 is out of range; write a whole number of microseconds, 0 to 1000000");
    insta::assert_snapshot!(lanes("cpu_latency_us = 1000001"), @"shunt.toml:6:18: lanes.cpu_latency_us: 1000001 is out of range; write a whole number of microseconds, 0 to 1000000");
    insta::assert_snapshot!(lanes("cpu_latency_us = true"), @"shunt.toml:6:18: lanes.cpu_latency_us: true is true or false; write a whole number of microseconds, 0 to 1000000");
    insta::assert_snapshot!(nic("cpu_latency_us = 0"), @"shunt.toml:5:1: nic[0].cpu_latency_us: unknown field in [[nic]]; it belongs in [lanes]. Allowed are name, kind, profile, mode, bridging, total_vfs, budget_permille, vmq_queues, uplink, pf, vf, representor, rule");
    insta::assert_snapshot!(lanes("sleep = 0"), @"shunt.toml:6:9: lanes.sleep: 0 is a whole number; write true or false");
}

#[test]
fn grammar() {
    insta::assert_snapshot!(told("[lanes\ncpus = [0]"), @"shunt.toml:1:7: the header of a table ends with ], such as [lanes]");
    insta::assert_snapshot!(told("[[nic]\nname = \"a\""), @"shunt.toml:1:7: the header of a table among several ends with ]], such as [[nic]]");
    insta::assert_snapshot!(lanes("cpus = [0\npoll_us = 5"), @"shunt.toml:7:1: a list is not closed with ], or lacks a comma, before this place");
    insta::assert_snapshot!(lanes("poll_us 5"), @"shunt.toml:6:9: a name must be followed by = and a value, such as poll_us = 50");
    insta::assert_snapshot!(lanes("poll_us = 5 sleep = true"), @"shunt.toml:6:19: there is more than one value on the line; write one field a line, and text in quotes");
    insta::assert_snapshot!(lanes("poll_us = 5\npoll_us = 6"), @"shunt.toml:7:1: poll_us is written twice in its table; keep one of them");
    insta::assert_snapshot!(told("[nic]\nname = \"a\"\n[nic]\nname = \"b\""), @"shunt.toml:3:2: there are several tables nic; write the header of each as [[nic]]");
    insta::assert_snapshot!(nic("[switch]\nname = \"a\"\n[switch]\nname = \"b\""), @"shunt.toml:7:2: there are several tables switch; write the header of each as [[switch]]");
    insta::assert_snapshot!(nic("[nic.vf]\nindex = 0\n[nic.vf]\nindex = 1"), @"shunt.toml:7:6: there are several tables vf; write the header of each as [[nic.vf]]");
    insta::assert_snapshot!(told("run_dir = \"/run/shunt"), @r#"shunt.toml:1:22: the text is not closed, or holds a character it may not; it ends with " on its line"#);
    insta::assert_snapshot!(told("run_dir = \"C:\\shunt\""), @r#"shunt.toml:1:15: the text has an unknown escape; write \\ for a backslash"#);
    insta::assert_snapshot!(told("= 3"), @"shunt.toml:1:1: this is not TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`");
}

#[test]
fn what_may_occur_only_once() {
    let second = |lines: &str| vf(&format!("vlan = 7\n[[nic.vf]]\n{lines}"));
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nsocket = \"counters\""), @r#"shunt.toml:11:10: nic[0].vf[1].socket: "counters" is a file of the daemon's own, so choose another name; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nsocket = \"./lock\""), @r#"shunt.toml:11:10: nic[0].vf[1].socket: "./lock" is a file of the daemon's own, so choose another name; write a path in quotes, such as "vf0.sock""#);
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nsocket = \"/run/shunt/./vf0.sock\""), @r#"shunt.toml:11:10: nic[0].vf[1].socket: "/run/shunt/./vf0.sock" is taken by nic[0].vf[0].socket (line 7) already; give each attachment a socket of its own"#);
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:01\"\nvlan = 7\nsocket = \"b\""), @"shunt.toml:10:7: nic[0].vf[1].mac: MAC 02:00:00:00:00:01 on VLAN 7 is taken by nic[0].vf[0].mac (line 6) already; give each function of the NIC an address of its own");
    insta::assert_snapshot!(second("mac = \"02:00:00:00:00:02\"\nsocket = \"b\"\nindex = 0"), @"shunt.toml:12:9: nic[0].vf[1].index: VF 0 is taken by nic[0].vf[0].index (line 5) already; give each VF of the NIC an index of its own");
    insta::assert_snapshot!(vf("macs = [\"02:00:00:00:00:01\"]"), @"shunt.toml:8:9: nic[0].vf[0].macs[0]: MAC 02:00:00:00:00:01, untagged, is taken by nic[0].vf[0].mac (line 6) already; give each function of the NIC an address of its own");
    let pf = "\n[nic.pf]\nmac = \"02:00:00:00:00:01\"\nsocket = \"pf.sock\"";
    insta::assert_snapshot!(vf(pf), @"shunt.toml:6:7: nic[0].vf[0].mac: MAC 02:00:00:00:00:01, untagged, is taken by nic[0].pf.mac (line 10) already; give each function of the NIC an address of its own");
    let uplink = "\n[nic.uplink]\nkind = \"vhost-user\"\nsocket = \"vf0.sock\"\nmode = \"client\"";
    insta::assert_snapshot!(vf(uplink), @r#"shunt.toml:7:10: nic[0].vf[0].socket: "vf0.sock" is taken by nic[0].uplink.socket (line 11) already; give each attachment a socket of its own"#);
}

#[test]
fn numbers_of_things() {
    let two = "[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nsocket = \"a\"\n\
        [[nic.vf]]\nindex = 4\nmac = \"02:00:00:00:00:02\"\nsocket = \"b\"";
    insta::assert_snapshot!(nic(two), @"shunt.toml:9:9: nic[0].vf[1].index: 4 is too large, as total_vfs is 2 (the number of [[nic.vf]] tables); write 0 to 1, or set a larger total_vfs");
    insta::assert_snapshot!(nic(&format!("total_vfs = 4\n{two}")), @"shunt.toml:10:9: nic[0].vf[1].index: 4 is too large, as total_vfs is 4; write 0 to 3, or set a larger total_vfs");
    insta::assert_snapshot!(nic(&format!("total_vfs = 1\n{two}")), @"shunt.toml:5:13: nic[0].total_vfs: 1 is fewer than the 2 [[nic.vf]] tables of this NIC; raise it to 2, or remove tables");
    let first_line = |text: String| text.lines().next().unwrap_or_default().to_owned();
    insta::assert_snapshot!(first_line(nic(&"[[nic.vf]]\n".repeat(256))), @"shunt.toml:2:1: nic[0].vf: there are 256 tables; a NIC has at most 255 VFs");
    insta::assert_snapshot!(told(&"[[nic]]\nname = \"a\"\nkind = \"soft\"\n".repeat(17)), @"shunt.toml:49:1: nic[16]: is NIC 17 of 17; at most 16 are allowed");
    let macs = "\"\",".repeat(MAX_FURTHER_MACS + 1);
    insta::assert_snapshot!(vf(&format!("macs = [{macs}]")), @r#"shunt.toml:8:8: nic[0].vf[0].macs: ["","","","","","","","","","","","","","","","","","","",""... has 4097 entries; write a list of at most 4096 unicast MAC addresses such as ["02:00:00:00:00:01"]"#);
    let cpus = "1,".repeat(MAX_LANES + 1);
    insta::assert_snapshot!(lanes(&format!("cpus = [{cpus}]")), @"shunt.toml:6:8: lanes.cpus: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1... has 65 entries; write a list of 1 to 64 different CPU numbers such as [2, 3], each 0 to 1023");
}

#[test]
fn independent_mistakes_are_told_together_in_the_order_of_the_file() {
    let text = "rundir = \"/run\"\n[lanes]\ncpus = [0, 0]\nsleep = no\n[[nic]]\nname = \"n\"\nkind = \"soft\"\n\
        [[nic.vf]]\nmac = \"x\"\nsocket = \"a\"\n\
        [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nvlan = 9999\nsocket = \"a\"\n[nic.uplink]\n";
    insta::assert_snapshot!(told(text), @r#"
    shunt.toml:1:1: rundir: unknown field at the top of the file; did you mean run_dir? Allowed are run_dir, state_dir, api, lanes, limits, nic, switch, adapter, vpf
    shunt.toml:3:12: lanes.cpus[1]: CPU 0 is taken by lanes.cpus[0] (line 3) already; name each CPU once
    shunt.toml:4:9: lanes.sleep: no is not a value (a text stands in quotes); write true or false
    shunt.toml:9:7: nic[0].vf[0].mac: "x" is not a MAC address; write six hex pairs such as 02:00:00:00:00:01
    shunt.toml:13:8: nic[0].vf[1].vlan: 9999 is out of range; write a whole number, 1 to 4094
    shunt.toml:14:10: nic[0].vf[1].socket: "a" is taken by nic[0].vf[0].socket (line 10) already; give each attachment a socket of its own
    shunt.toml:15:1: nic[0].uplink.socket: is missing; write an absolute path of at most 107 bytes, such as "/run/shunt/web.sock"
    "#);
}

#[test]
fn twenty_are_shown_and_the_rest_is_counted() {
    let lines: String = (0..30).map(|i| format!("zz{i} = 1\n")).collect();
    let errors = Config::parse("shunt.toml", &format!("{lines}{HEAD}")).unwrap_err();
    assert_eq!((errors.iter().len(), errors.more()), (20, 10));
    let text = errors.to_string();
    assert_eq!(text.lines().count(), 21);
    insta::assert_snapshot!(text.lines().last().unwrap(), @"shunt.toml: and 10 more errors; correct these first");
}

#[test]
fn every_error_is_one_printable_line_that_names_the_file() {
    let hostile = "\"a\\nb\\u001b[31m\" = 1\n[lanes]\ncpus = [\"\"\"\nx\n\"\"\"]\n\
        [[nic]]\nname = \"\\u001b[2J\"\nkind = \"\"\"\nx\"\"\"\n";
    let errors = Config::parse("sh\nunt.toml", hostile).unwrap_err();
    assert_eq!(errors.iter().len(), 4, "{errors}");
    for error in errors.iter() {
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
        assert!((1..=20).contains(&errors.iter().len()), "{errors}");
    }
    let macs = "\"02:00:00:00:00:01\",".repeat(MAX_FURTHER_MACS);
    let vf = format!("[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nmacs = [{macs}]\nsocket = \"a\"\n");
    let errors = Config::parse("shunt.toml", &format!("{HEAD}{}", vf.repeat(10))).unwrap_err();
    assert_eq!(errors.more(), 10 * (MAX_FURTHER_MACS + 1) - 1 + 9 - 20);
    // Two seconds of a test build, and minutes if each mistake cost a walk through the file.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

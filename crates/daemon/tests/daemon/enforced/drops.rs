//! Every drop reason: provoked through a port of a running daemon, and found by name in `stats` and
//! in a trace of the frame.

use api::Method;
use api::hex::to_hex;
use api::stats::{DROPS, ReasonEntry};
use serde_json::{Value, json};
use testguest::{HEADER, QueuePair};
use vhost_user::Features;

use super::ports::{HERE, THERE, udp};
use crate::guest::*;
use crate::host::*;
use crate::net::*;
use crate::switchdev;

/// Counters that a guest of a daemon cannot provoke at will, with the cause. In the engine's own
/// tests, frames provoke them too.
const NOT_PROVOKED: [(&str, &str); 2] = [
    ("tx_unplugged", "counts for microseconds, from a port's removal to the end of its session"),
    ("tx_no_function", "a snapshot of the daemon has each VF that has a port"),
];

/// Counters that a trace does not show, with the cause.
const NOT_TRACED: [(&str, &str); 4] = [
    ("tx_offload", "a traced frame has no virtio header"),
    ("tx_storm", "its lane keeps the storm limit of a VF"),
    ("rx_no_buffer", "buffers of guests are not traced"),
    ("rx_too_small", "buffers of guests are not traced"),
];

/// A switch whose uplink has no part in the VLAN of the only adapter.
const ALONE: &str = r#"
    [[nic]]
    name = "n"
    kind = "soft"
    [nic.uplink]
    kind = "vhost-user"
    socket = "uplink"
    [[switch]]
    name = "s"
    nic = "n"
    [[switch.port]]
    adapter = "uplink"
    trunks = ["20"]
    [[adapter]]
    name = "a"
    switch = "s"
    path = "synthetic"
    mac = "02:00:00:00:00:01"
    trunks = ["10"]
    attachment.socket = "a"
"#;
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];
const FROM_GROUP: [u8; 6] = [3, 0, 0, 0, 0, 1];
const LLDP: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0xe];

/// Waits until `stats` shows the counter of a port: read from the counter file, and from the API.
pub(crate) fn wait_until_shown(host: &Host, port: &str, kind: &str, counter: &str) {
    until(&format!("{counter} of {port}"), || {
        let reply = host.client().send(Method::GET, "/v1/stats", None, None).unwrap();
        let of_file = serde_json::to_value(host.stats()).unwrap();
        [of_file, reply.body].iter().all(|stats| count(stats, port, kind, counter) > 0)
    });
}

/// Waits until `stats` shows the counter of a port for a frame from the port `from`. A trace of the
/// frame shows the same, with the text of the table.
fn wait_until_dropped(host: &Host, from: &str, frame: &[u8], (port, counter): (&str, &str)) {
    wait_until_shown(host, port, "drops", counter);
    if NOT_TRACED.iter().any(|(name, _)| *name == counter) {
        return;
    }
    let request = json!({"port": from, "frames": [to_hex(frame)]});
    let reply = host.client().send(Method::POST, "/v1/trace", Some(&request), None).unwrap();
    let drops = reply.body["frames"][0]["drops"].as_array().unwrap();
    let is_shown = |drop: &Value| drop["port"] == port && drop["counter"] == counter;
    let drop = drops.iter().find(|drop| is_shown(drop));
    let drop = drop.unwrap_or_else(|| panic!("no {counter} of {port}: {:#}", reply.body));
    let reason = ReasonEntry::find(counter).unwrap();
    assert_eq!(
        (&drop["meaning"], &drop["remedy"]),
        (&reason.meaning.into(), &reason.remedy.into())
    );
}

/// Counter of a port in the JSON of `stats`.
fn count(stats: &Value, port: &str, kind: &str, counter: &str) -> u64 {
    let mut ports = stats["ports"].as_array().unwrap().iter();
    let port = ports.find(|one| one["name"] == port);
    port.and_then(|port| port[kind][counter].as_u64()).unwrap_or(0)
}

/// A member of a net sends frames, which its port counts.
fn net_drops(counter: &str, path: &'static str, settings: Value, from: &str, frames: &[Vec<u8>]) {
    let mut net = Net::new(TestedPath { path, lanes: 1 }, settings);
    net.send_all(from, frames);
    let port = format!("n/{from}");
    wait_until_dropped(&net.host, &port, &frames[0], (&port, counter));
}

/// VF 0 sends a frame to VF 1, whose port counts it.
fn receiver_drops(counter: &str, receiver: Option<QueuePair>) {
    let host = Host::start(TWO);
    let [mut sender] = host.guests(["vf0"]);
    let _receiver = receiver.map(|pair| {
        let mut guest = Guest::wanting(Features::VERSION_1);
        guest.pair = pair;
        guest.connect(&host.socket("vf1"));
        guest
    });
    let sent = frame(mac(1), mac(0), 1);
    sender.send(&sent);
    wait_until_dropped(&host, "n/vf0", &sent, ("n/vf1", counter));
}

/// Rings of a guest with `buffers` receive buffers of `len` bytes, virtio-net header included.
fn receiver(buffers: usize, len: usize) -> QueuePair {
    let mut pair = QueuePair::new(virtq::Features::empty(), len as u32).unwrap();
    pair.refill_with(buffers);
    pair
}

/// Provokes a drop that counts there.
fn provoke(counter: &str) {
    let good = frame(B, A, 1);
    let in_nic = |settings, frames: &[Vec<u8>]| net_drops(counter, "vf", settings, "a", frames);
    match counter {
        "tx_runt" => in_nic(json!({}), &[good[..13].to_vec()]),
        "tx_oversize" => {
            let mut long = good;
            long.resize(1400 + 14 + 8 + 1, 0);
            in_nic(json!({"a": {"attachment": {"socket": "a", "mtu": 1400}}}), &[long]);
        }
        "tx_offload" => {
            let host = Host::start(TWO);
            let mut guest = Guest::wanting(Features::VERSION_1 | Features::CSUM);
            guest.connect(&host.socket("vf0"));
            let mut unknown_segmentation = [0; HEADER];
            unknown_segmentation[1] = 7;
            guest.send_with(unknown_segmentation, &good);
            wait_until_dropped(&host, "n/vf0", &good, ("n/vf0", counter));
        }
        "tx_disabled" => {
            let host = Host::start(TWO);
            let [mut guest] = host.guests(["vf0"]);
            guest.frontend().enable_ring(TX, false).unwrap();
            guest.send(&good);
            wait_until_dropped(&host, "n/vf0", &good, ("n/vf0", counter));
        }
        "tx_link_down" => in_nic(json!({"a": {"link_state": "disable"}}), &[good]),
        "tx_storm" => {
            let all = vec![frame(BROADCAST, A, 1); 9];
            in_nic(json!({"a": {"storm_limit_pps": 1}}), &all);
        }
        "tx_rule" => {
            let host = switchdev::started();
            let [mut guest, _representor] = host.guests(["vf0", "rep0"]);
            switchdev::wait_for_link(&mut guest, true);
            switchdev::set_rules(&host, json!([{"from": "vf0", "to": "drop"}]));
            guest.send(&good);
            wait_until_dropped(&host, "n/vf0", &good, ("n/vf0", counter));
        }
        "tx_spoofed_mac" => in_nic(json!({}), &[frame(B, STRANGER, 1)]),
        "tx_source_multicast" => {
            in_nic(json!({"a": {"spoof_check": false}}), &[frame(B, FROM_GROUP, 1)]);
        }
        "tx_vlan_forbidden" => in_nic(json!({}), &[in_vlan(&good, 5)]),
        "tx_hairpin" => in_nic(json!({}), &[frame(A, A, 1)]),
        "tx_no_match" => {
            let host = Host::start(TWO);
            let [mut wire] = host.guests(["uplink"]);
            let unknown = frame(STRANGER, ELSEWHERE, 1);
            wire.send(&unknown);
            wait_until_dropped(&host, "n/uplink", &unknown, ("n/uplink", counter));
        }
        "tx_isolated" => in_nic(json!({"nic": {"bridging": "isolated"}}), &[good]),
        "rx_no_buffer" => receiver_drops(counter, Some(receiver(0, 2048))),
        "rx_too_small" => receiver_drops(counter, Some(receiver(4, HEADER + 50))),
        "rx_down" => receiver_drops(counter, None),
        name if name.starts_with("tx_switch_") => provoke_in_switch(name),
        other => panic!("no frame provokes {other}"),
    }
}

/// Provokes a drop that the switch counts there.
fn provoke_in_switch(counter: &str) {
    let good = frame(B, A, 1);
    let drops = |settings, frame: Vec<u8>| {
        net_drops(counter, "synthetic", settings, "a", &vec![frame; 9]);
    };
    let port = |setting: &str, value: Value| json!({"switch": {"port": [{"adapter": "a", setting: value}]}});
    let limited = json!({"a": {"storm_limit_pps": 1}});
    match counter {
        "tx_switch_spoofed_mac" => drops(json!({}), frame(C, B, 1)),
        "tx_switch_source_multicast" => drops(json!({}), frame(B, FROM_GROUP, 1)),
        "tx_switch_vlan_forbidden" => drops(json!({}), in_vlan(&good, 5)),
        "tx_switch_hairpin" => drops(json!({}), frame(A, A, 1)),
        "tx_switch_no_match" => {
            let host = Host::start(ALONE);
            let [mut guest] = host.guests(["a"]);
            let unknown = in_vlan(&frame(STRANGER, mac(0), 1), 10);
            guest.send(&unknown);
            wait_until_dropped(&host, "n/a", &unknown, ("n/a", counter));
        }
        "tx_switch_isolated" => {
            let isolated = ["a", "b"].map(|name| json!({"adapter": name, "isolated": true}));
            drops(json!({"switch": {"port": isolated}}), good);
        }
        "tx_switch_link_local" => drops(json!({}), frame(LLDP, A, 1)),
        "tx_switch_hidden_header" => {
            let cut_off = udp(B, A, (HERE, THERE), [1, 2])[..20].to_vec();
            drops(port("dhcp_guard", json!(true)), cut_off);
        }
        "tx_switch_dhcp_guard" => {
            let answer = udp(BROADCAST, A, (HERE, THERE), [67, 68]);
            drops(port("dhcp_guard", json!(true)), answer);
        }
        "tx_switch_router_guard" => {
            let mut redirect = udp(BROADCAST, A, (HERE, THERE), [0, 0]);
            redirect[14 + 9] = 1; // ICMP
            redirect[14 + 20] = 5; // redirect
            drops(port("router_guard", json!(true)), redirect);
        }
        "tx_switch_acl_deny" => drops(port("acl", json!([{"action": "deny"}])), good),
        "tx_switch_mac_limit" => drops(json!({}), frame(B, STRANGER, 1)),
        "tx_switch_storm_broadcast" => drops(limited, frame(BROADCAST, A, 1)),
        "tx_switch_storm_multicast" => drops(limited, frame(GROUP, A, 1)),
        "tx_switch_storm_unknown" => drops(limited, frame(STRANGER, A, 1)),
        other => panic!("no frame provokes {other}"),
    }
}

#[test]
fn every_drop_reason_is_shown_by_its_name() {
    for counter in DROPS.iter().flat_map(|drop| drop.counters()) {
        println!("{counter}"); // shown if it fails
        if NOT_PROVOKED.iter().all(|(name, _)| *name != counter) {
            provoke(counter);
        }
    }
}

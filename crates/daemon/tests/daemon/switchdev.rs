//! Switchdev mode: pipes to representors, their links, rules, and the mode itself, while guests
//! stay attached.

use api::Method;
use serde_json::{Value, json};

use crate::guest::*;
use crate::host::*;

/// A NIC with an uplink and two VFs, with a socket for every representor.
const NIC: &str = r#"
    [[nic]]
    name = "n"
    kind = "soft"
    mode = "switchdev"
    uplink = { kind = "vhost-user", socket = "RUN/uplink" }
    [[nic.vf]]
    mac = "02:00:00:00:00:01"
    attachment.socket = "vf0"
    [[nic.vf]]
    mac = "02:00:00:00:00:02"
    attachment.socket = "vf1"
    [[nic.representor]]
    of = "uplink"
    attachment = { socket = "RUN/p0" }
    [[nic.representor]]
    of = "vf0"
    attachment = { socket = "RUN/rep0" }
    [[nic.representor]]
    of = "vf1"
    attachment = { socket = "RUN/rep1" }
"#;

pub(crate) fn started() -> Host {
    let mut host =
        Host::with(|dir| config(dir, &NIC.replace("RUN", dir.to_str().expect("a path in UTF-8"))));
    host.restart();
    host
}

fn ask(host: &Host, method: Method, path: &str, body: Option<&Value>) -> Value {
    let reply = host.client().send(method, path, body, None);
    reply.unwrap_or_else(|error| panic!("{path}: {error}")).body
}

pub(crate) fn set_rules(host: &Host, rules: Value) {
    ask(host, Method::PATCH, "/v1/nics/n", Some(&json!({"rule": rules})));
}

/// Frames and bytes of each rule.
fn counted(host: &Host) -> Vec<(u64, u64)> {
    let stats = ask(host, Method::GET, "/v1/stats", None);
    let offloads = stats["offloads"].as_array().into_iter().flatten();
    let number = |one: &Value, name: &str| one[name].as_u64().unwrap();
    offloads.map(|one| (number(one, "frames"), number(one, "bytes"))).collect()
}

fn is_up(guest: &mut Guest) -> bool {
    guest.frontend().config(6, 2).unwrap() == [1, 0]
}

pub(crate) fn wait_for_link(guest: &mut Guest, up: bool) {
    until("the link of a guest", || is_up(guest) == up);
}

/// Sends a frame, which must be the next one to arrive there.
fn passes(from: &mut Guest, to: &mut Guest, frame: &[u8]) {
    from.send(frame);
    assert_eq!(to.wait_for(1), [frame]);
}

#[test]
fn a_function_has_the_link_of_its_representor() {
    let host = started();
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    assert!(!is_up(&mut a), "its representor has no front-end");
    a.send(&frame(mac(1), mac(0), 1));
    a.settle();
    assert_eq!(host.port("n/vf0").drops["tx_link_down"], 1);

    let [mut rep] = host.guests(["rep0"]);
    wait_for_link(&mut a, true);
    assert!(!is_up(&mut b));
    passes(&mut a, &mut rep, &frame(mac(1), mac(0), 2));
    passes(&mut rep, &mut a, &frame(mac(0), mac(1), 3));
    let actual = ask(&host, Method::GET, "/v1/actual", None);
    let of = |n: usize| actual["actual"]["nics"][0]["representors"][n].clone();
    let expected = ["of", "name", "up"].map(|name| of(1)[name].clone());
    assert_eq!(expected, [json!("vf0"), json!("pf0vf0"), json!(true)]);
    assert_eq!((&of(0)["name"], &of(0)["up"]), (&json!("p0"), &json!(false)));

    rep.disconnect();
    wait_for_link(&mut a, false);
    assert!(a.receive().is_empty() && b.receive().is_empty());
}

#[test]
fn rules_change_under_guests_and_go_on_counting() {
    let host = started();
    let [mut a, mut b, mut wire] = host.guests(["vf0", "vf1", "uplink"]);
    let [mut rep_a, _rep_b, _rep_wire] = host.guests(["rep0", "rep1", "p0"]);
    [&mut a, &mut b].into_iter().for_each(|guest| wait_for_link(guest, true));
    let there = frame(mac(1), mac(0), 1);
    passes(&mut a, &mut rep_a, &there);
    assert!(counted(&host).is_empty());

    let direct = json!({"from": "vf0", "to": "vf1", "to_mac": "02:00:00:00:00:02"});
    set_rules(&host, json!([direct]));
    passes(&mut a, &mut b, &there);
    assert_eq!(counted(&host), [(1, 60)]);
    // Another rule before it; it continues.
    let out = json!({"from": "vf0", "to": "uplink", "to_mac": "02:00:00:00:00:99", "push_vlan": {"id": 5}});
    set_rules(&host, json!([out, direct]));
    passes(&mut a, &mut b, &there);
    let away = frame([2, 0, 0, 0, 0, 0x99], mac(0), 2);
    a.send(&away);
    assert_eq!(wire.wait_for(1), [[&away[..12], &[0x81, 0, 0, 5], &away[12..]].concat()]);
    assert_eq!(counted(&host), [(1, 60), (2, 120)]);

    set_rules(&host, json!([]));
    passes(&mut a, &mut rep_a, &there);
    assert!(counted(&host).is_empty());
    assert_eq!(host.log.count("n/vf0: front-end connected"), 1, "no front-end reconnected");
}

#[test]
fn the_mode_changes_under_guests() {
    let host = started();
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let there = frame(mac(1), mac(0), 1);
    let legacy = json!({"mode": "legacy", "representor": []});
    let before = ask(&host, Method::GET, "/v1/nics/n", None)["representor"].clone();
    ask(&host, Method::PATCH, "/v1/nics/n", Some(&legacy));
    [&mut a, &mut b].into_iter().for_each(|guest| wait_for_link(guest, true));
    passes(&mut a, &mut b, &there);

    let switchdev = json!({"mode": "switchdev", "representor": before});
    ask(&host, Method::PATCH, "/v1/nics/n", Some(&switchdev));
    let [mut rep] = host.guests(["rep0"]);
    wait_for_link(&mut a, true);
    assert!(!is_up(&mut b));
    passes(&mut a, &mut rep, &there);
    assert_eq!(host.log.count("n/vf0: front-end connected"), 1);
}

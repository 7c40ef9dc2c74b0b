//! A guest's channel over a real socket: what it sets, what it is refused, and what the operator
//! sees of it.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::testing::with;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::{Value, json};
use vhost_user::testing::lingering;

use super::super::serve_guests;
use super::*;
use crate::testing::granted;

/// A guest at its channel.
struct Guest(BufReader<UnixStream>);

impl Guest {
    fn connect(site: &Site) -> Guest {
        Guest::connect_to(site, "vm.ctl")
    }

    fn connect_to(site: &Site, socket: &str) -> Guest {
        let stream = UnixStream::connect(site.dir.path().join(socket)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Guest(BufReader::new(stream))
    }

    /// Connects until a connection is served: one that was ended frees its place a moment later.
    fn is_served(site: &Site) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            let mut guest = Guest::connect(site);
            let mut line = String::new();
            let asked = guest.0.get_mut().write_all(b"{\"v\":1,\"id\":1,\"op\":\"hello\"}\n");
            if asked.is_ok() && guest.0.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the channel was closed");
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, request: Value) -> Value {
        self.write(format!("{request}\n").as_bytes());
        self.read()
    }

    fn set(&mut self, vf: u16, settings: Value) -> Value {
        let mut request = json!({"v": 1, "id": 7, "op": "set", "vf": vf});
        request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        self.ask(request)
    }

    fn vf(&mut self, vf: u16) -> Value {
        self.ask(json!({"v": 1, "id": 8, "op": "list", "vf": vf}))["result"]["vfs"][0].take()
    }
}

/// A daemon with a virtual PF whose channel is served.
fn site() -> Site {
    let mut site = Site::new();
    serve(&mut site);
    let socket = site.dir.path().join("vm.ctl").display().to_string();
    let document = with(granted(), "/vpf/0/control/socket", json!(socket));
    site.does("POST", "/v1/apply", document);
    site
}

fn serve(site: &mut Site) {
    let manager = site.server.as_ref().unwrap().manager();
    serve_guests(manager, &mut manager.lock().unwrap()).unwrap();
}

/// The settings of a VF that the data plane was brought to.
fn in_force(site: &Site, name: &str) -> Value {
    let plane = site.plane.0.lock().unwrap();
    json!(plane.reached.last().unwrap().adapter(name).unwrap())
}

fn audit(site: &Site) -> Vec<String> {
    let events = site.get("/v1/events");
    let events = events["events"].as_array().unwrap().iter();
    let ours = events.filter(|event| event["kind"] == "guest-control");
    ours.map(|event| format!("{}: {}", event["subject"], event["text"])).collect()
}

#[test]
fn descriptors_by_a_channel_or_to_the_api_end_the_connection_and_hold_up_nobody() {
    let site = site();
    let mut peers = Vec::new();
    for socket in ["vm.ctl", "api.sock"] {
        for _ in 0..2 {
            let stream = UnixStream::connect(site.dir.path().join(socket)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let (slow, peer) = lingering();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [slow.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let bytes = [IoSlice::new(b"{")];
            rustix::net::sendmsg(&stream, &bytes, &mut control, SendFlags::empty()).unwrap();
            // It waits if the daemon has closed its own already.
            let closing = std::thread::spawn(|| drop(slow));
            assert_eq!((&stream).read(&mut [0; 8]).unwrap_or(0), 0, "the connection is closed");
            // Both threads serve others meanwhile.
            assert!(Guest::is_served(&site));
            site.get("/v1/events");
            peers.push((peer, closing));
        }
    }
    // All at once: a process that another test begins has copies, and closes them in any order.
    let drain = |(mut peer, closing): (TcpStream, JoinHandle<()>)| {
        std::thread::spawn(move || {
            while peer.read(&mut [0; 1 << 16]).unwrap() > 0 {}
            closing.join().unwrap();
        })
    };
    let readers: Vec<_> = peers.into_iter().map(drain).collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn a_guest_sees_and_sets_its_vfs() {
    let site = site();
    let mut guest = Guest::connect(&site);
    let hello = guest.ask(json!({"v": 1, "id": 1, "op": "hello"}));
    assert_eq!((&hello["id"], &hello["result"]["pf"]["num_vfs"]), (&json!(1), &json!(2)));
    assert_eq!(hello["result"]["grants"]["vlans"], json!(["100-199"]));
    assert_eq!(hello["result"]["grants"]["vfs"], json!([0, 1]));
    let settings = json!({"mac": "52:54:00:00:00:01", "vlan": 100, "qos": 3, "max_tx_rate": 50});
    assert_eq!(guest.set(1, settings)["result"], json!({}));
    let vf = guest.vf(1);
    assert_eq!((&vf["mac"], &vf["vlan"]), (&json!("52:54:00:00:00:01"), &json!(100)));
    assert_eq!((&vf["qos"], &vf["max_tx_rate"]), (&json!(3), &json!(50)));
    assert_eq!(vf["set_here"], json!(["mac", "vlan", "max_tx_mbps"]));
    // In force on the host, and the operator's document is what it was.
    let adapter = in_force(&site, "a2");
    assert_eq!((&adapter["vlan"]["id"], &adapter["max_tx_mbps"]), (&json!(100), &json!(50)));
    assert_eq!(site.get("/v1/adapters/a2")["max_tx_mbps"], 500);
    let vpf = site.get("/v1/actual")["vpfs"][0].take();
    assert_eq!(
        (&vpf["control"], &vpf["vfs"][1]["settings"]["max_tx_mbps"]),
        (&json!(true), &json!(50))
    );
    assert_eq!(
        audit(&site),
        [r#""vpf vm": "vf 1: mac 52:54:00:00:00:01 vlan 100 qos 3 max_tx_rate 50""#]
    );
    let reset = guest.ask(json!({"v": 1, "id": 2, "op": "reset", "vf": 1}));
    assert_eq!(reset["result"], json!({}));
    assert_eq!(in_force(&site, "a2")["mac"], "02:00:00:00:01:02");
}

#[test]
fn what_is_refused_changes_nothing_and_is_told_to_both() {
    let site = site();
    let mut guest = Guest::connect(&site);
    let before = in_force(&site, "a1");
    for (settings, name) in [
        (json!({"vlan": 99}), "EPERM"),
        (json!({"trust": true, "mac": "02:00:00:00:00:01"}), "EPERM"),
        (json!({"vlan": 5000}), "EINVAL"),
        (json!({"speed": 1}), "EPROTO"),
    ] {
        let answer = guest.set(0, settings.clone());
        assert_eq!(answer["error"]["name"], name, "{settings}: {answer}");
    }
    assert_eq!(guest.set(2, json!({"trust": true}))["error"]["errno"], 22);
    // Another VF has it by now.
    assert_eq!(guest.set(1, json!({"mac": "52:54:00:00:00:01"}))["result"], json!({}));
    let taken = guest.set(0, json!({"mac": "52:54:00:00:00:01"}));
    assert_eq!(taken["error"]["name"], "EADDRINUSE");
    assert!(!taken.to_string().contains("a2"), "the guest learns nothing of others: {taken}");
    assert_eq!(in_force(&site, "a1"), before);
    let told = audit(&site);
    assert!(told[0].contains("refused: vf 0: vlan 99 qos 0: the host does not grant"), "{told:?}");
    assert_eq!(told.len(), 5, "what is no request is no act: {told:?}");
}

#[test]
fn settings_of_guests_survive_a_restart_and_fall_to_the_operator() {
    let mut site = site();
    let mut guest = Guest::connect(&site);
    assert_eq!(guest.set(0, json!({"vlan": 100, "trust": true}))["result"], json!({}));
    drop(guest);
    site.start(None);
    assert_eq!(in_force(&site, "a1")["vlan"]["id"], 100);
    serve(&mut site);
    assert_eq!(Guest::connect(&site).vf(0)["set_here"], json!(["vlan", "trust"]));
    // The operator changes another thing, and then this one.
    site.does("PATCH", "/v1/adapters/a1", json!({"tx_weight": 20}));
    assert_eq!(in_force(&site, "a1")["vlan"]["id"], 100);
    site.does("PATCH", "/v1/adapters/a1", json!({"vlan": {"id": 7}}));
    assert_eq!(in_force(&site, "a1")["vlan"]["id"], 7);
    assert_eq!(in_force(&site, "a1")["trust"], true);
    assert_eq!(audit(&site), [r#""vpf vm": "vf 0: the host took back vlan""#]);
    // An address that the guest has, and the operator gives to another.
    let mut guest = Guest::connect(&site);
    assert_eq!(guest.set(1, json!({"mac": "52:54:00:00:00:05"}))["result"], json!({}));
    site.does("PATCH", "/v1/adapters/a0", json!({"mac": "52:54:00:00:00:05"}));
    assert_eq!(in_force(&site, "a0")["mac"], "52:54:00:00:00:05");
    assert_eq!(in_force(&site, "a2")["mac"], "02:00:00:00:01:02");
}

#[test]
fn a_hostile_guest_is_answered_and_disturbs_nobody() {
    let site = site();
    let mut guest = Guest::connect(&site);
    guest.write(&[b'\n'; 3_000]);
    guest.write(&[b'x'; 20_000]);
    guest.write(b"\n\xff\xfe\n[]\n{\"v\":1,\"id\":5,\"op\":\"list\"}\n");
    assert_eq!(guest.read()["error"]["name"], "EMSGSIZE");
    assert_eq!(guest.read()["error"]["name"], "EPROTO");
    assert_eq!(guest.read()["error"]["name"], "EPROTO");
    assert_eq!(guest.read()["id"], 5);
    // A second connection is turned away while the first is there, and taken after it.
    let mut second = Guest::connect(&site);
    let mut nothing = String::new();
    assert_eq!(second.0.read_line(&mut nothing).unwrap(), 0, "it is closed");
    // One that asks and does not read is not read either, and the operator is served.
    let request = b"{\"v\":1,\"id\":5,\"op\":\"list\"}\n".repeat(100);
    guest.0.get_ref().set_nonblocking(true).unwrap();
    while guest.0.get_mut().write(&request).is_ok_and(|written| written > 0) {}
    assert_eq!(site.get("/v1/vpfs")[0]["name"], "vm");
    drop(guest);
    let mut next = Guest::connect(&site);
    next.write(b"{\"v\":1,\"id\":6,\"op\":\"hello\"}\n");
    assert_eq!(next.read()["id"], 6);
}

#[test]
fn a_channel_comes_and_goes_with_its_table() {
    let site = site();
    let path = site.dir.path().join("vm.ctl");
    let mut guest = Guest::connect(&site);
    assert_eq!(guest.vf(0)["vf"], 0);
    // The guest's rights change, and its session stays.
    let rights = json!({"control": {"settings": ["trust"], "mac_prefixes": null, "vlans": null,
        "max_tx_mbps": null, "min_tx_mbps": null}});
    site.does("PATCH", "/v1/vpfs/vm", rights);
    assert_eq!(guest.vf(0)["may_set"], json!(["trust"]));
    site.does("PATCH", "/v1/vpfs/vm", json!({"control": null}));
    assert!(!path.exists());
    let mut nothing = String::new();
    assert_eq!(guest.0.read_line(&mut nothing).unwrap(), 0, "it is closed");
    // A path that cannot be had refuses the whole change.
    let taken = site.socket().display().to_string();
    let refused = site.send("PATCH", "/v1/vpfs/vm", json!({"control": {"socket": taken}}));
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("control.socket") && told.contains("in use"), "{told}");
    assert_eq!(site.get("/v1/vpfs/vm")["control"], Value::Null);
}

#[test]
fn what_a_guest_asks_for_beyond_what_it_may_is_lost_and_the_channel_stays() {
    let site = site();
    let mut guest = Guest::connect(&site);
    // Three times what a guest may change at once, before it has read an answer.
    const FLOOD: usize = 60;
    let request = b"{\"v\":1,\"id\":5,\"op\":\"set\",\"vf\":0,\"vlan\":99}\n";
    guest.write(&request.repeat(FLOOD));
    let mut answers = std::iter::from_fn(|| Some(guest.read()));
    let (mut answered, mut last) = (0, answers.next().unwrap());
    while last["id"] == 5 {
        (answered, last) = (answered + 1, answers.next().unwrap());
    }
    assert_eq!((&last["id"], &last["error"]["name"]), (&json!(0), &json!("EAGAIN")));
    assert!((1..FLOOD).contains(&answered), "{answered} of {FLOOD} were answered");
    // A guest that has read it gets responses again.
    assert_eq!(guest.vf(0)["vf"], 0);
}

#[test]
fn a_request_is_its_guests_though_names_are_exchanged_before_it_is_answered() {
    let mut site = Site::new();
    serve(&mut site);
    let path = |name: &str| site.dir.path().join(name).display().to_string();
    let vpf = |name: &str, socket: &str, pf: &str, vf: &str| {
        let control = json!({"socket": path(socket), "settings": ["trust"]});
        json!({"name": name, "pf": pf, "vf": [{"adapter": vf}], "control": control})
    };
    let mut both = granted();
    let mut adapter = both["adapter"][0].clone();
    adapter["name"] = json!("a3");
    adapter["mac"] = json!("02:00:00:00:01:03");
    adapter["attachment"] = json!({"socket": path("a3")});
    both["adapter"].as_array_mut().unwrap().push(adapter);
    both["vpf"] = json!([vpf("x", "1.ctl", "a0", "a1"), vpf("y", "2.ctl", "a2", "a3")]);
    site.apply(both.clone());
    both["vpf"] = json!([vpf("y", "1.ctl", "a0", "a1"), vpf("x", "2.ctl", "a2", "a3")]);
    let mut guest = Guest::connect_to(&site, "1.ctl");
    assert_eq!(guest.vf(0)["mac"], "02:00:00:00:01:01");
    {
        let mut manager = site.server.as_ref().unwrap().manager().lock().unwrap();
        guest.write(b"{\"v\":1,\"id\":9,\"op\":\"set\",\"vf\":0,\"trust\":true}\n");
        std::thread::sleep(Duration::from_millis(200)); // it waits for the manager by now, or is read later
        manager.apply(&model::testing::state(&both), None).unwrap();
    }
    assert_eq!(guest.read()["result"], json!({}));
    let trusted = ["a1", "a3"].map(|name| in_force(&site, name)["trust"].clone());
    assert_eq!(trusted, [json!(true), json!(false)]);
}

#[test]
fn guests_that_come_and_go_push_nobody_elses_events_out() {
    let site = site();
    let mut guest = Guest::connect(&site);
    assert_eq!(guest.set(0, json!({"vlan": 100}))["result"], json!({}));
    let name = site.plane.0.lock().unwrap().actual.adapters[1].name.clone();
    for i in 0..100 {
        site.plane.0.lock().unwrap().set_connected(&name, i % 2 == 0);
    }
    let events = site.get("/v1/events");
    let events = events["events"].as_array().unwrap().iter();
    let come_and_gone = events.filter(|event| event["kind"] == "guest").count();
    assert!((20..50).contains(&come_and_gone), "{come_and_gone}");
    assert_eq!(audit(&site).len(), 1);
}

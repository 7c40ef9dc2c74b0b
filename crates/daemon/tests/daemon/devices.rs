//! Attachments other than vhost-user sockets, as far as they need no privilege: frames over stream
//! sockets, missing interfaces, and rejections.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use api::Method;
use api::{Client, ClientError};
use serde_json::{Value, json};

use crate::guest::Guest;
use crate::host::*;

/// The VMM's end of a stream socket: each frame follows its length.
struct Peer(UnixStream);

impl Peer {
    fn connect(socket: &Path) -> Peer {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        Peer(stream)
    }

    fn send(&mut self, frame: &[u8]) {
        self.0.write_all(&(frame.len() as u32).to_be_bytes()).unwrap();
        self.0.write_all(frame).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        self.0.read_exact(&mut frame).unwrap();
        frame
    }
}

fn client(host: &Host) -> Client {
    host.client()
}

fn actual(host: &Host) -> Value {
    client(host).send(Method::GET, "/v1/actual", None, None).unwrap().body["actual"].clone()
}

/// Attachment of the adapter on VF `n`, with changes.
fn attach(host: &Host, vf: u8, attachment: Value) -> Result<(), ClientError> {
    let patch = json!({"attachment": attachment});
    let path = format!("/v1/adapters/n-vf{vf}");
    client(host).send(Method::PATCH, &path, Some(&patch), None).map(drop)
}

/// Device of the adapter on VF `n`.
fn device(host: &Host, vf: usize) -> Value {
    actual(host)["adapters"][vf]["device"].clone()
}

fn wait_for_state(host: &Host, what: impl Fn(&Value) -> Value, state: &str) {
    until("a device to come to its state", || what(&actual(host))["state"] == state);
}

/// Sends a frame each way between the guests of VF 0 and VF 1.
fn exchange(peer: &mut Peer, guest: &mut Guest) {
    let there = frame(mac(1), mac(0), 1);
    peer.send(&there);
    assert_eq!(guest.wait_for(1), [there]);
    let back = frame(mac(0), mac(1), 2);
    guest.send(&back);
    assert_eq!(peer.receive(), back);
}

#[test]
fn a_stream_socket_carries_frames_and_may_become_a_vhost_user_socket_and_back() {
    let host =
        Host::start(&TWO.replacen("attachment.socket = \"vf0\"", "attachment = \"stream:vf0\"", 1));
    let [mut guest] = host.guests(["vf1"]);
    assert_eq!(device(&host, 0)["state"], "down", "no peer yet");
    let mut peer = Peer::connect(&host.socket("vf0"));
    wait_for_state(&host, |actual| actual["adapters"][0]["device"].clone(), "up");
    exchange(&mut peer, &mut guest);
    // The next peer is served after the first has left.
    drop(peer);
    let mut peer = Peer::connect(&host.socket("vf0"));
    until("the first peer to be gone", || {
        peer.send(&frame(mac(1), mac(0), 3));
        std::thread::sleep(std::time::Duration::from_millis(5));
        !guest.receive().is_empty()
    });
    // The same socket, with another protocol.
    let socket = host.socket("vf0").display().to_string();
    attach(&host, 0, json!({"kind": "vhost-user", "socket": socket})).unwrap();
    assert_eq!(device(&host, 0), Value::Null);
    let [mut first] = host.guests(["vf0"]);
    guest.settle();
    guest.receive();
    let there = frame(mac(1), mac(0), 4);
    first.send(&there);
    assert_eq!(guest.wait_for(1), [there]);
    attach(&host, 0, json!(format!("stream:{socket}"))).unwrap();
    let mut peer = Peer::connect(&host.socket("vf0"));
    wait_for_state(&host, |actual| actual["adapters"][0]["device"].clone(), "up");
    exchange(&mut peer, &mut guest);
    assert!(host.log.says("n/vf0: stream:"), "states are told");
}

#[test]
fn a_stream_socket_connects_where_its_peer_listens() {
    let host = Host::start(TWO);
    let [mut guest] = host.guests(["vf1"]);
    let path = host.socket("peer");
    let attachment =
        json!({"kind": "stream", "socket": path.display().to_string(), "mode": "client"});
    attach(&host, 0, attachment).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let mut peer = Peer(listener.accept().unwrap().0);
    wait_for_state(&host, |actual| actual["adapters"][0]["device"].clone(), "up");
    exchange(&mut peer, &mut guest);
}

#[test]
fn an_interface_that_is_not_there_keeps_nobody_from_starting() {
    let uplink = "uplink = \"xdp:nosuchthing0\"\n[[nic.vf]]\nlink_state = \"enable\"";
    let nics = TWO.replacen(
        "[nic.uplink]\n    kind = \"vhost-user\"\n    socket = \"uplink\"\n    [[nic.vf]]",
        uplink,
        1,
    );
    assert!(nics.contains("nosuchthing0"));
    let host = Host::start(&nics.replace(
        "attachment.socket = \"vf1\"",
        "attachment.socket = \"vf1\"\nlink_state = \"enable\"",
    ));
    let [mut one, mut two] = host.guests(["vf0", "vf1"]);
    let frame = frame(mac(1), mac(0), 1);
    one.send(&frame);
    assert_eq!(two.wait_for(1), [frame]);
    let now = actual(&host);
    let uplink = &now["nics"][0]["uplink"];
    assert_eq!(uplink["state"], "gone", "{uplink}");
    assert!(uplink["reason"].as_str().unwrap().contains("nosuchthing0"), "{uplink}");
    let events = client(&host).send(Method::GET, "/v1/events", None, None).unwrap().body;
    let events = events["events"].as_array().unwrap().clone();
    let told = events.iter().find(|event| event["kind"] == "device").expect("an event");
    assert_eq!(told["subject"], "port n/uplink");
    assert!(
        told["text"].as_str().unwrap().starts_with("xdp:nosuchthing0 is not there yet: "),
        "{told}"
    );
}

#[test]
fn functions_have_the_link_of_an_uplink_that_comes_and_goes() {
    let host = Host::start(TWO);
    let link = |host: &Host| actual(host)["nics"][0]["vfs"][0]["link_up"].clone();
    assert_eq!(link(&host), true);
    let set = |uplink: Value| {
        let patch = json!({"uplink": uplink});
        client(&host).send(Method::PATCH, "/v1/nics/n", Some(&patch), None).unwrap();
    };
    set(json!("packet:nosuchthing0"));
    until("the link to go down", || link(&host) == false);
    set(json!(format!("stream:{}", host.socket("wire").display())));
    until("the link to come up", || link(&host) == true);
}

#[test]
fn what_cannot_be_had_is_refused_and_nothing_is_changed() {
    let host = Host::start(TWO);
    let [mut one, mut two] = host.guests(["vf0", "vf1"]);
    let refused = |attachment: Value, field: &str| {
        let ClientError::Refused(refusal) = attach(&host, 0, attachment).unwrap_err() else {
            panic!("no answer");
        };
        assert_eq!(refusal.status, 409, "{refusal:?}");
        assert!(refusal.first().field.ends_with(field), "{refusal:?}");
        refusal.first().message
    };
    // No tap for any user; without privilege that is the first error.
    let error = refused(json!("tap:lo"), "attachment.interface");
    assert!(error.contains("cannot be opened"), "{error}");
    let path = host.path().join("no/vf0").display().to_string();
    let error = refused(json!(format!("stream:{path}")), "attachment.socket");
    assert!(error.contains("no/vf0"), "{error}");
    let file = host.path().join("played.pcap");
    std::fs::write(&file, capture(&[frame(mac(1), mac(0), 1)])).unwrap();
    let sink = host.path().join("no/sink.pcap");
    let pcap = json!({"kind": "pcap", "file": file, "sink": sink});
    let error = refused(pcap, "attachment.sink");
    assert!(error.contains("no/sink.pcap"), "{error}");
    let stored = client(&host).send(Method::GET, "/v1/adapters/n-vf0", None, None).unwrap().body;
    assert_eq!(stored["attachment"]["kind"], "vhost-user");
    let frame = frame(mac(1), mac(0), 1);
    one.send(&frame);
    assert_eq!(two.wait_for(1), [frame], "the guests are where they were");
}

/// A capture of these frames, a microsecond apart.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1_u32] {
        bytes.extend(word.to_le_bytes()); // pcap 2.4 of Ethernet
    }
    for (i, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        for word in [0, i as u32, len, len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn a_capture_is_the_wire_and_what_goes_there_is_written() {
    let host = Host::start(TWO);
    let [mut one] = host.guests(["vf0"]);
    let played: Vec<_> = (0..5).map(|n| frame(mac(0), [2, 0, 0, 0, 0, 0x99], n)).collect();
    let (file, sink) = (host.socket("played.pcap"), host.socket("sink.pcapng"));
    std::fs::write(&file, capture(&played)).unwrap();
    let uplink = json!({
        "kind": "pcap", "file": file.display().to_string(), "sink": sink.display().to_string(),
    });
    let patch = json!({"uplink": uplink});
    client(&host).send(Method::PATCH, "/v1/nics/n", Some(&patch), None).unwrap();
    assert_eq!(one.wait_for(5), played);
    let out = frame([2, 0, 0, 0, 0, 0x99], mac(0), 7);
    one.send(&out);
    one.settle();
    until("the frame to be written", || {
        let written = std::fs::read(&sink).unwrap();
        written.windows(out.len()).any(|bytes| bytes == out)
    });
}

#[test]
fn a_device_that_gives_way_for_nothing_is_opened_again() {
    let host =
        Host::start(&TWO.replacen("attachment.socket = \"vf0\"", "attachment = \"stream:vf0\"", 1));
    let [mut guest] = host.guests(["vf1"]);
    let socket = host.socket("vf0").display().to_string();
    // Another listener takes its place; and the next attachment of the same change fails.
    let longer = json!({"kind": "stream", "socket": socket, "mtu": 9000});
    let mut document = client(&host).send(Method::GET, "/v1/state", None, None).unwrap().body;
    document["adapter"][0]["attachment"] = longer;
    document["adapter"][1]["attachment"] = json!("stream:/nowhere/at/all");
    let refused = client(&host).send(Method::PUT, "/v1/state", Some(&document), None).unwrap_err();
    assert!(refused.to_string().contains("/nowhere/at/all"), "{refused}");
    let mut peer = Peer::connect(&host.socket("vf0"));
    wait_for_state(&host, |actual| actual["adapters"][0]["device"].clone(), "up");
    exchange(&mut peer, &mut guest);
}

/// A port that is free now.
fn free_udp_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn two_switches_are_one_segment_by_a_tunnel() {
    let port = free_udp_port();
    let half = |n: u8, vlan: &str| {
        let (here, there) = (n + 1, 2 - n);
        format!(
            "[[nic]]\nname = \"n{n}\"\nkind = \"soft\"\n[[switch]]\nname = \"s{n}\"\nnic = \"n{n}\"\n\
             [[switch.vxlan]]\nname = \"far\"\nvni = 7\nport = {port}\nlocal = \"127.0.0.{here}\"\n\
             peers = [\"127.0.0.{there}\"]\n{vlan}\n[[adapter]]\nname = \"a{n}\"\nswitch = \"s{n}\"\n\
             mac = \"02:00:00:00:00:0{here}\"\nattachment = {{ socket = \"DIR/a{n}\" }}\n{}\n",
            if vlan.is_empty() { "" } else { "vlan = { id = 5 }" }
        )
    };
    // The network is untagged here, and VLAN 5 there.
    let nics = half(0, "") + &half(1, "vlan = 5");
    let mut host = Host::with(|dir| config(dir, &nics.replace("DIR", dir.to_str().unwrap())));
    host.restart();
    let [mut one, mut two] = host.guests(["a0", "a1"]);
    assert_eq!(actual(&host)["tunnels"][1]["device"]["state"], "up");
    let there = frame([0xff; 6], mac(0), 1);
    one.send(&there);
    assert_eq!(two.wait_for(1), [there]);
    let back = frame(mac(0), mac(1), 2);
    two.send(&back);
    assert_eq!(one.wait_for(1), [back]);
}

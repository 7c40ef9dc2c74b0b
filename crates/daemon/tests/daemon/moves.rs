//! Paths changed by the API while guests exchange frames: none is lost, duplicated or reordered.

use std::sync::atomic::{AtomicBool, Ordering};

use api::Method;
use serde_json::{Value, json};

use crate::host::*;
use crate::net::*;

const MOVES: usize = 60;
/// Frames of a stream in flight: those of all streams fit into a receiver's ring.
const WINDOW: u32 = 60;

/// Numbered frames from one member to another.
struct Stream {
    from: &'static str,
    to: &'static str,
    dst: [u8; 6],
    src: [u8; 6],
    sent: u32,
    arrived: u32,
    /// VLAN of the stream, if any: a tag on the wire.
    vlan: Option<u16>,
}

impl Stream {
    /// A frame of the stream as seen at one of its ends.
    fn frame(&self, end: &str, number: u32) -> Vec<u8> {
        let plain = frame(self.dst, self.src, number);
        match self.vlan.filter(|_| end == "uplink") {
            Some(vlan) => in_vlan(&plain, vlan),
            None => plain,
        }
    }

    fn new(from: &'static str, to: &'static str, vlan: Option<u16>) -> Stream {
        let mac = |name| match name {
            "a" => A,
            "b" => B,
            "c" => C,
            _ => ELSEWHERE,
        };
        Stream { from, to, dst: mac(to), src: mac(from), sent: 0, arrived: 0, vlan }
    }
}

/// All members exchange frames with `b`, which changes its path.
fn streams(vlan: Option<u16>) -> Vec<Stream> {
    let others = ["a", "c", "uplink"];
    let there = others.map(|other| Stream::new(other, "b", vlan));
    let back = others.map(|other| Stream::new("b", other, vlan));
    there.into_iter().chain(back).collect()
}

/// Sends what the windows allow, and takes arrivals: each must be the next frame of its stream.
fn exchange(net: &mut Net, streams: &mut [Stream], is_over: bool) {
    for stream in streams.iter_mut().filter(|_| !is_over) {
        while stream.sent - stream.arrived < WINDOW {
            net.guest(stream.from).send(&stream.frame(stream.from, stream.sent));
            stream.sent += 1;
        }
    }
    for to in MEMBERS {
        for got in net.guest(to).receive() {
            let is = |stream: &&mut Stream| {
                stream.to == to && got[..12] == [stream.dst, stream.src].concat()
            };
            let stream = streams.iter_mut().find(is).expect("a frame that is for this member");
            let (from, number) = (stream.from, number(&got[got.len() - 60..]));
            assert_eq!(number, stream.arrived, "lost, repeated or overtaken: {from} to {to}");
            assert_eq!(got, stream.frame(to, number));
            stream.arrived += 1;
        }
    }
}

/// A change: its API path, the patch, and the path of `b` afterwards.
type Change = (&'static str, Value, &'static str);

/// Applies changes in turn, repeatedly, while all exchange frames.
fn change_under_traffic(tested: TestedPath, settings: Value, changes: &[Change]) {
    let vlan = settings["b"]["vlan"]["id"].as_u64().map(|vlan| vlan as u16);
    let mut net = Net::new(tested, settings);
    let mut streams = streams(vlan);
    exchange(&mut net, &mut streams, false);
    let (client, over) = (net.client(), AtomicBool::new(false));
    let change = || {
        let _over = Over(&over);
        for (path, patch, then) in changes.iter().cycle().take(MOVES) {
            client.send(Method::PATCH, path, Some(patch), None).unwrap();
            let body = client.send(Method::GET, "/v1/actual", None, None).unwrap().body;
            let mut adapters = body["actual"]["adapters"].as_array().unwrap().iter();
            let b = adapters.find(|one| one["name"] == "b").unwrap();
            assert_eq!(b["path"], *then);
        }
    };
    std::thread::scope(|scope| {
        let changer = scope.spawn(change);
        until("all changes and some frames", || {
            exchange(&mut net, &mut streams, false);
            let enough = streams.iter().all(|stream| stream.arrived > 10 * WINDOW);
            over.load(Ordering::Acquire) && enough
        });
        changer.join().unwrap();
    });
    until("the last frames to arrive", || {
        exchange(&mut net, &mut streams, true);
        streams.iter().all(|stream| stream.arrived == stream.sent)
    });
    MEMBERS.iter().for_each(|name| net.guest(name).settle());
    exchange(&mut net, &mut streams, true); // no frame is late
    for stream in &streams {
        assert!(net.dropped(stream.from).is_empty(), "{:?}", net.dropped(stream.from));
    }
    // No counter restarts.
    let sent = streams.iter().filter(|stream| stream.from == "b").map(|stream| stream.sent);
    let sent: u64 = sent.map(u64::from).sum();
    until("all to be counted", || net.host.port("n/b").tx_frames == sent);
    net.assert_connected();
}

/// Signals the end, also when a check failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Changes the path of `b` to all paths.
fn along_all_paths() -> [Change; 3] {
    PATHS.map(|path| ("/v1/adapters/b", json!({"path": path}), path))
}

#[test]
fn a_guest_moves_from_path_to_path_and_loses_nothing() {
    on_every_path(|tested| change_under_traffic(tested, json!({}), &along_all_paths()));
}

#[test]
fn a_guest_moves_in_its_vlan() {
    on_every_path(|tested| {
        let adapter = json!({"vlan": {"id": 100}});
        let settings = json!({"a": adapter, "b": adapter, "c": adapter});
        change_under_traffic(tested, settings, &along_all_paths());
    });
}

#[test]
fn all_move_when_vfs_are_disabled_and_enabled() {
    on(&["vf"], |tested| {
        let changes =
            [(0, "vmq"), (4, "vf")].map(|(n, path)| ("/v1/nics/n", json!({"num_vfs": n}), path));
        change_under_traffic(tested, json!({}), &changes);
    });
}

#[test]
fn what_its_port_enforces_moves_a_guest_and_the_wires_all() {
    on(&["vf"], |tested| {
        let rules = json!([{"action": "count"}, {"action": "deny", "ethertype": 0x86dd}]);
        let port = |name, acl, path| (name, json!({"acl": acl}), path);
        let changes = [
            port("/v1/switches/sw0/ports/b", &rules, "vmq"),
            port("/v1/switches/sw0/ports/uplink", &rules, "synthetic"),
            port("/v1/switches/sw0/ports/b", &Value::Null, "synthetic"),
            port("/v1/switches/sw0/ports/uplink", &Value::Null, "vf"),
        ];
        change_under_traffic(tested, json!({}), &changes);
    });
}

#[test]
fn settings_that_stop_no_frame_lose_none() {
    on_every_path(|tested| {
        let changes = [
            json!({"macs": ["02:00:00:00:00:77"], "tx_weight": 20}),
            json!({"spoof_check": false, "min_tx_mbps": 10}),
            json!({"trust": true, "promiscuous": true, "link_state": "enable"}),
            json!({"trunks": ["10", "20"], "macs": null, "tx_weight": null}),
            json!({"spoof_check": true, "trust": null, "promiscuous": null, "trunks": null}),
        ];
        let changes = changes.map(|patch| ("/v1/adapters/b", patch, tested.path));
        change_under_traffic(tested, json!({}), &changes);
    });
}

/// With `path = "auto"` and traffic within the server, an adapter ends up in the switch; events
/// give the reason.
#[test]
fn an_adapter_goes_where_its_traffic_suits_it_and_the_events_say_why() {
    on(&["vf"], |tested| {
        let mut net = Net::new(tested, json!({}));
        net.set("a", json!({"path": "auto"}));
        net.assert_path("a", "vf");
        let (mut sent, mut arrived) = (0, 0);
        until("the adapter to move", || {
            for _ in 0..2000 {
                while sent - arrived < WINDOW {
                    let mut long = frame(B, A, sent);
                    long.resize(700, 0);
                    net.guest("a").send(&long);
                    sent += 1;
                }
                for got in net.guest("b").receive() {
                    assert_eq!(number(&got), arrived, "lost, repeated or overtaken");
                    arrived += 1;
                }
            }
            net.actual("a")["path"] == "synthetic"
        });
        assert_eq!(net.actual("a")["reason"], "FollowsTraffic");
        let events = net.get("/v1/events");
        let events = events["events"].as_array().expect("a list of events");
        let why = events.iter().find(|event| event["kind"] == "traffic").expect("the decision");
        assert_eq!(why["subject"], "adapter a");
        let text = why["text"].as_str().unwrap_or_default();
        assert!(text.starts_with("vf -> synthetic: 0 % of its frames"), "{text}");
        net.assert_connected();
    });
}

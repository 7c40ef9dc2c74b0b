//! Three adapters on one path, their guests and the wire: the setup for testing settings.
//!
//! Adapters `a` and `b` are on the tested path, `c` on the next one, so every scenario has frames
//! between two paths. All are attached to switch `sw0` of NIC `n`.

use std::collections::BTreeMap;

use api::Method;
use api::hex::{from_hex, to_hex};
use api::trace::{FrameTrace, TraceAnswer};
use api::{Client, ClientError, Reply};
use model::config::Config;
use serde_json::{Value, json};

use crate::guest::*;
use crate::host::*;

pub(crate) const PATHS: [&str; 3] = ["vf", "vmq", "synthetic"];
pub(crate) const ADAPTERS: [&str; 3] = ["a", "b", "c"];
/// Members: the adapters' guests, and the wire.
pub(crate) const MEMBERS: [&str; 4] = ["a", "b", "c", "uplink"];

pub(crate) const A: [u8; 6] = mac_of(0);
pub(crate) const B: [u8; 6] = mac_of(1);
pub(crate) const C: [u8; 6] = mac_of(2);
/// A MAC on the wire.
pub(crate) const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
/// A MAC address without an owner, or without one yet.
pub(crate) const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
/// The VLANs of scenarios.
const VLANS: [u16; 6] = [10, 20, 21, 30, 100, 200];
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

const fn mac_of(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n + 1]
}

/// A path, and the number of lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestedPath {
    pub(crate) path: &'static str,
    pub(crate) lanes: usize,
}

impl TestedPath {
    /// Returns `true` if frames of `a` and `b` enter the NIC at a VF, and not the switch.
    pub(crate) fn is_vf(&self) -> bool {
        self.path == "vf"
    }

    /// The path of `c`.
    pub(crate) fn other(&self) -> &'static str {
        let at = PATHS.iter().position(|path| *path == self.path).unwrap();
        PATHS[(at + 1) % PATHS.len()]
    }

    /// The path of an adapter.
    fn of(&self, adapter: &str) -> &'static str {
        if adapter == "c" { self.other() } else { self.path }
    }
}

/// Runs a scenario on every path, with one lane and with two.
pub(crate) fn on_every_path(scenario: impl Fn(TestedPath)) {
    on(&PATHS, scenario);
}

/// Runs a scenario on the paths through the switch.
pub(crate) fn in_the_switch(scenario: impl Fn(TestedPath)) {
    on(&PATHS[1..], scenario);
}

/// Runs a scenario on these paths.
pub(crate) fn on(paths: &[&'static str], scenario: impl Fn(TestedPath)) {
    for path in paths {
        for lanes in [1, 2] {
            let tested = TestedPath { path, lanes };
            println!("{tested:?}"); // shown if it fails
            scenario(tested);
        }
    }
}

/// Two CPUs usable by this process; one if there is no other.
fn cpus() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let ranges = list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    });
    ranges.take(2).collect()
}

/// Frames received, in the order of [`MEMBERS`].
pub(crate) type Got = Vec<(&'static str, Vec<u8>)>;

/// A daemon with its adapters and guests.
pub(crate) struct Net {
    pub(crate) host: Host,
    pub(crate) tested: TestedPath,
    guests: BTreeMap<&'static str, Guest>,
}

impl Net {
    /// All guests are attached, and the paths in force. `settings` contains settings by name: of
    /// adapters, of the NIC (`nic`) and of the switch (`switch`).
    pub(crate) fn new(tested: TestedPath, settings: Value) -> Net {
        Net::with_guests(tested, settings, Guest::new)
    }

    /// As `new`, with guests of another kind.
    pub(crate) fn with_guests(tested: TestedPath, settings: Value, new: fn() -> Guest) -> Net {
        let mut host = Host::with(|dir| {
            let text =
                toml::to_string(&document(tested, dir.to_str().unwrap(), &settings)).unwrap();
            Config::parse("test.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
        });
        host.restart();
        let guests = MEMBERS.map(|name| {
            let mut guest = new();
            guest.connect(&host.socket(name));
            (name, guest)
        });
        let mut net = Net { host, tested, guests: guests.into() };
        ADAPTERS.iter().for_each(|name| net.assert_path(name, tested.of(name)));
        net.make_known();
        net
    }

    /// Lets the switch learn [`ELSEWHERE`] at the wire, so that frames to it are not flooded.
    fn make_known(&mut self) {
        let hello = frame(BROADCAST, ELSEWHERE, 0);
        let tagged = VLANS.iter().map(|vlan| in_vlan(&hello, *vlan));
        let all: Vec<_> = tagged.chain([hello.clone()]).collect();
        self.send_all("uplink", &all);
    }

    pub(crate) fn assert_path(&self, adapter: &str, path: &str) {
        let actual = self.actual(adapter);
        assert_eq!(
            (&actual["path"], &actual["connected"]),
            (&json!(path), &json!(true)),
            "{actual}"
        );
    }

    pub(crate) fn guest(&mut self, name: &str) -> &mut Guest {
        self.guests.get_mut(name).unwrap()
    }

    /// Removes a guest.
    pub(crate) fn drop_guest(&mut self, name: &str) {
        self.guests.remove(name);
    }

    /// A new guest on the socket of this name.
    pub(crate) fn attach(&mut self, name: &'static str) {
        let mut guest = Guest::new();
        guest.connect(&self.host.socket(name));
        self.guests.insert(name, guest);
    }

    /// Waits until all frames sent by a member are handled; arrivals meanwhile are taken.
    pub(crate) fn settle(&mut self, from: &str) {
        self.guest(from).settle();
        self.guests.values_mut().for_each(|guest| drop(guest.receive()));
    }

    /// Sends frames, and returns the receivers of each once all are handled.
    pub(crate) fn send_all(&mut self, from: &str, frames: &[Vec<u8>]) -> Got {
        let guest = self.guest(from);
        frames.iter().for_each(|frame| guest.send(frame));
        guest.settle();
        let each = self.guests.iter_mut();
        each.flat_map(|(name, guest)| guest.receive().into_iter().map(|frame| (*name, frame)))
            .collect()
    }

    pub(crate) fn send(&mut self, from: &str, frame: &[u8]) -> Got {
        self.send_all(from, &[frame.to_vec()])
    }

    /// Sends a frame that exactly these members receive, byte for byte.
    pub(crate) fn passes(&mut self, from: &str, frame: &[u8], to: &[&'static str]) {
        let to: Vec<_> = to.iter().map(|name| (*name, frame)).collect();
        self.arrives(from, frame, &to);
    }

    /// Sends a frame that exactly these members receive, with the given bytes.
    pub(crate) fn arrives(&mut self, from: &str, frame: &[u8], as_what: &[(&'static str, &[u8])]) {
        let wanted: Got = as_what.iter().map(|(name, frame)| (*name, frame.to_vec())).collect();
        let mut traced = self.trace(from, frame).deliveries;
        traced.retain(|it| MEMBERS.iter().any(|name| it.port == format!("n/{name}")));
        traced.sort_by(|a, b| a.port.cmp(&b.port));
        let traced = traced.into_iter().map(|it| (it.port, from_hex(&it.frame).unwrap()));
        let named = |(name, frame): &(&str, Vec<u8>)| (format!("n/{name}"), frame.clone());
        assert_eq!(traced.collect::<Vec<_>>(), wanted.iter().map(named).collect::<Vec<_>>());
        let got = self.send(from, frame);
        assert!(got == wanted, "{}\n{}wanted:\n{}", self.told(from), shown(&got), shown(&wanted));
    }

    /// Trace of a frame from a member.
    pub(crate) fn trace(&self, from: &str, frame: &[u8]) -> FrameTrace {
        let request = json!({"port": format!("n/{from}"), "frames": [to_hex(frame)]});
        let reply = self.request(Method::POST, "/v1/trace", Some(&request)).unwrap();
        let answer: TraceAnswer = serde_json::from_value(reply.body).unwrap();
        assert_eq!((answer.port, answer.frames.len()), (format!("n/{from}"), 1));
        answer.frames.into_iter().next().unwrap()
    }

    /// Sends a frame that is dropped, counted under `reason` only.
    pub(crate) fn drops(&mut self, from: &str, frame: &[u8], reason: &str) {
        let before = self.dropped(from);
        let traced = self.trace(from, frame);
        let counters: Vec<&str> = traced.drops.iter().map(|drop| &*drop.counter).collect();
        assert_eq!((counters, traced.deliveries.len()), (vec![reason], 0));
        assert_eq!(self.dropped(from), before, "a trace counts");
        let got = self.send(from, frame);
        assert!(got.is_empty(), "{}\n{}", self.told(from), shown(&got));
        let mut wanted = before.clone();
        *wanted.entry(reason.to_owned()).or_default() += 1;
        assert_eq!(self.dropped(from), wanted);
    }

    /// Dropped frames of a member, by reason.
    pub(crate) fn dropped(&self, member: &str) -> BTreeMap<String, u64> {
        let drops = self.host.port(&format!("n/{member}")).drops.into_iter();
        drops.filter(|(reason, _)| reason.starts_with("tx_")).collect()
    }

    fn told(&self, from: &str) -> String {
        format!(
            "{:?}: {from}, whose frames were dropped: {:?}; got:",
            self.tested,
            self.dropped(from)
        )
    }

    /// Drop reason for frames of `a` and `b`: at a VF, and in the switch.
    pub(crate) fn reason(&self, at_vf: &'static str, in_switch: &'static str) -> &'static str {
        if self.tested.is_vf() { at_vf } else { in_switch }
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, ClientError> {
        self.client().send(method, path, body, None)
    }

    pub(crate) fn client(&self) -> Client {
        self.host.client()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.request(Method::GET, path, None).unwrap().body
    }

    pub(crate) fn patch(&self, path: &str, patch: Value) {
        let done = self.request(Method::PATCH, path, Some(&patch));
        done.unwrap_or_else(|error| panic!("{path} {patch}: {error}"));
    }

    /// Changes an adapter.
    pub(crate) fn set(&self, adapter: &str, patch: Value) {
        self.patch(&format!("/v1/adapters/{adapter}"), patch);
    }

    /// An adapter in force.
    pub(crate) fn actual(&self, adapter: &str) -> Value {
        let actual = &self.get("/v1/actual")["actual"];
        let mut adapters = actual["adapters"].as_array().unwrap().iter();
        adapters.find(|one| one["name"] == adapter).expect("an adapter of this name").clone()
    }

    /// Returns `true` if every guest still has its first connection: the daemon answers on it.
    pub(crate) fn assert_connected(&mut self) {
        for (name, guest) in &mut self.guests {
            guest.frontend().enable_ring(RX, true).unwrap();
            let begun = format!("n/{name}: front-end connected");
            assert_eq!(self.host.log.count(&begun), 1, "{name} did not reconnect");
        }
    }
}

/// First bytes of frames, each with its receivers.
fn shown(got: &Got) -> String {
    let line = |(to, frame): &(_, Vec<u8>)| {
        let head: String = frame.iter().take(26).map(|byte| format!("{byte:02x}")).collect();
        format!("{to}: {head} ({} bytes)\n", frame.len())
    };
    got.iter().map(line).collect()
}

/// The daemon's configuration as a tree.
fn document(tested: TestedPath, dir: &str, settings: &Value) -> Value {
    let mut lanes = json!({"poll_us": 20, "yield_us": 20});
    if tested.lanes == 2 {
        lanes["cpus"] = json!(cpus());
    }
    let uplink = json!({"kind": "vhost-user", "socket": "uplink"});
    let mut nic = json!({"name": "n", "kind": "soft", "total_vfs": 4, "uplink": uplink});
    merge(&mut nic, &settings["nic"]);
    let mut switch = json!({"name": "sw0", "nic": "n", "iov": true});
    merge(&mut switch, &settings["switch"]);
    let adapters = ADAPTERS.map(|name| {
        let mut adapter = adapter(name, tested.of(name), dir);
        merge(&mut adapter, &settings[name]);
        adapter
    });
    json!({"run_dir": dir, "lanes": lanes, "nic": [nic], "switch": [switch], "adapter": adapters})
}

/// Adapter `a`, `b` or `c` with default settings.
pub(crate) fn adapter(name: &str, path: &str, dir: &str) -> Value {
    let number = name.as_bytes()[0] - b'a' + 1;
    json!({
        "name": name, "switch": "sw0", "path": path, "iov_weight": 100,
        "mac": format!("02:00:00:00:00:{number:02x}"),
        "attachment": {"socket": format!("{dir}/{name}")},
    })
}

fn merge(base: &mut Value, more: &Value) {
    let more = more.as_object().into_iter().flatten();
    base.as_object_mut().unwrap().extend(more.map(|(field, value)| (field.clone(), value.clone())));
}

/// The frame with a tag after its addresses.
pub(crate) fn tagged(frame: &[u8], protocol: u16, qos: u8, vlan: u16) -> Vec<u8> {
    let tag = [protocol.to_be_bytes(), (u16::from(qos) << 13 | vlan).to_be_bytes()].concat();
    [&frame[..12], &tag[..], &frame[12..]].concat()
}

/// The frame with an 802.1Q tag.
pub(crate) fn in_vlan(frame: &[u8], vlan: u16) -> Vec<u8> {
    tagged(frame, 0x8100, 0, vlan)
}

//! A data plane of nothing but the policy, and an API that is served before it; for tests.

#![expect(missing_docs, reason = "tests read them, and the names say it")]

mod local_server;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Method;
use model::config::socket_path;
use model::state::{
    Actual, ActualAdapter, ActualNic, Allocation, Facts, Nic, Reason, State, allocate,
};
use serde_json::{Value, json};

pub use self::local_server::LocalServer;
use crate::compile::{LiveLinks, compile};
use crate::guests;
use crate::plane::{ParkedCounters, Plane, PlaneError, TakenFrames};
use crate::store::Directory;
use crate::{
    Client, ClientError, ErrorReply, EventKind, Events, Listen, Manager, Reply, Server, Tcp, stats,
};

/// A data plane of nothing but the policy.
#[derive(Debug, Default)]
pub struct Paper {
    pub actual: Actual,
    /// Next error of the data plane.
    pub refuses: Option<PlaneError>,
    /// VFs passed to `recall`.
    pub held: BTreeMap<String, u16>,
    /// States it was brought to.
    pub reached: Vec<State>,
    /// Number of calls of `retry`.
    pub retries: usize,
    /// Frames that it keeps, by adapter.
    pub kept: BTreeMap<String, Vec<Vec<u8>>>,
    /// Frames that it had no room to keep, by adapter.
    pub lost: BTreeMap<String, u64>,
    /// Number of leading frames that came from the other host.
    pub brought: BTreeMap<String, usize>,
    /// Adapters that it announced.
    pub announced: Vec<String>,
    /// List for events that no call causes.
    pub events: Events,
}

impl Paper {
    /// Attaches the guest of an adapter, or detaches it.
    pub fn set_connected(&mut self, name: &str, connected: bool) {
        let adapters = self.actual.adapters.iter_mut();
        for one in adapters.filter(|one| one.name == name && one.connected != connected) {
            one.connected = connected;
            let (subject, text) = (format!("adapter {name}"), ["left", "attached"]);
            let text = text[usize::from(connected)].to_owned();
            self.events.caused(EventKind::Guest, subject, text, Instant::now());
        }
    }
}

impl Plane for Paper {
    fn recall(&mut self, held: BTreeMap<String, u16>) {
        self.held = held;
    }

    fn record_in(&mut self, events: Events) {
        self.events = events;
    }

    fn reconcile(&mut self, _from: &State, to: &State) -> Result<Actual, PlaneError> {
        if let Some(refused) = self.refuses.take() {
            return Err(refused);
        }
        let mut facts = Facts::of(&self.actual);
        facts.vfs.append(&mut self.held);
        let given = allocate(to, &facts);
        compile(to, &given, &LiveLinks::default(), None).map_err(PlaneError)?;
        self.reached.push(to.clone());
        let nic = |nic: &Nic| ActualNic {
            name: nic.name.clone(),
            support: Reason::Supported,
            total_vfs: nic.total_vfs,
            vfs: Vec::new(),
            uplink: None,
            pf: None,
            representors: Vec::new(),
            card: None,
        };
        // A change leaves who is connected alone.
        let before = std::mem::take(&mut self.actual.adapters);
        let is_connected = |name: &str| before.iter().any(|one| one.name == name && one.connected);
        let adapter = |one: Allocation| {
            let connected = is_connected(&one.adapter);
            ActualAdapter::of(one, connected)
        };
        self.actual = Actual {
            nics: to.nics.iter().map(nic).collect(),
            adapters: given.into_iter().map(adapter).collect(),
            tunnels: Vec::new(),
        };
        Ok(self.actual.clone())
    }

    fn retry(&mut self) {
        self.retries += 1;
    }

    fn actual(&self) -> Actual {
        self.actual.clone()
    }

    fn take_parked(&mut self, adapter: &str) -> TakenFrames {
        let brought = self.brought.remove(adapter).unwrap_or_default();
        TakenFrames { frames: self.kept.remove(adapter).unwrap_or_default(), brought }
    }

    fn put_parked(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        let brought = self.brought.entry(adapter.to_owned()).or_default();
        let before = *brought;
        *brought += frames.len();
        self.kept.entry(adapter.to_owned()).or_default().splice(before..before, frames);
    }

    fn parked(&self, adapter: &str) -> ParkedCounters {
        let frames = self.kept.get(adapter).map_or(0, Vec::len) as u64;
        let lost = self.lost.get(adapter).copied().unwrap_or_default();
        ParkedCounters { frames, lost, sent: 1, ..ParkedCounters::default() }
    }

    fn announce(&mut self, adapter: &str) -> usize {
        self.announced.push(adapter.to_owned());
        1
    }
}

/// A data plane that the test can look into.
#[derive(Clone, Default)]
pub struct Shared(pub Arc<Mutex<Paper>>);

impl Plane for Shared {
    fn recall(&mut self, held: BTreeMap<String, u16>) {
        self.0.lock().unwrap().recall(held);
    }

    fn record_in(&mut self, events: Events) {
        self.0.lock().unwrap().record_in(events);
    }

    fn reconcile(&mut self, from: &State, to: &State) -> Result<Actual, PlaneError> {
        self.0.lock().unwrap().reconcile(from, to)
    }

    fn retry(&mut self) {
        self.0.lock().unwrap().retry();
    }

    fn actual(&self) -> Actual {
        self.0.lock().unwrap().actual()
    }

    fn take_parked(&mut self, adapter: &str) -> TakenFrames {
        self.0.lock().unwrap().take_parked(adapter)
    }

    fn put_parked(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        self.0.lock().unwrap().put_parked(adapter, frames);
    }

    fn parked(&self, adapter: &str) -> ParkedCounters {
        self.0.lock().unwrap().parked(adapter)
    }

    fn announce(&mut self, adapter: &str) -> usize {
        self.0.lock().unwrap().announce(adapter)
    }
}

/// A served API with a state directory of its own.
pub struct Site {
    pub dir: tempfile::TempDir,
    pub plane: Shared,
    pub server: Option<Server>,
}

impl Site {
    #[expect(clippy::new_without_default, reason = "it starts a server")]
    pub fn new() -> Site {
        Site::with_tcp(None)
    }

    pub fn with_tcp(tcp: Option<Tcp>) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let mut site = Site { dir, plane: Shared::default(), server: None };
        site.start(tcp);
        site
    }

    /// Starts the daemon's part of it, on a data plane where nothing is in force.
    pub fn start(&mut self, tcp: Option<Tcp>) {
        self.server = None;
        self.plane = Shared::default();
        let manager = self.manager().unwrap();
        let listen = Listen { socket: self.socket(), tcp };
        self.server = Some(Server::start(manager, &listen).unwrap());
    }

    pub fn manager(&self) -> anyhow::Result<Manager> {
        let directory = Directory::open(&self.dir.path().join("state"))?;
        let stats = || anyhow::Ok(stats::of(Vec::new()));
        Manager::open(directory, None, Box::new(self.plane.clone()), Box::new(stats))
    }

    pub fn socket(&self) -> PathBuf {
        socket_path(self.dir.path())
    }

    pub fn send(&self, method: &str, path: &str, body: Value) -> Result<Reply, ClientError> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let body = (!body.is_null()).then_some(&body);
        Client::new(&self.socket()).send(method, path, body, None)
    }

    pub fn get(&self, path: &str) -> Value {
        self.send("GET", path, Value::Null).unwrap().body
    }

    pub fn does(&self, method: &str, path: &str, body: Value) -> Reply {
        self.send(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// A request that is to be refused with that status.
    pub fn refuses(&self, status: u16, method: &str, path: &str, body: Value) -> ErrorReply {
        match self.send(method, path, body) {
            Err(ClientError::Refused(refusal)) => {
                assert_eq!(refusal.status, status, "{method} {path}: {refusal:?}");
                *refusal
            }
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    /// Sends bytes as they are, and gives everything that comes back.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let stream = UnixStream::connect(self.socket()).unwrap();
        exchange(stream, bytes)
    }

    /// Serves connections in the caller's thread, beside the server's.
    pub fn local_server(&self) -> LocalServer {
        LocalServer::new(self.server.as_ref().unwrap().manager().clone())
    }

    /// Responses to what a guest writes to the channel of its virtual PF, in pieces of `piece`
    /// bytes; without limits of rate.
    pub fn guest(&self, vpf: &str, bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let manager = self.server.as_ref().unwrap().manager();
        let mut manager = manager.lock().unwrap();
        guests::respond(bytes, piece, |request| manager.answer_guest(vpf, request))
    }

    pub fn apply(&self, document: Value) -> Reply {
        self.does("POST", "/v1/apply", document)
    }
}

pub fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> String {
    // A server that has said no may stop reading.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request as text, after which the server closes.
pub fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: shunt\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

/// Waits for what comes soon.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_in(Duration::from_secs(2), what, holds);
}

/// Waits for what comes within some time.
pub fn eventually_in(most: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + most;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {most:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn null() -> Value {
    json!(null)
}

/// A NIC with three adapters: a virtual PF and two VFs of it, which the guest may set within
/// limits.
pub fn granted() -> Value {
    let adapter = |i: u8| {
        json!({
            "name": format!("a{i}"), "nic": "nic0", "mac": format!("02:00:00:00:01:0{i}"),
            "iov_weight": 100, "attachment": {"socket": format!("/run/shunt/a{i}.sock")},
            "max_tx_mbps": 500,
        })
    };
    let settings = ["mac", "vlan", "rate", "spoof_check", "trust", "link_state"];
    json!({
        "version": 1,
        "nic": [{"name": "nic0", "total_vfs": 4, "num_vfs": 4}],
        "adapter": [adapter(0), adapter(1), adapter(2)],
        "vpf": [{
            "name": "vm", "pf": "a0", "vf": [{"adapter": "a1"}, {"adapter": "a2"}],
            "control": {
                "socket": "/run/shunt/vm.ctl", "settings": settings, "mac_prefixes": ["52:54:00"],
                "vlans": ["100-199"], "max_tx_mbps": 400, "min_tx_mbps": 10,
            },
        }],
    })
}

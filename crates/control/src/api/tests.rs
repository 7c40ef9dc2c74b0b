//! The API over real sockets.

mod changes;
mod document;
mod guests;
mod life;
mod limits;
mod listen;
mod moves;
mod parts;
mod people;
mod reading;
mod tls;
mod upgrade;
mod whole;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Method;
use model::config::socket_path;
use model::state::{Actual, State};
use serde_json::{Value, json};

use super::{Client, ClientError, Events, Listen, Manager, Refusal, Reply, Server, Tcp};
use crate::plane::tests::Paper;
use crate::plane::{Kept, Plane, Refused, Taken};
use crate::stats;
use crate::store::Directory;

/// A data plane that the test can look into.
#[derive(Clone, Default)]
pub(crate) struct Shared(pub(crate) Arc<Mutex<Paper>>);

impl Plane for Shared {
    fn recall(&mut self, held: BTreeMap<String, u16>) {
        self.0.lock().unwrap().recall(held);
    }

    fn record_in(&mut self, events: Events) {
        self.0.lock().unwrap().record_in(events);
    }

    fn reconcile(&mut self, from: &State, to: &State) -> Result<Actual, Refused> {
        self.0.lock().unwrap().reconcile(from, to)
    }

    fn actual(&self) -> Actual {
        self.0.lock().unwrap().actual()
    }

    fn take_kept(&mut self, adapter: &str) -> Taken {
        self.0.lock().unwrap().take_kept(adapter)
    }

    fn put_kept(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        self.0.lock().unwrap().put_kept(adapter, frames);
    }

    fn kept(&self, adapter: &str) -> Kept {
        self.0.lock().unwrap().kept(adapter)
    }

    fn announce(&mut self, adapter: &str) -> usize {
        self.0.lock().unwrap().announce(adapter)
    }
}

/// A served API with a state directory of its own.
pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) plane: Shared,
    pub(crate) server: Option<Server>,
}

impl Site {
    pub(crate) fn new() -> Site {
        Site::with_tcp(None)
    }

    pub(crate) fn with_tcp(tcp: Option<Tcp>) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let mut site = Site { dir, plane: Shared::default(), server: None };
        site.start(tcp);
        site
    }

    /// Starts the daemon's part of it, on a data plane where nothing is in force.
    pub(crate) fn start(&mut self, tcp: Option<Tcp>) {
        self.server = None;
        self.plane = Shared::default();
        let manager = self.manager().unwrap();
        let listen = Listen { socket: self.socket(), tcp };
        self.server = Some(Server::start(manager, &listen).unwrap());
    }

    pub(crate) fn manager(&self) -> anyhow::Result<Manager> {
        let directory = Directory::open(&self.dir.path().join("state"))?;
        let stats = || anyhow::Ok(stats::of(Vec::new()));
        Manager::open(directory, Box::new(self.plane.clone()), Box::new(stats))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket_path(self.dir.path())
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: Value) -> Result<Reply, ClientError> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let body = (!body.is_null()).then_some(&body);
        Client::new(&self.socket()).send(method, path, body, None)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.send("GET", path, Value::Null).unwrap().body
    }

    pub(crate) fn does(&self, method: &str, path: &str, body: Value) -> Reply {
        self.send(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// A request that is to be refused with that status.
    pub(crate) fn refuses(&self, status: u16, method: &str, path: &str, body: Value) -> Refusal {
        match self.send(method, path, body) {
            Err(ClientError::Refused(refusal)) => {
                assert_eq!(refusal.status, status, "{method} {path}: {refusal:?}");
                *refusal
            }
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    /// Sends bytes as they are, and gives everything that comes back.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let stream = UnixStream::connect(self.socket()).unwrap();
        exchange(stream, bytes)
    }

    pub(crate) fn apply(&self, document: Value) -> Reply {
        self.does("POST", "/v1/apply", document)
    }
}

pub(crate) fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> String {
    // A server that has said no may stop reading.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request as text, after which the server closes.
pub(crate) fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

/// Waits for what comes soon.
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_in(Duration::from_secs(2), what, holds);
}

/// Waits for what comes within some time.
pub(crate) fn eventually_in(most: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + most;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {most:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn null() -> Value {
    json!(null)
}

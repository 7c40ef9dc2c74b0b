//! Documents for the tests of this crate, and what is tried on them.

mod allocation;
mod form;
mod meaning;
mod plans;
mod switchdev;

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::{
    Actual, ActualAdapter, ActualNic, Allocation, Facts, Kept, Plane, Reason, Refused, State,
    Taken, allocate,
};
use crate::api::{EventKind, Events};

/// A NIC with four VFs, three of them enabled, an iov switch on it, and two adapters there.
pub(crate) fn document() -> Value {
    json!({
        "version": 1,
        "nic": [{
            "name": "nic0", "total_vfs": 4, "num_vfs": 3,
            "uplink": {"socket": "/run/shunt/wire.sock"},
            "vf": [{"index": 0, "mac": "02:00:00:00:00:f0", "vlan": {"id": 9}, "trust": true}],
        }],
        "switch": [{
            "name": "sw0", "nic": "nic0", "iov": true,
            "port": [{"adapter": "db", "dhcp_guard": true, "acl": [
                {"action": "deny", "protocol": 17, "to_port": "67-68"},
            ]}],
            "static": [{"mac": "02:00:00:00:00:0a", "port": "uplink"}],
        }],
        "adapter": [adapter("web", 1, 50), adapter("db", 2, 0)],
    })
}

/// An adapter on `sw0` with this last byte of its address and this weight.
pub(crate) fn adapter(name: &str, byte: u8, iov_weight: u8) -> Value {
    json!({
        "name": name, "switch": "sw0", "mac": format!("02:00:00:00:01:{byte:02x}"),
        "iov_weight": iov_weight, "attachment": {"socket": format!("/run/shunt/{name}.sock")},
    })
}

pub(crate) fn state(document: &Value) -> State {
    State::parse(document).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The document with the value at a JSON pointer replaced, or put there; null takes it away.
pub(crate) fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    match document.pointer_mut(parent).expect("a parent") {
        Value::Object(fields) if value.is_null() => drop(fields.remove(name)),
        Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
        Value::Array(items) if name == "-" => items.push(value),
        other => panic!("{parent} is {other}"),
    }
    document
}

/// A data plane of nothing but the policy.
#[derive(Debug, Default)]
pub(crate) struct Paper {
    pub(crate) actual: Actual,
    /// What it refuses next.
    pub(crate) refuses: Option<Refused>,
    /// What it was told of who had which VF.
    pub(crate) held: BTreeMap<String, u16>,
    /// States it was brought to.
    pub(crate) reached: Vec<State>,
    /// Frames that it keeps, by adapter.
    pub(crate) kept: BTreeMap<String, Vec<Vec<u8>>>,
    /// Frames that it had no room to keep, by adapter.
    pub(crate) lost: BTreeMap<String, u64>,
    /// How many of them were brought.
    pub(crate) brought: BTreeMap<String, usize>,
    /// Adapters that it announced.
    pub(crate) announced: Vec<String>,
    /// List for events that no call causes.
    pub(crate) events: Events,
}

impl Paper {
    /// Attaches the guest of an adapter, or detaches it.
    pub(crate) fn set_connected(&mut self, name: &str, connected: bool) {
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

    fn reconcile(&mut self, _from: &State, to: &State) -> Result<Actual, Refused> {
        if let Some(refused) = self.refuses.take() {
            return Err(refused);
        }
        self.reached.push(to.clone());
        let mut facts = Facts::of(&self.actual);
        facts.vfs.append(&mut self.held);
        let given = allocate(to, &facts);
        let nic = |nic: &super::Nic| ActualNic {
            name: nic.name.clone(),
            support: Reason::Supported,
            total_vfs: nic.total_vfs,
            vfs: Vec::new(),
            uplink: None,
            pf: None,
            representors: Vec::new(),
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

    fn actual(&self) -> Actual {
        self.actual.clone()
    }

    fn take_kept(&mut self, adapter: &str) -> Taken {
        let brought = self.brought.remove(adapter).unwrap_or_default();
        Taken { frames: self.kept.remove(adapter).unwrap_or_default(), brought }
    }

    fn put_kept(&mut self, adapter: &str, frames: Vec<Vec<u8>>) {
        let brought = self.brought.entry(adapter.to_owned()).or_default();
        let before = *brought;
        *brought += frames.len();
        self.kept.entry(adapter.to_owned()).or_default().splice(before..before, frames);
    }

    fn kept(&self, adapter: &str) -> Kept {
        let frames = self.kept.get(adapter).map_or(0, Vec::len) as u64;
        let lost = self.lost.get(adapter).copied().unwrap_or_default();
        Kept { frames, lost, sent: 1, ..Kept::default() }
    }

    fn announce(&mut self, adapter: &str) -> usize {
        self.announced.push(adapter.to_owned());
        1
    }
}

//! A data plane for tests.

use std::collections::BTreeMap;
use std::time::Instant;

use model::state::{
    Actual, ActualAdapter, ActualNic, Allocation, Facts, Nic, Reason, State, allocate,
};

use super::{Kept, Plane, Refused, Taken};
use crate::api::{EventKind, Events};

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
        let nic = |nic: &Nic| ActualNic {
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

//! Taps of guests in other network namespaces, which outlive the daemon.
//!
//! # Purpose
//! An interface that vanishes with the daemon takes with it the addresses, routes and connections
//! of the container that has it. So a guest's tap with a namespace is persistent: the next daemon
//! opens it by name.
//!
//! # Ownership
//! Each such tap has a mark (its alias, shown by `ip link`) with the daemon's run directory. Only
//! an interface with the mark is changed or deleted. The mark alone does not find a tap whose
//! adapter was removed from the document while no daemon ran. So a file in the run directory
//! records every tap before it is created, with its addresses and gateways, until it is deleted.
//!
//! # Limits
//! The root of a container may do anything to interfaces of its namespace. A tap that it renames is
//! not found, and stays until its namespace ends. A tap is not found either while its namespace has
//! no name: it stays recorded, and a later change or start deletes it. At most [`REPLACED_MAX`]
//! such records are kept.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, mem};

use host::links::Links;
use host::netns;
use model::state::{InterfaceAddress, Tap};

/// Most records of taps that the document no longer has.
const REPLACED_MAX: usize = 1024;

/// The persistent taps of this daemon and of those before it.
#[derive(Debug)]
pub(super) struct KeptTaps {
    path: PathBuf,
    mark: String,
    /// Taps of the document.
    wanted: Vec<Tap>,
    /// Former taps, or with former settings, which are still there.
    replaced: Vec<Tap>,
    /// Those of them that cannot be changed, which has been logged.
    logged: Vec<Tap>,
}

impl KeptTaps {
    /// Taps that are recorded in the run directory.
    pub(super) fn new(run_dir: &Path) -> KeptTaps {
        let path = run_dir.join("taps.json");
        let recorded = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let replaced = recorded.unwrap_or_default();
        let mark = format!("shunt:{}", run_dir.display());
        KeptTaps { path, mark, wanted: Vec::new(), replaced, logged: Vec::new() }
    }

    /// Mark of the daemon's taps.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Records the taps of the document, which are about to be created.
    pub(super) fn record(&mut self, taps: Vec<Tap>) {
        let before = self.recorded();
        self.replaced.append(&mut self.wanted);
        self.replaced.retain(|tap| !taps.contains(tap));
        self.wanted = taps;
        self.write(&before);
    }

    /// Recorded addresses and gateways that a tap shall not have.
    pub(super) fn removed(&self, tap: &Tap) -> (Vec<InterfaceAddress>, Vec<IpAddr>) {
        let same = |before: &&Tap| before.interface == tap.interface && key(before) == key(tap);
        let before: Vec<&Tap> = self.replaced.iter().filter(same).collect();
        let addresses = before.iter().flat_map(|before| &before.ip);
        let gateways = before.iter().flat_map(|before| &before.gateway);
        (
            addresses.filter(|address| !tap.ip.contains(address)).copied().collect(),
            gateways.filter(|gateway| !tap.gateway.contains(gateway)).copied().collect(),
        )
    }

    /// Deletes all recorded taps but these, which have been opened or will be.
    pub(super) fn retain(&mut self, taps: Vec<Tap>) {
        self.record(taps);
        self.delete_replaced();
        let before = self.recorded();
        let wanted = self.existing();
        // Its opener has removed what a tap shall not have.
        self.replaced.retain(|tap| !wanted.contains(&key(tap)));
        self.write(&before);
    }

    /// Deletes recorded taps whose interface the document no longer has.
    pub(super) fn delete_replaced(&mut self) {
        if self.replaced.is_empty() {
            return;
        }
        let before = self.recorded();
        let wanted = self.existing();
        let mut failed = Vec::new();
        let mut replaced = mem::take(&mut self.replaced);
        replaced.retain(|tap| {
            if wanted.contains(&key(tap)) {
                return true;
            }
            let deleted = netns::within(tap.netns.as_deref(), || {
                Links::open()?.remove_marked(&tap.interface, &self.mark)
            });
            let deleted = deleted.map_err(anyhow::Error::from).and_then(|it| Ok(it?));
            let Err(error) = deleted else { return false };
            if !self.logged.contains(tap) {
                let name = &tap.interface;
                tracing::warn!("tap {name} stays as it is until a later change: {error:#}");
            }
            failed.push(tap.clone());
            true
        });
        replaced.drain(..replaced.len().saturating_sub(REPLACED_MAX));
        self.logged = failed;
        self.replaced = replaced;
        self.write(&before);
    }

    /// Taps of the document in namespaces that exist.
    fn existing(&self) -> BTreeSet<(String, netns::Identity)> {
        let keys = self.wanted.iter().map(key);
        keys.filter(|key| matches!(key.1, netns::Identity::Existing(..))).collect()
    }

    /// All recorded taps, as in the file. A tap that changes has two entries meanwhile.
    fn recorded(&self) -> Vec<Tap> {
        [&self.wanted[..], &self.replaced].concat()
    }

    /// Writes the file, unless it has these taps already.
    fn write(&self, before: &[Tap]) {
        let taps = self.recorded();
        if before == taps {
            return;
        }
        let new = self.path.with_extension("new");
        let bytes = serde_json::to_vec(&taps).expect("names and addresses");
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = written {
            let shown = self.path.display();
            tracing::warn!(
                "cannot write {shown}: {error}; taps of adapters that are removed while no daemon \
                 runs will stay"
            );
        }
    }
}

/// Identity of a tap: its name, and its namespace, whatever that is called.
fn key(tap: &Tap) -> (String, netns::Identity) {
    (tap.interface.clone(), netns::identity(tap.netns.as_deref()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tap(netns: &str, ip: &[&str]) -> Tap {
        let interface = json!({"interface": "net0", "netns": netns, "ip": ip});
        serde_json::from_value(interface).unwrap()
    }

    #[test]
    fn taps_are_recorded_until_they_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let mine = format!("/proc/{}/ns/net", std::process::id());
        let [web, db] = [&*mine, "/proc/self/ns/net"].map(|netns| tap(netns, &["10.0.0.1/24"]));
        let mut kept = KeptTaps::new(dir.path());
        assert_eq!(kept.mark(), format!("shunt:{}", dir.path().display()));
        kept.record(vec![web.clone()]);
        let mut again = KeptTaps::new(dir.path());
        assert_eq!(again.replaced, std::slice::from_ref(&web), "what a killed daemon knew");
        let changed = tap("/proc/self/ns/net", &["10.0.0.2/24"]);
        again.record(vec![changed.clone()]);
        assert_eq!(KeptTaps::new(dir.path()).replaced, [changed.clone(), web]);
        assert_eq!(
            again.removed(&changed),
            (db.ip.clone(), Vec::new()),
            "one namespace, two names"
        );
        assert_eq!(again.removed(&db), (Vec::new(), Vec::new()));
        again.retain(vec![changed.clone()]);
        assert_eq!(KeptTaps::new(dir.path()).replaced, [changed]);
        fs::write(dir.path().join("taps.json"), "[{").unwrap();
        assert_eq!(KeptTaps::new(dir.path()).replaced, [], "damaged");
    }

    #[test]
    fn a_tap_stays_recorded_while_its_namespace_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..REPLACED_MAX + 3).map(|i| format!("/nowhere/{i}")).collect();
        let taps: Vec<Tap> = names.iter().map(|netns| tap(netns, &["10.0.0.1/24"])).collect();
        let mut kept = KeptTaps::new(dir.path());
        kept.record(taps.clone());
        let changed = tap("/nowhere/5", &["10.0.0.2/24"]);
        kept.retain(vec![changed.clone()]);
        let mut again = KeptTaps::new(dir.path());
        assert_eq!(again.replaced, [std::slice::from_ref(&changed), &taps[3..]].concat());
        again.record(vec![changed.clone()]);
        assert_eq!(again.removed(&changed), (taps[5].ip.clone(), Vec::new()));
    }
}

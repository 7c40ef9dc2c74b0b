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
//! not found, and stays until its namespace ends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use host::interface::InterfaceError;
use host::links::{LinkAddress, LinkError, Links};
use host::netns::{self, NetnsError};
use model::state::{Attachment, InterfaceAddress, Tap};

/// The persistent taps of this daemon and of those before it.
#[derive(Debug)]
pub(super) struct KeptTaps {
    path: PathBuf,
    mark: String,
    /// As in the file. A tap that changes has two entries meanwhile.
    recorded: Vec<Tap>,
}

impl KeptTaps {
    /// Taps that are recorded in the run directory.
    pub(super) fn new(run_dir: &Path) -> KeptTaps {
        let path = run_dir.join("taps.json");
        let recorded = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let recorded = recorded.unwrap_or_default();
        KeptTaps { path, mark: format!("shunt:{}", run_dir.display()), recorded }
    }

    /// Mark of the daemon's taps.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Records taps that are about to be created.
    pub(super) fn add(&mut self, taps: &[Tap]) {
        let mut all = self.recorded.clone();
        all.extend(taps.iter().filter(|tap| !self.recorded.contains(tap)).cloned());
        self.record(all);
    }

    /// Removes recorded addresses and gateways that a tap shall not have, before it gets its own.
    pub(super) fn trim(&self, tap: &Tap) {
        for before in self.recorded.iter().filter(|before| is_same(before, tap)) {
            let gateways = before.gateway.iter().filter(|it| !tap.gateway.contains(it));
            let addresses = before.ip.iter().filter(|it| !tap.ip.contains(it));
            if gateways.clone().next().is_none() && addresses.clone().next().is_none() {
                continue;
            }
            self.change(tap, |links, mark| {
                if !links.has_mark(&tap.interface, mark) {
                    return Ok(());
                }
                for gateway in gateways {
                    links.remove_gateway(&tap.interface, *gateway)?;
                }
                for address in addresses {
                    links.remove_address(&tap.interface, link_address(*address))?;
                }
                Ok(())
            });
        }
    }

    /// Deletes all recorded taps but these, and removes what these shall not have.
    pub(super) fn retain(&mut self, taps: &[Tap]) {
        for before in &self.recorded {
            if !taps.iter().any(|tap| is_same(before, tap)) {
                self.change(before, |links, mark| {
                    links.remove_marked(&before.interface, mark).map(drop)
                });
            }
        }
        taps.iter().for_each(|tap| self.trim(tap));
        self.record(taps.to_vec());
    }

    /// Changes an interface of the namespace; logs a failure. A namespace that is gone has no
    /// interface to change.
    fn change(&self, tap: &Tap, work: impl FnOnce(&mut Links, &str) -> Result<(), LinkError>) {
        let changed = netns::within(netns_of(tap).as_deref(), Links::open)
            .map_err(InterfaceError::from)
            .map_err(anyhow::Error::from)
            .and_then(|links| Ok(work(&mut links?, &self.mark)?));
        match changed {
            Err(error) if !is_gone(&error) => {
                tracing::warn!("tap {} stays as it is: {error:#}", tap.interface);
            }
            _ => {}
        }
    }

    fn record(&mut self, taps: Vec<Tap>) {
        if self.recorded == taps {
            return;
        }
        let new = self.path.with_extension("new");
        let bytes = serde_json::to_vec(&taps).expect("names and addresses");
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = written {
            let shown = self.path.display();
            tracing::warn!(
                "cannot write {shown}: {error}; taps of adapters that are removed while no daemon runs will stay"
            );
        }
        self.recorded = taps;
    }
}

/// `true` if both are the same interface. A namespace may have several names: then its inode
/// decides.
fn is_same(one: &Tap, other: &Tap) -> bool {
    let (of_one, of_other) = (netns_of(one), netns_of(other));
    let identity = |path: &Option<String>| {
        let file = fs::metadata(path.as_deref()?).ok()?;
        Some((file.dev(), file.ino()))
    };
    one.interface == other.interface
        && (of_one == of_other
            || identity(&of_one).is_some_and(|one| identity(&of_other) == Some(one)))
}

/// Path of the namespace.
fn netns_of(tap: &Tap) -> Option<String> {
    let attachment = Attachment::Tap(tap.clone());
    attachment.interface().and_then(|(_, netns)| netns)
}

/// `true` if the namespace is missing.
fn is_gone(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(InterfaceError::Netns(NetnsError::Open { source, .. }))
            if source.kind() == std::io::ErrorKind::NotFound
    )
}

/// An address of the document for the kernel.
pub(super) fn link_address(address: InterfaceAddress) -> LinkAddress {
    LinkAddress { ip: address.address, prefix_len: address.length }
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
        let [web, db] = ["/nowhere/web", "/nowhere/db"].map(|netns| tap(netns, &["10.0.0.1/24"]));
        let mut kept = KeptTaps::new(dir.path());
        assert_eq!(kept.mark(), format!("shunt:{}", dir.path().display()));
        kept.add(&[web.clone(), db.clone()]);
        let changed = tap("/nowhere/db", &["10.0.0.2/24"]);
        kept.add(std::slice::from_ref(&changed));
        let mut again = KeptTaps::new(dir.path());
        assert_eq!(again.recorded, [web, db, changed.clone()], "what a killed daemon knew");
        again.retain(std::slice::from_ref(&changed));
        assert_eq!(KeptTaps::new(dir.path()).recorded, [changed]);
        fs::write(dir.path().join("taps.json"), "[{").unwrap();
        assert_eq!(KeptTaps::new(dir.path()).recorded, [], "damaged");
    }

    #[test]
    fn a_namespace_by_name_is_that_by_path() {
        assert!(is_same(&tap("web", &[]), &tap("/run/netns/web", &["10.0.0.1/24"])));
        assert!(!is_same(&tap("web", &[]), &tap("db", &[])));
        let mine = format!("/proc/{}/ns/net", std::process::id());
        let [mine, same, mount] =
            [&mine, "/proc/self/ns/net", "/proc/self/ns/mnt"].map(|path| tap(path, &[]));
        assert!(is_same(&mine, &same), "one namespace, two paths");
        assert!(!is_same(&mine, &mount));
    }
}

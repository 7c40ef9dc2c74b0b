//! The right of a run to change a NIC, and the NIC's document from before.
//!
//! The file `conform-nic-NAME.lock` in the run directory is locked during the run, and has that
//! document before the first change. If the run is killed, the next one for the NIC restores it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use api::Method;
use serde_json::{Value, json};

use crate::lock::lock_file;
use crate::request::{ask, get};

/// A NIC that a run has for itself.
#[derive(Debug)]
pub(super) struct Claim {
    run_dir: PathBuf,
    /// Path of the NIC in the API.
    pub(super) path: String,
    lock: PathBuf,
    locked: File,
    /// Document of the NIC before the run.
    pub(super) before: Value,
    /// Set once the NIC may have been changed.
    is_changed: bool,
}

impl Claim {
    /// Takes a NIC of kind `pci`, after restoring it if a run was killed.
    ///
    /// # Errors
    /// There is no such NIC, it has users, or another run has it.
    pub(super) fn new(run_dir: &Path, nic: &str) -> Result<Claim> {
        let path = format!("/v1/nics/{nic}");
        let before = get(run_dir, &path)?; // no daemon: said before anything is written
        ensure!(before["kind"] == "pci", "NIC {nic} is no card: run shunt conform without --nic");
        let lock = run_dir.join(format!("conform-nic-{nic}.lock"));
        let shown = || format!("cannot write {}", lock.display());
        match File::create_new(&lock) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => drop(created.with_context(shown)?),
        }
        let Some(mut locked) = lock_file(&lock)? else {
            bail!("another run of the suite has NIC {nic}; wait for its end");
        };
        let mut recorded = String::new();
        locked.read_to_string(&mut recorded).with_context(shown)?;
        let mut claim =
            Claim { run_dir: run_dir.to_owned(), path, lock, locked, before, is_changed: false };
        // A record that is cut is older than every change.
        if let Ok(recorded) = serde_json::from_str(&recorded) {
            (claim.before, claim.is_changed) = (recorded, true);
            claim.put_back()?;
            claim.before = get(run_dir, &claim.path)?;
        }
        match claim.check_unused(nic) {
            Ok(()) => Ok(claim),
            Err(error) => {
                claim.end()?;
                Err(error)
            }
        }
    }

    /// Checks that nothing in the document uses the NIC.
    fn check_unused(&self, nic: &str) -> Result<()> {
        let entries = |list: &Value| list.as_array().cloned().unwrap_or_default();
        if let Some(vf) = entries(&self.before["vf"]).first() {
            let vf = &vf["index"];
            bail!("VF {vf} of NIC {nic} is in use: it has settings; shunt vf reset {nic} {vf}");
        }
        let mode = &self.before["mode"];
        ensure!(
            mode == "legacy",
            "NIC {nic} is in use: its mode is {mode}; write mode = \"legacy\""
        );
        let state = get(&self.run_dir, "/v1/state")?;
        let switches = entries(&state["switch"]);
        if let Some(switch) = switches.iter().find(|switch| switch["nic"] == nic) {
            bail!("NIC {nic} is in use: switch {} is on it", switch["name"]);
        }
        let adapters = entries(&state["adapter"]);
        if let Some(adapter) = adapters.iter().find(|adapter| adapter["nic"] == nic) {
            bail!("NIC {nic} is in use: adapter {} is on it", adapter["name"]);
        }
        Ok(())
    }

    /// Replaces the document of the NIC with one of so many VFs, without settings.
    ///
    /// # Errors
    /// The record cannot be written, or the manager rejects the document.
    pub(super) fn renew(&mut self, num_vfs: u16) -> Result<()> {
        if !self.is_changed {
            let shown = || format!("cannot write {}", self.lock.display());
            self.locked.set_len(0).with_context(shown)?;
            self.locked.write_all(self.before.to_string().as_bytes()).with_context(shown)?;
            self.locked.sync_data().with_context(shown)?;
            self.is_changed = true;
        }
        let mut nic = self.before.clone();
        nic["vf"] = json!([]);
        nic["num_vfs"] = json!(num_vfs);
        self.put(&nic)
    }

    fn put(&self, nic: &Value) -> Result<()> {
        match ask(&self.run_dir, Method::PUT, &self.path, Some(nic))? {
            Ok(_) => Ok(()),
            Err(rejection) => bail!("the NIC was rejected: {}", rejection.text()),
        }
    }

    /// Restores the document. VFs are made again, for a driver may keep what was set on them.
    fn put_back(&mut self) -> Result<()> {
        if self.is_changed {
            self.renew(0)?;
            self.put(&self.before)?;
        }
        Ok(())
    }

    /// Restores the NIC, and ends the claim.
    ///
    /// # Errors
    /// No daemon answers, or it rejects the document; the next run then restores it.
    pub(super) fn end(mut self) -> Result<()> {
        self.put_back()?;
        std::fs::remove_file(&self.lock)
            .with_context(|| format!("cannot remove {}", self.lock.display()))
    }
}

//! The state on disk: after a crash at any moment it is the old one or the new one, never a
//! mixture.
//!
//! # Life of an apply
//! 1. [`Store::begin`] writes a journal with the target state.
//! 2. The data plane changes to it.
//! 3. [`Store::commit`] replaces the record of the state; its `rename` is the commit point. Then it
//!    removes the journal.
//!
//! If the data plane rejects the state, [`Store::abandon`] removes the journal. After a crash,
//! [`Store::open`] finds the journal beside the record. With the record of step 3 the apply is
//! complete; without it, the apply did not happen and step 2 must be undone ([`Unfinished`]).
//!
//! A damaged journal beside a good record is renamed to `journal.json.damaged`, replacing an
//! earlier one, and the record holds. Guests' settings are handled alike ([`Store::set_aside`]).
//!
//! Every file is written under a temporary name, synchronised and renamed; then the directory is
//! synchronised.
//!
//! Limits: files of 64 MiB; one process per directory.

mod files;
mod owners;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use files::{Directory, Files, MAX_FILE_BYTES};
pub use owners::{NotOwner, Owner, Owners};
pub use record::{Record, VERSION};

use serde::Serialize;
use serde::de::DeserializeOwned;

use model::state::State;
use record::Journal;

const RECORD: &str = "state.json";

/// File of the desired state in a state directory.
pub fn state_file(state_dir: &Path) -> PathBuf {
    state_dir.join(RECORD)
}
const JOURNAL: &str = "journal.json";
const GUESTS: &str = "guests.json";
/// Names of unreadable files; each replaces an earlier one.
const JOURNAL_DAMAGED: &str = "journal.json.damaged";
const GUESTS_DAMAGED: &str = "guests.json.damaged";

/// Error of the state directory.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error(
        "cannot {what} {file}; free disk space or correct the permissions, then try again: nothing was changed"
    )]
    Io {
        /// Operation.
        what: &'static str,
        /// File.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error(
        "the state directory {directory} is in use by another daemon; stop that one or choose another"
    )]
    InUse {
        /// Its path.
        directory: String,
    },
    /// A directory in the run directory is not this daemon's.
    #[error("the state directory {directory} {why}; remove it, or choose another run_dir")]
    NotOurs {
        /// Its path.
        directory: String,
        /// Reason.
        why: String,
    },
    /// A file is damaged.
    #[error(
        "{file} is damaged: {why}; restore it from a copy, or remove it to begin with no state"
    )]
    Damaged {
        /// Its path.
        file: String,
        /// Damage.
        why: String,
    },
    /// A file has an unknown version.
    #[error(
        "{file} is of version {version}, and this program reads version {VERSION}; use a newer shunt"
    )]
    Version {
        /// Its path.
        file: String,
        /// Its version.
        version: u64,
    },
}

/// An apply that a crash interrupted before its commit point: it did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Target state. Hardware may have parts of it, which must be changed back to the stored state.
    pub attempted: State,
}

/// The record of the state, and its directory.
#[derive(Debug)]
pub struct Store<F> {
    files: F,
    record: Record,
    /// `true` if a failure left open which record is on disk.
    in_doubt: bool,
    /// Warnings about damaged files.
    set_aside: Vec<String>,
}

impl<F: Files> Store<F> {
    /// Reads the stored state; without files it is the empty state. After [`Unfinished`] the
    /// journal stays until [`abandon`](Self::abandon), so that a crash during the undo is detected
    /// too.
    ///
    /// # Errors
    /// A file cannot be read, or has a newer version; the record is damaged; or there is no record
    /// and the journal is damaged.
    pub fn open(files: F) -> Result<(Store<F>, Option<Unfinished>), StoreError> {
        let record = match read(&files, RECORD)? {
            Some(bytes) => Record::from_bytes(&files.shown(RECORD), &bytes)?,
            None => Record::default(),
        };
        let mut store = Store { files, record, in_doubt: false, set_aside: Vec::new() };
        let journal = store.journal()?;
        match journal {
            Some(journal) if journal.generation > store.record.generation => {
                Ok((store, Some(Unfinished { attempted: journal.to })))
            }
            Some(_) => {
                // This process may have read the record from the page cache only.
                store.sync_directory()?;
                store.abandon()?;
                Ok((store, None))
            }
            None => Ok((store, None)),
        }
    }

    /// The journal, if present and readable. Sets a damaged one aside if there is a record.
    fn journal(&mut self) -> Result<Option<Journal>, StoreError> {
        let Some(bytes) = read(&self.files, JOURNAL)? else { return Ok(None) };
        let shown = self.files.shown(JOURNAL);
        match Journal::from_bytes(&shown, &bytes) {
            Ok(journal) => Ok(Some(journal)),
            // Without a record the journal is the only information about the state.
            Err(StoreError::Damaged { why, .. }) if self.record.generation > 0 => {
                let aside = self.rename_aside(JOURNAL, JOURNAL_DAMAGED)?;
                let (record, generation) = (self.files.shown(RECORD), self.record.generation);
                self.set_aside.push(format!(
                    "{shown} is damaged: {why}; it is kept as {aside}. The state of {record}, generation {generation}, \
                     is in force. An apply that the journal recorded and that is not in this state was not applied: \
                     compare `shunt export` with the last document, and apply that again if they differ"
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Renames a damaged file; returns its new path.
    fn rename_aside(&self, name: &str, aside: &str) -> Result<String, StoreError> {
        let renamed = self.files.rename(name, aside);
        renamed.map_err(|source| self.failed("rename", name, source))?;
        self.sync_directory()?;
        Ok(self.files.shown(aside))
    }

    /// Warnings about damaged files: both names, and the state that holds.
    pub fn set_aside(&self) -> &[String] {
        &self.set_aside
    }

    /// The files.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// The stored record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Records that the data plane is about to change to `to`.
    ///
    /// # Errors
    /// The journal cannot be written; nothing has changed.
    pub fn begin(&mut self, to: &State) -> Result<(), StoreError> {
        if self.in_doubt {
            self.replace(RECORD, &self.record.to_bytes())?;
            self.in_doubt = false;
        }
        let journal = Journal { generation: self.record.generation + 1, to: to.clone() };
        self.replace(JOURNAL, &journal.to_bytes())
    }

    /// Makes `to` the stored state, with the holders of its VFs (`NIC/vfN` and adapter).
    ///
    /// # Errors
    /// The record cannot be written. The old state counts as stored, and the next
    /// [`begin`](Self::begin) writes it again; a crash before that leaves the old or the new one.
    pub fn commit(
        &mut self,
        to: &State,
        holders: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let mut record = self.record.clone();
        record.generation += 1;
        record.from_file = false;
        record.state = to.clone();
        record.owners.assign(holders);
        self.write_record(record)?;
        // A journal that stays describes a complete apply, which the next start sees from the
        // record.
        let _ = self.abandon();
        Ok(())
    }

    /// Marks the stored state as a configuration file's.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn mark_from_file(&mut self) -> Result<(), StoreError> {
        self.write_record(Record { from_file: true, ..self.record.clone() })
    }

    /// Empties the stored state if it is that of a configuration file which is now `file`.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn follow_file(&mut self, file: &State) -> Result<(), StoreError> {
        let mut record = self.record.clone();
        if !record.from_file || record.state == *file {
            return Ok(());
        }
        record.generation += 1;
        record.state = State::default();
        self.write_record(record)
    }

    /// Stores new holders of VFs without a change of the state.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn assign(&mut self, holders: &BTreeMap<String, String>) -> Result<bool, StoreError> {
        let mut record = self.record.clone();
        let changed = record.owners.assign(holders);
        if changed {
            self.write_record(record)?;
        }
        Ok(changed)
    }

    /// Removes the journal of the apply that was begun.
    ///
    /// # Errors
    /// The journal cannot be removed. The next start then sees an interrupted apply, which is
    /// harmless.
    pub fn abandon(&self) -> Result<(), StoreError> {
        let removed = self.files.remove(JOURNAL);
        removed.map_err(|source| self.failed("remove", JOURNAL, source))?;
        self.sync_directory()
    }

    /// Guests' settings; the default if there is no file. Sets a damaged file aside.
    ///
    /// # Errors
    /// The file cannot be read, or has a newer version.
    pub fn guests<T: DeserializeOwned + Default>(&mut self) -> Result<T, StoreError> {
        let Some(bytes) = read(&self.files, GUESTS)? else { return Ok(T::default()) };
        let shown = self.files.shown(GUESTS);
        match record::open(&shown, &bytes) {
            Err(StoreError::Damaged { why, .. }) => {
                let aside = self.rename_aside(GUESTS, GUESTS_DAMAGED)?;
                self.set_aside.push(format!(
                    "{shown} is damaged: {why}; it is kept as {aside}. Settings that guests made of \
                     VFs of their virtual PFs are lost; guests can make them again"
                ));
                Ok(T::default())
            }
            read => read,
        }
    }

    /// Stores guests' settings, beside the operator's record.
    ///
    /// # Errors
    /// The file cannot be written; after a crash it is the old or the new one.
    pub fn keep_guests(&self, guests: &impl Serialize) -> Result<(), StoreError> {
        self.replace(GUESTS, &record::seal(guests))
    }

    fn write_record(&mut self, record: Record) -> Result<(), StoreError> {
        let written = self.replace(RECORD, &record.to_bytes());
        self.in_doubt |= written.is_err();
        written?;
        self.record = record;
        Ok(())
    }

    /// Replaces a file atomically and durably.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let beside = beside(name);
        let step =
            |what, result: io::Result<()>| result.map_err(|source| self.failed(what, name, source));
        step("write", self.files.write(&beside, bytes))?;
        step("synchronise", self.files.sync(&beside))?;
        step("replace", self.files.rename(&beside, name))?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<(), StoreError> {
        let synced = self.files.sync_directory();
        synced.map_err(|source| self.failed("synchronise the directory of", RECORD, source))
    }

    fn failed(&self, what: &'static str, name: &str, source: io::Error) -> StoreError {
        StoreError::Io { what, file: self.files.shown(name), source }
    }
}

/// Temporary name of a file before its rename.
fn beside(name: &str) -> String {
    format!("{name}.new")
}

fn read(files: &impl Files, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |source| StoreError::Io { what: "read", file: files.shown(name), source };
    files.read(name).map_err(failed)
}

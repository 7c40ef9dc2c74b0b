//! The state on disk: after a crash at any moment it is the old one or the new one, never a
//! mixture.
//!
//! # Life of an apply
//! 1. [`Store::begin`] writes a journal: what is to be reached.
//! 2. The data plane is brought there.
//! 3. [`Store::commit`] replaces the record of the state; this one `rename` decides. Then the
//!    journal goes.
//!
//! If the data plane refuses, [`Store::abandon`] removes the journal. After a crash,
//! [`Store::open`] finds the journal beside the record: with the record of step 3 the apply is
//! finished; without it the apply did not happen, and what of step 2 was done is to be undone
//! ([`Unfinished`]).
//!
//! A journal that is damaged beside a good record is renamed to `journal.json.damaged`, in the
//! place of an earlier one, and the record holds; so it is with guests' own settings
//! ([`Store::set_aside`]).
//!
//! Every file is written beside its place, synchronised, renamed into it, and the directory
//! synchronised.
//!
//! Limits: files of 64 MiB; one process a directory.

mod files;
mod owners;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;

pub use files::{Directory, Files, MAX_FILE_BYTES};
pub use owners::{NotYours, Owner, Owners};
pub use record::{Record, VERSION};

use serde::Serialize;
use serde::de::DeserializeOwned;

use model::state::State;
use record::Journal;

const RECORD: &str = "state.json";
const JOURNAL: &str = "journal.json";
const GUESTS: &str = "guests.json";
/// Files that could not be read; the next damaged one replaces them.
const JOURNAL_DAMAGED: &str = "journal.json.damaged";
const GUESTS_DAMAGED: &str = "guests.json.damaged";

/// What is wrong with the state directory.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error(
        "cannot {what}, {file}; nothing was changed, so free space or correct its rights and try again"
    )]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        file: String,
        /// What the system says.
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
    /// The directory for a state that does not outlive the daemon is not this daemon's.
    #[error(
        "the state directory {directory} {why}, and files in it are to be removed; \
         remove it, or choose another run_dir"
    )]
    NotOurs {
        /// Its path.
        directory: String,
        /// What it is.
        why: String,
    },
    /// A file is not as it was written.
    #[error(
        "{file} is damaged: {why}; restore it from a copy, or remove it to begin with no state"
    )]
    Damaged {
        /// Its path.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file is of another version.
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

/// An apply that a crash interrupted before it was decided: it did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// What it was to reach. Some of that may be in force in hardware; it is to be brought back to
    /// the stored state.
    pub attempted: State,
}

/// The record of the state, and the directory it is in.
#[derive(Debug)]
pub struct Store<F> {
    files: F,
    record: Record,
    /// Whether a failure left open which record is on the disk.
    in_doubt: bool,
    /// Warnings about damaged files.
    set_aside: Vec<String>,
}

impl<F: Files> Store<F> {
    /// Reads what is stored; nothing at all is the empty state. After [`Unfinished`] the journal
    /// stays until [`abandon`](Self::abandon), so that a crash while undoing is met again.
    ///
    /// # Errors
    /// A file cannot be read, or is of a newer version; the record is damaged, or the journal and
    /// there is no record.
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
                // The record may be known to this process only from a page cache.
                store.sync_directory()?;
                store.abandon()?;
                Ok((store, None))
            }
            None => Ok((store, None)),
        }
    }

    /// The journal, if there is one that can be read. A damaged one is set aside if there is a
    /// record.
    fn journal(&mut self) -> Result<Option<Journal>, StoreError> {
        let Some(bytes) = read(&self.files, JOURNAL)? else { return Ok(None) };
        let shown = self.files.shown(JOURNAL);
        match Journal::from_bytes(&shown, &bytes) {
            Ok(journal) => Ok(Some(journal)),
            // Without a record the journal is all that is known of a state.
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

    /// Renames a damaged file; its new path.
    fn rename_aside(&self, name: &str, aside: &str) -> Result<String, StoreError> {
        let renamed = self.files.rename(name, aside);
        renamed.map_err(|source| self.failed("rename", name, source))?;
        self.sync_directory()?;
        Ok(self.files.shown(aside))
    }

    /// Warnings for the operator about damaged files that were met: both names, and what holds.
    pub fn set_aside(&self) -> &[String] {
        &self.set_aside
    }

    /// Where it is stored.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// What is stored.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Notes that the data plane is about to be brought to `to`.
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
    /// The record cannot be written. What is stored counts as the old state, and the next
    /// [`begin`](Self::begin) writes that again; a crash before it leaves the old or the new one.
    pub fn commit(
        &mut self,
        to: &State,
        holders: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let mut record = self.record.clone();
        record.generation += 1;
        record.state = to.clone();
        record.owners.assign(holders);
        self.write_record(record)?;
        // A journal that stays tells the next start of a finished apply, which it knows from the
        // record.
        let _ = self.abandon();
        Ok(())
    }

    /// Stores that VFs changed hands without a change of the state.
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

    /// Forgets the apply that was begun.
    ///
    /// # Errors
    /// The journal cannot be removed; the next start takes the apply for interrupted, which is
    /// harmless.
    pub fn abandon(&self) -> Result<(), StoreError> {
        let removed = self.files.remove(JOURNAL);
        removed.map_err(|source| self.failed("remove", JOURNAL, source))?;
        self.sync_directory()
    }

    /// Settings that guests made; none if there is no such file. A damaged one is set aside.
    ///
    /// # Errors
    /// The file cannot be read, or is of a newer version.
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

    /// Stores the settings that guests made, beside the record of the operator's.
    ///
    /// # Errors
    /// It cannot be written; after a crash the old or the new one is there.
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

    /// Replaces a file as a whole, durably.
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

/// Name under which a file is written before it is renamed.
fn beside(name: &str) -> String {
    format!("{name}.new")
}

fn read(files: &impl Files, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |source| StoreError::Io { what: "read", file: files.shown(name), source };
    files.read(name).map_err(failed)
}

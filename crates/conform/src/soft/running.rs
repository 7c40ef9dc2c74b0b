//! A daemon that runs already: the tests get a NIC, a switch and adapters of their own in it.
//!
//! # Names
//! All objects of a run begin with `conform-N-`, where N is the lowest number for which neither the
//! document nor another run has such a name. So no object of the user's is ever addressed.
//!
//! # Removal
//! The objects are removed after each test and at the end. The file `conform-N.lock` in the run
//! directory is locked during the run, and lists the objects before they are made. If the process
//! was killed, the file stays without its lock: the next run removes the listed objects and the
//! file. An object that is not listed is another program's, whatever its name.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use api::Method;
use serde_json::Value;

use crate::lock::lock_file;
use crate::request::{ask, get};

/// Lists of the document with named objects, in the order of their removal, and their resources.
pub(super) const LISTS: [(&str, &str); 3] =
    [("adapter", "adapters"), ("switch", "switches"), ("nic", "nics")];

const BEGINNING: &str = "conform-";
const LOCK: &str = ".lock";
/// Numbers of runs. A NIC's name has at most 15 bytes.
const RUNS: std::ops::Range<u8> = 0..100;

/// A running daemon, with the objects of this run.
#[derive(Debug)]
pub(super) struct RunningDaemon {
    run_dir: PathBuf,
    /// Beginning of the names of all objects of this run.
    prefix: String,
    lock: PathBuf,
    /// The lock file, locked: a line `RESOURCE NAME` for each object.
    locked: File,
}

impl RunningDaemon {
    /// Removes objects of killed runs, and reserves names.
    ///
    /// # Errors
    /// No daemon answers, or the run directory is not writable.
    pub(super) fn open(run_dir: &Path) -> Result<RunningDaemon> {
        get(run_dir, "/v1/state")?; // no daemon: said before anything is written
        clean(run_dir)?;
        let document = get(run_dir, "/v1/state")?;
        for number in RUNS {
            let name = format!("{BEGINNING}{number}");
            let (prefix, lock) = (format!("{name}-"), run_dir.join(name + LOCK));
            if names(&document, &prefix).next().is_some() {
                continue;
            }
            match File::create_new(&lock) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                created => created.with_context(|| format!("cannot write {}", lock.display()))?,
            };
            if let Some(locked) = lock_file(&lock)? {
                let run_dir = run_dir.to_owned();
                return Ok(RunningDaemon { run_dir, prefix, lock, locked });
            }
        }
        bail!("{} runs of the suite are in this daemon already; wait for one to end", RUNS.len())
    }

    pub(super) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Records an object of this run that is about to be made.
    ///
    /// # Errors
    /// The lock file cannot be written.
    pub(super) fn record(&mut self, resource: &str, name: &str) -> Result<()> {
        let shown = || format!("cannot write {}", self.lock.display());
        self.locked.write_all(format!("{resource} {name}\n").as_bytes()).with_context(shown)
    }

    /// Removes the objects of this run.
    ///
    /// # Errors
    /// No daemon answers, or it rejects a removal.
    pub(super) fn remove_objects(&self) -> Result<()> {
        remove(&self.run_dir, &self.prefix, &self.lock)?;
        self.locked.set_len(0).with_context(|| format!("cannot write {}", self.lock.display()))
    }

    /// Removes the objects and the lock file.
    ///
    /// # Errors
    /// As [`remove_objects`](Self::remove_objects): then the next run removes them.
    pub(super) fn end(&self) -> Result<()> {
        self.remove_objects()?;
        std::fs::remove_file(&self.lock)
            .with_context(|| format!("cannot remove {}", self.lock.display()))
    }
}

/// Removes the objects and files of runs that were killed.
fn clean(run_dir: &Path) -> Result<()> {
    let shown = || format!("cannot read {}", run_dir.display());
    for entry in std::fs::read_dir(run_dir).with_context(shown)? {
        let entry = entry.with_context(shown)?;
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix(BEGINNING)?.strip_suffix(LOCK));
        let Some(number) =
            number.filter(|number| number.parse().is_ok_and(|number| RUNS.contains(&number)))
        else {
            continue;
        };
        if let Some(_locked) = lock_file(&entry.path())? {
            remove(run_dir, &format!("{BEGINNING}{number}-"), &entry.path())?;
            let removed = std::fs::remove_file(entry.path());
            removed.with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Objects of a document whose names have this beginning, as (resource, name).
fn names<'d>(document: &'d Value, prefix: &str) -> impl Iterator<Item = (&'static str, &'d str)> {
    LISTS.into_iter().flat_map(move |(list, resource)| {
        let all = document[list].as_array().into_iter().flatten();
        let names = all.filter_map(|object| object["name"].as_str());
        names.filter(move |name| name.starts_with(prefix)).map(move |name| (resource, name))
    })
}

/// Removes the objects of a run, which its lock file lists.
fn remove(run_dir: &Path, prefix: &str, lock: &Path) -> Result<()> {
    let shown = || format!("cannot read {}", lock.display());
    let listed = std::fs::read_to_string(lock).with_context(shown)?;
    let document = get(run_dir, "/v1/state")?;
    let is_own = |resource: &str, name: &str| {
        listed.lines().any(|line| line.split_once(' ') == Some((resource, name)))
    };
    for (resource, name) in names(&document, prefix).filter(|(of, name)| is_own(of, name)) {
        let removed = ask(run_dir, Method::DELETE, &format!("/v1/{resource}/{name}"), None)?;
        if let Err(rejection) = removed {
            bail!("{name} cannot be removed: {}", rejection.text());
        }
    }
    Ok(())
}

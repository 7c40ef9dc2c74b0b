//! Checks, progress and errors that several experiments share.

use std::fmt::{self, Display};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result};
use report::PathKind;

use crate::error::UsageError;

pub(super) fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64)
}

pub(super) fn check_seconds(seconds: f64) -> Result<(), UsageError> {
    if (0.1..=3600.0).contains(&seconds) {
        return Ok(());
    }
    Err(UsageError::out_of_range("--seconds", seconds, 0.1, 3600))
}

pub(super) fn check_rounds(rounds: usize) -> Result<(), UsageError> {
    if (1..=100).contains(&rounds) {
        return Ok(());
    }
    Err(UsageError::out_of_range("--rounds", rounds, 1, 100))
}

/// Rejects the kernel's path, for this reason.
pub(super) fn check_path_of_daemon(path: PathKind, reason: &str) -> Result<(), UsageError> {
    if path != PathKind::Virtio {
        return Ok(());
    }
    let allowed = PathKind::OF_DAEMON.map(PathKind::as_str);
    Err(UsageError::choose("--path", path.as_str(), reason, &allowed))
}

/// Error: results are incomplete; they are in this directory.
#[derive(Debug)]
pub(super) struct IncompleteRun(pub(super) PathBuf);

impl Display for IncompleteRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "incomplete; resume with: shunt lab resume {}", self.0.display())
    }
}

/// Prints the progress of an experiment on one line of a terminal; nothing if there is none.
pub(super) fn progress<N: PartialEq + Display>(what: &str, done: N, of: N) {
    if std::io::stderr().is_terminal() {
        let end = if done == of { "\n" } else { "" };
        eprint!("\r{what} {done} of {of} {end}");
    }
}

/// Path of this program, to start daemon and guests.
pub(super) fn program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

//! Lock files of runs in a running daemon.
//!
//! A run locks its file until it ends. A file without its lock is of a run that was killed: its
//! content says what the next run has to put right.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Opens and locks a file; `None` if another process has the lock, or has removed the file.
pub(crate) fn lock_file(path: &Path) -> Result<Option<File>> {
    let shown = || format!("cannot lock {}", path.display());
    let file = match File::options().read(true).append(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(shown)?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked.with_context(shown)?,
    }
    // Its owner may have removed it before the lock was taken, and another run made a new one.
    let inode = file.metadata().with_context(shown)?.ino();
    let is_same = std::fs::metadata(path).is_ok_and(|now| now.ino() == inode);
    Ok(is_same.then_some(file))
}

//! The run directory: made for this user, and one daemon's at a time.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Makes the directory if need be, and locks it for as long as the result lives.
///
/// # Errors
/// It cannot be made, belongs to another user, or another daemon has it.
pub(super) fn claim(run_dir: &Path) -> Result<File> {
    let shown = run_dir.display();
    DirBuilder::new().recursive(true).mode(0o755).create(run_dir).with_context(|| {
        format!("cannot create run_dir {shown}; choose another one, or create it for this user")
    })?;
    let owner = std::fs::metadata(run_dir)
        .with_context(|| format!("cannot look at run_dir {shown}"))?
        .uid();
    let us = rustix::process::geteuid().as_raw();
    // In a directory of somebody else, that one could replace sockets and counters.
    if owner != us && owner != 0 {
        bail!("run_dir {shown} belongs to user {owner} and not to this one ({us}); choose another");
    }
    let path = run_dir.join("lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.with_context(|| {
        format!("cannot write to run_dir {shown}; choose another one, or make it this user's")
    })?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::AGAIN) => {
            bail!("run_dir {shown} is in use by another daemon; stop that one or choose another")
        }
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_dir_is_one_daemons_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("a/b");
        let first = claim(&run_dir).unwrap();
        let refused = claim(&run_dir).unwrap_err().to_string();
        assert!(refused.contains("in use by another daemon"), "{refused}");
        drop(first);
        claim(&run_dir).unwrap();
    }

    #[test]
    fn a_file_in_its_place_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "").unwrap();
        let refused = claim(&path).unwrap_err().to_string();
        assert!(refused.contains("choose another one"), "{refused}");
    }
}

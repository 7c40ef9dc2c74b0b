//! Run directory of a daemon: its files, and the lock that one daemon holds at a time.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use model::config::{COUNTERS, LOCK};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// A check for a running daemon holds the lock for a moment. A starting daemon retries for this
/// long.
const LOOKED_AT: Duration = Duration::from_millis(100);

/// Counter file of a daemon with this run directory.
pub fn counters_path(run_dir: &Path) -> PathBuf {
    run_dir.join(COUNTERS)
}

/// Creates the directory if needed, and locks it while the result lives.
///
/// # Errors
/// It cannot be created, is a symbolic link, belongs to another user, or another daemon has it.
pub fn claim(run_dir: &Path) -> Result<OwnedFd> {
    let shown = run_dir.display();
    DirBuilder::new().recursive(true).mode(0o755).create(run_dir).with_context(|| {
        format!("cannot create run_dir {shown}; choose another one, or create it for this user")
    })?;
    // A trailing slash would follow a symbolic link.
    let plain: PathBuf = run_dir.components().collect();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(&plain, flags, Mode::empty()) {
        // The owner of the link could retarget it later.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            bail!("run_dir {shown} is a symbolic link; write the path of the directory itself")
        }
        other => other.with_context(|| format!("cannot access run_dir {shown}"))?,
    };
    let owner = rustix::fs::fstat(&dir);
    let owner = owner.with_context(|| format!("cannot access run_dir {shown}"))?.st_uid;
    let us = rustix::process::geteuid().as_raw();
    // The owner of the directory could replace sockets and counters.
    if owner != us && owner != 0 {
        bail!("run_dir {shown} belongs to user {owner}, not to {us}; choose another");
    }
    let path = run_dir.join(LOCK);
    // NONBLOCK: opening a FIFO of this name must not block.
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let lock = rustix::fs::openat(&dir, LOCK, flags, mode).with_context(|| {
        format!("cannot write to run_dir {shown}; choose another one, or make it this user's")
    })?;
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // It names the previous daemon.
                let emptied = rustix::fs::ftruncate(&lock, 0);
                emptied.with_context(|| format!("cannot write {}", path.display()))?;
                return Ok(lock);
            }
            Err(Errno::AGAIN) if begin.elapsed() < LOOKED_AT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Errno::AGAIN) => {
                bail!("run_dir {shown} is in use by another daemon; stop it or choose another")
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
}

/// `true` if a daemon has this directory now.
///
/// # Errors
/// The lock file exists but cannot be read.
pub fn is_claimed(run_dir: &Path) -> Result<bool> {
    let path = run_dir.join(LOCK);
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false), // and it is let go at once
        Err(Errno::AGAIN) => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
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
    fn others_can_tell_whether_a_daemon_is_there() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_claimed(dir.path()).unwrap(), "none ever was");
        let lock = claim(dir.path()).unwrap();
        assert!(is_claimed(dir.path()).unwrap());
        drop(lock);
        assert!(!is_claimed(dir.path()).unwrap());
    }

    #[test]
    fn who_looks_does_not_keep_a_daemon_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        drop(claim(dir.path()).unwrap());
        let look = File::open(dir.path().join(LOCK)).unwrap();
        rustix::fs::flock(&look, FlockOperation::NonBlockingLockShared).unwrap();
        let looker = std::thread::spawn(move || {
            std::thread::sleep(LOOKED_AT / 10);
            drop(look);
        });
        claim(dir.path()).unwrap();
        looker.join().unwrap();
    }

    #[test]
    fn a_link_is_refused_however_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for end in ["", "/", "/.", "//"] {
            let path = format!("{}{end}", link.display());
            let refused = claim(Path::new(&path)).unwrap_err().to_string();
            assert!(refused.contains("is a symbolic link"), "{refused}");
        }
        assert!(!real.join(LOCK).exists(), "nothing was written there");
        std::os::unix::fs::symlink("/nowhere/lock", real.join(LOCK)).unwrap();
        claim(&real).unwrap_err();
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

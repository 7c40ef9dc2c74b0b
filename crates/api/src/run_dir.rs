//! Run directory of a daemon: its files, and the lock that one daemon holds at a time.

use std::fmt::Display;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use model::config::{COUNTERS, LOCK};
use model::state::Problem;
use rustix::fs::{Access, AtFlags, FlockOperation, Mode, OFlags};
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
    let dir = open_own(run_dir)
        .map_err(|problem| anyhow!("run_dir {shown} {}; {}", problem.message, problem.remedy))?;
    let path = run_dir.join(LOCK);
    // NONBLOCK: opening a FIFO of this name must not block.
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Others that may open it could lock it, and keep the daemon from its start. They see the lock
    // of the counter file. A file that an earlier version made for all to read stays so: the
    // sandbox changes no modes.
    let mode = Mode::RUSR | Mode::WUSR;
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

/// Opens the directory, which must be this user's or root's.
fn open_own(run_dir: &Path) -> Result<OwnedFd, Box<Problem>> {
    let wrong = |message, remedy| Box::new(Problem::of_path("run_dir", run_dir, message, remedy));
    let denied = |errno| wrong(format!("cannot be accessed: {errno}"), "choose another");
    // A trailing slash would follow a symbolic link.
    let plain: PathBuf = run_dir.components().collect();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(&plain, flags, Mode::empty()) {
        // The owner of the link could retarget it later.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let remedy = "write the path of the directory itself";
            return Err(wrong("is a symbolic link, or no directory".to_owned(), remedy));
        }
        other => other.map_err(denied)?,
    };
    let owner = rustix::fs::fstat(&dir).map_err(denied)?.st_uid;
    let us = rustix::process::geteuid().as_raw();
    // The owner of the directory could replace sockets and counters.
    if owner != us && owner != 0 {
        return Err(wrong(format!("belongs to user {owner}, not to {us}"), "choose another"));
    }
    Ok(dir)
}

/// Checks that [`claim`] could have the directory unless another daemon has it; changes nothing.
///
/// # Errors
/// It cannot be created or written, is a symbolic link, or belongs to another user.
pub fn check(run_dir: &Path) -> Result<(), Box<Problem>> {
    if run_dir.symlink_metadata().is_ok() {
        open_own(run_dir)?;
    }
    check_writable("run_dir", run_dir)
}

/// Checks that this user could create files in a directory, which need not exist; changes nothing.
///
/// # Errors
/// It cannot be created or written.
pub fn check_writable(field: &str, dir: &Path) -> Result<(), Box<Problem>> {
    let exists = |dir: &&Path| dir.symlink_metadata().is_ok();
    let nearest = dir.ancestors().find(exists).unwrap_or(Path::new("/"));
    let needs = Access::WRITE_OK | Access::EXEC_OK;
    let access = rustix::fs::accessat(rustix::fs::CWD, nearest, needs, AtFlags::EACCESS);
    let errno = match access {
        _ if !nearest.is_dir() => Errno::NOTDIR,
        Ok(()) => return Ok(()),
        Err(errno) => errno,
    };
    let message = match nearest == dir {
        true => format!("cannot be written: {errno}"),
        false => format!("cannot be created in {}: {errno}", nearest.display()),
    };
    let remedy = "choose another one, or create it for this user";
    Err(Box::new(Problem::of_path(field, dir, message, remedy)))
}

/// Problem of a command whose daemon does not run.
pub fn no_daemon(run_dir: &Path, why: impl Display) -> Problem {
    let message = format!("does not run: {why}");
    let problem = Problem::new("", (), message, "start it, or name its --run-dir");
    problem.of(format!("daemon at {}", run_dir.display()))
}

/// `true` if a daemon has this directory now. Users that may not open the lock look at the counter
/// file, which a running daemon has locked too.
///
/// # Errors
/// Neither file can be read.
pub fn is_claimed(run_dir: &Path) -> Result<bool> {
    let (lock, counters) = (run_dir.join(LOCK), counters_path(run_dir));
    let (path, locked) = match is_locked(&lock) {
        Err(Errno::ACCESS) => (&counters, is_locked(&counters)),
        locked => (&lock, locked),
    };
    locked.with_context(|| format!("cannot look at {}", path.display()))
}

/// `true` if a process has locked the file; `false` if there is none.
fn is_locked(path: &Path) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        file => file?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false), // and it is let go at once
        Err(Errno::AGAIN) => Ok(true),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

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
    fn a_check_says_what_a_claim_would_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let told = |run_dir: &Path| check(run_dir).map_err(|problem| problem.to_string());
        let new = dir.path().join("a/b");
        assert_eq!(told(&new), Ok(()));
        assert!(!new.exists() && !dir.path().join("a").exists());
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = told(&file.join("run")).unwrap_err();
        assert!(error.contains("file: Not a directory (os error 20); choose another"), "{error}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(told(&link).unwrap_err().contains("is a symbolic link"));
        let lock = claim(dir.path()).unwrap();
        assert_eq!(told(dir.path()), Ok(()), "a running daemon's file can be checked");
        drop(lock);
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        if std::os::unix::fs::chown(&other, Some(12345), None).is_ok() {
            let error = told(&other).unwrap_err();
            assert!(error.contains("belongs to user 12345, not to 0; choose another"), "{error}");
            assert!(claim(&other).unwrap_err().to_string().contains("belongs to user 12345"));
        }
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
    fn other_users_cannot_lock_it_and_can_tell_whether_it_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = claim(dir.path()).unwrap();
        assert_eq!(dir.path().join(LOCK).metadata().unwrap().mode() & 0o777, 0o600);
        let counters = counters_path(dir.path());
        assert_eq!(is_locked(&counters), Ok(false), "there is none");
        let _fabric = engine::Fabric::start(&[], Some(&counters)).unwrap();
        assert_eq!(counters.metadata().unwrap().mode() & 0o777, 0o644);
        assert_eq!(is_locked(&counters), Ok(true));
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

//! Running daemons: how a command finds the one it is for, without `--run-dir`.
//!
//! # Model
//! A daemon is found in a default run directory, or by a symbolic link. A daemon with another run
//! directory makes the link at its start: in `/run/shunt.d` for root, else beside the default run
//! directory of the user, such as `/run/user/1000/shunt.d`. The link is named after the device and
//! inode of the run directory, so each run directory has one link. A held lock means that a daemon
//! runs there. So the link of a killed daemon is ignored, and the next daemon removes it. The lock
//! file names the process and the state file.
//!
//! # Limits
//! Only daemons that this user may command are found: for root those of root and the one in
//! `/run/shunt`, for others their own. Directories and links of other users are ignored, because
//! commands would trust them. A daemon that ends with its parent process belongs to that process,
//! and makes no link.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use model::config::{LOCK, SERVICE_RUN_DIR, default_run_dir, default_run_dirs};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::run_dir::is_claimed;
use crate::store::state_file;

/// Limit of a lock file's text: a process number and a path.
const MAX_LOCK_BYTES: u64 = 8192;

/// A daemon that runs now, and that this user may command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningDaemon {
    /// Its run directory.
    pub run_dir: PathBuf,
    /// Its process, if the daemon has written it.
    pub pid: Option<u32>,
    /// File of its stored desired state, likewise.
    pub state_file: Option<PathBuf>,
}

/// Daemons of this machine that run and that this user may command, each once; first those with a
/// default run directory.
pub fn running() -> Vec<RunningDaemon> {
    let us = rustix::process::geteuid().as_raw();
    running_at(&default_run_dirs(), us)
}

fn running_at(defaults: &[PathBuf], us: u32) -> Vec<RunningDaemon> {
    let linked = defaults.iter().flat_map(|default| linked_from(&links_beside(default), us));
    let mut seen = Vec::new();
    let mut is_new = |run_dir: &PathBuf| {
        let identity = identity(run_dir);
        let new = identity.is_some() && !seen.contains(&identity);
        seen.push(identity);
        new
    };
    let all = defaults.iter().cloned().chain(linked).filter(|run_dir| is_new(run_dir));
    all.filter_map(|run_dir| running_in(run_dir, us)).collect()
}

/// The daemon that runs in this directory, if this user may command it.
fn running_in(run_dir: PathBuf, us: u32) -> Option<RunningDaemon> {
    let dir = std::fs::symlink_metadata(&run_dir).ok()?;
    // The owner of the directory could replace the daemon's socket. Only root makes the service's.
    let is_trusted = [0, us].contains(&dir.uid()) || run_dir == Path::new(SERVICE_RUN_DIR);
    if !dir.is_dir() || !is_trusted {
        return None;
    }
    let lock = std::fs::symlink_metadata(run_dir.join(LOCK)).ok().filter(|lock| lock.is_file())?;
    let may_command = us == 0 || lock.uid() == us;
    if !may_command || !is_claimed(&run_dir).ok()? {
        return None;
    }
    let mut text = String::new();
    let lock = File::open(run_dir.join(LOCK)).ok()?;
    lock.take(MAX_LOCK_BYTES).read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    let pid = lines.next().and_then(|pid| pid.parse().ok());
    let state_file = lines.next().filter(|path| !path.is_empty()).map(PathBuf::from);
    Some(RunningDaemon { run_dir, pid, state_file })
}

/// A link to the run directory of a daemon, removed on drop.
#[derive(Debug)]
pub struct Link(PathBuf);

impl Drop for Link {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes process and state file into the lock file, and makes the link to a run directory that is
/// no default one. `lock` is held until after the result is dropped.
///
/// # Errors
/// The lock or the link cannot be written: commands then need `--run-dir`.
pub fn publish(lock: &OwnedFd, run_dir: &Path, state_dir: &Path) -> Result<Option<Link>> {
    publish_at(&default_run_dirs(), &own_links(), lock, run_dir, state_dir)
}

/// Makes the directory in which [`publish`] makes a link to this run directory, and removes stale
/// links; `None` if it makes no link.
pub fn prepare_links(run_dir: &Path) -> Option<PathBuf> {
    let links = own_links();
    let is_default = default_run_dirs().iter().any(|one| identity(one) == identity(run_dir));
    if is_default {
        return None;
    }
    // A failure is reported when the link is made.
    let _ = DirBuilder::new().mode(0o755).create(&links);
    if !is_own_dir(&links, rustix::process::geteuid().as_raw()) {
        return None;
    }
    remove_stale(&links);
    Some(links)
}

/// Directory of this user's links.
fn own_links() -> PathBuf {
    links_beside(&default_run_dir())
}

fn publish_at(
    defaults: &[PathBuf],
    links: &Path,
    lock: &OwnedFd,
    run_dir: &Path,
    state_dir: &Path,
) -> Result<Option<Link>> {
    let text = format!("{}\n{}\n", std::process::id(), state_file(state_dir).display());
    // One write, which includes the end of the last line: what a longer text leaves is ignored.
    let written = rustix::io::pwrite(lock, text.as_bytes(), 0);
    written.context("cannot write the lock file")?;
    if defaults.iter().any(|default| identity(default) == identity(run_dir)) {
        return Ok(None);
    }
    match DirBuilder::new().mode(0o755).create(links) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {}", links.display()));
        }
        _ => {}
    }
    if !is_own_dir(links, rustix::process::geteuid().as_raw()) {
        bail!("{} is no directory of this user", links.display());
    }
    remove_stale(links);
    let (device, inode) = identity(run_dir).context("the run directory is gone")?;
    let link = links.join(format!("{device:x}-{inode:x}"));
    if std::fs::read_link(&link).is_ok_and(|target| target == run_dir) {
        return Ok(Some(Link(link))); // made before a hot restart, or a crash
    }
    let shown = || format!("cannot make the link {}", link.display());
    match std::fs::remove_file(&link) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(shown),
        _ => {}
    }
    symlink(run_dir, &link).with_context(shown)?;
    Ok(Some(Link(link)))
}

/// Directory of links beside a default run directory.
fn links_beside(default: &Path) -> PathBuf {
    default.with_extension("d")
}

/// Targets of the links in a directory of this user, or of root.
fn linked_from(links: &Path, us: u32) -> Vec<PathBuf> {
    if !is_own_dir(links, us) {
        return Vec::new();
    }
    let mut all: Vec<PathBuf> =
        links_in(links).filter_map(|link| std::fs::read_link(link).ok()).collect();
    all.sort();
    all
}

fn links_in(links: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(links).into_iter().flatten().flatten();
    let links = entries.filter(|one| one.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.map(|one| one.path())
}

fn is_own_dir(path: &Path, us: u32) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|dir| dir.is_dir() && [0, us].contains(&dir.uid()))
}

/// Removes links to run directories without a daemon. The lock is held meanwhile, so that a daemon
/// that starts there makes its link afterwards.
fn remove_stale(links: &Path) {
    for link in links_in(links) {
        // Others may have made the directory again: what they put there must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(link.join(LOCK), flags, Mode::empty()) {
            Ok(lock) => {
                let flock = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
                if flock.is_ok() {
                    let _ = std::fs::remove_file(&link);
                }
            }
            Err(Errno::NOENT) => {
                let _ = std::fs::remove_file(&link);
            }
            Err(_) => {}
        }
    }
}

/// Device and inode of a directory.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let dir = std::fs::metadata(path).ok()?;
    Some((dir.dev(), dir.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::claim;

    fn us() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A default run directory, its directory of links, and two others.
    struct Site {
        dir: tempfile::TempDir,
    }

    impl Site {
        fn new() -> Site {
            let dir = tempfile::tempdir().unwrap();
            for name in ["shunt", "a", "b"] {
                std::fs::create_dir(dir.path().join(name)).unwrap();
            }
            Site { dir }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn start(&self, name: &str) -> (OwnedFd, Option<Link>) {
            let lock = claim(&self.path(name)).unwrap();
            let (defaults, links) = ([self.path("shunt")], self.path("shunt.d"));
            let state = self.path("state");
            let link = publish_at(&defaults, &links, &lock, &self.path(name), &state).unwrap();
            (lock, link)
        }

        fn running(&self) -> Vec<RunningDaemon> {
            running_at(&[self.path("shunt")], us())
        }

        fn run_dirs(&self) -> Vec<PathBuf> {
            self.running().into_iter().map(|one| one.run_dir).collect()
        }

        fn links(&self) -> usize {
            links_in(&self.path("shunt.d")).count()
        }
    }

    #[test]
    fn a_daemon_is_found_with_its_process_and_state_file_until_it_ends() {
        let site = Site::new();
        assert_eq!(site.running(), []);
        for (name, links) in [("shunt", 0), ("a", 1)] {
            let (lock, link) = site.start(name);
            let [found] = &site.running()[..] else { panic!("{:?}", site.running()) };
            assert_eq!(found.run_dir, site.path(name));
            assert_eq!(found.pid, Some(std::process::id()));
            assert_eq!(found.state_file, Some(site.path("state/state.json")));
            assert_eq!(site.links(), links);
            drop((link, lock));
            assert_eq!((site.running(), site.links()), (Vec::new(), 0), "{name}");
        }
    }

    #[test]
    fn several_daemons_are_found_once_each() {
        let site = Site::new();
        let _daemons = ["shunt", "a", "b"].map(|name| site.start(name));
        // The same directory is a default of several kinds, and linked from all of them.
        let again = self::running_at(&[site.path("shunt"), site.path("./shunt")], us());
        assert_eq!(again, site.running());
        let mut run_dirs = site.run_dirs();
        run_dirs.sort();
        assert_eq!(run_dirs, ["a", "b", "shunt"].map(|name| site.path(name)));
    }

    #[test]
    fn a_link_of_a_killed_daemon_is_ignored_and_the_next_daemon_removes_it() {
        let site = Site::new();
        let (lock, link) = site.start("a");
        std::mem::forget(link);
        drop(lock);
        assert_eq!((site.running(), site.links()), (Vec::new(), 1));
        let _b = site.start("b");
        assert_eq!((site.run_dirs(), site.links()), (vec![site.path("b")], 1));
        std::fs::remove_dir_all(site.path("a")).unwrap();
        symlink(site.path("a"), site.path("shunt.d/0-0")).unwrap();
        std::fs::create_dir(site.path("c")).unwrap();
        let _c = site.start("c");
        assert_eq!(site.links(), 2, "that of a missing directory too");
    }

    #[test]
    fn the_lock_names_a_process_only_once_the_daemon_is_published() {
        let site = Site::new();
        drop(site.start("shunt"));
        let _lock = claim(&site.path("shunt")).unwrap();
        let [found] = &site.running()[..] else { panic!("{:?}", site.running()) };
        assert_eq!((found.pid, &found.state_file), (None, &None));
    }

    #[test]
    fn directories_and_links_of_other_users_are_not_followed() {
        let site = Site::new();
        let _daemons = ["shunt", "a"].map(|name| site.start(name));
        let other = us() + 1;
        if us() == 0 {
            // Those of root are trusted, but its daemon takes no commands from this user.
            assert_eq!(running_at(&[site.path("shunt")], other), []);
            std::os::unix::fs::chown(site.path("shunt.d"), Some(other), None).unwrap();
            assert_eq!(site.run_dirs(), [site.path("shunt")]);
            std::os::unix::fs::chown(site.path("shunt"), Some(other), None).unwrap();
        }
        assert_eq!(running_at(&[site.path("shunt")], us() + 2), []);
    }

    #[test]
    fn a_symbolic_link_in_place_of_the_directory_of_links_is_refused() {
        let site = Site::new();
        symlink(site.path("b"), site.path("shunt.d")).unwrap();
        let lock = claim(&site.path("a")).unwrap();
        let (defaults, links) = ([site.path("shunt")], site.path("shunt.d"));
        let refused = publish_at(&defaults, &links, &lock, &site.path("a"), &links).unwrap_err();
        assert!(refused.to_string().contains("no directory of this user"), "{refused}");
        assert_eq!(std::fs::read_dir(site.path("b")).unwrap().count(), 0);
    }
}

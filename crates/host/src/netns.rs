//! Network namespaces: runs work inside another one.
//!
//! Model: a socket always belongs to the namespace of the thread that opened it. So a separate
//! thread enters the namespace, opens the files, and returns them; no other thread of this process
//! is moved. With a [launcher](crate::launcher) the work stays in its thread, and the launcher
//! opens the files.
//!
//! Namespaces are named as in iproute2: a name is a file in `/run/netns`, and a name with a slash
//! is a path, such as `/proc/1234/ns/net`.
//!
//! Limits: entering a namespace needs CAP_SYS_ADMIN.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::launcher::{self, Answer, Request, ask};

const NAMED: &str = "/run/netns";
/// The file system of namespaces (linux/magic.h).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// Reasons that a namespace cannot be used; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// There is no such file.
    #[error(
        "network namespace {}: does not exist; make it (ip netns add), or name one that `ip netns \
         list` shows, or a path such as /proc/PID/ns/net",
        path.display()
    )]
    Missing {
        /// Path that the namespace's file should have.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error(
        "network namespace {}: cannot be opened; name one that `ip netns list` shows, or a path \
         such as /proc/PID/ns/net",
        path.display()
    )]
    Open {
        /// The namespace's file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is no network namespace, or this process may not enter one.
    #[error(
        "network namespace {}: cannot be entered; it must be a network namespace, and the daemon \
         needs CAP_SYS_ADMIN",
        path.display()
    )]
    Enter {
        /// The namespace's file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// No thread can be started.
    #[error("cannot start a thread for a network namespace; raise the limit of tasks")]
    Thread(#[source] io::Error),
}

/// Path of a namespace from its configured name.
pub fn path_of(netns: &str) -> PathBuf {
    if netns.contains('/') { PathBuf::from(netns) } else { Path::new(NAMED).join(netns) }
}

/// Identity of a namespace, which may have several names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// Device and inode of its file, unique while the namespace exists.
    Existing(u64, u64),
    /// Path of a namespace that does not exist.
    Missing(PathBuf),
}

/// Identity of a namespace, by its name; `None`: of this process. A daemon asks for that of each
/// tap at each change, so the launcher is asked only for what this process may not see, such as a
/// namespace in `/proc` of another user's process.
pub fn identity(netns: Option<&str>) -> Identity {
    let path = path_of(netns.unwrap_or("/proc/self/ns/net"));
    let found = identify(&path).or_else(|errno| match errno {
        // `/proc` may hide the processes of others.
        Errno::NOENT if !path.starts_with("/proc") => Err(errno),
        _ => ask(IdentifyNamespace { path: path.clone() }, &[]).map(|(found, _)| found),
    });
    found.map_or(Identity::Missing(path), |(device, inode)| Identity::Existing(device, inode))
}

/// Device and inode of a namespace's file.
fn identify(path: &Path) -> Result<(u64, u64), Errno> {
    let file = find(path).map_err(|step| match step {
        Step::Open(errno) => Errno::from_raw_os_error(errno),
        Step::Enter(_) => Errno::INVAL,
    })?;
    let file = rustix::fs::fstat(file)?;
    Ok((file.st_dev, file.st_ino))
}

/// Device and inode of a namespace's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdentifyNamespace {
    path: PathBuf,
}

impl Request for IdentifyNamespace {
    const NAME: &'static str = "identify-namespace";
    const DOES: &'static str = "tells device and inode of a network namespace";
    type Reply = (u64, u64);

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        launcher::check_netns(&self.path)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<(u64, u64)> {
        Ok((identify(&self.path)?, Vec::new()))
    }
}

/// Opens a network namespace, and tries to enter it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenNamespace {
    path: PathBuf,
}

/// Step that failed, with the kernel's error; none for a file of another kind.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Opening the file.
    Open(i32),
    /// Entering the namespace.
    Enter(Option<i32>),
}

impl Request for OpenNamespace {
    const NAME: &'static str = "open-namespace";
    const DOES: &'static str = "opens a network namespace, for other requests";
    type Reply = Result<(), Step>;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        launcher::check_netns(&self.path)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Result<(), Step>> {
        let opened = open(&self.path).and_then(|file| {
            enter(&file).map_err(|errno| Step::Enter(Some(errno.raw_os_error())))?;
            Ok(file)
        });
        match opened {
            Ok(file) => Ok((Ok(()), vec![file])),
            Err(step) => Ok((Err(step), Vec::new())),
        }
    }
}

/// Moves the calling thread into a namespace.
fn enter(file: &OwnedFd) -> Result<(), Errno> {
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Opens a namespace's file.
fn open(path: &Path) -> Result<OwnedFd, Step> {
    let failed = |errno: Errno| Step::Open(errno.raw_os_error());
    let found = find(path)?;
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    rustix::fs::open(itself, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)
}

/// Opens a namespace's file, by its name, with this process's rights.
///
/// # Errors
/// There is no such namespace.
pub fn open_file(netns: &str) -> Result<OwnedFd, NetnsError> {
    let path = path_of(netns);
    open(&path).map_err(|step| error(&path, step))
}

/// Finds a namespace's file. Other files are recognised by their file system and not opened:
/// opening a FIFO would wait for a writer.
fn find(path: &Path) -> Result<OwnedFd, Step> {
    let failed = |errno: Errno| Step::Open(errno.raw_os_error());
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let found = found.map_err(failed)?;
    if rustix::fs::fstatfs(&found).map_err(failed)?.f_type != NSFS_MAGIC {
        return Err(Step::Enter(None));
    }
    Ok(found)
}

/// Runs `work` inside the namespace, or here without a name, and returns its result. Files that it
/// opens stay in that namespace.
///
/// # Errors
/// [`NetnsError`], if there is no such namespace, or it cannot be entered; `work` did not run then.
///
/// # Panics
/// If `work` does.
pub fn within<T: Send>(
    netns: Option<&str>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NetnsError> {
    let Some(netns) = netns else {
        return Ok(work());
    };
    let path = path_of(netns);
    let failed = |step| error(&path, step);
    if launcher::is_present() {
        let (opened, fds) = ask(OpenNamespace { path: path.clone() }, &[])
            .map_err(|errno| failed(Step::Open(errno.raw_os_error())))?;
        opened.map_err(failed)?;
        let namespace = fds.into_iter().next();
        let namespace = namespace.ok_or_else(|| failed(Step::Open(libc::EBADMSG)))?;
        return Ok(launcher::in_namespace(namespace, work));
    }
    let file = open(&path).map_err(failed)?;
    std::thread::scope(|scope| {
        let enter_and_work = || {
            enter(&file).map_err(|errno| failed(Step::Enter(Some(errno.raw_os_error()))))?;
            Ok(work())
        };
        let thread = std::thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, enter_and_work)
            .map_err(NetnsError::Thread)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Error of a step, as text with the remedy.
fn error(path: &Path, step: Step) -> NetnsError {
    let path = path.to_owned();
    match step {
        Step::Open(libc::ENOENT) => NetnsError::Missing { path },
        Step::Open(errno) => NetnsError::Open { path, source: io::Error::from_raw_os_error(errno) },
        Step::Enter(Some(errno)) => {
            NetnsError::Enter { path, source: io::Error::from_raw_os_error(errno) }
        }
        Step::Enter(None) => {
            let source =
                io::Error::new(io::ErrorKind::InvalidInput, "it is a file of another kind");
            NetnsError::Enter { path, source }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_iproute2() {
        assert_eq!(path_of("blue"), Path::new("/run/netns/blue"));
        assert_eq!(path_of("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
    }

    #[test]
    fn a_namespace_is_the_same_under_all_its_names() {
        let mine = format!("/proc/{}/ns/net", std::process::id());
        assert_eq!(identity(Some(&mine)), identity(None));
        assert_ne!(identity(Some("/proc/self/ns/mnt")), identity(None));
        assert_eq!(identity(Some("nowhere")), identity(Some("/run/netns/nowhere")));
        assert_ne!(identity(Some("nowhere")), identity(Some("no")));
    }

    #[test]
    fn without_a_namespace_it_is_done_here() {
        let here = std::thread::current().id();
        assert_eq!(within(None, || std::thread::current().id()).unwrap(), here);
    }

    #[test]
    fn what_is_no_namespace_is_refused_and_nothing_is_done() {
        let text = |netns| within(Some(netns), || panic!("not done")).unwrap_err().to_string();
        assert!(text("/nowhere/at/all").contains("/nowhere/at/all: does not exist; make it"));
        assert!(text("/proc/self/status").contains("/proc/self/status: cannot be entered"));
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let fifo = fifo.display().to_string();
        assert!(text(&fifo).contains("fifo: cannot be entered"), "it is not waited for a writer");
    }

    #[test]
    fn a_namespace_is_opened() {
        for path in ["/proc/self/ns/net", "/proc/thread-self/ns/net"] {
            let file = open(Path::new(path)).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::User))
                .expect_err("it is one, and of another kind");
        }
    }
}

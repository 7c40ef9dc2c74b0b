//! The resources of the host to which a launcher keeps, if it is to serve only those of a file.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;

use crate::socket::{self, SocketKind};

/// Error of a request about what is not [`Named`]: no request has it from the kernel.
pub(super) const NOT_NAMED: Errno = Errno::NOTNAM;

/// Kind of a PF, named by its PCI address or its interface.
pub const PF: &str = "pf";

/// Resources of the host, to which the requests of a process keep.
#[derive(Debug, Default)]
pub struct Named {
    /// Kind and name of each: interfaces and VDUSE devices by the kind of attachment, and [`PF`].
    pub resources: BTreeSet<(String, String)>,
    /// Sockets and captures.
    pub files: BTreeSet<PathBuf>,
    /// Files of network namespaces, besides the process's own.
    pub namespaces: BTreeSet<PathBuf>,
    /// Directory in which sockets may have any name.
    pub run_dir: PathBuf,
}

static NAMED: OnceLock<Named> = OnceLock::new();

/// Keeps the requests that this process serves to what is named; call it once.
pub fn keep_to(named: Named) {
    let _ = NAMED.set(named);
}

/// Checks that a resource of one of the kinds is named.
///
/// # Errors
/// It is not.
pub fn check_named(kinds: &[&str], name: &str) -> Result<(), Errno> {
    check(|named| named.has(kinds, name))
}

/// Checks that a resource of one of the kinds is named, whatever its name.
pub(crate) fn check_kinds(kinds: &[&str]) -> Result<(), Errno> {
    check(|named| named.resources.iter().any(|(kind, _)| kinds.contains(&kind.as_str())))
}

/// Checks that an interface of the thread's network namespace is named with this kind.
///
/// # Errors
/// It is not, or there is no interface of this index.
pub fn check_index(kind: &str, index: u32) -> Result<(), Errno> {
    if NAMED.get().is_none() {
        return Ok(());
    }
    let socket = socket::open(SocketKind::Interfaces)?;
    check_named(&[kind], &index_to_name(&socket, index)?)
}

/// Checks that a socket is named, or in the run directory.
///
/// # Errors
/// It is not.
pub fn check_socket(path: &Path) -> Result<(), Errno> {
    check(|named| named.has_socket(path))
}

/// Checks that a capture is named.
///
/// # Errors
/// It is not.
pub fn check_file(path: &Path) -> Result<(), Errno> {
    check(|named| named.files.contains(path))
}

/// Checks that the file of a network namespace is named.
///
/// # Errors
/// It is not.
pub fn check_netns(path: &Path) -> Result<(), Errno> {
    check(|named| named.namespaces.contains(path))
}

/// As [`check_netns`], of an opened file.
pub(super) fn check_namespace(file: BorrowedFd<'_>) -> Result<(), Errno> {
    check(|named| named.has_namespace(file))
}

fn check(is_named: impl FnOnce(&Named) -> bool) -> Result<(), Errno> {
    if NAMED.get().is_none_or(is_named) { Ok(()) } else { Err(NOT_NAMED) }
}

impl Named {
    fn has(&self, kinds: &[&str], name: &str) -> bool {
        kinds.iter().any(|kind| self.resources.contains(&(kind.to_string(), name.to_owned())))
    }

    /// Below the run directory the daemon may have made links.
    fn has_socket(&self, path: &Path) -> bool {
        let is_own = path.parent() == Some(&self.run_dir) && path.file_name().is_some();
        is_own || self.files.contains(path)
    }

    /// The daemon can open files of namespaces by itself, such as its own.
    fn has_namespace(&self, file: BorrowedFd<'_>) -> bool {
        let Ok(is) = rustix::fs::fstat(file) else { return false };
        let is_it = |path: &PathBuf| {
            rustix::fs::stat(path)
                .is_ok_and(|named| (named.st_dev, named.st_ino) == (is.st_dev, is.st_ino))
        };
        self.namespaces.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_resource_is_named_with_its_kind() {
        let named = Named {
            resources: [("tap", "net0"), (PF, "0000:01:00.0")]
                .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
                .into(),
            files: [PathBuf::from("/var/vm/web.sock")].into(),
            namespaces: [PathBuf::from("/proc/self/ns/net")].into(),
            run_dir: "/run/shunt".into(),
        };
        for (path, is_named) in [
            ("/var/vm/web.sock", true),
            ("/var/vm/db.sock", false),
            ("/run/shunt/any.sock", true),
            ("/run/shunt", false),
            ("/run/shunt/link/containerd.sock", false),
            ("/run/shunt/../containerd.sock", false),
            ("/run/shunt/..", false),
            ("any.sock", false),
        ] {
            assert_eq!(named.has_socket(Path::new(path)), is_named, "{path}");
        }
        for (path, is_named) in [("/proc/thread-self/ns/net", true), ("/proc/self/ns/mnt", false)] {
            let file = std::fs::File::open(path).unwrap();
            assert_eq!(named.has_namespace(file.as_fd()), is_named, "{path}");
        }
        assert!(named.has(&["xdp", "tap"], "net0"));
        assert!(!named.has(&["xdp"], "net0"), "another kind");
        assert!(!named.has(&["tap"], "0000:01:00.0"));
        assert_eq!(check_named(&["tap"], "red"), Ok(()), "a process that keeps to nothing");
    }
}

//! Server mode: listens on a path.
//!
//! A stale socket file, left by a killed process, is removed. A path with a listener, or of another
//! type, is never touched. A drop removes the file, if it is still the one made for the socket and
//! belongs to this process. An [inherited](Listener::inherit) socket leaves its file until it is
//! [adopted](Listener::adopt).
//!
//! The file gets its group and permissions before the socket listens: until then every connection
//! is refused.
//!
//! Limit: two processes that start on one stale path at the same instant can both find it stale;
//! the later one gets the path.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::connector::{Attempt, ConnectError, attempt};
use crate::foreign::Closer;
use crate::socket_file;

/// Connections that may wait to be accepted; the system's limit is lower.
const BACKLOG: i32 = 4096;

/// Reasons that a path cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens there.
    #[error(
        "socket {path} is in use: a process listens on it; stop that process or choose another path"
    )]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The path is not a socket.
    #[error("{path} exists and is not a socket; remove it or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The path does not fit into a socket address.
    #[error(
        "socket path {path} is {length} bytes long, at most 107 are allowed; use a shorter one"
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The directory of the socket does not exist.
    #[error("cannot create socket {path}: directory {directory} does not exist; create it first")]
    MissingDirectory {
        /// The path.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// No permission.
    #[error(
        "no permission to create socket {path}; make its directory writable for this user, \
         or choose another path"
    )]
    Permission {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The launcher cannot tell that the file is the socket's.
    #[error(
        "cannot change the permissions of socket {path} while it is served: the kernel has no \
         CONFIG_UNIX_DIAG (modprobe unix_diag); restart the daemon"
    )]
    NoProof {
        /// The path.
        path: PathBuf,
    },
    /// The file cannot have that group.
    #[error(
        "cannot give socket {path} to group {gid}: {source}; run the daemon as root or as a member \
         of that group"
    )]
    Group {
        /// The path.
        path: PathBuf,
        /// The group's ID.
        gid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// Other errors.
    #[error("cannot listen on socket {path}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Users that may connect to a socket: group and permissions of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// ID of the group; `None`: this process's own.
    pub gid: Option<u32>,
    /// Permissions, as in `chmod(2)`.
    pub mode: u32,
}

impl SocketAccess {
    /// Access for this process's user, and root.
    pub const OWNER: SocketAccess = SocketAccess { gid: None, mode: 0o600 };
}

/// A non-blocking socket that listens on a path.
#[derive(Debug)]
pub struct Listener {
    /// Present until it is dropped.
    socket: Option<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file made for it.
    file: Option<(u64, u64)>,
    /// `true` if a drop removes the file.
    is_ours: AtomicBool,
}

impl Listener {
    /// Listens on `path` for its owner, removing a stale socket file.
    ///
    /// # Errors
    /// [`ListenError`], which names the path and the remedy.
    pub fn bind(path: impl Into<PathBuf>) -> Result<Self, ListenError> {
        Listener::bind_for(path, SocketAccess::OWNER)
    }

    /// Like [`bind`](Self::bind), for these users.
    ///
    /// # Errors
    /// [`ListenError`], which names the path and the remedy.
    pub fn bind_for(path: impl Into<PathBuf>, access: SocketAccess) -> Result<Self, ListenError> {
        let path = path.into();
        remove_stale(&path)?;
        let failed = |errno: Errno| bind_error(&path, errno.into());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(failed)?;
        let file = socket_file::bind(&socket, &path).map_err(failed)?;
        let listener =
            Self { socket: Some(socket.into()), file, path, is_ours: AtomicBool::new(true) };
        listener.set_access(access)?;
        let listening = rustix::net::listen(&listener, BACKLOG);
        listening.map_err(|errno| bind_error(&listener.path, errno.into()))?;
        Ok(listener)
    }

    /// Changes the users that may connect; connections stay.
    ///
    /// # Errors
    /// [`ListenError`]; the file's permissions are the old ones or the owner's only.
    pub fn set_access(&self, access: SocketAccess) -> Result<(), ListenError> {
        let SocketAccess { gid, mode } = access;
        let path = || self.path.clone();
        let failed = |errno: Errno| match errno {
            Errno::STALE | Errno::NOTSOCK => ListenError::InUse { path: path() },
            Errno::OPNOTSUPP => ListenError::NoProof { path: path() },
            errno => bind_error(&self.path, errno.into()),
        };
        // The file at the path may be another by now.
        let file = self.file.ok_or_else(|| ListenError::InUse { path: path() })?;
        let gid = gid.unwrap_or_else(|| rustix::process::getegid().as_raw());
        let owners = mode & SocketAccess::OWNER.mode;
        let given = socket_file::give(self, &self.path, file, gid, owners);
        given.map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS | Errno::INVAL => {
                ListenError::Group { path: path(), gid, source: errno.into() }
            }
            errno => failed(errno),
        })?;
        socket_file::set_mode(self, &self.path, file, mode).map_err(failed)
    }

    /// Takes over a listening socket of another process, with its file identified by device and
    /// inode, if `path` still has it. The file belongs to the other process until
    /// [`adopt`](Self::adopt): a drop before changes nothing.
    ///
    /// # Errors
    /// The file is not a usable non-blocking socket.
    pub fn inherit(
        socket: OwnedFd,
        path: impl Into<PathBuf>,
        file: Option<(u64, u64)>,
    ) -> io::Result<Self> {
        let socket = UnixListener::from(socket);
        socket.set_nonblocking(true)?;
        let (socket, path) = (Some(socket), path.into());
        Ok(Self { socket, path, file, is_ours: AtomicBool::new(false) })
    }

    /// Device and inode of the file that was made for this socket.
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Takes ownership of the file, which a drop then removes.
    pub fn adopt(&self) {
        self.is_ours.store(true, Ordering::Relaxed);
    }

    /// Leaves the file on drop, since another process continues with the socket.
    pub fn leave(&self) {
        self.is_ours.store(false, Ordering::Relaxed);
    }

    /// Accepts a connection; `None` if none is pending. It is close-on-exec and non-blocking.
    ///
    /// # Errors
    /// As `accept(2)`, for example if this process has too many open files.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket().accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                Ok(Some(stream))
            }
            Err(error) => match error.kind() {
                // A peer that gave up while it waited counts as none.
                io::ErrorKind::WouldBlock
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn socket(&self) -> &UnixListener {
        self.socket.as_ref().expect("present until it is dropped")
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let is_ours = self.is_ours.load(Ordering::Relaxed);
        if let Some(file) = self.file.filter(|_| is_ours) {
            // A failure here cannot be handled, and the next start copes with the file.
            let _ = socket_file::remove(&*self, &self.path, file);
        }
        // Pending connections end with it, and may hold unread descriptors.
        self.socket.take().into_iter().for_each(|socket| Closer::default().close(socket));
    }
}

/// Removes a stale socket at the path; returns `true` if there was one.
///
/// # Errors
/// A process listens there, the file is not a socket, or it cannot be removed.
pub fn remove_stale(path: &Path) -> Result<bool, ListenError> {
    let path_buf = path.to_owned();
    match attempt(path) {
        Ok(Attempt::Missing) => Ok(false),
        Ok(Attempt::Connected(stream)) => {
            Closer::default().close(stream); // it may hold unread descriptors
            Err(ListenError::InUse { path: path_buf })
        }
        Ok(Attempt::Busy) => Err(ListenError::InUse { path: path_buf }),
        Ok(Attempt::Refused) => {
            // A connection to a plain file is refused as well.
            match socket_file::remove_stale(path) {
                Err(Errno::ADDRINUSE) => Err(ListenError::InUse { path: path_buf }),
                Err(Errno::NOTSOCK) => Err(ListenError::NotASocket { path: path_buf }),
                Err(Errno::NOENT) => Ok(false),
                removed => removed.map(|()| true).map_err(|errno| bind_error(path, errno.into())),
            }
        }
        Err(ConnectError::PathTooLong { path, length }) => {
            Err(ListenError::PathTooLong { path, length })
        }
        Err(ConnectError::Permission { source, .. } | ConnectError::Io { source, .. }) => {
            Err(bind_error(path, source))
        }
    }
}

fn bind_error(path: &Path, source: io::Error) -> ListenError {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => {
            ListenError::MissingDirectory { path, directory: directory.to_owned() }
        }
        io::ErrorKind::AddrInUse => ListenError::InUse { path },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ListenError::Permission { path, source }
        }
        _ => ListenError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_live_socket_is_in_use_and_a_stale_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = Listener::bind(&path).unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }));
        assert!(error.to_string().contains("in use"));
        assert!(path.exists(), "the failed attempt must not remove the live socket");
        drop(first);
        assert!(!path.exists());
        // A killed process leaves its file; std's listener does not remove it either.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Listener::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(second.accept().unwrap().is_some());
        assert!(second.accept().unwrap().is_none());
    }

    #[test]
    fn a_file_has_its_permissions_whatever_the_umask_and_keeps_its_connections() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mode = || fs::symlink_metadata(&path).unwrap().mode() & 0o7777;
        drop(Listener::bind(&path).unwrap());
        let access = SocketAccess { gid: None, mode: 0o666 };
        let listener = Listener::bind_for(&path, access).unwrap();
        assert_eq!(mode(), 0o666, "beyond the usual umask");
        let mut peer = UnixStream::connect(&path).unwrap();
        let mut ours = listener.accept().unwrap().expect("it connected");
        listener.set_access(SocketAccess::OWNER).unwrap();
        assert_eq!(mode(), 0o600);
        io::Write::write_all(&mut peer, b"x").unwrap();
        ours.set_nonblocking(false).unwrap();
        io::Read::read_exact(&mut ours, &mut [0]).unwrap();
        // Another file in its place is left alone.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        let before = mode();
        listener.set_access(access).unwrap_err();
        assert_eq!(mode(), before);
    }

    #[test]
    fn a_group_that_cannot_own_the_file_is_an_error_and_leaves_no_socket() {
        if rustix::process::geteuid().is_root() {
            return; // root may give a file to every group
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let error = Listener::bind_for(&path, SocketAccess { gid: Some(0), mode: 0o660 });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("group 0") && error.contains("member"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn an_inherited_socket_keeps_its_file_until_it_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let first = Listener::bind(&path).unwrap();
        let inherit = || {
            let socket = first.as_fd().try_clone_to_owned().unwrap();
            Listener::inherit(socket, &path, first.file()).unwrap()
        };
        drop(inherit());
        UnixStream::connect(&path).expect("a failed take-over removes nothing");
        let second = inherit();
        second.adopt();
        second.leave();
        drop(second);
        assert!(path.exists(), "left again");
        inherit().adopt();
        assert!(!path.exists(), "what was adopted goes with the socket");
    }

    #[test]
    fn a_socket_ends_whatever_waits_in_its_connections() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = Listener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        let (slow, peer) = crate::testing::lingering();
        let message = crate::Message::request(crate::Request::SetLogFd, &[0u8; 0]);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        crate::socket::send_before(&stream, &message, &[slow.as_fd()], end).unwrap();
        drop((slow, stream));
        drop(listener); // still pending
        crate::testing::drain(peer);
    }

    #[test]
    fn a_file_that_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::bind(&path), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        let listener = Listener::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(listener);
        assert_eq!(fs::read(&path).unwrap(), b"another's");
    }

    #[test]
    fn errors_name_path_and_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let text = |path: PathBuf| Listener::bind(path).unwrap_err().to_string();
        let missing = text(dir.path().join("no/s"));
        assert!(missing.contains("no/s") && missing.contains("create it first"), "{missing}");
        let long = text(dir.path().join("x".repeat(150)));
        assert!(long.contains("at most 107"), "{long}");
        // Even root cannot make a socket in /proc.
        let denied = Listener::bind("/proc/self/s").unwrap_err();
        assert!(denied.to_string().contains("/proc/self/s"), "{denied}");
    }
}

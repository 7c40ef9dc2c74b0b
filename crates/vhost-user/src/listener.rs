//! Server mode: listen on a path.
//!
//! A socket file that nobody listens on any more, left by a process that was killed, is removed.
//! A path where somebody listens, or that is no socket, is never touched. On drop the file is
//! removed, if it is still the one made for the socket, and this process's: a socket that was
//! [inherited](Listener::inherit) leaves it where it is until it is [adopted](Listener::adopt).
//!
//! Limit: two processes that start on one stale path at the same instant can both find it stale;
//! the later one wins the path.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::connector::{Attempt, ConnectError, attempt};
use crate::foreign::Closer;

/// Why a path cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there.
    #[error(
        "socket {path} is in use: a process listens on it; stop that process or choose another path"
    )]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// There is a file that is no socket.
    #[error("{path} exists and is not a socket; remove it or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The path does not fit into a socket address.
    #[error(
        "socket path {path} is {length} bytes long, at most 107 are possible; use a shorter one"
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// The directory of the socket does not exist.
    #[error("socket {path} cannot be made: directory {directory} does not exist; create it first")]
    MissingDirectory {
        /// The path.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// No permission.
    #[error(
        "no permission to make socket {path}; make its directory writable for this user, \
         or choose another path"
    )]
    Permission {
        /// The path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot listen on socket {path}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// A socket that listens on a path; non-blocking.
#[derive(Debug)]
pub struct Listener {
    /// Present until it is dropped.
    socket: Option<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file made for it.
    file: Option<(u64, u64)>,
    /// Whether that is removed on drop.
    is_ours: AtomicBool,
}

impl Listener {
    /// Listens on `path`, removing a socket file that nobody listens on.
    ///
    /// # Errors
    /// [`ListenError`], which names the path and the remedy.
    pub fn bind(path: impl Into<PathBuf>) -> Result<Self, ListenError> {
        let path = path.into();
        remove_stale(&path)?;
        let socket = UnixListener::bind(&path).map_err(|source| bind_error(&path, source))?;
        socket.set_nonblocking(true).map_err(|source| bind_error(&path, source))?;
        let file = identity(&path);
        Ok(Self { socket: Some(socket), path, file, is_ours: AtomicBool::new(true) })
    }

    /// Goes on with a socket that another process listens on, whose file is known by device and
    /// inode: that of `path` if it is the same. It stays the other's until [`adopt`](Self::adopt):
    /// a drop before leaves everything as it is.
    ///
    /// # Errors
    /// It is no socket that can be used without waiting.
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

    /// The file is this process's from now on, and removed on drop.
    pub fn adopt(&self) {
        self.is_ours.store(true, Ordering::Relaxed);
    }

    /// Leaves the file where it is on drop, for somebody else goes on with the socket.
    pub fn leave(&self) {
        self.is_ours.store(false, Ordering::Relaxed);
    }

    /// Accepts a connection; `None` if nobody waits. It is close-on-exec and non-blocking.
    ///
    /// # Errors
    /// As `accept(2)`, for example when this process has too many files open.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket().accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                Ok(Some(stream))
            }
            Err(error) => match error.kind() {
                // A peer that gave up while it waited is as good as none.
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
        if is_ours && self.file.is_some() && identity(&self.path) == self.file {
            // Nothing can be done about a failure here, and the next start copes with the file.
            let _ = fs::remove_file(&self.path);
        }
        // Connections that nobody accepted end with it, and descriptors may wait in them.
        self.socket.take().into_iter().for_each(|socket| Closer::default().close(socket));
    }
}

/// Makes sure that the path is free, by removing a stale socket; returns `true` if there was one.
///
/// # Errors
/// A process listens there, the file is no socket, or it cannot be removed.
pub fn remove_stale(path: &Path) -> Result<bool, ListenError> {
    let path_buf = path.to_owned();
    match attempt(path) {
        Ok(Attempt::Missing) => Ok(false),
        Ok(Attempt::Connected(stream)) => {
            Closer::default().close(stream); // whoever accepted it may have sent descriptors
            Err(ListenError::InUse { path: path_buf })
        }
        Ok(Attempt::Busy) => Err(ListenError::InUse { path: path_buf }),
        Ok(Attempt::Refused) => {
            // Connecting to a plain file is refused as well.
            match fs::symlink_metadata(path) {
                Ok(metadata) if !metadata.file_type().is_socket() => {
                    return Err(ListenError::NotASocket { path: path_buf });
                }
                _ => {}
            }
            match fs::remove_file(path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(bind_error(path, source))
                }
                removed => Ok(removed.is_ok()),
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

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
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
        // A killed process leaves its file: std's listener does not remove it either.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Listener::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(second.accept().unwrap().is_some());
        assert!(second.accept().unwrap().is_none());
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
        UnixStream::connect(&path).expect("whoever failed to take over removed nothing");
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
        drop(listener); // nobody accepted it
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
        // Nobody, not even root, can make a socket in /proc.
        let denied = Listener::bind("/proc/self/s").unwrap_err();
        assert!(denied.to_string().contains("/proc/self/s"), "{denied}");
    }
}

//! Client mode: connects to a listening peer, and reconnects when it went away.
//!
//! [`Retry`] is only the schedule, with time as a parameter: 20 ms after the first failure, then
//! twice as long each time up to 80 ms, so that a returning peer is found within 100 ms.
//! [`Connector`] adds the attempt itself, which never blocks.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::socket_file;

/// Wait after the first failure.
pub const RETRY_FIRST: Duration = Duration::from_millis(20);
/// Longest wait.
pub const RETRY_MAX: Duration = Duration::from_millis(80);

/// Schedule of attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// The next attempt and the interval before it; `None` before the first failure.
    next: Option<(Instant, Duration)>,
}

impl Retry {
    /// A schedule whose first attempt is due at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Time left until the next attempt; zero if it is due.
    pub fn wait(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::ZERO, |(at, _)| at.saturating_duration_since(now))
    }

    /// Returns `true` if the next attempt is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.wait(now).is_zero()
    }

    /// Records a failed attempt at `now`.
    pub fn failed(&mut self, now: Instant) {
        let interval = match self.next {
            None => RETRY_FIRST,
            Some((_, last)) => (last * 2).min(RETRY_MAX),
        };
        self.next = Some((now + interval, interval));
    }

    /// Records a successful attempt: the schedule starts over after a disconnect.
    pub fn succeeded(&mut self) {
        self.next = None;
    }
}

/// Reasons for failure that waiting alone may not fix.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
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
    /// No permission for the socket or a directory above it.
    #[error("no permission to connect to {path}; change its owner or mode, or run as its owner")]
    Permission {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Other errors.
    #[error("cannot connect to {path}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Connects to a path, and reconnects after each disconnect.
#[derive(Debug)]
pub struct Connector {
    path: PathBuf,
    retry: Retry,
}

impl Connector {
    /// A connector for this path; the first attempt is due at once.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), retry: Retry::new() }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Time left until the next attempt; zero if it is due.
    pub fn wait(&self, now: Instant) -> Duration {
        self.retry.wait(now)
    }

    /// Tries to connect if that is due. `None`: not due, or nothing listens there yet.
    ///
    /// # Errors
    /// [`ConnectError`]; the next attempt is scheduled all the same, so an operator can fix the
    /// cause meanwhile.
    pub fn poll(&mut self, now: Instant) -> Result<Option<UnixStream>, ConnectError> {
        if !self.retry.is_due(now) {
            return Ok(None);
        }
        let result = attempt(&self.path);
        match &result {
            Ok(Attempt::Connected(_)) => self.retry.succeeded(),
            _ => self.retry.failed(now),
        }
        Ok(match result? {
            Attempt::Connected(stream) => Some(stream),
            Attempt::Missing | Attempt::Refused | Attempt::Busy => None,
        })
    }
}

/// Result of one attempt.
pub(crate) enum Attempt {
    Connected(UnixStream),
    /// No such file.
    Missing,
    /// The file exists, but nothing listens, or it is no socket.
    Refused,
    /// The listener has a full queue, or another type of socket.
    Busy,
}

/// Connects once, without blocking: a Unix socket connects at once or not at all.
pub(crate) fn attempt(path: &Path) -> Result<Attempt, ConnectError> {
    let failed = |errno: Errno| {
        let path = path.to_owned();
        let source = std::io::Error::from(errno);
        match errno {
            Errno::ACCESS | Errno::PERM => ConnectError::Permission { path, source },
            _ => ConnectError::Io { path, source },
        }
    };
    SocketAddrUnix::new(path).map_err(|errno| match errno {
        Errno::NAMETOOLONG => {
            ConnectError::PathTooLong { path: path.to_owned(), length: path.as_os_str().len() }
        }
        other => failed(other),
    })?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(failed)?;
    match socket_file::connect(&socket, path) {
        Ok(()) => Ok(Attempt::Connected(UnixStream::from(socket))),
        Err(Errno::NOENT) => Ok(Attempt::Missing),
        // A link, which is not followed, and any other file.
        Err(Errno::CONNREFUSED | Errno::NOTSOCK) => Ok(Attempt::Refused),
        Err(Errno::AGAIN | Errno::PROTOTYPE) => Ok(Attempt::Busy),
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Listener;

    #[test]
    fn intervals_double_up_to_the_limit() {
        let start = Instant::now();
        let mut retry = Retry::new();
        let mut now = start;
        assert!(retry.is_due(now));
        for expected_ms in [20, 40, 80, 80, 80] {
            retry.failed(now);
            assert_eq!(retry.wait(now), Duration::from_millis(expected_ms));
            assert!(!retry.is_due(now + Duration::from_millis(expected_ms - 1)));
            now += Duration::from_millis(expected_ms);
            assert!(retry.is_due(now));
        }
        retry.succeeded();
        retry.failed(now);
        assert_eq!(retry.wait(now), RETRY_FIRST);
    }

    #[test]
    fn finds_a_peer_that_comes_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut connector = Connector::new(&path);
        let now = Instant::now();
        assert!(connector.poll(now).unwrap().is_none());
        let listener = Listener::bind(&path).unwrap();
        // Not due yet, so not even tried.
        assert!(connector.poll(now).unwrap().is_none());
        assert!(connector.poll(now + RETRY_FIRST).unwrap().is_some());
        assert!(listener.accept().unwrap().is_some());
        // The peer went away: tried at once, then at intervals.
        drop(listener);
        let later = now + Duration::from_secs(9);
        assert!(connector.poll(later).unwrap().is_none());
        assert_eq!(connector.wait(later), RETRY_FIRST);
    }

    #[test]
    fn a_bad_path_is_an_error_and_still_tried_again() {
        let mut connector = Connector::new("/tmp/".to_owned() + &"x".repeat(200));
        let now = Instant::now();
        let error = connector.poll(now).unwrap_err().to_string();
        assert!(error.contains("205 bytes long"), "{error}");
        assert_eq!(connector.wait(now), RETRY_FIRST);
        let mut connector = Connector::new("/dev/null/socket");
        assert!(matches!(connector.poll(now), Err(ConnectError::Io { .. })));
    }
}

//! Notifications to the service manager, if it wants them: sd_notify(3).

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Limit for a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports that another process is the daemon from now on.
pub(in super::super) fn main_pid(pid: u32) {
    say(std::env::var_os("NOTIFY_SOCKET"), &format!("MAINPID={pid}\n"));
}

/// Reports that the daemon serves.
pub(in super::super) fn ready() {
    say(std::env::var_os("NOTIFY_SOCKET"), "READY=1\n");
}

/// Signs of life for the service manager's watchdog: sd_watchdog_enabled(3), `WatchdogSec` of the
/// unit. `WATCHDOG_PID` is ignored: a hot restart changes the process.
#[derive(Debug)]
pub(in super::super) struct Watchdog {
    to: Option<OsString>,
    /// Half of the manager's limit; `None` without one.
    interval: Option<Duration>,
    next: Instant,
}

impl Watchdog {
    /// The watchdog that the manager wants, if any.
    pub(in super::super) fn of_environment(now: Instant) -> Watchdog {
        let limit_us = std::env::var("WATCHDOG_USEC").ok();
        Watchdog::new(std::env::var_os("NOTIFY_SOCKET"), limit_us.as_deref(), now)
    }

    fn new(to: Option<OsString>, limit_us: Option<&str>, now: Instant) -> Watchdog {
        let limit_us = limit_us.and_then(|text| text.parse().ok()).filter(|limit_us| *limit_us > 0);
        let interval = limit_us.map(|limit_us| Duration::from_micros(limit_us) / 2);
        // Not at once: after a hot restart the manager has yet to learn of this process.
        Watchdog { to, interval, next: now + interval.unwrap_or_default() }
    }

    /// Gives a sign of life, if it is due.
    pub(in super::super) fn tell(&mut self, now: Instant) {
        let Some(interval) = self.interval.filter(|_| now >= self.next) else { return };
        self.next = now + interval;
        say(self.to.clone(), "WATCHDOG=1\n");
    }
}

/// Errors are ignored: a manager that does not listen needs no message.
fn say(to: Option<OsString>, what: &str) {
    let Some(to) = to.and_then(|to| to.into_string().ok()) else { return };
    let address = match to.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&to),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        // A manager that hangs must not hang the daemon.
        let _ = socket.set_write_timeout(Some(SEND_TIMEOUT));
        let _ = socket.send_to_addr(what.as_bytes(), &address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_it_where_it_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        say(Some(path.into()), "MAINPID=7\n");
        let mut heard = [0; 64];
        let n = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..n], b"MAINPID=7\n");
        say(None, "READY=1\n");
        say(Some("/nobody/listens".into()), "READY=1\n");
    }

    #[test]
    fn signs_of_life_come_twice_in_the_managers_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let to = Some(OsString::from(path));
        let heard = || std::iter::from_fn(|| manager.recv(&mut [0; 64]).ok()).count();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut watchdog = Watchdog::new(to.clone(), Some("2000000"), begin);
        for (ms, expected) in [(0, 0), (999, 0), (1000, 1), (1001, 0), (1999, 0), (2600, 1)] {
            watchdog.tell(at(ms));
            assert_eq!(heard(), expected, "at {ms} ms");
        }
        for none in [None, Some("0"), Some("soon")] {
            Watchdog::new(to.clone(), none, begin).tell(at(1_000_000));
            assert_eq!(heard(), 0, "{none:?}");
        }
    }
}

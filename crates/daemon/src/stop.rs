//! What ends a daemon: a word from any thread, a signal, or the end of the process that it belongs
//! to; and signals that do not.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// Ends [`Daemon::serve`], from any thread; so does dropping it.
#[derive(Debug)]
pub struct Stop(pub(super) UnixStream);

impl Stop {
    /// Ends it.
    pub fn stop(&self) {
        // The only failures are a daemon that is gone and a full buffer, which ends it as well.
        let _ = (&self.0).write(&[0]);
    }

    /// Ends it at SIGINT or SIGTERM, too.
    ///
    /// # Errors
    /// If the system has no descriptor left, or refuses the handler.
    pub fn on_signals(&self) -> Result<()> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, self.0.try_clone()?)?;
        }
        Ok(())
    }
}

/// Signals that are orders to other daemons (reload, rotate logs), and would end this one without
/// any of its files and sockets being removed.
const IGNORED: [(i32, &str); 3] = [
    (signal_hook::consts::SIGHUP, "SIGHUP"),
    (signal_hook::consts::SIGUSR1, "SIGUSR1"),
    (signal_hook::consts::SIGUSR2, "SIGUSR2"),
];

/// The ignored signals that came, each until it is told.
#[derive(Debug, Default)]
pub(super) struct IgnoredSignals([Arc<AtomicBool>; IGNORED.len()]);

impl IgnoredSignals {
    /// Ignores them from now on.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub(super) fn catch() -> Result<IgnoredSignals> {
        let came = IgnoredSignals::default();
        for ((signal, name), flag) in IGNORED.iter().zip(&came.0) {
            signal_hook::flag::register(*signal, flag.clone())
                .with_context(|| format!("cannot handle {name}"))?;
        }
        Ok(came)
    }

    /// Logs those that came since the last call.
    pub(super) fn tell(&self) {
        for ((_, name), flag) in IGNORED.iter().zip(&self.0) {
            if flag.swap(false, Ordering::Relaxed) {
                tracing::warn!(
                    "{name} ignored: the configuration file is read only at a start; change the \
                     running daemon with `shunt apply -f FILE`, end it with SIGTERM"
                );
            }
        }
    }
}

/// The process that started this one, which is also to be watched by who takes over.
pub(super) fn guardian() -> Result<OwnedFd> {
    host::process::end_with_parent()?;
    let parent =
        rustix::process::getppid().context("the parent of this process is not to be seen")?;
    let flags = rustix::process::PidfdFlags::empty();
    rustix::process::pidfd_open(parent, flags).context("the parent of this process is gone")
}

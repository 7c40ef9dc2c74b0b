//! Stopping a daemon: from any thread, by a signal, or with its parent process; and ignored
//! signals.

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
    /// Stops the daemon.
    pub fn stop(&self) {
        // Fails only if the daemon is gone, or the buffer is full, which stops it as well.
        let _ = (&self.0).write(&[0]);
    }

    /// Stops the daemon at SIGINT or SIGTERM, too.
    ///
    /// # Errors
    /// The system has no descriptor left, or rejects the handler.
    pub fn on_signals(&self) -> Result<()> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, self.0.try_clone()?)?;
        }
        Ok(())
    }
}

/// Signals with a meaning for other daemons (reload, rotate logs). By default they would kill this
/// one without cleanup.
const IGNORED: [(i32, &str); 3] = [
    (signal_hook::consts::SIGHUP, "SIGHUP"),
    (signal_hook::consts::SIGUSR1, "SIGUSR1"),
    (signal_hook::consts::SIGUSR2, "SIGUSR2"),
];

/// Ignored signals that arrived, until logged.
#[derive(Debug, Default)]
pub(super) struct IgnoredSignals([Arc<AtomicBool>; IGNORED.len()]);

impl IgnoredSignals {
    /// Ignores them from now on.
    ///
    /// # Errors
    /// The system rejects the handler.
    pub(super) fn catch() -> Result<IgnoredSignals> {
        let came = IgnoredSignals::default();
        for ((signal, name), flag) in IGNORED.iter().zip(&came.0) {
            signal_hook::flag::register(*signal, flag.clone())
                .with_context(|| format!("cannot handle {name}"))?;
        }
        Ok(came)
    }

    /// Logs the signals that arrived since the last call.
    pub(super) fn tell(&self) {
        for ((_, name), flag) in IGNORED.iter().zip(&self.0) {
            if flag.swap(false, Ordering::Relaxed) {
                tracing::warn!(
                    "{name} ignored: the configuration file is read only at start; change the \
                     running daemon with `shunt apply -f FILE`, stop it with SIGTERM"
                );
            }
        }
    }
}

/// Pidfd of the process that started this one; a successor watches it, too.
pub(super) fn guardian() -> Result<OwnedFd> {
    host::process::end_with_parent(rustix::process::Signal::TERM)?;
    let parent =
        rustix::process::getppid().context("the parent process is outside this PID namespace")?;
    let flags = rustix::process::PidfdFlags::empty();
    rustix::process::pidfd_open(parent, flags).context("the parent process has exited")
}

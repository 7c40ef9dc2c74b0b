//! What ends a daemon: a word from any thread, a signal, or the end of the process that it belongs to.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

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

/// The process that started this one, which is also to be watched by who takes over.
pub(super) fn guardian() -> Result<OwnedFd> {
    host::process::end_with_parent()?;
    let parent =
        rustix::process::getppid().context("the parent of this process is not to be seen")?;
    let flags = rustix::process::PidfdFlags::empty();
    rustix::process::pidfd_open(parent, flags).context("the parent of this process is gone")
}

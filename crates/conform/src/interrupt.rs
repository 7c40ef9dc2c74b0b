//! Interruption of a run by a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Set by a signal; by default never.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// The system rejects the handlers.
    pub fn catch() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, interrupt.0.clone())
                .context("cannot handle signals")?;
        }
        Ok(interrupt)
    }

    /// `true` once a signal has come.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// A signal has come.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.came(), "interrupted");
        Ok(())
    }
}

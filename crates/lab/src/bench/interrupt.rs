//! SIGINT and SIGTERM: what the lab started ends in order, and nothing is left behind.
//!
//! The signal ends the children of benches, and so each wait for one of them fails; the experiment
//! unwinds, and its directories are removed. A second signal ends this process at once.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Time from one look at the flag to the next.
const LOOK: Duration = Duration::from_millis(20);
/// Exit code of a process that a second signal ends: 128 and SIGINT, as shells have it.
pub const EXIT_CODE: i32 = 130;

/// Children that live, each by a number of its own. A process file descriptor cannot mean another
/// process that was given the same number later.
static CHILDREN: Mutex<(u64, Vec<(u64, OwnedFd)>)> = Mutex::new((0, Vec::new()));

fn children() -> MutexGuard<'static, (u64, Vec<(u64, OwnedFd)>)> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(Arc::default)
}

/// Handles both signals from now on; call it once.
///
/// # Errors
/// The system does not take the handlers.
pub fn watch() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal sets the flag that makes the second one end the process.
        let second =
            signal_hook::flag::register_conditional_shutdown(signal, EXIT_CODE, flag().clone());
        second.context("cannot handle signals")?;
        signal_hook::flag::register(signal, flag().clone()).context("cannot handle signals")?;
    }
    Ok(())
}

/// Returns `true` once one of the signals came.
pub fn is_set() -> bool {
    flag().load(Ordering::Relaxed)
}

/// Ends an experiment between two steps once one of the signals came.
///
/// # Errors
/// One of the signals came.
pub fn check() -> Result<()> {
    anyhow::ensure!(!is_set(), "interrupted");
    Ok(())
}

fn end_children() {
    loop {
        std::thread::sleep(LOOK);
        if is_set() {
            for (_, child) in children().1.drain(..) {
                let _ = pidfd_send_signal(child, Signal::TERM);
            }
        }
    }
}

/// A child that a signal ends, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Registered(u64);

impl Registered {
    /// Registers a child; on a kernel that has no process file descriptors it is not ended. The
    /// first one starts the thread that looks for signals: a process with a second thread cannot
    /// enter a user namespace, which experiments do before.
    pub(crate) fn new(child: &Child) -> Registered {
        static WATCHER: Once = Once::new();
        WATCHER.call_once(|| {
            let watcher = std::thread::Builder::new().name("interrupt".into());
            // Without it a signal waits for the end of the experiment.
            let _ = watcher.spawn(end_children);
        });
        let mut children = children();
        let (next, list) = &mut *children;
        *next += 1;
        let pid = Pid::from_child(child);
        list.extend(pidfd_open(pid, PidfdFlags::empty()).ok().map(|fd| (*next, fd)));
        Registered(*next)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        children().1.retain(|(number, _)| *number != self.0);
    }
}

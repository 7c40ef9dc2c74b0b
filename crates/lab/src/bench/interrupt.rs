//! SIGINT and SIGTERM: orderly end of an experiment, without leftovers.
//!
//! The signal ends the children of benches, so each wait for one of them fails; the experiment
//! unwinds, and its directories are removed. A second signal ends this process at once.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Interval of polls of the flag.
const LOOK: Duration = Duration::from_millis(20);
/// Exit code after a second signal: 128 and SIGINT, as in shells.
pub const EXIT_CODE: i32 = 130;

/// Live children, each by a number of its own. Process file descriptors, unlike process ids, are
/// not reused.
static CHILDREN: Mutex<(u64, Vec<(u64, OwnedFd)>)> = Mutex::new((0, Vec::new()));

fn children() -> MutexGuard<'static, (u64, Vec<(u64, OwnedFd)>)> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(Arc::default)
}

/// Installs the handlers of both signals; call it once.
///
/// # Errors
/// The system rejects the handlers.
pub fn watch() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal sets the flag by which the second ends the process.
        let second =
            signal_hook::flag::register_conditional_shutdown(signal, EXIT_CODE, flag().clone());
        second.context("cannot handle signals")?;
        signal_hook::flag::register(signal, flag().clone()).context("cannot handle signals")?;
    }
    Ok(())
}

/// Returns `true` once one of the signals was received.
pub fn is_set() -> bool {
    flag().load(Ordering::Relaxed)
}

/// Ends an experiment between two steps after one of the signals.
///
/// # Errors
/// One of the signals was received.
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

/// Registration of a child that a signal ends, until dropped.
#[derive(Debug)]
pub(crate) struct Registered(u64);

impl Registered {
    /// Registers a child. A kernel without process file descriptors does not end it. The first call
    /// starts the thread that polls for signals: it must come after entering a user namespace,
    /// which a process with two threads cannot do.
    pub(crate) fn new(child: &Child) -> Registered {
        static WATCHER: Once = Once::new();
        WATCHER.call_once(|| {
            let watcher = std::thread::Builder::new().name("interrupt".into());
            // Without the thread, a signal takes effect at the end of the experiment.
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

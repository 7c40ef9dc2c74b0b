//! Makes a system call in which a thread of this process waits return early, with EINTR.
//!
//! Model: a signal whose handler does nothing, sent to that one thread. Almost every wait in the
//! kernel ends when a handler has run, unless the handler was installed with `SA_RESTART`; see
//! signal(7), "Interruption of system calls and library functions by signal handlers".
//!
//! Limits: a thread that is not waiting when the signal comes notices nothing, and may wait
//! afterwards, so whoever wants it out nudges again. The signal is SIGURG, which nobody here uses
//! otherwise, and which ends no process that has no handler for it.

// The standard library has no signals, and what signal-hook installs has SA_RESTART, which is just
// what must not be.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Once;

const SIGNAL: libc::c_int = libc::SIGURG;

static INSTALL: Once = Once::new();

/// A thread that can be nudged.
#[derive(Debug)]
pub(crate) struct Nudge {
    tid: libc::pid_t,
}

impl Nudge {
    /// The calling thread, which is made ready for it.
    pub(crate) fn of_this_thread() -> Nudge {
        INSTALL.call_once(install);
        // SAFETY: both sets are valid; whoever started us may have left the signal blocked.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, SIGNAL);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
        }
        Nudge { tid: rustix::thread::gettid().as_raw_nonzero().get() }
    }

    /// Makes it leave the system call in which it waits, if it does. A thread that has ended is not
    /// found; even one of ours that got its number since would only notice a system call that
    /// returns early.
    pub(crate) fn send(&self) {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: tgkill takes three numbers and touches no memory of ours; SIGNAL has a handler.
        unsafe {
            libc::syscall(libc::SYS_tgkill, process, self.tid, SIGNAL);
        }
    }
}

fn install() {
    // SAFETY: `action` is a valid sigaction, and a handler that does nothing is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK; // and no SA_RESTART
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(SIGNAL, &raw const action, null_mut());
    }
}

extern "C" fn nothing(_signal: libc::c_int) {}

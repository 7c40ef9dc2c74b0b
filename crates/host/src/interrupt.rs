//! Interrupts a system call in which a thread of this process waits, with EINTR.
//!
//! Model: a signal with an empty handler, sent to that one thread. Almost every wait in the kernel
//! ends after a handler has run, unless the handler was installed with `SA_RESTART`; see signal(7),
//! "Interruption of system calls and library functions by signal handlers".
//!
//! Limits: a thread that is not waiting when the signal comes is not affected, and may wait
//! afterwards; repeat the interrupt until the thread leaves its call. The signal is SIGURG: it has
//! no other use in this process, and its default action is to be ignored.

// The standard library has no signals, and signal-hook installs its handlers with SA_RESTART, which
// must not be set here.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Once;

const SIGNAL: libc::c_int = libc::SIGURG;

static INSTALL: Once = Once::new();

/// A thread whose system calls can be interrupted.
#[derive(Debug)]
pub(crate) struct ThreadInterrupt {
    tid: libc::pid_t,
}

impl ThreadInterrupt {
    /// The calling thread; prepares it.
    pub(crate) fn of_this_thread() -> ThreadInterrupt {
        INSTALL.call_once(install);
        // SAFETY: both sets are valid; the signal may have been blocked by the parent process.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, SIGNAL);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
        }
        ThreadInterrupt { tid: rustix::thread::gettid().as_raw_nonzero().get() }
    }

    /// Interrupts the system call in which the thread waits, if any. A thread that has ended is not
    /// found. Another thread of ours that reused its id would only see a system call return early.
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

//! Signal handler for system calls that a filter refuses: counts the call, which returns EPERM.
//!
//! The filters answer with SIGSYS (`SECCOMP_RET_TRAP`) and not with the error itself
//! (`SECCOMP_RET_ERRNO`), because the kernel counts refused calls for no process.

// The call's result is a register in the context of the interrupted thread.
#![allow(unsafe_code)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// Refused calls so far.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The last one: its number, and its thread in the upper half.
static LAST: AtomicU64 = AtomicU64::new(0);

/// `SYS_SECCOMP` of `si_code`: the signal is from a filter.
const FROM_FILTER: libc::c_int = 1;

/// Refused calls so far; number and thread of the last one.
pub(super) fn refused() -> (u64, i64, i32) {
    let last = LAST.load(Ordering::Relaxed);
    (COUNT.load(Ordering::Relaxed), i64::from(last as u32), (last >> 32) as i32)
}

/// Installs the handler, once for a process.
pub(super) fn install() -> Result<(), Errno> {
    // SAFETY: `action` is a valid sigaction; the handler makes one system call and accesses
    // atomics and its arguments, so it is async-signal-safe.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refuse as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSYS, &raw const action, null_mut())
    };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

extern "C" fn refuse(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both to a handler with SA_SIGINFO, valid until it returns.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    if info.si_code != FROM_FILTER {
        return; // sent by a process
    }
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let number = result(context, -i64::from(Errno::PERM.raw_os_error()));
    LAST.store((thread as u64) << 32 | u64::from(number as u32), Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Sets the result of the interrupted call; returns the call's number.
#[cfg(target_arch = "x86_64")]
fn result(context: &mut libc::ucontext_t, value: i64) -> i64 {
    let register = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
    std::mem::replace(register, value)
}

/// Sets the result of the interrupted call; returns the call's number.
#[cfg(target_arch = "aarch64")]
fn result(context: &mut libc::ucontext_t, value: i64) -> i64 {
    context.uc_mcontext.regs[0] = value as u64;
    context.uc_mcontext.regs[8] as i64
}

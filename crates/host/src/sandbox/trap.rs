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

#[cfg(test)]
mod tests {
    use super::super::calls::{Call, GROUPS};
    use super::super::{confine_calls, confine_lane};
    use super::*;

    fn call(number: libc::c_long, first: libc::c_long) -> Result<(), Errno> {
        arguments(number, [first, 0, 0, 0])
    }

    /// Result of a call with zeros as further arguments.
    fn arguments(number: libc::c_long, [a, b, c, d]: [libc::c_long; 4]) -> Result<(), Errno> {
        // SAFETY: a filter refuses it. Without one, no call here accepts a null pointer, changes
        // something with these arguments, or takes memory of this process.
        match unsafe { libc::syscall(number, a, b, c, d, 0, 0) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
            _ => Ok(()),
        }
    }

    fn confined<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let confined = move || {
            confine_calls().unwrap();
            work()
        };
        std::thread::spawn(confined).join().unwrap()
    }

    #[test]
    fn no_thread_makes_these_calls() {
        let forbidden = [
            libc::SYS_add_key,
            libc::SYS_capset,
            libc::SYS_chroot,
            libc::SYS_delete_module,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            libc::SYS_fchown,
            libc::SYS_fchownat,
            libc::SYS_init_module,
            libc::SYS_io_uring_setup,
            libc::SYS_keyctl,
            libc::SYS_kill,
            libc::SYS_mknodat,
            libc::SYS_mount,
            libc::SYS_move_mount,
            libc::SYS_open_by_handle_at,
            libc::SYS_perf_event_open,
            libc::SYS_pidfd_getfd,
            libc::SYS_pivot_root,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_ptrace,
            libc::SYS_setns,
            libc::SYS_setuid,
            libc::SYS_swapon,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_userfaultfd,
        ];
        let refused = confined(move || {
            let results = forbidden.map(|number| (number, call(number, 0)));
            results
                .into_iter()
                .filter(|(_, result)| *result != Err(Errno::PERM))
                .collect::<Vec<_>>()
        });
        assert_eq!(refused, []);
    }

    #[test]
    fn no_thread_makes_these_calls_with_these_arguments() {
        let forbidden = [
            ("a process", libc::SYS_clone, 0),
            ("a namespace", libc::SYS_clone, i64::from(libc::CLONE_NEWNET | libc::CLONE_THREAD)),
            ("a BPF program", libc::SYS_bpf, 5),
            ("a signal to another process", libc::SYS_tgkill, 1),
            ("limits of another process", libc::SYS_prlimit64, 1),
            ("CPUs of another process", libc::SYS_sched_setaffinity, 1),
            ("a netlink socket", libc::SYS_socket, libc::AF_NETLINK.into()),
            ("a packet socket", libc::SYS_socket, libc::AF_PACKET.into()),
            ("an AF_XDP socket", libc::SYS_socket, libc::AF_XDP.into()),
            ("a virtual machine socket", libc::SYS_socket, libc::AF_VSOCK.into()),
            ("a dump", libc::SYS_prctl, libc::PR_SET_DUMPABLE.into()),
        ];
        let all = u64::MAX >> 1;
        let owner = confined(|| arguments(libc::SYS_fcntl, [0, libc::F_SETOWN as _, 1, 0]));
        assert_eq!(owner, Err(Errno::PERM), "signals to other processes");
        let new = libc::O_CREAT | libc::O_WRONLY;
        for mode in [0o755, 0o4644] {
            let made = confined(move || arguments(libc::SYS_openat, [0, 0, new as _, mode]));
            assert_eq!(made, Err(Errno::PERM), "an executable file");
        }
        let code = libc::PROT_READ | libc::PROT_EXEC;
        let mapped = confined(move || arguments(libc::SYS_mmap, [0, all as _, code as _, 0]));
        assert_eq!(mapped, Err(Errno::PERM), "new code");
        for (what, number, first) in forbidden {
            assert_eq!(confined(move || call(number, first)), Err(Errno::PERM), "{what}");
        }
        let before = refused().0;
        let known = confined(|| call(libc::SYS_clone3, 0));
        assert_eq!(known, Err(Errno::NOSYS), "the C library then uses clone");
        assert_eq!(confined(|| call(libc::SYS_ioctl, 0)), Err(Errno::PERM));
        assert!(refused().0 > before);
    }

    #[test]
    fn a_lane_makes_none_of_the_control_threads_calls() {
        let calls = |lanes| {
            let groups = GROUPS.iter().filter(move |group| group.lanes == lanes);
            groups.flat_map(|group| group.calls)
        };
        // Of a call with limits, lanes may make some.
        let is_partly = |call: &&Call| calls(true).any(|of_lanes| of_lanes.number == call.number);
        let forbidden: Vec<&Call> = calls(false).filter(|call| !is_partly(call)).collect();
        assert!(forbidden.len() > 80, "{}", forbidden.len());
        let made = confined(move || {
            confine_lane();
            let is_made = |of: &&&Call| call(of.number, 0) != Err(Errno::PERM);
            forbidden.iter().filter(is_made).map(|call| call.name).collect::<Vec<_>>()
        });
        assert_eq!(made, [""; 0]);
    }
}

//! System calls that each thread may make: the one table of them.
//!
//! Calls with a limit are allowed only with that value in one argument. Numbers that an
//! architecture lacks are left out there.

use libc::c_long;

/// A system call that is allowed.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) number: c_long,
    pub(crate) limit: Option<Limit>,
}

/// Condition on an argument: `argument & mask == value`.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) argument: u8,
    pub(crate) mask: u64,
    pub(crate) value: Value,
    /// Condition in words.
    pub(crate) text: &'static str,
}

/// Value of an argument.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// A constant.
    Is(u64),
    /// The process's own ID.
    OwnProcess,
}

/// Calls with a common purpose.
pub(crate) struct Group {
    pub(crate) purpose: &'static str,
    /// `true` if lanes may make them as well.
    pub(crate) lanes: bool,
    pub(crate) calls: &'static [Call],
}

macro_rules! calls {
    ($($(#[$here:meta])* $name:ident $(($limit:expr))?),* $(,)?) => {
        &[$($(#[$here])* Call {
            // Without "SYS_".
            name: stringify!($name).split_at(4).1,
            number: libc::$name,
            limit: calls!(@limit $($limit)?),
        }),*]
    };
    (@limit $limit:expr) => { Some($limit) };
    (@limit) => { None };
}

const fn is(argument: u8, value: u64, text: &'static str) -> Limit {
    Limit { argument, mask: u64::MAX, value: Value::Is(value), text }
}

const OWN: Limit =
    Limit { argument: 0, mask: u64::MAX, value: Value::OwnProcess, text: "to its own process" };
/// Threads, no processes; no flag of a namespace is beside these.
const THREAD: Limit = Limit {
    argument: 0,
    mask: !(libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID | libc::CLONE_SETTLS) as u32
        as u64,
    value: Value::Is(
        (libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM) as u64,
    ),
    text: "threads",
};
/// `VDUSE_VQ_INJECT_IRQ`.
const INTERRUPT: Limit = is(1, 0x4004_8117, "interrupts of vDPA devices");

/// The table.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        purpose: "memory",
        lanes: true,
        calls: calls![SYS_brk, SYS_madvise, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap],
    },
    Group {
        purpose: "threads and signals",
        lanes: true,
        calls: calls![
            SYS_clone(THREAD),
            SYS_clone3,
            SYS_exit,
            SYS_exit_group,
            SYS_futex,
            SYS_getpid,
            SYS_gettid,
            SYS_prctl(is(0, libc::PR_SET_NAME as u64, "names of threads")),
            SYS_restart_syscall,
            SYS_rseq,
            SYS_rt_sigprocmask,
            SYS_rt_sigreturn,
            SYS_sched_getaffinity,
            SYS_sched_yield,
            SYS_set_robust_list,
            SYS_sigaltstack,
            SYS_tgkill(OWN),
        ],
    },
    Group {
        purpose: "time and random numbers",
        lanes: true,
        calls: calls![
            SYS_clock_gettime,
            SYS_clock_nanosleep,
            SYS_getrandom,
            SYS_gettimeofday,
            SYS_nanosleep,
        ],
    },
    Group {
        purpose: "waiting",
        lanes: true,
        calls: calls![
            SYS_epoll_ctl,
            SYS_epoll_pwait,
            SYS_epoll_pwait2,
            #[cfg(target_arch = "x86_64")]
            SYS_epoll_wait,
            #[cfg(target_arch = "x86_64")]
            SYS_poll,
            SYS_ppoll,
        ],
    },
    Group {
        purpose: "frames and interrupts",
        lanes: true,
        calls: calls![
            SYS_close,
            SYS_getsockopt,
            SYS_ioctl(INTERRUPT),
            SYS_pread64,
            SYS_read,
            SYS_readv,
            SYS_recvfrom,
            SYS_recvmmsg,
            SYS_recvmsg,
            SYS_sendmmsg,
            SYS_sendmsg,
            SYS_sendto,
            SYS_shutdown,
            SYS_write,
            SYS_writev,
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_sorted_and_named_once() {
        let all: Vec<&str> =
            GROUPS.iter().flat_map(|group| group.calls).map(|call| call.name).collect();
        for group in GROUPS {
            assert!(group.calls.is_sorted_by_key(|call| call.name), "{}", group.purpose);
        }
        for name in &all {
            assert_eq!(all.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
    }
}

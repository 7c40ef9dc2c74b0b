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
/// Processes, which the flag of a thread tells from threads.
const PROCESS: Limit =
    Limit { argument: 0, mask: libc::CLONE_THREAD as u64, value: Value::Is(0), text: "processes" };
/// The third argument of mmap(2) and mprotect(2): the code of this process stays as it is.
const NOT_EXECUTABLE: Limit = Limit {
    argument: 2,
    mask: libc::PROT_EXEC as u64,
    value: Value::Is(0),
    text: "not executable",
};

/// Permissions of a new file.
const fn plain(argument: u8) -> Limit {
    let value = Value::Is(0);
    Limit { argument, mask: 0o7111, value, text: "no executable files" }
}

/// A command of fcntl(2). Those that name an owner are left out: the kernel would send that process
/// any signal.
const fn command(number: i32, text: &'static str) -> Limit {
    Limit { argument: 1, mask: 0xffff_ffff, value: Value::Is(number as u64), text }
}

/// A request of ioctl(2); the upper bits of the argument are ignored, as by the kernel.
const fn request(number: u64, text: &'static str) -> Limit {
    Limit { argument: 1, mask: 0xffff_ffff, value: Value::Is(number), text }
}

/// Family of a socket.
const fn family(family: i32, text: &'static str) -> Limit {
    Limit { argument: 0, mask: 0xffff_ffff, value: Value::Is(family as u64), text }
}

/// `VDUSE_VQ_INJECT_IRQ`.
const INTERRUPT: Limit = request(0x4004_8117, "interrupts of vDPA devices");
/// Requests of the same kind: all but their number and the bytes of their argument.
const fn requests(kind: u64, text: &'static str) -> Limit {
    Limit { argument: 1, mask: 0xff00, value: Value::Is(kind), text }
}

/// Calls that fail with an error and no signal, and its number. C libraries make them with all
/// signals blocked, where a signal from a filter would kill the process.
pub(crate) const WITHOUT_SIGNAL: &[(Call, i32)] = &[
    (Call { name: "clone", number: libc::SYS_clone, limit: Some(PROCESS) }, libc::EPERM),
    // As in a kernel without it. C libraries then start threads by clone, whose flags a filter can
    // read.
    (Call { name: "clone3", number: libc::SYS_clone3, limit: None }, libc::ENOSYS),
    #[cfg(target_arch = "x86_64")]
    (Call { name: "fork", number: libc::SYS_fork, limit: None }, libc::EPERM),
    #[cfg(target_arch = "x86_64")]
    (Call { name: "vfork", number: libc::SYS_vfork, limit: None }, libc::EPERM),
];

/// The table.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        purpose: "memory",
        lanes: true,
        calls: calls![
            SYS_brk,
            SYS_fallocate,
            SYS_madvise,
            SYS_mmap(NOT_EXECUTABLE),
            SYS_mprotect(NOT_EXECUTABLE),
            SYS_mremap,
            SYS_munmap,
        ],
    },
    Group {
        purpose: "threads and signals",
        lanes: true,
        calls: calls![
            SYS_clone(THREAD),
            SYS_exit,
            SYS_exit_group,
            SYS_futex,
            SYS_getpid,
            SYS_gettid,
            SYS_prctl(is(0, libc::PR_SET_NAME as u64, "names of threads")),
            SYS_restart_syscall,
            SYS_rseq,
            SYS_rt_sigaction,
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
            SYS_timerfd_settime,
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
    Group {
        purpose: "files",
        lanes: false,
        calls: calls![
            #[cfg(target_arch = "x86_64")]
            SYS_access,
            SYS_dup,
            #[cfg(target_arch = "x86_64")]
            SYS_dup2,
            SYS_dup3,
            SYS_faccessat,
            SYS_faccessat2,
            SYS_fcntl(command(libc::F_DUPFD_CLOEXEC, "F_DUPFD_CLOEXEC")),
            SYS_fcntl(command(libc::F_GETFD, "F_GETFD")),
            SYS_fcntl(command(libc::F_SETFD, "F_SETFD")),
            SYS_fcntl(command(libc::F_GETFL, "F_GETFL")),
            SYS_fcntl(command(libc::F_SETFL, "F_SETFL")),
            SYS_fcntl(command(libc::F_ADD_SEALS, "F_ADD_SEALS")),
            SYS_fcntl(command(libc::F_GET_SEALS, "F_GET_SEALS")),
            SYS_fdatasync,
            SYS_flock,
            SYS_fstat,
            SYS_fstatfs,
            SYS_fsync,
            SYS_ftruncate,
            SYS_getcwd,
            SYS_getdents64,
            SYS_lseek,
            #[cfg(target_arch = "x86_64")]
            SYS_lstat,
            #[cfg(target_arch = "x86_64")]
            SYS_mkdir,
            SYS_mkdirat,
            #[cfg(target_arch = "x86_64")]
            SYS_newfstatat,
            #[cfg(target_arch = "x86_64")]
            SYS_open(plain(2)),
            SYS_openat(plain(3)),
            SYS_pwrite64,
            #[cfg(target_arch = "x86_64")]
            SYS_readlink,
            SYS_readlinkat,
            #[cfg(target_arch = "x86_64")]
            SYS_rename,
            SYS_renameat,
            SYS_renameat2,
            #[cfg(target_arch = "x86_64")]
            SYS_rmdir,
            #[cfg(target_arch = "x86_64")]
            SYS_stat,
            SYS_statfs,
            SYS_statx,
            #[cfg(target_arch = "x86_64")]
            SYS_symlink,
            SYS_symlinkat,
            SYS_umask,
            #[cfg(target_arch = "x86_64")]
            SYS_unlink,
            SYS_unlinkat,
        ],
    },
    Group {
        purpose: "sockets",
        lanes: false,
        calls: calls![
            #[cfg(target_arch = "x86_64")]
            SYS_accept,
            SYS_accept4,
            SYS_bind,
            SYS_connect,
            SYS_getpeername,
            SYS_getsockname,
            SYS_listen,
            SYS_setsockopt,
            SYS_socket(family(libc::AF_INET, "IPv4")),
            SYS_socket(family(libc::AF_INET6, "IPv6")),
            SYS_socket(family(libc::AF_UNIX, "UNIX")),
            SYS_socketpair,
        ],
    },
    Group {
        purpose: "requests to devices",
        lanes: false,
        calls: calls![
            SYS_bpf(is(0, 2, "BPF_MAP_UPDATE_ELEM")),
            SYS_bpf(is(0, 3, "BPF_MAP_DELETE_ELEM")),
            SYS_ioctl(requests(0x8100, "vDPA devices")),
            SYS_ioctl(request(libc::SIOCETHTOOL, "SIOCETHTOOL")),
            SYS_ioctl(request(libc::SIOCGIFFLAGS, "SIOCGIFFLAGS")),
            SYS_ioctl(request(libc::SIOCGIFHWADDR, "SIOCGIFHWADDR")),
            SYS_ioctl(request(libc::SIOCGIFINDEX, "SIOCGIFINDEX")),
            SYS_ioctl(request(libc::SIOCGIFMTU, "SIOCGIFMTU")),
            SYS_ioctl(request(libc::SIOCGIFNAME, "SIOCGIFNAME")),
            SYS_ioctl(request(libc::FIONBIO, "FIONBIO")),
            SYS_ioctl(request(libc::TCGETS, "TCGETS")),
            SYS_ioctl(request(libc::TUNSETCARRIER, "TUNSETCARRIER")),
            SYS_ioctl(request(libc::TUNSETOFFLOAD, "TUNSETOFFLOAD")),
            SYS_ioctl(request(libc::TUNSETOWNER, "TUNSETOWNER")),
            SYS_ioctl(request(libc::TUNSETPERSIST, "TUNSETPERSIST")),
            SYS_ioctl(request(libc::TUNSETVNETHDRSZ, "TUNSETVNETHDRSZ")),
        ],
    },
    Group {
        purpose: "descriptors and memory",
        lanes: false,
        calls: calls![
            SYS_epoll_create1,
            SYS_eventfd2,
            SYS_memfd_create,
            SYS_mincore,
            SYS_msync,
            SYS_pipe2,
            SYS_timerfd_create,
        ],
    },
    Group {
        purpose: "the process",
        lanes: false,
        calls: calls![
            SYS_capget,
            SYS_getegid,
            SYS_geteuid,
            SYS_getgid,
            SYS_getppid,
            SYS_getuid,
            SYS_membarrier,
            SYS_pidfd_open,
            SYS_prctl(is(0, libc::PR_SET_NO_NEW_PRIVS as u64, "PR_SET_NO_NEW_PRIVS")),
            SYS_prctl(is(0, libc::PR_SET_PDEATHSIG as u64, "PR_SET_PDEATHSIG")),
            SYS_prlimit64(is(0, 0, "its own limits")),
            SYS_sched_getparam,
            SYS_sched_getscheduler,
            SYS_sched_setaffinity(is(0, 0, "of its own thread")),
            SYS_sysinfo,
            SYS_uname,
        ],
    },
    Group {
        purpose: "narrowing the sandbox",
        lanes: false,
        calls: calls![
            SYS_landlock_add_rule,
            SYS_landlock_create_ruleset,
            SYS_landlock_restrict_self,
            SYS_seccomp,
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_sorted_and_a_limit_is_not_beside_the_call_without() {
        let all = || GROUPS.iter().flat_map(|group| group.calls);
        for group in GROUPS {
            assert!(group.calls.is_sorted_by_key(|call| call.name), "{}", group.purpose);
        }
        for call in all() {
            let same: Vec<&Call> = all().filter(|other| other.name == call.name).collect();
            let limited = same.iter().all(|one| one.limit.is_some());
            assert!(same.len() == 1 || limited, "{}", call.name);
        }
    }
}

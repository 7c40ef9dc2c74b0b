//! CPUs: the online and the allowed ones, and pinning a thread to one.
//!
//! Model: a CPU is its Linux number. The allowed set is read once, before any thread is pinned: a
//! pinned thread, and each thread it starts, sees only its own CPU from then on. It is the
//! intersection of the cgroup's cpuset and of the mask from a launcher such as `taskset`. The
//! kernel would let us leave that mask; we do not.
//!
//! Limits: CPUs 0 to 1023, the size of the kernel's default CPU set. Numbers above it are not
//! reported.

use std::fmt;
use std::fs;
use std::io;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One more than the highest CPU number that a thread can be pinned to.
pub const MAX_CPUS: usize = CpuSet::MAX_CPU;

const ONLINE_FILE: &str = "/sys/devices/system/cpu/online";

/// Reasons that a thread could not be pinned; each text names the CPU and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The machine has no such CPU, or it is switched off.
    #[error("CPU {cpu} is not online (online: {online}); choose one of those")]
    NotOnline {
        /// The CPU asked for.
        cpu: usize,
        /// The CPUs that are online.
        online: CpuList,
    },
    /// The CPU exists, but this process may not use it.
    #[error(
        "CPU {cpu} is not in this process's allowed set (allowed: {allowed}); choose one of those, or extend \
         the cgroup's cpuset.cpus or the taskset mask the process was started with"
    )]
    NotAllowed {
        /// The CPU asked for.
        cpu: usize,
        /// The CPUs this process may use.
        allowed: CpuList,
    },
    /// The kernel, or a seccomp filter, refuses the call itself.
    #[error(
        "no permission to pin a thread to CPU {cpu}; allow the system call sched_setaffinity (a container \
         profile or seccomp filter forbids it), or run without pinned CPUs"
    )]
    NoPermission {
        /// The CPU asked for.
        cpu: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// Other errors; no remedy is known.
    #[error("cannot pin a thread to CPU {cpu}")]
    Failed {
        /// The CPU asked for.
        cpu: usize,
        /// The kernel's error.
        source: io::Error,
    },
}

/// CPU numbers in rising order, shown as the kernel writes them: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let runs = self.0.chunk_by(|a, b| a + 1 == *b);
        for (i, run) in runs.enumerate() {
            let (first, last) = (run[0], run[run.len() - 1]);
            let comma = if i > 0 { "," } else { "" };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

/// The CPUs that are online, in rising order. Without `/sys` it is the allowed ones.
pub fn online() -> Vec<usize> {
    fs::read_to_string(ONLINE_FILE)
        .ok()
        .and_then(|text| parse_cpu_list(&text))
        .unwrap_or_else(|| allowed().to_vec())
}

/// The CPUs this process may use, in rising order, as they were at the first call. Call it once at
/// start-up, on the main thread, before any thread is pinned. Empty if the kernel does not report
/// it.
pub fn allowed() -> &'static [usize] {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    ALLOWED.get_or_init(|| sched_getaffinity(None).map(|set| cpus_of(&set)).unwrap_or_default())
}

/// Pins the calling thread to one CPU; threads it starts later inherit that.
///
/// # Errors
/// [`PinError`], when the CPU is not online or not allowed, or the kernel refuses. The thread then
/// runs where it did.
pub fn pin_this_thread(cpu: usize) -> Result<(), PinError> {
    check(cpu, &online(), allowed())?;
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| from_errno(cpu, errno))
}

/// Checks that need no system call. An empty `allowed` means unknown; then the kernel decides.
fn check(cpu: usize, online: &[usize], allowed: &[usize]) -> Result<(), PinError> {
    if cpu >= MAX_CPUS || !online.contains(&cpu) {
        return Err(PinError::NotOnline { cpu, online: CpuList(online.to_vec()) });
    }
    if !allowed.is_empty() && !allowed.contains(&cpu) {
        return Err(PinError::NotAllowed { cpu, allowed: CpuList(allowed.to_vec()) });
    }
    Ok(())
}

/// `EINVAL` means that no CPU of the set is in the cpuset, which may have shrunk since the start.
fn from_errno(cpu: usize, errno: rustix::io::Errno) -> PinError {
    use rustix::io::Errno;
    match errno {
        Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
            PinError::NoPermission { cpu, source: errno.into() }
        }
        Errno::INVAL => {
            let now = sched_getaffinity(None).map(|set| cpus_of(&set)).unwrap_or_default();
            PinError::NotAllowed { cpu, allowed: CpuList(now) }
        }
        _ => PinError::Failed { cpu, source: errno.into() },
    }
}

fn cpus_of(set: &CpuSet) -> Vec<usize> {
    (0..MAX_CPUS).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Parses the kernel's list format, `0-3,8`; `None` if it is anything else.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last < first || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_parse_and_print_as_the_kernel_writes_them() {
        for (text, cpus) in [
            ("0\n", vec![0]),
            ("0-1\n", vec![0, 1]),
            ("0-2,5,7-8", vec![0, 1, 2, 5, 7, 8]),
            ("\n", vec![]),
        ] {
            let parsed = parse_cpu_list(text).expect(text);
            assert_eq!(parsed, cpus, "{text:?}");
            if !cpus.is_empty() {
                assert_eq!(CpuList(parsed).to_string(), text.trim());
            }
        }
        for bad in ["x", "3-1", "0-", "0-9999999999", "-1"] {
            assert_eq!(parse_cpu_list(bad), None, "{bad}");
        }
        assert_eq!(CpuList(vec![]).to_string(), "none");
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_to_do() {
        let text = |cpu| check(cpu, &[0, 1, 2, 3], &[1, 2]).unwrap_err().to_string();
        assert_eq!(text(9), "CPU 9 is not online (online: 0-3); choose one of those");
        assert_eq!(
            text(0),
            "CPU 0 is not in this process's allowed set (allowed: 1-2); choose one of those, or extend the \
             cgroup's cpuset.cpus or the taskset mask the process was started with"
        );
        assert!(check(2, &[0, 1, 2, 3], &[1, 2]).is_ok());
        assert!(check(2, &[0, 1, 2, 3], &[]).is_ok(), "an unknown set leaves it to the kernel");
        let refused = from_errno(1, rustix::io::Errno::PERM);
        assert!(matches!(refused, PinError::NoPermission { cpu: 1, .. }), "{refused:?}");
        assert!(matches!(from_errno(1, rustix::io::Errno::INVAL), PinError::NotAllowed { .. }));
        assert!(matches!(from_errno(1, rustix::io::Errno::SRCH), PinError::Failed { .. }));
    }

    #[test]
    fn a_thread_pins_to_the_last_allowed_cpu_and_stays_there() {
        let cpu = *allowed().last().expect("this process runs on some CPU");
        assert!(online().contains(&cpu));
        let seen = std::thread::spawn(move || {
            pin_this_thread(cpu).expect("an allowed CPU");
            (rustix::thread::sched_getcpu(), cpus_of(&sched_getaffinity(None).unwrap()))
        });
        assert_eq!(seen.join().unwrap(), (cpu, vec![cpu]));
    }

    #[test]
    fn a_cpu_that_cannot_exist_is_refused() {
        let error = pin_this_thread(MAX_CPUS).unwrap_err();
        assert!(matches!(error, PinError::NotOnline { .. }), "{error}");
    }
}

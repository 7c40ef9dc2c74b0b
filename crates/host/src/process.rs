//! CPU time of a process, in total and by thread.
//!
//! Model: a reading is a snapshot of counters that only grow; take two and subtract
//! ([`CpuTime::since`]). Threads are identified by name: name each thread of a measurement when it
//! is started.
//!
//! Limits: the kernel counts in clock ticks, usually 10 ms, so a short interval is coarse. A thread
//! that has ended is in its process's total, but no longer in the list of threads. A name is at
//! most 15 bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde::Serialize;

use crate::proc_stat;

/// Has the kernel end this process by a signal when the thread that started it ends. This has no
/// effect if that thread has ended already: the new parent cannot be told from one that is the
/// first process of its container.
///
/// # Errors
/// The kernel's error.
pub fn end_with_parent(signal: Signal) -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
}

/// CPU time split by mode, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CpuTime {
    /// Seconds in user mode.
    pub user_s: f64,
    /// Seconds in the kernel on the process's behalf.
    pub system_s: f64,
}

impl CpuTime {
    /// Both modes together, in seconds.
    pub fn total_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// CPU time between an earlier reading and this one; zero if the counter went back, as when
    /// another thread took the name.
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user_s: (self.user_s - earlier.user_s).max(0.0),
            system_s: (self.system_s - earlier.system_s).max(0.0),
        }
    }

    fn add(&mut self, other: &CpuTime) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
    }
}

/// CPU time of one thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadCpu {
    /// The kernel's number of the thread.
    pub tid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// CPU time since its start.
    pub time: CpuTime,
}

/// A reading of one process and its living threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessCpu {
    /// The whole process, threads that have ended included.
    pub process: CpuTime,
    /// Its living threads, by rising tid.
    pub threads: Vec<ThreadCpu>,
}

/// Reasons that a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcessCpuError {
    /// The process does not exist.
    #[error("process {pid} does not exist")]
    Gone {
        /// The process asked for.
        pid: u32,
    },
    /// `/proc` is missing or not readable.
    #[error("cannot read {path}; mount /proc, without hidepid for the user who runs this")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The format differs from proc(5).
    #[error("{path} does not have the format of proc(5)")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

impl ProcessCpu {
    /// Reads process `pid`.
    ///
    /// # Errors
    /// [`ProcessCpuError`], if the process is gone or `/proc` cannot be read. A thread that ends
    /// during the reading is not an error.
    pub fn read(pid: u32) -> Result<ProcessCpu, ProcessCpuError> {
        read_from(Path::new("/proc"), pid, rustix::param::clock_ticks_per_second())
    }

    /// Reads the calling process.
    ///
    /// # Errors
    /// As [`ProcessCpu::read`].
    pub fn read_own() -> Result<ProcessCpu, ProcessCpuError> {
        Self::read(std::process::id())
    }

    /// The living threads' time summed by name.
    pub fn by_name(&self) -> BTreeMap<&str, CpuTime> {
        let mut sums: BTreeMap<&str, CpuTime> = BTreeMap::new();
        for thread in &self.threads {
            sums.entry(&thread.name).or_default().add(&thread.time);
        }
        sums
    }

    /// The time of all living threads whose name starts with `prefix` (`lane` matches `lane0`,
    /// `lane1`, ...).
    pub fn named(&self, prefix: &str) -> CpuTime {
        let mut sum = CpuTime::default();
        for thread in self.threads.iter().filter(|thread| thread.name.starts_with(prefix)) {
            sum.add(&thread.time);
        }
        sum
    }
}

fn read_from(proc: &Path, pid: u32, ticks_per_s: u64) -> Result<ProcessCpu, ProcessCpuError> {
    let own = proc.join(pid.to_string());
    let (_, process) = read_stat(&own, pid, ticks_per_s)?;
    let tasks = own.join("task");
    let entries = fs::read_dir(&tasks).map_err(|source| io_error(tasks.clone(), pid, source))?;
    let mut threads = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| io_error(tasks.clone(), pid, source))?;
        let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        match read_stat(&entry.path(), pid, ticks_per_s) {
            Ok((name, time)) => threads.push(ThreadCpu { tid, name, time }),
            // The thread ended between the listing and the reading.
            Err(ProcessCpuError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    threads.sort_unstable_by_key(|thread| thread.tid);
    Ok(ProcessCpu { process, threads })
}

fn read_stat(dir: &Path, pid: u32, ticks_per_s: u64) -> Result<(String, CpuTime), ProcessCpuError> {
    let path = dir.join("stat");
    let bytes = fs::read(&path).map_err(|source| io_error(path.clone(), pid, source))?;
    // A thread's name may be any bytes, so the line need not be UTF-8.
    let stat = proc_stat::parse(&String::from_utf8_lossy(&bytes))
        .ok_or(ProcessCpuError::Malformed { path })?;
    let seconds = |ticks: u64| ticks as f64 / ticks_per_s.max(1) as f64;
    let time = CpuTime { user_s: seconds(stat.user_ticks), system_s: seconds(stat.system_ticks) };
    Ok((stat.name, time))
}

/// A process that ends while its file is open returns ESRCH instead of ENOENT.
fn io_error(path: PathBuf, pid: u32, source: io::Error) -> ProcessCpuError {
    let gone = source.kind() == io::ErrorKind::NotFound
        || source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    if gone { ProcessCpuError::Gone { pid } } else { ProcessCpuError::Unreadable { path, source } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn stat_line(name: &str, user: u64, system: u64) -> String {
        format!("7 ({name}) S 1 7 7 0 -1 4194304 102 0 0 0 {user} {system} 0 0 20 0 1 0 145018\n")
    }

    fn fixture() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (dir, line) in [
            ("7", stat_line("shunt", 250, 50)),
            ("7/task/7", stat_line("shunt", 10, 10)),
            ("7/task/9", stat_line("lane1", 100, 0)),
            ("7/task/8", stat_line("lane0", 120, 20)),
        ] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
            fs::write(root.path().join(dir).join("stat"), line).unwrap();
        }
        root
    }

    #[test]
    fn a_process_and_its_threads_in_seconds() {
        let root = fixture();
        let cpu = read_from(root.path(), 7, 100).unwrap();
        assert_eq!(cpu.process, CpuTime { user_s: 2.5, system_s: 0.5 });
        assert_eq!(cpu.threads.iter().map(|t| t.tid).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(cpu.by_name()["lane0"], CpuTime { user_s: 1.2, system_s: 0.2 });
        let lanes = cpu.named("lane");
        assert!((lanes.total_s() - 2.4).abs() < 1e-9, "{lanes:?}");
        assert_eq!(cpu.named("vnf"), CpuTime::default());
    }

    #[test]
    fn an_ended_thread_is_left_out_and_an_ended_process_is_named() {
        let root = fixture();
        fs::remove_file(root.path().join("7/task/9/stat")).unwrap();
        assert_eq!(read_from(root.path(), 7, 100).unwrap().threads.len(), 2);
        let error = read_from(root.path(), 8, 100).unwrap_err();
        assert_eq!(error.to_string(), "process 8 does not exist");
        fs::write(root.path().join("7/stat"), "nonsense").unwrap();
        let error = read_from(root.path(), 7, 100).unwrap_err();
        assert!(matches!(error, ProcessCpuError::Malformed { .. }), "{error}");
    }

    #[test]
    fn differences_never_go_below_zero() {
        let (small, large) =
            (CpuTime { user_s: 1.0, system_s: 2.0 }, CpuTime { user_s: 4.0, system_s: 2.5 });
        assert_eq!(large.since(&small), CpuTime { user_s: 3.0, system_s: 0.5 });
        assert_eq!(small.since(&large), CpuTime::default());
    }

    #[test]
    fn this_process_is_seen_to_work() {
        let before = ProcessCpu::read_own().unwrap();
        let busy = std::thread::Builder::new().name("busy-thread".into());
        let handle = busy.spawn(|| {
            // Spin until the kernel has counted it: five ticks, or ten seconds on an overloaded
            // machine.
            let start = Instant::now();
            loop {
                let spent = ProcessCpu::read_own().unwrap().named("busy-thread");
                if spent.total_s() >= 0.05 || start.elapsed() > Duration::from_secs(10) {
                    return spent;
                }
            }
        });
        let spent = handle.unwrap().join().unwrap();
        assert!(spent.total_s() >= 0.05, "{spent:?}");
        let whole = ProcessCpu::read_own().unwrap().process.since(&before.process);
        assert!(whole.total_s() >= 0.04, "{whole:?}");
    }
}

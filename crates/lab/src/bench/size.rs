//! Resources of a process.

use anyhow::{Context, Result};
use serde::Serialize;

/// Memory, open files and threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessSize {
    /// Resident memory, MiB; that of a daemon includes touched guest memory.
    pub rss_mib: f64,
    /// Resident memory that is shared with no other process, MiB.
    pub own_mib: f64,
    /// Open files.
    pub fds: usize,
    /// Threads.
    pub threads: usize,
}

impl ProcessSize {
    /// Resources of the process with this id.
    ///
    /// # Errors
    /// It has ended, or `/proc` cannot be read.
    pub fn of(pid: u32) -> Result<ProcessSize> {
        let file = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {file}; is /proc mounted?"))?;
        let number = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let word = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            word.with_context(|| format!("{file} has no {name}"))
        };
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .with_context(|| format!("cannot list the open files of process {pid}"))?;
        Ok(ProcessSize {
            rss_mib: number("VmRSS")? / 1024.0,
            own_mib: number("RssAnon")? / 1024.0,
            fds: fds.count(),
            threads: number("Threads")? as usize,
        })
    }
}

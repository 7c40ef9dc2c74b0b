//! Facts about this machine, recorded with every measurement.
//!
//! Model: [`MachineFacts::read`] reads `/proc` and `/sys` once. A missing or unreadable file makes
//! its fact `None`, never an error: containers hide some files, and no measurement should fail over
//! that. The parsers are functions over text in the private module `parse`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::{cpu, tsc};

mod parse;
#[cfg(test)]
mod tests;

/// One machine at one moment, for a report. Every field has its unit in its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineFacts {
    /// The kernel's name for the host.
    pub hostname: Option<String>,
    /// Time of reading, in seconds since 1970.
    pub unix_time_s: u64,
    /// The CPU's own name, e.g. `AMD EPYC 9654`.
    pub cpu_model: Option<String>,
    /// The CPUs (hardware threads) that are online.
    pub cpus_online: usize,
    /// The CPUs this process may use.
    pub cpus_allowed: usize,
    /// Physical cores, all sockets.
    pub cores: Option<usize>,
    /// Current clock of the first CPU; varies with load under a governor.
    pub cpu_mhz: Option<f64>,
    /// The rate of the counter that all cycle figures are counted in, measured against
    /// CLOCK_MONOTONIC_RAW.
    pub tsc_mhz: f64,
    /// `true` if the CPU flags promise a counter of constant rate (`constant_tsc`).
    pub tsc_constant: Option<bool>,
    /// The instruction set, as Rust names it.
    pub architecture: &'static str,
    /// The kernel's release, e.g. `6.12.57+deb13-amd64`.
    pub kernel: Option<String>,
    /// Kernel command line options that affect measurements: `isolcpus`, `nohz_full`,
    /// `mitigations`, ...
    pub kernel_options: Option<String>,
    /// Total memory that the kernel manages.
    pub memory_mib: Option<u64>,
    /// Reserved hugepages of the default size.
    pub hugepages_total: Option<u64>,
    /// Free ones of those.
    pub hugepages_free: Option<u64>,
    /// The default hugepage size.
    pub hugepage_kib: Option<u64>,
    /// The mode of transparent hugepages for anonymous memory.
    pub thp_mode: Option<String>,
    /// The mode of transparent hugepages for shared memory, which guest memory is.
    pub shmem_thp_mode: Option<String>,
    /// `true` under a hypervisor; from the CPU flags.
    pub hypervisor: Option<bool>,
    /// The first CPU's frequency governor; `None` where the platform or a hypervisor decides.
    pub governor: Option<String>,
    /// CPU vulnerabilities that are mitigated or open, in one line; those the CPU does not have are
    /// left out.
    pub mitigations: Option<String>,
    /// The compiler, from the caller.
    pub rustc: String,
    /// The program's version, from the caller.
    pub version: String,
}

impl MachineFacts {
    /// Reads the facts. `rustc` and `version` are the compiler and the program version to record
    /// beside them. The first call in a process takes 2 ms to calibrate the counter.
    pub fn read(rustc: &str, version: &str) -> MachineFacts {
        read_from(&Root(PathBuf::from("/")), rustc, version)
    }
}

fn read_from(root: &Root, rustc: &str, version: &str) -> MachineFacts {
    let cpuinfo = root.text("proc/cpuinfo").unwrap_or_default();
    let meminfo = root.text("proc/meminfo").unwrap_or_default();
    let mem = |key| parse::meminfo(&meminfo, key);
    MachineFacts {
        hostname: root.line("proc/sys/kernel/hostname"),
        unix_time_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        cpu_model: parse::cpu_model(&cpuinfo),
        cpus_online: cpu::online().len(),
        cpus_allowed: cpu::allowed().len(),
        cores: root.cores(),
        cpu_mhz: parse::cpu_mhz(&cpuinfo),
        tsc_mhz: tsc::hz() / 1e6,
        tsc_constant: parse::cpu_flag(&cpuinfo, "constant_tsc"),
        architecture: std::env::consts::ARCH,
        kernel: root.line("proc/sys/kernel/osrelease"),
        kernel_options: root.line("proc/cmdline").map(|line| parse::kernel_options(&line)),
        memory_mib: mem("MemTotal").map(|kib| kib / 1024),
        hugepages_total: mem("HugePages_Total"),
        hugepages_free: mem("HugePages_Free"),
        hugepage_kib: mem("Hugepagesize"),
        thp_mode: root.chosen("sys/kernel/mm/transparent_hugepage/enabled"),
        shmem_thp_mode: root.chosen("sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        hypervisor: parse::cpu_flag(&cpuinfo, "hypervisor"),
        governor: root.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        mitigations: root.mitigations(),
        rustc: rustc.to_owned(),
        version: version.to_owned(),
    }
}

/// Root of `/proc` and `/sys`: `/`, or a fixture in tests.
struct Root(PathBuf);

impl Root {
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.0.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file of one line; `None` too if the line is empty.
    fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.text(path)?;
        let line = text.lines().next().unwrap_or_default().trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    fn chosen(&self, path: &str) -> Option<String> {
        parse::chosen(&self.text(path)?)
    }

    /// Counts the distinct sets of sibling threads: one per core. Most architectures lack them in
    /// `/proc/cpuinfo`, so they come from the topology in `/sys`.
    fn cores(&self) -> Option<usize> {
        let cpus = self.0.join("sys/devices/system/cpu");
        let mut siblings = std::collections::BTreeSet::new();
        for entry in fs::read_dir(cpus).ok()?.flatten() {
            let list = entry.path().join("topology/thread_siblings_list");
            siblings.extend(self.line(list));
        }
        (!siblings.is_empty()).then_some(siblings.len())
    }

    fn mitigations(&self) -> Option<String> {
        let dir = self.0.join("sys/devices/system/cpu/vulnerabilities");
        let mut found: Vec<(String, String)> = fs::read_dir(dir)
            .ok()?
            .flatten()
            .filter_map(|entry| {
                Some((entry.file_name().into_string().ok()?, self.line(entry.path())?))
            })
            .collect();
        found.sort();
        Some(parse::mitigations(&found))
    }
}

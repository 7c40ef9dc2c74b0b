//! How long a sleeping CPU of this machine may take to wake up.
//!
//! An idle CPU sleeps the deeper the longer it is idle, and the deeper it sleeps the longer it
//! takes to wake. A process may ask that no CPU sleeps so deep that waking takes longer than so
//! many microseconds: it opens `/dev/cpu_dma_latency`, writes the number, and keeps the file open.
//! The kernel obeys the smallest number that anybody asks for, and forgets a request when its file
//! is closed, whatever became of the process.
//!
//! Kernel documentation: `Documentation/power/pm_qos_interface.rst`, "user space"; for a whole
//! machine, not for one CPU of it. 0 means that an idle CPU spins or halts at most, so that it
//! draws power as if it worked, and that the host of a virtual machine may see it busy. Below a
//! hypervisor the kernel only governs what the guest does; how soon the host runs a virtual CPU
//! again is the host's.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A request to the kernel, which holds until it is dropped or the process ends.
#[derive(Debug)]
pub struct CpuLatency {
    /// Open is all that it has to be.
    _device: File,
}

/// Why a wake-up latency could not be asked for; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    /// The kernel was built without it, or a container does not show it.
    #[error(
        "this machine has no {path}; give the device to this container, or leave the CPUs' \
         wake-up latency as it is"
    )]
    NoDevice {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The device is root's, as a rule.
    #[error(
        "no permission to write to {path}; run as root, or make the device writable for this user \
         (chgrp and chmod g+w, best by a udev rule), or leave the CPUs' wake-up latency as it is"
    )]
    Permission {
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else; no remedy is known.
    #[error("cannot ask for a wake-up latency by {path}")]
    Failed {
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl CpuLatency {
    /// Asks that no CPU takes longer than `latency_us` microseconds to wake up, for as long as the
    /// result lives.
    ///
    /// # Errors
    /// [`LatencyError`], if the kernel cannot be asked.
    pub fn hold(latency_us: u32) -> Result<CpuLatency, LatencyError> {
        hold(Path::new(DEVICE), latency_us)
    }
}

fn hold(path: &Path, latency_us: u32) -> Result<CpuLatency, LatencyError> {
    // The kernel's number has a sign; what exceeds it is no request at all.
    let value = i32::try_from(latency_us).unwrap_or(i32::MAX);
    let open = File::options().write(true).open(path);
    let held = open.and_then(|mut device| device.write_all(&value.to_ne_bytes()).map(|()| device));
    held.map(|device| CpuLatency { _device: device }).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> LatencyError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => LatencyError::NoDevice { path },
        // A container may show the device and forbid its use (EPERM) whatever its mode says
        // (EACCES).
        io::ErrorKind::PermissionDenied => LatencyError::Permission { path, source },
        _ => LatencyError::Failed { path, source },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_number_is_written_as_the_kernel_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        for (asked, written) in [(0, 0), (77, 77), (u32::MAX, i32::MAX)] {
            std::fs::write(&path, "").unwrap();
            hold(&path, asked).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), i32::to_ne_bytes(written));
        }
    }

    #[test]
    fn what_is_missing_or_forbidden_is_told_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = hold(&dir.path().join("no-device"), 0).unwrap_err();
        assert!(matches!(error, LatencyError::NoDevice { .. }), "{error:?}");
        assert!(error.to_string().contains("no-device; give the device to this container"));
        let error = hold(dir.path(), 0).unwrap_err();
        assert!(matches!(error, LatencyError::Failed { .. }), "a directory: {error:?}");
        for errno in [rustix::io::Errno::ACCESS, rustix::io::Errno::PERM] {
            let error = failed(Path::new(DEVICE), errno.into());
            assert!(matches!(error, LatencyError::Permission { .. }), "{error:?}");
            assert!(error.to_string().contains("run as root"), "{error}");
        }
    }

    /// What the kernel aims at now: the least that anybody asks for.
    fn aim_us() -> io::Result<i32> {
        let mut bytes = [0; 4];
        File::open(DEVICE)?.read_exact(&mut bytes)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    #[test]
    fn the_kernel_obeys_while_it_is_held() {
        match CpuLatency::hold(0) {
            Ok(held) => {
                if let Ok(aim) = aim_us() {
                    assert_eq!(aim, 0, "nobody can ask for less");
                }
                drop(held);
            }
            // Not everybody may: then it is said why.
            Err(error) => assert!(!matches!(error, LatencyError::Failed { .. }), "{error:?}"),
        }
    }
}

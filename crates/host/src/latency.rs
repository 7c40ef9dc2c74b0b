//! Limit on the wake-up latency of this machine's CPUs.
//!
//! The longer a CPU is idle, the deeper it sleeps and the longer it takes to wake. A process can
//! limit that latency: it opens `/dev/cpu_dma_latency`, writes a number of microseconds, and keeps
//! the file open. The kernel obeys the smallest request, and drops a request when its file is
//! closed, also if the process is killed.
//!
//! Kernel documentation: `Documentation/power/pm_qos_interface.rst`, "user space". The limit holds
//! for all CPUs. With 0 an idle CPU at most halts: it draws power as if it worked, and the host of
//! a virtual machine may see it busy. In a virtual machine the limit affects only the guest's
//! kernel; the host decides when a virtual CPU runs again.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::launcher::{Answer, Request, ask};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A request to the kernel, valid until it is dropped or the process ends.
#[derive(Debug)]
pub struct CpuLatency {
    /// The request lasts while the file is open.
    _device: File,
}

/// Reasons that a wake-up latency could not be requested; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    /// The kernel was built without it, or a container hides it.
    #[error(
        "this machine has no {path}; give the device to this container, or do not limit \
         the CPUs' wake-up latency"
    )]
    NoDevice {
        /// Expected path.
        path: PathBuf,
    },
    /// The device usually belongs to root.
    #[error(
        "no permission to write to {path}; run as root, or make the device writable for this user \
         (chgrp and chmod g+w, best by a udev rule), or do not limit the CPUs' wake-up latency"
    )]
    Permission {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Other errors; no remedy is known.
    #[error("cannot limit the wake-up latency through {path}")]
    Failed {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

impl CpuLatency {
    /// Limits the wake-up latency of all CPUs to `latency_us` microseconds, for the life of the
    /// result.
    ///
    /// # Errors
    /// [`LatencyError`], if the request fails.
    pub fn hold(latency_us: u32) -> Result<CpuLatency, LatencyError> {
        let held = ask(HoldLatency { latency_us }, &[]);
        let device = held.and_then(|(_, fds)| fds.into_iter().next().ok_or(Errno::BADMSG));
        let device = device.map_err(|errno| failed(Path::new(DEVICE), errno.into()))?;
        Ok(CpuLatency { _device: device.into() })
    }
}

/// Limits the wake-up latency while a descriptor is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldLatency {
    latency_us: u32,
}

impl Request for HoldLatency {
    const NAME: &'static str = "hold-latency";
    const DOES: &'static str = "limits the wake-up latency of the CPUs";
    type Reply = ();

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        let device = hold(Path::new(DEVICE), self.latency_us);
        let device = device.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(((), vec![device.into()]))
    }
}

fn hold(path: &Path, latency_us: u32) -> io::Result<File> {
    // The kernel's number is signed; a larger value would be no request.
    let value = i32::try_from(latency_us).unwrap_or(i32::MAX);
    let open = File::options().write(true).open(path);
    open.and_then(|mut device| device.write_all(&value.to_ne_bytes()).map(|()| device))
}

fn failed(path: &Path, source: io::Error) -> LatencyError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => LatencyError::NoDevice { path },
        // A container may show the device and forbid its use: EPERM, or EACCES from its mode.
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
        let told = |path: &Path| failed(path, hold(path, 0).unwrap_err());
        let error = told(&dir.path().join("no-device"));
        assert!(matches!(error, LatencyError::NoDevice { .. }), "{error:?}");
        assert!(error.to_string().contains("no-device; give the device to this container"));
        let error = told(dir.path());
        assert!(matches!(error, LatencyError::Failed { .. }), "a directory: {error:?}");
        for errno in [rustix::io::Errno::ACCESS, rustix::io::Errno::PERM] {
            let error = failed(Path::new(DEVICE), errno.into());
            assert!(matches!(error, LatencyError::Permission { .. }), "{error:?}");
            assert!(error.to_string().contains("run as root"), "{error}");
        }
    }

    /// The kernel's current target: the smallest request.
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
                    assert_eq!(aim, 0, "no request is smaller");
                }
                drop(held);
            }
            // Without permission, the error must say so.
            Err(error) => assert!(!matches!(error, LatencyError::Failed { .. }), "{error:?}"),
        }
    }
}

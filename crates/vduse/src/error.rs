//! Errors of vDPA devices.

use guestmem::{MapError, MemoryError};
use rustix::io::Errno;

/// Reasons that a device cannot be created or served.
#[derive(Debug, thiserror::Error)]
pub enum VduseError {
    /// The name is not valid.
    #[error(
        "{0:?} is not a vDPA device name; write 1 to 63 letters, digits, `.`, `_` or `-`, a letter or digit first, \
         and not `control`"
    )]
    Name(String),
    /// The kernel lacks VDUSE, or the module is not loaded.
    #[error("/dev/vduse/control does not exist; load the module: modprobe vduse")]
    NoModule,
    /// The control file cannot be opened.
    #[error(
        "/dev/vduse/control cannot be opened; the daemon needs permission to read and write it"
    )]
    Control(#[source] Errno),
    /// A network device needs CAP_NET_ADMIN.
    #[error("vDPA device {0} cannot be created; the daemon needs CAP_NET_ADMIN")]
    NoRight(String),
    /// The kernel does not support such a device.
    #[error(
        "the kernel does not support vDPA device {0}; network devices need Linux 6.10 or later"
    )]
    NotPossible(String),
    /// Another process serves it.
    #[error(
        "vDPA device {0} is served by another process; stop that process, or choose another name"
    )]
    Busy(String),
    /// Its file did not appear.
    #[error("/dev/vduse/{0} did not appear; is /dev a devtmpfs, or kept by udev?")]
    NoFile(String),
    /// It is on the vDPA bus, and does not match.
    #[error("a vDPA device {name} exists already, {why}; remove it: vdpa dev del {name}")]
    Other {
        /// Its name.
        name: String,
        /// Difference, or reason.
        why: &'static str,
    },
    /// A system call failed.
    #[error("{call} for vDPA device {name} failed")]
    Call {
        /// System call.
        call: &'static str,
        /// The device's name.
        name: String,
        /// The kernel's error.
        #[source]
        source: Errno,
    },
    /// The driver's memory cannot be mapped.
    #[error("the driver's memory at {start:#x} cannot be mapped")]
    Map {
        /// First address.
        start: u64,
        /// Cause.
        #[source]
        source: MapError,
    },
    /// A file of the driver's memory is of a type that could stall a lane.
    #[error(
        "the driver's memory at {start:#x} is in a file that is not a memfd; with QEMU: -object memory-backend-memfd,share=on"
    )]
    Kind {
        /// First address.
        start: u64,
    },
    /// The ranges do not form a valid memory.
    #[error("the driver's memory cannot be used")]
    Memory(#[from] MemoryError),
    /// A request to the vDPA bus failed.
    #[error("vDPA device {name} cannot be {what} the vDPA bus; {remedy}")]
    Bus {
        /// The device's name.
        name: String,
        /// Operation that failed.
        what: &'static str,
        /// Remedy.
        remedy: &'static str,
        /// The kernel's error.
        #[source]
        source: Errno,
    },
}

//! Why a device cannot be had.

use guestmem::{MapError, MemoryError};
use rustix::io::Errno;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum VduseError {
    /// No device can have the name.
    #[error(
        "{0:?} is no name for a vDPA device; write 1 to 63 letters, digits, `.`, `_` or `-`, a letter or digit first, \
         and not `control`"
    )]
    Name(String),
    /// The kernel has no VDUSE, or it is not loaded.
    #[error("/dev/vduse/control is not there; load the module: modprobe vduse")]
    NoModule,
    /// The control file may not be opened.
    #[error("/dev/vduse/control cannot be opened; the daemon needs the right to read and write it")]
    Control(#[source] Errno),
    /// A network device needs the right to administer the network.
    #[error("vDPA device {0} cannot be made; the daemon needs CAP_NET_ADMIN for that")]
    NoRight(String),
    /// The kernel takes no such device.
    #[error(
        "the kernel makes no such vDPA device as {0}; network devices are possible from Linux 6.10 on"
    )]
    NotPossible(String),
    /// Somebody else serves it.
    #[error("vDPA device {0} is served by another process; end that, or choose another name")]
    Busy(String),
    /// Its file did not appear.
    #[error("/dev/vduse/{0} did not appear; is /dev a devtmpfs, or kept by udev?")]
    NoFile(String),
    /// It stands on the vDPA bus, and is none that could be gone on with.
    #[error("there is a vDPA device {name} already, {why}; remove it: vdpa dev del {name}")]
    Other {
        /// Its name.
        name: String,
        /// What is not right with it.
        why: &'static str,
    },
    /// A system call failed.
    #[error("{call} for vDPA device {name} failed")]
    Call {
        /// Which.
        call: &'static str,
        /// The device's name.
        name: String,
        /// The kernel's word.
        #[source]
        source: Errno,
    },
    /// Memory of the driver's cannot be mapped.
    #[error("memory of the driver's at {start:#x} cannot be mapped")]
    Map {
        /// Its first address.
        start: u64,
        /// Why.
        #[source]
        source: MapError,
    },
    /// A file of the driver's memory is of a kind that could hold up a lane.
    #[error(
        "the driver's memory at {start:#x} is in a file that is no memfd; with QEMU: -object memory-backend-memfd,share=on"
    )]
    Kind {
        /// Its first address.
        start: u64,
    },
    /// The ranges are no memory.
    #[error("the driver's memory cannot be used")]
    Memory(#[from] MemoryError),
    /// The vDPA bus does not do it.
    #[error("vDPA device {name} cannot be {what} the vDPA bus; {remedy}")]
    Bus {
        /// The device's name.
        name: String,
        /// What was to be done.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
        /// The kernel's word.
        #[source]
        source: Errno,
    },
}

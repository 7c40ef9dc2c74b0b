//! Taps: Ethernet interfaces of this machine whose wire is a file.
//!
//! Model: `/dev/net/tun` is opened once for each queue, and each file is made a queue of the
//! interface (TUNSETIFF). In front of each frame stands a virtio-net header of 12 bytes
//! (IFF_VNET_HDR), which says what is left to be done on it. An interface that is not there is
//! made, and vanishes with its last queue; one that is (made persistent by `ip tuntap add`) is used
//! as it is, and stays.
//!
//! Kernel documentation: `Documentation/networking/tuntap.rst`. The interface is in the namespace
//! of the thread that opens it: see [`netns`](crate::netns).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::interface::{Driver, InterfaceError, Interfaces};
use crate::netns;
use crate::sys::{self, Op, Request};

const DEVICE: &str = "/dev/net/tun";
/// Bytes of the header in front of each frame: `struct virtio_net_hdr_mrg_rxbuf`.
pub const HEADER_LEN: u32 = 12;
/// Most queues of a tap (`MAX_TAP_QUEUES`).
pub const QUEUES_MAX: u16 = 256;

const SEGMENTS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const DATAGRAMS: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A tap that is open.
#[derive(Debug)]
pub struct Tap {
    /// Its queues, none of which waits.
    pub queues: Vec<OwnedFd>,
    /// Whether the interface was there before, and will be afterwards.
    pub existed: bool,
    /// Whether datagrams are left to be cut, too (Linux 6.2): then it may also be given such.
    pub has_uso: bool,
}

/// Why a tap could not be opened; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The namespace, or the interface in it.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The number of queues.
    #[error("tap {name:?}: {queues} queues are not possible; choose 1 to {QUEUES_MAX}")]
    Queues {
        /// The interface.
        name: String,
        /// What was asked for.
        queues: u16,
    },
    /// The name.
    #[error(
        "tap {name:?}: no interface can have this name; choose up to 15 bytes without slash, percent sign or blank"
    )]
    Name {
        /// What was asked for.
        name: String,
    },
    /// The kernel, or the container, has no taps.
    #[error(
        "tap {name:?}: {DEVICE} cannot be opened; load the module tun, and let this user or \
         container open the device"
    )]
    NoDevice {
        /// The interface.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Taps are the administrator's.
    #[error(
        "tap {name:?}: no permission; the daemon needs CAP_NET_ADMIN there, or a tap that is its user's \
         (ip tuntap add dev {name} mode tap user NAME)"
    )]
    Permission {
        /// The interface.
        name: String,
    },
    /// An interface of that name is something else.
    #[error(
        "tap {name:?}: there is an interface of this name that is no tap ({driver}); choose another name"
    )]
    NotATap {
        /// The interface.
        name: String,
        /// What it is.
        driver: String,
    },
    /// The tap was made for one queue.
    #[error(
        "tap {name:?}: made for one queue, not for {queues}; make it anew (ip tuntap add dev {name} mode tap \
         multi_queue), or ask for one queue"
    )]
    OneQueue {
        /// The interface.
        name: String,
        /// What was asked for.
        queues: u16,
    },
    /// Somebody else has it open.
    #[error("tap {name:?}: in use by another process; end that, or choose another name")]
    Busy {
        /// The interface.
        name: String,
    },
    /// Anything else.
    #[error("tap {name:?}: cannot be opened")]
    Failed {
        /// The interface.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Opens `queues` queues of the tap, in the namespace named or in this thread's. With `offload` the
/// reader takes frames without checksums, and up to 64 KiB that are to be segmented; it may always
/// write such.
///
/// # Errors
/// [`TunError`]; an interface that was made for it is gone again then.
pub fn open(netns: Option<&str>, name: &str, queues: u16, offload: bool) -> Result<Tap, TunError> {
    if !(1..=QUEUES_MAX).contains(&queues) {
        return Err(TunError::Queues { name: name.to_owned(), queues });
    }
    let request = Request::new(name).ok_or_else(|| TunError::Name { name: name.to_owned() })?;
    let interfaces = Interfaces::of(netns)?;
    let existed = interfaces.state(name).is_ok();
    let attach = || (0..queues).map(|_| attach(request, queues > 1)).collect::<Result<Vec<_>, _>>();
    let opened = netns::within(netns, attach).map_err(InterfaceError::from)?;
    let queues = opened.map_err(|step| explain(&interfaces, name, queues, step))?;
    let failed = |errno: Errno| TunError::Failed { name: name.to_owned(), source: errno.into() };
    let mut has_uso = true;
    for queue in &queues {
        sys::set_tun_header(queue.as_fd(), HEADER_LEN as i32).map_err(failed)?;
        has_uso &= set_offload(queue, offload).map_err(failed)?;
    }
    Ok(Tap { queues, existed, has_uso })
}

/// Gives the tap of this queue a carrier, or takes it away: what its guest sees of the link.
///
/// # Errors
/// The kernel's word; before Linux 5.0 there is no such request.
pub fn set_carrier(queue: BorrowedFd<'_>, up: bool) -> Result<(), Errno> {
    sys::set_tun_carrier(queue, up.into())
}

/// What failed.
enum Step {
    Device(Errno),
    Attach(Errno),
}

/// Opens a queue.
fn attach(request: Request, several: bool) -> Result<OwnedFd, Step> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let queue = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(Step::Device)?;
    let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let multi = kind | libc::IFF_MULTI_QUEUE;
    let set = |flags: i32| {
        let mut request = request.with((flags as u16).to_ne_bytes());
        sys::interface(queue.as_fd(), Op::SetTun, &mut request)
    };
    match set(if several { multi } else { kind }) {
        // A tap that was made for several queues wants to be asked so even for one.
        Err(Errno::INVAL) if !several => set(multi),
        result => result,
    }
    .map_err(Step::Attach)?;
    Ok(queue)
}

/// Says what the reader takes, and whether that is datagrams to be cut, too.
fn set_offload(queue: &OwnedFd, offload: bool) -> Result<bool, Errno> {
    if !offload {
        sys::set_tun_offload(queue.as_fd(), 0)?;
        // Whether the kernel could was not asked, so nobody relies on it.
        return Ok(false);
    }
    match sys::set_tun_offload(queue.as_fd(), SEGMENTS | DATAGRAMS) {
        Err(Errno::INVAL) => sys::set_tun_offload(queue.as_fd(), SEGMENTS).map(|()| false),
        result => result.map(|()| true),
    }
}

fn explain(interfaces: &Interfaces, name: &str, queues: u16, step: Step) -> TunError {
    let name = name.to_owned();
    match step {
        Step::Device(errno) => TunError::NoDevice { name, source: errno.into() },
        Step::Attach(Errno::PERM) => TunError::Permission { name },
        Step::Attach(Errno::BUSY) => TunError::Busy { name },
        Step::Attach(errno) => match interfaces.driver(&name) {
            Ok(Driver { name: driver, place }) if driver != "tun" || place != "tap" => {
                TunError::NotATap { name, driver }
            }
            Ok(_) if errno == Errno::INVAL && queues > 1 => TunError::OneQueue { name, queues },
            // Taps say what they are; whatever else there is does not.
            Err(_) if interfaces.state(&name).is_ok() => {
                TunError::NotATap { name, driver: "of another kind".to_owned() }
            }
            _ => TunError::Failed { name, source: errno.into() },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_tap_is_refused() {
        let text = |name, queues| open(None, name, queues, true).unwrap_err().to_string();
        assert!(text("wp0", 0).contains("0 queues are not possible; choose 1 to 256"));
        assert!(text("a-name-of-16-byt", 1).contains("no interface can have this name"));
    }

    #[test]
    fn a_name_that_is_taken_is_refused_whoever_asks() {
        // Without the right, or without the device, that is the reason; with both, what the
        // interface is.
        let error = open(None, "lo", 1, true).unwrap_err();
        let refused = matches!(
            error,
            TunError::Permission { .. }
                | TunError::NoDevice { .. }
                | TunError::NotATap { .. }
                | TunError::Failed { .. }
        );
        assert!(refused, "{error:?}");
        assert!(error.to_string().starts_with("tap \"lo\": "), "{error}");
    }
}

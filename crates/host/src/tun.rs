//! Taps: Ethernet interfaces of this machine with a file as their wire.
//!
//! Model: `/dev/net/tun` is opened once for each queue, and each file becomes a queue of the
//! interface (TUNSETIFF). Each frame has a virtio-net header of 12 bytes (IFF_VNET_HDR) with its
//! offloads. A missing interface is created, and vanishes with its last queue unless it is made
//! [persistent](persist); an existing one (as of `ip tuntap add`) is used unchanged, and stays.
//!
//! Kernel documentation: `Documentation/networking/tuntap.rst`. The interface is in the namespace
//! of the thread that opens it: see [`netns`](crate::netns).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::interface::{InterfaceDriver, InterfaceError, Interfaces};
use crate::launcher::{Answer, Request, ask, check_named};
use crate::links::Links;
use crate::netns;
use crate::sys::{self, IfRequest, Op};

const DEVICE: &str = "/dev/net/tun";
/// Bytes of the header before each frame: `struct virtio_net_hdr_mrg_rxbuf`.
pub const HEADER_LEN: u32 = 12;
/// Most queues of a tap (`MAX_TAP_QUEUES`).
pub const QUEUES_MAX: u16 = 256;

/// Owner of persistent taps: the largest user ID, which no process has. A tap without an owner may
/// be opened by every user of its namespace, one of user 0 by a root without capabilities.
const NO_USER: u32 = u32::MAX - 1;

const SEGMENTS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
const DATAGRAMS: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// An open tap.
#[derive(Debug)]
pub struct Tap {
    /// Its queues, all non-blocking.
    pub queues: Vec<OwnedFd>,
    /// `true` if the interface existed before; it then stays.
    pub existed: bool,
    /// `true` with UDP segmentation offload in both directions (Linux 6.2).
    pub has_uso: bool,
}

/// Reasons that a tap could not be opened; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The namespace or the interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The number of queues is out of range.
    #[error("tap {name:?}: {queues} queues; allowed: 1 to {QUEUES_MAX}")]
    Queues {
        /// The interface.
        name: String,
        /// Queues asked for.
        queues: u16,
    },
    /// The name is not valid.
    #[error(
        "tap {name:?}: invalid interface name; choose up to 15 bytes without slash, percent sign or blank"
    )]
    Name {
        /// Name asked for.
        name: String,
    },
    /// The kernel has no tap support, or the container hides it.
    #[error(
        "tap {name:?}: {DEVICE} cannot be opened; load the module tun, and let this user or \
         container open the device"
    )]
    NoDevice {
        /// The interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process lacks CAP_NET_ADMIN, and the tap is not its user's.
    #[error(
        "tap {name:?}: no permission; the daemon needs CAP_NET_ADMIN there, or a tap owned by its user \
         (ip tuntap add dev {name} mode tap user NAME)"
    )]
    Permission {
        /// The interface.
        name: String,
    },
    /// An interface of that name is not a tap.
    #[error(
        "tap {name:?}: an interface of this name exists and is not a tap ({driver}); choose another name"
    )]
    NotATap {
        /// The interface.
        name: String,
        /// Its driver.
        driver: String,
    },
    /// The tap was made for one queue.
    #[error(
        "tap {name:?}: created for one queue, not for {queues}; recreate it (ip tuntap add dev {name} mode tap \
         multi_queue), or configure one queue"
    )]
    OneQueue {
        /// The interface.
        name: String,
        /// Queues asked for.
        queues: u16,
    },
    /// Another process has it open.
    #[error("tap {name:?}: in use by another process; stop that process, or choose another name")]
    Busy {
        /// The interface.
        name: String,
    },
    /// Other errors.
    #[error("tap {name:?}: cannot be opened")]
    Failed {
        /// The interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Opens `queues` queues of the tap, in the named namespace or in this thread's. With `offload` the
/// reader takes frames without checksums, and up to 64 KiB to segment; it may always write such
/// frames.
///
/// # Errors
/// [`TunError`]; an interface that was created is removed again.
pub fn open(netns: Option<&str>, name: &str, queues: u16, offload: bool) -> Result<Tap, TunError> {
    validate(name, queues)?;
    let interfaces = Interfaces::of(netns)?;
    let existed = interfaces.state(name).is_ok();
    let open = || (0..queues).map(|_| open_queue(name, queues > 1)).collect::<Result<Vec<_>, _>>();
    let opened = netns::within(netns, open).map_err(InterfaceError::from)?;
    let queues = opened.map_err(|step| explain(&interfaces, name, queues, step))?;
    let failed = |errno: Errno| TunError::Failed { name: name.to_owned(), source: errno.into() };
    let mut has_uso = true;
    for queue in &queues {
        sys::set_tun_header(queue.as_fd(), HEADER_LEN as i32).map_err(failed)?;
        has_uso &= set_offload(queue, offload).map_err(failed)?;
    }
    Ok(Tap { queues, existed, has_uso })
}

/// Checks that an interface, if it exists, is a tap that [`open`] can open. It is not opened: that
/// alone would change its header and offloads, and give it a queue.
///
/// # Errors
/// [`TunError`]; not for lack of permission.
pub fn check(netns: Option<&str>, name: &str, queues: u16) -> Result<(), TunError> {
    validate(name, queues)?;
    let interfaces = Interfaces::of(netns)?;
    let Ok(state) = interfaces.state(name) else { return Ok(()) };
    let name = name.to_owned();
    if let Some(driver) = other_driver(&interfaces, &name) {
        return Err(TunError::NotATap { name, driver });
    }
    let links = netns::within(netns, Links::open).map_err(InterfaceError::from)?;
    let has_several = links.ok().and_then(|links| links.has_several_queues(&name));
    match has_several {
        Some(false) if queues > 1 => Err(TunError::OneQueue { name, queues }),
        // The carrier of a tap is its open file.
        Some(false) if state.is_running => Err(TunError::Busy { name }),
        _ => Ok(()),
    }
}

fn validate(name: &str, queues: u16) -> Result<(), TunError> {
    if !(1..=QUEUES_MAX).contains(&queues) {
        return Err(TunError::Queues { name: name.to_owned(), queues });
    }
    if IfRequest::new(name).is_none() {
        return Err(TunError::Name { name: name.to_owned() });
    }
    Ok(())
}

/// Driver of an interface that is no tap.
fn other_driver(interfaces: &Interfaces, name: &str) -> Option<String> {
    match interfaces.driver(name) {
        Ok(InterfaceDriver { name, bus_info, .. }) => {
            (name != "tun" || bus_info != "tap").then_some(name)
        }
        // Taps report a driver; other interfaces need not.
        Err(_) => interfaces.state(name).is_ok().then(|| "of another kind".to_owned()),
    }
}

/// Sets the carrier of the tap of this queue: the guest's link state.
///
/// # Errors
/// The kernel's error; Linux before 5.0 lacks the request.
pub fn set_carrier(queue: BorrowedFd<'_>, up: bool) -> Result<(), Errno> {
    sys::set_tun_carrier(queue, up.into())
}

/// Keeps the tap of this queue when its last queue is closed. Only a process with CAP_NET_ADMIN in
/// its namespace may open it then.
///
/// # Errors
/// The kernel's error.
pub fn persist(queue: BorrowedFd<'_>) -> Result<(), Errno> {
    match sys::set_tun_owner(queue, NO_USER) {
        // This user namespace lacks that user.
        Err(Errno::INVAL) => sys::set_tun_owner(queue, rustix::process::geteuid().as_raw())?,
        result => result?,
    }
    sys::set_tun_persistent(queue, true)
}

/// Step that failed, with the kernel's error.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Opening the device.
    Device(i32),
    /// Making it a queue of the interface.
    Attach(i32),
}

/// Opens a queue of a tap.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenTap {
    name: String,
    /// `true` for a tap with several queues.
    several: bool,
}

impl Request for OpenTap {
    const NAME: &'static str = "open-tap";
    const DOES: &'static str = "opens a queue of a tap in a network namespace, and creates the tap";
    const IN_NAMESPACE: bool = true;
    type Reply = Result<(), Step>;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_named(&["tap"], &self.name)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Result<(), Step>> {
        let request = IfRequest::new(&self.name).ok_or(Errno::INVAL)?;
        match attach(request, self.several) {
            Ok(queue) => Ok((Ok(()), vec![queue])),
            Err(step) => Ok((Err(step), Vec::new())),
        }
    }
}

/// Opens a queue, or has it opened.
fn open_queue(name: &str, several: bool) -> Result<OwnedFd, Step> {
    let failed = |errno: Errno| Step::Device(errno.raw_os_error());
    let (opened, fds) = ask(OpenTap { name: name.to_owned(), several }, &[]).map_err(failed)?;
    opened?;
    fds.into_iter().next().ok_or_else(|| failed(Errno::BADMSG))
}

/// Opens a queue.
fn attach(request: IfRequest, several: bool) -> Result<OwnedFd, Step> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let queue = rustix::fs::open(DEVICE, flags, Mode::empty())
        .map_err(|errno| Step::Device(errno.raw_os_error()))?;
    let kind = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let multi = kind | libc::IFF_MULTI_QUEUE;
    let set = |flags: i32| {
        let mut request = request.with((flags as u16).to_ne_bytes());
        sys::interface(queue.as_fd(), Op::SetTun, &mut request)
    };
    match set(if several { multi } else { kind }) {
        // A tap made for several queues requires the flag even for one.
        Err(Errno::INVAL) if !several => set(multi),
        result => result,
    }
    .map_err(|errno| Step::Attach(errno.raw_os_error()))?;
    Ok(queue)
}

/// Sets the offloads that the reader takes; returns `true` if they include UDP segmentation.
fn set_offload(queue: &OwnedFd, offload: bool) -> Result<bool, Errno> {
    if !offload {
        sys::set_tun_offload(queue.as_fd(), 0)?;
        // UDP segmentation was not probed, so it is not used.
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
        Step::Device(errno) => {
            TunError::NoDevice { name, source: io::Error::from_raw_os_error(errno) }
        }
        Step::Attach(errno) => explain_attach(interfaces, name, queues, errno),
    }
}

fn explain_attach(interfaces: &Interfaces, name: String, queues: u16, errno: i32) -> TunError {
    match Errno::from_raw_os_error(errno) {
        Errno::PERM => TunError::Permission { name },
        Errno::BUSY => TunError::Busy { name },
        errno => match other_driver(interfaces, &name) {
            Some(driver) => TunError::NotATap { name, driver },
            None if errno == Errno::INVAL && queues > 1 && interfaces.state(&name).is_ok() => {
                TunError::OneQueue { name, queues }
            }
            None => TunError::Failed { name, source: errno.into() },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_tap_is_refused() {
        let text = |name, queues| open(None, name, queues, true).unwrap_err().to_string();
        assert!(text("wp0", 0).contains("0 queues; allowed: 1 to 256"));
        assert!(text("a-name-of-16-byt", 1).contains("invalid interface name"));
    }

    #[test]
    fn a_check_finds_what_is_no_tap() {
        let text = |name, queues| check(None, name, queues).unwrap_err().to_string();
        assert!(text("wp0", 0).contains("0 queues; allowed: 1 to 256"));
        assert!(text("lo", 1).contains("an interface of this name exists and is not a tap"));
        check(None, "no-such-if0", 1).unwrap();
    }

    #[test]
    fn a_name_in_use_is_refused() {
        // Without permission or device, that is the error; with both, the interface's type.
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

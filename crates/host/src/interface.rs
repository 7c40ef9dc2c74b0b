//! Network interfaces by name: what they are, and the few things that are set on those of ours.
//!
//! Model: an [`Interfaces`] is a socket, and sees the interfaces of the namespace that it was
//! opened in. Everything is one ioctl (netdevice(7)), answered at once; nothing is kept, for an
//! interface may vanish at any time.
//!
//! Limits: Ethernet. Names as the kernel has them, up to 15 bytes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::netns::{self, NetnsError};
use crate::sys::{self, Op, Request};

/// `ARPHRD_ETHER`: what an address of Ethernet is called.
const ETHER: u16 = 1;
const UP: i16 = libc::IFF_UP as i16;
const RUNNING: i16 = libc::IFF_RUNNING as i16;

/// Why an interface could not be asked or changed; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// Its namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// No interface has or could have that name.
    #[error("interface {name:?}: no such interface; choose one that `ip link` shows there")]
    Missing {
        /// The name.
        name: String,
    },
    /// The kernel allows it to the administrator only.
    #[error("interface {name:?}: no permission to {what}; the daemon needs CAP_NET_ADMIN there")]
    Permission {
        /// The interface.
        name: String,
        /// What was to be done.
        what: &'static str,
    },
    /// Anything else.
    #[error("interface {name:?}: cannot {what}")]
    Failed {
        /// The interface.
        name: String,
        /// What was to be done.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// An interface at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The kernel's number for it; another one if it was made anew.
    pub index: u32,
    /// Longest packet in a frame, bytes.
    pub mtu: u32,
    /// Its address.
    pub mac: [u8; 6],
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it is switched on and has a carrier.
    pub is_running: bool,
}

/// What drives an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its name, such as `veth`, `tun` or `ice`.
    pub name: String,
    /// Where the device is, such as `0000:3b:00.0`; for a tap, `tap`.
    pub place: String,
}

/// The interfaces of a network namespace.
#[derive(Debug)]
pub struct Interfaces {
    socket: OwnedFd,
}

impl Interfaces {
    /// Those of the namespace named, or of this thread's.
    ///
    /// # Errors
    /// [`InterfaceError`], if the namespace cannot be entered, or there is no socket to be had.
    pub fn of(netns: Option<&str>) -> Result<Interfaces, InterfaceError> {
        let open = || {
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(|errno| failed("", "ask the kernel", errno))
        };
        let socket = netns::within(netns, open)??;
        Ok(Interfaces { socket })
    }

    fn ask(&self, name: &str, op: Op, what: &'static str) -> Result<Request, InterfaceError> {
        self.tell(name, op, [], what)
    }

    fn tell<const N: usize>(
        &self,
        name: &str,
        op: Op,
        value: [u8; N],
        what: &'static str,
    ) -> Result<Request, InterfaceError> {
        let request = Request::new(name).ok_or_else(|| missing(name))?;
        let mut request = request.with(value);
        sys::interface(self.socket.as_fd(), op, &mut request)
            .map_err(|errno| failed(name, what, errno))?;
        Ok(request)
    }

    /// How the interface is now.
    ///
    /// # Errors
    /// [`InterfaceError::Missing`] if there is none of that name; else the kernel's word.
    pub fn state(&self, name: &str) -> Result<State, InterfaceError> {
        const WHAT: &str = "read its state";
        let flags = i16::from_ne_bytes(self.ask(name, Op::Flags, WHAT)?.get());
        let [_, _, mac @ ..] = self.ask(name, Op::Mac, WHAT)?.get::<8>();
        Ok(State {
            index: u32::from_ne_bytes(self.ask(name, Op::Index, WHAT)?.get()),
            mtu: u32::from_ne_bytes(self.ask(name, Op::Mtu, WHAT)?.get()),
            mac,
            is_up: flags & UP != 0,
            is_running: flags & UP != 0 && flags & RUNNING != 0,
        })
    }

    /// What drives the interface.
    ///
    /// # Errors
    /// As [`state`](Self::state); also if the driver does not say.
    pub fn driver(&self, name: &str) -> Result<Driver, InterfaceError> {
        let request = Request::new(name).ok_or_else(|| missing(name))?;
        let [driver, place] = sys::driver(self.socket.as_fd(), request)
            .map_err(|errno| failed(name, "read its driver's name", errno))?;
        let text = |bytes: &[u8]| {
            let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
            text.to_string_lossy().into_owned()
        };
        Ok(Driver { name: text(&driver), place: text(&place) })
    }

    /// Gives the interface an address.
    ///
    /// # Errors
    /// The kernel's word: some drivers refuse while the interface is up.
    pub fn set_mac(&self, name: &str, mac: [u8; 6]) -> Result<(), InterfaceError> {
        let [low, high] = ETHER.to_ne_bytes();
        let [a, b, c, d, e, f] = mac;
        let value = [low, high, a, b, c, d, e, f];
        self.tell(name, Op::SetMac, value, "set its MAC address").map(|_| ())
    }

    /// Sets the longest packet, bytes.
    ///
    /// # Errors
    /// The kernel's word: INVAL if the driver cannot.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), InterfaceError> {
        self.tell(name, Op::SetMtu, mtu.to_ne_bytes(), "set its MTU").map(|_| ())
    }

    /// Sets how many frames may wait in the queue of a tap or in front of another interface.
    ///
    /// # Errors
    /// The kernel's word.
    pub fn set_queue_len(&self, name: &str, frames: u32) -> Result<(), InterfaceError> {
        self.tell(name, Op::SetQueueLen, frames.to_ne_bytes(), "set the length of its queue")
            .map(|_| ())
    }

    /// Switches it on, or off.
    ///
    /// # Errors
    /// The kernel's word.
    pub fn set_up(&self, name: &str, up: bool) -> Result<(), InterfaceError> {
        let what = if up { "switch it on" } else { "switch it off" };
        let before = i16::from_ne_bytes(self.ask(name, Op::Flags, what)?.get());
        let flags = if up { before | UP } else { before & !UP };
        self.tell(name, Op::SetFlags, flags.to_ne_bytes(), what).map(|_| ())
    }
}

fn missing(name: &str) -> InterfaceError {
    InterfaceError::Missing { name: name.to_owned() }
}

fn failed(name: &str, what: &'static str, errno: Errno) -> InterfaceError {
    let name = name.to_owned();
    match errno {
        Errno::NODEV => InterfaceError::Missing { name },
        Errno::PERM | Errno::ACCESS => InterfaceError::Permission { name, what },
        _ => InterfaceError::Failed { name, what, source: errno.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_known_and_what_is_not_there_is_missing() {
        let interfaces = Interfaces::of(None).unwrap();
        let lo = interfaces.state("lo").unwrap();
        assert_eq!((lo.index, lo.mac), (1, [0; 6]));
        for name in ["nosuchthing0", "", "a/b"] {
            let error = interfaces.state(name).unwrap_err();
            assert!(matches!(error, InterfaceError::Missing { .. }), "{error:?}");
            assert!(error.to_string().contains("no such interface"));
        }
    }

    #[test]
    fn errors_name_the_interface_and_the_remedy() {
        let text = |errno| failed("eth7", "set its MTU", errno).to_string();
        assert_eq!(text(Errno::INVAL), "interface \"eth7\": cannot set its MTU");
        assert!(text(Errno::PERM).ends_with("CAP_NET_ADMIN there"));
    }
}

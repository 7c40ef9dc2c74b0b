//! Network interfaces by name: their state, and the few settings made on our own.
//!
//! Model: an [`Interfaces`] is a socket, and sees the interfaces of the namespace that it was
//! opened in. Each operation is one ioctl (netdevice(7)), answered at once; no state is kept, since
//! an interface may vanish at any time.
//!
//! Limits: Ethernet; interface names of up to 15 bytes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::launcher::{Answer, Request, ask, check_named};
use crate::netns::{self, NetnsError};
use crate::socket::{self, SocketKind};
use crate::sys::{self, IfRequest, Op};

/// `ARPHRD_ETHER`: the type of an Ethernet address.
const ETHER: u16 = 1;
const UP: i16 = libc::IFF_UP as i16;
const RUNNING: i16 = libc::IFF_RUNNING as i16;

/// Reasons that an interface could not be read or changed; each text names the remedy.
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
    /// Only an administrator may do it.
    #[error("interface {name:?}: no permission to {what}; the daemon needs CAP_NET_ADMIN there")]
    Permission {
        /// The interface.
        name: String,
        /// Operation that failed.
        what: &'static str,
    },
    /// Other errors.
    #[error("interface {name:?}: cannot {what}")]
    Failed {
        /// The interface.
        name: String,
        /// Operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// State of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// The kernel's index; a recreated interface has another.
    pub index: u32,
    /// Longest packet in a frame, bytes.
    pub mtu: u32,
    /// Its address.
    pub mac: [u8; 6],
    /// `true` if the interface is up.
    pub is_up: bool,
    /// `true` if the interface is up and has a carrier.
    pub is_running: bool,
}

/// Driver of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceDriver {
    /// Its name, such as `veth`, `tun` or `ice`.
    pub name: String,
    /// Its version: the kernel's release for drivers of the kernel.
    pub version: String,
    /// Version of the card's firmware; empty if the driver does not report it.
    pub firmware: String,
    /// Bus address such as `0000:3b:00.0`; for a tap, `tap`.
    pub bus_info: String,
}

/// The interfaces of a network namespace.
#[derive(Debug)]
pub struct Interfaces {
    socket: OwnedFd,
}

impl Interfaces {
    /// The interfaces of the named namespace, or of this thread's.
    ///
    /// # Errors
    /// [`InterfaceError`], if the namespace cannot be entered, or no socket can be opened.
    pub fn of(netns: Option<&str>) -> Result<Interfaces, InterfaceError> {
        let open = || {
            socket::open(SocketKind::Interfaces)
                .map_err(|errno| failed("", "ask the kernel", errno))
        };
        let socket = netns::within(netns, open)??;
        Ok(Interfaces { socket })
    }

    fn ask(&self, name: &str, op: Op, what: &'static str) -> Result<IfRequest, InterfaceError> {
        let mut request = IfRequest::new(name).ok_or_else(|| missing(name))?;
        sys::interface(self.socket.as_fd(), op, &mut request)
            .map_err(|errno| failed(name, what, errno))?;
        Ok(request)
    }

    fn tell(
        &self,
        name: &str,
        setting: InterfaceSetting,
        what: &'static str,
    ) -> Result<(), InterfaceError> {
        let request = ChangeInterface { name: name.to_owned(), setting };
        if IfRequest::new(name).is_none() {
            return Err(missing(name));
        }
        let changed = ask(request, &[self.socket.as_fd()]);
        changed.map(drop).map_err(|errno| failed(name, what, errno))
    }

    /// Current state of the interface.
    ///
    /// # Errors
    /// [`InterfaceError::Missing`] if there is none of that name; else the kernel's error.
    pub fn state(&self, name: &str) -> Result<InterfaceState, InterfaceError> {
        const WHAT: &str = "read its state";
        let flags = i16::from_ne_bytes(self.ask(name, Op::Flags, WHAT)?.get());
        let [_, _, mac @ ..] = self.ask(name, Op::Mac, WHAT)?.get::<8>();
        Ok(InterfaceState {
            index: u32::from_ne_bytes(self.ask(name, Op::Index, WHAT)?.get()),
            mtu: u32::from_ne_bytes(self.ask(name, Op::Mtu, WHAT)?.get()),
            mac,
            is_up: flags & UP != 0,
            is_running: flags & UP != 0 && flags & RUNNING != 0,
        })
    }

    /// Driver of the interface.
    ///
    /// # Errors
    /// As [`state`](Self::state); also if the driver does not report it.
    pub fn driver(&self, name: &str) -> Result<InterfaceDriver, InterfaceError> {
        let request = IfRequest::new(name).ok_or_else(|| missing(name))?;
        let answer = sys::driver(self.socket.as_fd(), request)
            .map_err(|errno| failed(name, "read its driver's name", errno))?;
        let text = |bytes: &[u8]| {
            let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
            text.to_string_lossy().into_owned()
        };
        let [name, version, firmware, bus_info] = answer.map(|bytes| text(&bytes));
        Ok(InterfaceDriver { name, version, firmware, bus_info })
    }

    /// Sets the interface's MAC address.
    ///
    /// # Errors
    /// The kernel's error: some drivers refuse while the interface is up.
    pub fn set_mac(&self, name: &str, mac: [u8; 6]) -> Result<(), InterfaceError> {
        self.tell(name, InterfaceSetting::Mac(mac), "set its MAC address")
    }

    /// Sets the MTU in bytes.
    ///
    /// # Errors
    /// The kernel's error: INVAL if the driver cannot.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), InterfaceError> {
        self.tell(name, InterfaceSetting::Mtu(mtu), "set its MTU")
    }

    /// Sets the interface up, or down.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_up(&self, name: &str, up: bool) -> Result<(), InterfaceError> {
        let what = if up { "switch it on" } else { "switch it off" };
        self.tell(name, InterfaceSetting::Up(up), what)
    }
}

/// A setting of an interface.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum InterfaceSetting {
    /// MAC address.
    Mac([u8; 6]),
    /// MTU in bytes.
    Mtu(u32),
    /// Up or down.
    Up(bool),
}

/// Changes a setting of an interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeInterface {
    name: String,
    setting: InterfaceSetting,
}

impl Request for ChangeInterface {
    const NAME: &'static str = "change-interface";
    const DOES: &'static str = "sets the MAC address of an interface in the socket's namespace; of a tap MTU and state too";
    type Reply = ();

    fn check(&self, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        socket::check(*socket, SocketKind::Interfaces)?;
        match self.setting {
            InterfaceSetting::Mac(_) => check_named(&["tap", "packet", "xdp"], &self.name),
            InterfaceSetting::Mtu(_) | InterfaceSetting::Up(_) => {
                check_named(&["tap"], &self.name)?;
                check_tap(*socket, &self.name)
            }
        }
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<()> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        let request = IfRequest::new(&self.name).ok_or(Errno::INVAL)?;
        let (op, mut request) = match self.setting {
            InterfaceSetting::Mac([a, b, c, d, e, f]) => {
                let [low, high] = ETHER.to_ne_bytes();
                (Op::SetMac, request.with([low, high, a, b, c, d, e, f]))
            }
            InterfaceSetting::Mtu(mtu) => (Op::SetMtu, request.with(mtu.to_ne_bytes())),
            InterfaceSetting::Up(up) => {
                let mut before = request;
                sys::interface(*socket, Op::Flags, &mut before)?;
                let flags = i16::from_ne_bytes(before.get());
                let flags = if up { flags | UP } else { flags & !UP };
                (Op::SetFlags, request.with(flags.to_ne_bytes()))
            }
        };
        sys::interface(*socket, op, &mut request)?;
        Ok(((), Vec::new()))
    }
}

/// `EPERM` for an interface that is no tap.
pub(crate) fn check_tap(socket: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let driver = sys::driver(socket, IfRequest::new(name).ok_or(Errno::INVAL)?);
    let begins = |bytes: &[u8; 32], text: &[u8]| bytes.starts_with(text);
    match driver {
        Ok([driver, .., bus]) if begins(&driver, b"tun\0") && begins(&bus, b"tap\0") => Ok(()),
        Ok(_) | Err(Errno::OPNOTSUPP) => Err(Errno::PERM),
        Err(errno) => Err(errno),
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
    fn a_launcher_changes_only_the_address_of_what_is_no_tap() {
        let interfaces = Interfaces::of(None).unwrap();
        let check = |name: &str, setting| {
            ChangeInterface { name: name.to_owned(), setting }.check(&[interfaces.socket.as_fd()])
        };
        assert_eq!(check("lo", InterfaceSetting::Up(false)), Err(Errno::PERM));
        assert_eq!(check("lo", InterfaceSetting::Mtu(68)), Err(Errno::PERM));
        assert_eq!(check("lo", InterfaceSetting::Mac([0; 6])), Ok(()));
        assert_eq!(check("no-such-if0", InterfaceSetting::Mtu(68)), Err(Errno::NODEV));
        let (other, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let request = ChangeInterface { name: "lo".into(), setting: InterfaceSetting::Mac([0; 6]) };
        assert_eq!(request.check(&[other.as_fd()]), Err(Errno::INVAL), "another socket");
        assert_eq!(request.check(&[]), Err(Errno::INVAL), "no socket");
    }

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

//! Properties of an interface, read before it is used.
//!
//! [`Interfaces`] covers one network namespace: that of the thread that opened it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use host::netlink::Netlink;
use host::socket::{self, SocketKind};
use rustix::io::Errno;

use crate::error::XdpError;
use crate::netlink::{self, AttachedProgram};

/// State of an interface when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Index.
    pub index: u32,
    /// `true` if it is administratively up.
    pub up: bool,
    /// MTU: longest payload of a frame, bytes.
    pub mtu: u32,
    /// Its address; zeros if it has none.
    pub mac: [u8; 6],
    /// Receive queues in use.
    pub rx_queues: u32,
    /// `true` if it removes VLAN tags from received frames (rx-vlan-offload); XDP then never sees
    /// them: [`KeptTags`](crate::KeptTags).
    pub strips_vlan: bool,
    /// The XDP program that is attached.
    pub attached: Option<AttachedProgram>,
}

/// Longest name, with its zero.
const NAME_MAX: usize = 16;

pub(crate) const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
pub(crate) const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Value {
    pub(crate) cmd: u32,
    pub(crate) data: u32,
}

#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// The interfaces of a network namespace.
#[derive(Debug)]
pub struct Interfaces {
    netlink: Netlink,
    ioctl: OwnedFd,
}

impl Interface {
    /// Reads the interface `name` of the calling thread's network namespace.
    pub fn find(name: &str) -> Result<Interface, XdpError> {
        let here = Interfaces::here();
        let error = |errno| XdpError::of("opening a socket", name, "CAP_NET_ADMIN", errno);
        here.map_err(error)?.find(name)
    }
}

impl Interfaces {
    /// The interfaces of the calling thread's network namespace, for later use by any thread.
    pub fn here() -> Result<Interfaces, Errno> {
        let ioctl = socket::open(SocketKind::Interfaces)?;
        Ok(Interfaces { netlink: Netlink::route()?, ioctl })
    }

    /// Reads the interface `name`.
    pub fn find(&self, name: &str) -> Result<Interface, XdpError> {
        if name.is_empty() || name.len() >= NAME_MAX || name.contains(['/', '\0']) {
            return Err(XdpError::NoInterface(name.to_owned()));
        }
        let link = netlink::link(&self.netlink, name)
            .map_err(|errno| XdpError::of("RTM_GETLINK", name, "CAP_NET_ADMIN", errno))?;
        let mut flags = Value { cmd: ETHTOOL_GFLAGS, data: 0 };
        let flags = self.ethtool(name, &mut flags).map(|()| flags);
        Ok(Interface {
            name: name.to_owned(),
            index: link.index,
            up: link.up,
            mtu: link.mtu,
            mac: link.mac,
            rx_queues: self.rx_queues(name, link.index, link.rx_queues_max),
            strips_vlan: flags.is_ok_and(|flags| flags.data & ETH_FLAG_RXVLAN != 0),
            attached: link.attached,
        })
    }

    /// Receive queues in use, from the driver or else from sysfs. Drivers that report neither use
    /// as many as they were created with.
    fn rx_queues(&self, name: &str, index: u32, made_with: u32) -> u32 {
        let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
        if self.ethtool(name, &mut channels).is_ok() {
            let Channels { rx_count, combined_count, .. } = channels;
            if rx_count + combined_count > 0 {
                return rx_count + combined_count;
            }
        }
        // The sysfs mounted there may belong to another network namespace.
        let directory = Path::new("/sys/class/net").join(name);
        let same = std::fs::read_to_string(directory.join("ifindex"))
            .is_ok_and(|text| text.trim() == index.to_string());
        let shown = if same { std::fs::read_dir(directory.join("queues")).ok() } else { None };
        let count = shown.map_or(0, |entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter(|name| name.to_string_lossy().starts_with("rx-")).count() as u32
        });
        if count > 0 { count } else { made_with.max(1) }
    }

    /// Sends an ethtool request to the driver; `request` begins with the command, and receives the
    /// answer.
    pub(crate) fn ethtool<T>(&self, name: &str, request: &mut T) -> Result<(), Errno> {
        ethtool(self.ioctl.as_fd(), name, request)
    }

    /// The socket for requests.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.ioctl.as_fd()
    }
}

/// Sends an ethtool request by this socket.
pub(crate) fn ethtool<T>(socket: BorrowedFd<'_>, name: &str, request: &mut T) -> Result<(), Errno> {
    let request: *mut T = request;
    // SAFETY: an all-zero ifreq is valid.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes().take(NAME_MAX - 1)) {
        *to = from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = request.cast();
    // SAFETY: the request is the structure of its command, which the kernel reads and writes;
    // both it and the ifreq outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut ifreq) };
    if result == 0 {
        Ok(())
    } else {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Err(Errno::from_raw_os_error(errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_a_queue() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!((lo.index, lo.mac, lo.rx_queues), (1, [0; 6], 1));
        assert!(lo.mtu > 0);
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for name in ["", "no-such-if", "a/b", "a name that is too long", "lo\0"] {
            let error = Interface::find(name).unwrap_err();
            assert!(matches!(&error, XdpError::NoInterface(said) if said == name), "{error}");
        }
    }
}

//! Requests to network devices that rustix lacks: ioctls and socket options, one function each.
//!
//! Model: each function takes its data by value or by a reference of the right type, so that no
//! caller can pass memory of a wrong layout. Layouts and numbers: `linux/if.h`, `if_tun.h`,
//! `if_packet.h`, `ethtool.h`.

// Each function here is one system call with memory that the kernel reads or writes.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;
use rustix::io::Errno;

/// Bytes of an interface's name, with the terminating zero.
pub(crate) const NAME_SIZE: usize = libc::IFNAMSIZ;

const SOL_PACKET: c_int = 263;
const SOL_NETLINK: c_int = 270;
const NETLINK_EXT_ACK: c_int = 11;
const PACKET_ADD_MEMBERSHIP: c_int = 1;
const PACKET_MR_MULTICAST: u16 = 0;
const PACKET_MR_PROMISC: u16 = 1;
const ETHTOOL_GDRVINFO: u32 = 3;

/// Argument of SIOC... requests, `struct ifreq`: a name, and a union that is the largest of its
/// kinds.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct IfRequest {
    name: [u8; NAME_SIZE],
    value: [u8; 24],
}

const _: () = assert!(size_of::<IfRequest>() >= size_of::<libc::ifreq>());

impl IfRequest {
    /// `None` if the name is not valid.
    pub(crate) fn new(interface: &str) -> Option<IfRequest> {
        let bytes = interface.as_bytes();
        let odd =
            |byte: &u8| *byte == b'/' || *byte == b'%' || *byte == 0 || byte.is_ascii_whitespace();
        if bytes.is_empty() || bytes.len() >= NAME_SIZE || bytes.iter().any(odd) {
            return None;
        }
        let mut name = [0; NAME_SIZE];
        name[..bytes.len()].copy_from_slice(bytes);
        Some(IfRequest { name, value: [0; 24] })
    }

    /// The union's first bytes.
    pub(crate) fn get<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.value[..N]);
        bytes
    }

    /// Sets the union's first bytes.
    pub(crate) fn with<const N: usize>(mut self, bytes: [u8; N]) -> IfRequest {
        self.value[..N].copy_from_slice(&bytes);
        self
    }
}

/// Requests that access no more memory than the [`IfRequest`] itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Index,
    Flags,
    SetFlags,
    Mtu,
    SetMtu,
    Mac,
    SetMac,
    /// On a file of `/dev/net/tun`: makes it a queue of an interface.
    SetTun,
}

/// Queries or changes the interface that the request names.
pub(crate) fn interface(fd: BorrowedFd<'_>, op: Op, request: &mut IfRequest) -> Result<(), Errno> {
    let number = match op {
        Op::Index => libc::SIOCGIFINDEX,
        Op::Flags => libc::SIOCGIFFLAGS,
        Op::SetFlags => libc::SIOCSIFFLAGS,
        Op::Mtu => libc::SIOCGIFMTU,
        Op::SetMtu => libc::SIOCSIFMTU,
        Op::Mac => libc::SIOCGIFHWADDR,
        Op::SetMac => libc::SIOCSIFHWADDR,
        Op::SetTun => libc::TUNSETIFF,
    };
    // SAFETY: each of these exchanges one struct ifreq, no larger than `request`, and follows no
    // pointer in it.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), number, &raw mut *request) })
}

/// The interface's driver: its name, version, the card's firmware version, and its bus address.
pub(crate) fn driver(fd: BorrowedFd<'_>, request: IfRequest) -> Result<[[u8; 32]; 4], Errno> {
    /// `struct ethtool_drvinfo`.
    #[repr(C)]
    struct Info {
        cmd: u32,
        driver: [u8; 32],
        version: [u8; 32],
        firmware: [u8; 32],
        bus: [u8; 32],
        rest: [u8; 64],
    }
    const _: () = assert!(size_of::<Info>() == 196);
    let empty = [0; 32];
    let (driver, version, firmware, bus) = (empty, empty, empty, empty);
    let mut info = Info { cmd: ETHTOOL_GDRVINFO, driver, version, firmware, bus, rest: [0; 64] };
    let mut request = request.with((&raw mut info).expose_provenance().to_ne_bytes());
    // SAFETY: the request points to an ethtool_drvinfo, which is as long as the command says and
    // outlives the call.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })?;
    Ok([info.driver, info.version, info.firmware, info.bus])
}

/// Sets the length of a tap's frame header, in bytes.
pub(crate) fn set_tun_header(fd: BorrowedFd<'_>, bytes: c_int) -> Result<(), Errno> {
    // SAFETY: the kernel reads one int.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const bytes) })
}

/// Sets whether a tap has a carrier.
pub(crate) fn set_tun_carrier(fd: BorrowedFd<'_>, up: c_int) -> Result<(), Errno> {
    // SAFETY: the kernel reads one int.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETCARRIER, &raw const up) })
}

/// Sets whether a tap outlives its queues.
pub(crate) fn set_tun_persistent(fd: BorrowedFd<'_>, persistent: bool) -> Result<(), Errno> {
    let value = libc::c_ulong::from(persistent);
    // SAFETY: the value is the argument itself; the kernel touches no memory.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST, value) })
}

/// Sets the user that may open a tap without CAP_NET_ADMIN.
pub(crate) fn set_tun_owner(fd: BorrowedFd<'_>, user: u32) -> Result<(), Errno> {
    // SAFETY: the user is the argument itself; the kernel touches no memory.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOWNER, libc::c_ulong::from(user)) })
}

/// Sets the offloads that the reader of a tap takes, `TUN_F_*`.
pub(crate) fn set_tun_offload(fd: BorrowedFd<'_>, flags: u32) -> Result<(), Errno> {
    // SAFETY: the flags are the argument itself; the kernel touches no memory.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) })
}

/// Sets an integer option of a packet socket.
pub(crate) fn set_packet_option(
    fd: BorrowedFd<'_>,
    option: c_int,
    value: c_int,
) -> Result<(), Errno> {
    set(fd, SOL_PACKET, option, &value)
}

/// Enables promiscuous mode, or else joins a multicast group, until the socket is closed.
pub(crate) fn join(fd: BorrowedFd<'_>, index: u32, group: Option<[u8; 6]>) -> Result<(), Errno> {
    /// `struct packet_mreq`.
    #[repr(C)]
    struct Membership {
        index: c_int,
        kind: u16,
        address_len: u16,
        address: [u8; 8],
    }
    let (kind, address_len) =
        if group.is_some() { (PACKET_MR_MULTICAST, 6) } else { (PACKET_MR_PROMISC, 0) };
    let [a, b, c, d, e, f] = group.unwrap_or_default();
    let address = [a, b, c, d, e, f, 0, 0];
    let wanted = Membership { index: index.cast_signed(), kind, address_len, address };
    set(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted)
}

/// Has a netlink socket receive the messages of drivers with their errors.
pub(crate) fn extend_acknowledgements(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    set(fd, SOL_NETLINK, NETLINK_EXT_ACK, &1)
}

fn set<T>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    let (at, len) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `value`, which has that many; no option that is
    // set here contains pointers.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, at, len) })
}

/// Binds a packet socket to an interface; it then receives frames of all protocols.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `address`, which has that many.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

/// ID of a group, by name; asks the name services of the system.
pub(crate) fn group_id(name: &std::ffi::CStr) -> Result<Option<u32>, Errno> {
    let mut text = vec![0 as libc::c_char; 1024];
    loop {
        let mut group = std::mem::MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: `name` ends with zero; the call writes to `group`, `found` and at most
        // `text.len()` bytes of `text`, all of which outlive it.
        let errno = unsafe {
            let (at, len) = (text.as_mut_ptr(), text.len());
            libc::getgrnam_r(name.as_ptr(), group.as_mut_ptr(), at, len, &raw mut found)
        };
        match errno {
            // SAFETY: the call has filled `group`, to which `found` points.
            0 if !found.is_null() => return Ok(Some(unsafe { group.assume_init() }.gr_gid)),
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::ERANGE if text.len() < 1 << 20 => text.resize(text.len() * 4, 0),
            other => return Err(Errno::from_raw_os_error(other)),
        }
    }
}

fn done(result: c_int) -> Result<(), Errno> {
    match result {
        0.. => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        assert!(IfRequest::new("eth0.15").is_some());
        for bad in ["", "a/b", "tap%d", "a b", "sixteen-bytes-is", "a\0"] {
            assert!(IfRequest::new(bad).is_none(), "{bad:?}");
        }
    }
}

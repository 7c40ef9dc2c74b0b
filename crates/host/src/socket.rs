//! Sockets that need rights to open or to set up.
//!
//! Model: each is opened in the network namespace of the calling thread, or of its requests
//! ([`crate::netns::within`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::GENERIC;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};
use serde::{Deserialize, Serialize};

use crate::launcher::{Answer, Request, ask, check_kinds};
use crate::netlink::{Netlink, NetlinkMessage, attribute, u32_at};
use crate::sys;

/// Kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// For requests on interfaces (netdevice(7)).
    Interfaces,
    /// For requests on interfaces, addresses and routes (rtnetlink(7)).
    Route,
    /// For requests to generic netlink families (`linux/genetlink.h`).
    Generic,
    /// For the frames of an interface (packet(7)).
    Packet,
    /// For the frames of a queue of an interface (AF_XDP).
    Xdp,
}

/// Opens a socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenSocket(SocketKind);

impl Request for OpenSocket {
    const NAME: &'static str = "open-socket";
    const DOES: &'static str =
        "opens a socket for interfaces, netlink, packets or AF_XDP, in a network namespace";
    const IN_NAMESPACE: bool = true;
    type Reply = ();

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        // The kind of attachment that needs it. For others the kernel checks the rights of each
        // request's sender, too.
        match self.0 {
            // AF_XDP has one for the interface's receive mode.
            SocketKind::Packet => check_kinds(&["packet", "xdp"]),
            SocketKind::Xdp => check_kinds(&["xdp"]),
            SocketKind::Interfaces | SocketKind::Route | SocketKind::Generic => Ok(()),
        }
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        let (family, kind, protocol) = self.0.parts();
        let more = match self.0 {
            SocketKind::Packet => SocketFlags::NONBLOCK,
            _ => SocketFlags::empty(),
        };
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | more, protocol)?;
        if family == AddressFamily::NETLINK {
            // Without it errors have no message.
            let _ = sys::extend_acknowledgements(socket.as_fd());
        }
        Ok(((), vec![socket]))
    }
}

impl SocketKind {
    /// Family, type and protocol. Without a protocol a netlink socket is one of NETLINK_ROUTE, and
    /// a packet socket receives nothing, from any interface, before it is bound.
    fn parts(self) -> (AddressFamily, SocketType, Option<Protocol>) {
        match self {
            SocketKind::Interfaces => (AddressFamily::INET, SocketType::DGRAM, None),
            SocketKind::Route => (AddressFamily::NETLINK, SocketType::RAW, None),
            SocketKind::Generic => (AddressFamily::NETLINK, SocketType::RAW, Some(GENERIC)),
            SocketKind::Packet => (AddressFamily::PACKET, SocketType::RAW, None),
            SocketKind::Xdp => (AddressFamily::XDP, SocketType::RAW, None),
        }
    }
}

/// Checks that a socket is of this kind.
///
/// # Errors
/// `EINVAL`: it is another.
pub fn check(socket: BorrowedFd<'_>, kind: SocketKind) -> Result<(), Errno> {
    let (family, of_type, protocol) = kind.parts();
    let is = (sockopt::socket_domain(socket)?, sockopt::socket_type(socket)?);
    let has_protocol =
        || family != AddressFamily::NETLINK || sockopt::socket_protocol(socket) == Ok(protocol);
    if is == (family, of_type) && has_protocol() { Ok(()) } else { Err(Errno::INVAL) }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_VFS: u32 = 2;
const UNIX_DIAG_VFS: u16 = 1;
/// Bytes of `struct unix_diag_msg`, which precedes the attributes.
const UNIX_DIAG_HEADER: usize = 16;

/// `true` if the file with this device and inode was made for this UNIX socket (sock_diag(7)).
///
/// # Errors
/// The kernel cannot tell, because it has no UNIX_DIAG.
pub fn is_bound_to(socket: BorrowedFd<'_>, file: (u64, u64)) -> Result<bool, Errno> {
    let own = match file_of(socket) {
        Ok(own) => own,
        // Sockets of other namespaces are not told.
        Err(errno) => {
            let flags = SocketFlags::CLOEXEC;
            let known = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            return file_of(known.as_fd()).map_err(|_| errno).map(|_| false);
        }
    };
    // As the kernel numbers devices: 12 bits of the major number, and 20 of the minor.
    let (major, minor) = (rustix::fs::major(file.0), rustix::fs::minor(file.0));
    Ok(own == Some((file.1 as u32, major << 20 | minor)))
}

/// Inode and device of the file of a UNIX socket, as the kernel numbers them; `None` if it has
/// none.
fn file_of(socket: BorrowedFd<'_>) -> Result<Option<(u32, u32)>, Errno> {
    // `struct unix_diag_req`: family, states, inode of the socket, attributes; and no cookie.
    let inode = rustix::fs::fstat(socket)?.st_ino as u32;
    let family = u32::from(AddressFamily::UNIX.as_raw());
    let request = [family, u32::MAX, inode, UDIAG_SHOW_VFS, u32::MAX, u32::MAX];
    let request: Vec<u8> = request.into_iter().flat_map(u32::to_ne_bytes).collect();
    let answer =
        Netlink::sockets()?.exchange(NetlinkMessage::new(SOCK_DIAG_BY_FAMILY, &request))?;
    let given = answer.get(UNIX_DIAG_HEADER..).unwrap_or_default();
    Ok(attribute(given, UNIX_DIAG_VFS).and_then(|own| Some((u32_at(own, 0)?, u32_at(own, 4)?))))
}

/// Opens a socket.
///
/// # Errors
/// The kernel refuses it.
pub fn open(kind: SocketKind) -> Result<OwnedFd, Errno> {
    let (_, fds) = ask(OpenSocket(kind), &[])?;
    fds.into_iter().next().ok_or(Errno::BADMSG)
}

/// Sets the buffers of a socket, beyond the limit of the system if possible.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetBuffers {
    receive: Option<usize>,
    send: Option<usize>,
}

/// Largest buffer.
const BUFFER_MAX: usize = 64 << 20;

impl Request for SetBuffers {
    const NAME: &'static str = "set-buffers";
    const DOES: &'static str = "sets the buffers of a socket, up to 64 MiB";
    type Reply = ();

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<()> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        if [self.receive, self.send].into_iter().flatten().any(|bytes| bytes > BUFFER_MAX) {
            return Err(Errno::INVAL);
        }
        // More than the system's limit needs CAP_NET_ADMIN, and is not worth failing for.
        if let Some(bytes) = self.receive {
            let _ = sockopt::set_socket_recv_buffer_size_force(socket, bytes)
                .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes));
        }
        if let Some(bytes) = self.send {
            let _ = sockopt::set_socket_send_buffer_size_force(socket, bytes)
                .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes));
        }
        Ok(((), Vec::new()))
    }
}

/// Sets the buffers of a socket to this many bytes, or as close as the system allows.
pub fn set_buffers(socket: BorrowedFd<'_>, receive: Option<usize>, send: Option<usize>) {
    // A smaller buffer is no error.
    let _ = ask(SetBuffers { receive, send }, &[socket]);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_is_told_from_those_of_other_kinds() {
        let route = open(SocketKind::Route).unwrap();
        assert_eq!(check(route.as_fd(), SocketKind::Route), Ok(()));
        assert_eq!(check(route.as_fd(), SocketKind::Interfaces), Err(Errno::INVAL));
        let generic = open(SocketKind::Generic).unwrap();
        assert_eq!(check(generic.as_fd(), SocketKind::Route), Err(Errno::INVAL));
        assert_eq!(check(generic.as_fd(), SocketKind::Generic), Ok(()));
        assert_eq!(check(route.as_fd(), SocketKind::Generic), Err(Errno::INVAL));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(check(file.as_fd(), SocketKind::Route), Err(Errno::NOTSOCK));
    }

    #[test]
    fn a_socket_proves_which_file_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let bound = |name: &str| {
            let socket = UnixListener::bind(dir.path().join(name)).unwrap();
            let file = std::fs::symlink_metadata(dir.path().join(name)).unwrap();
            (socket, (file.dev(), file.ino()))
        };
        let ((a, file_a), (b, file_b)) = (bound("a"), bound("b"));
        std::fs::rename(dir.path().join("b"), dir.path().join("c")).unwrap();
        assert_eq!(is_bound_to(a.as_fd(), file_a), Ok(true));
        assert_eq!(is_bound_to(b.as_fd(), file_b), Ok(true), "also after a move");
        assert_eq!(is_bound_to(a.as_fd(), file_b), Ok(false));
        assert_eq!(is_bound_to(a.as_fd(), (0, file_a.1)), Ok(false));
        let (unbound, _peer) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for other in [unbound.as_fd(), file.as_fd()] {
            assert_eq!(is_bound_to(other, file_a), Ok(false));
        }
    }
}

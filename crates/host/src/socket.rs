//! Sockets that need rights to open or to set up.
//!
//! Model: each is opened in the network namespace of the calling thread, or of its requests
//! ([`crate::netns::within`]).

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use serde::{Deserialize, Serialize};

use crate::launcher::{Answer, Request, ask};

/// Kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// For requests on interfaces (netdevice(7)).
    Interfaces,
    /// For requests on interfaces, addresses and routes (rtnetlink(7)).
    Route,
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
    type Reply = ();

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        let (family, kind, more) = match self.0 {
            SocketKind::Interfaces => {
                (AddressFamily::INET, SocketType::DGRAM, SocketFlags::empty())
            }
            // No protocol is 0, which is NETLINK_ROUTE.
            SocketKind::Route => (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::empty()),
            // Without a protocol it receives nothing, from any interface, before it is bound.
            SocketKind::Packet => (AddressFamily::PACKET, SocketType::RAW, SocketFlags::NONBLOCK),
            SocketKind::Xdp => (AddressFamily::XDP, SocketType::RAW, SocketFlags::empty()),
        };
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | more, None)?;
        Ok(((), vec![socket]))
    }
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

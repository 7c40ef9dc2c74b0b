//! UDP sockets of tunnels, each shared by all networks on its address and port.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use guestmem::GuestSlice;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::datagram_queue::DatagramQueue;

/// Socket buffer in either direction, bytes.
const BUFFER_BYTES: usize = 8 << 20;

/// All sockets open in this process.
static SOCKETS: Mutex<Vec<Weak<TunnelSocket>>> = Mutex::new(Vec::new());

/// A socket, and the networks on it.
#[derive(Debug)]
pub(super) struct TunnelSocket {
    at: SocketAddr,
    socket: OwnedFd,
    members: RwLock<Vec<(u32, Arc<DatagramQueue>)>>,
}

impl TunnelSocket {
    /// Returns the socket at this address; opens it if necessary.
    pub(super) fn get(at: SocketAddr) -> Result<Arc<TunnelSocket>, Errno> {
        let mut sockets: MutexGuard<'_, _> = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.strong_count() > 0);
        if let Some(socket) =
            sockets.iter().filter_map(Weak::upgrade).find(|socket| socket.at == at)
        {
            return Ok(socket);
        }
        let socket =
            Arc::new(TunnelSocket { at, socket: open(at)?, members: RwLock::new(Vec::new()) });
        sockets.push(Arc::downgrade(&socket));
        Ok(socket)
    }

    /// As [`get`](Self::get), with an open socket of the previous process.
    pub(super) fn inherit(at: SocketAddr, socket: OwnedFd) -> Arc<TunnelSocket> {
        let mut sockets: MutexGuard<'_, _> = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) =
            sockets.iter().filter_map(Weak::upgrade).find(|socket| socket.at == at)
        {
            return socket;
        }
        let socket = Arc::new(TunnelSocket { at, socket, members: RwLock::new(Vec::new()) });
        sockets.push(Arc::downgrade(&socket));
        socket
    }

    /// Local address.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Queues a frame sent by `from` for its network, if that is open.
    #[cold]
    pub(super) fn hand_over(&self, vni: u32, from: IpAddr, frame: GuestSlice<'_>) {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, queue)) = members.iter().find(|(member, _)| *member == vni) {
            queue.put(from, frame);
        }
    }
}

fn open(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    // Never fragment.
    if at.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
    } else {
        sockopt::set_ipv6_v6only(&socket, true)?;
        sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
    }
    // Exceeding the machine's limit needs CAP_NET_ADMIN; a smaller buffer still works.
    host::socket::set_buffers(socket.as_fd(), Some(BUFFER_BYTES), Some(BUFFER_BYTES));
    bind(&socket, &at)?;
    Ok(socket)
}

/// Membership of a network in a shared socket.
#[derive(Debug)]
pub(super) struct TunnelMember {
    pub(super) socket: Arc<TunnelSocket>,
    pub(super) vni: u32,
    pub(super) queue: Arc<DatagramQueue>,
    /// Readable when the socket or the queue is.
    epoll: OwnedFd,
}

impl TunnelMember {
    /// Joins the network; `None` if it is already open.
    pub(super) fn new(
        socket: Arc<TunnelSocket>,
        vni: u32,
        peers: &[IpAddr],
    ) -> Result<Option<TunnelMember>, Errno> {
        let queue = Arc::new(DatagramQueue::new(peers)?);
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let (none, readable) = (EventData::new_u64(0), EventFlags::IN);
        epoll::add(&epoll, &socket.socket, none, readable)?;
        epoll::add(&epoll, queue.event(), none, readable)?;
        let mut members = socket.members.write().unwrap_or_else(PoisonError::into_inner);
        if members.iter().any(|(member, _)| *member == vni) {
            return Ok(None);
        }
        members.push((vni, queue.clone()));
        drop(members);
        Ok(Some(TunnelMember { socket, vni, queue, epoll }))
    }

    /// Descriptor that is readable when the socket or the queue is.
    pub(super) fn kick(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for TunnelMember {
    fn drop(&mut self) {
        let mut members = self.socket.members.write().unwrap_or_else(PoisonError::into_inner);
        members.retain(|(member, _)| *member != self.vni);
    }
}

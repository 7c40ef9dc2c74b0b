//! The UDP sockets of tunnels, each shared by all networks on its address and port.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use guestmem::GuestSlice;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::inbox::Inbox;

/// Bytes that may wait in either direction.
const BUFFER_BYTES: usize = 8 << 20;

/// All that are open in this process.
static HUBS: Mutex<Vec<Weak<Hub>>> = Mutex::new(Vec::new());

/// A socket, and the networks on it.
#[derive(Debug)]
pub(super) struct Hub {
    at: SocketAddr,
    socket: OwnedFd,
    members: RwLock<Vec<(u32, Arc<Inbox>)>>,
}

impl Hub {
    /// The hub at this address, opened if it is not yet.
    pub(super) fn get(at: SocketAddr) -> Result<Arc<Hub>, Errno> {
        let mut hubs: MutexGuard<'_, _> = HUBS.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.retain(|hub| hub.strong_count() > 0);
        if let Some(hub) = hubs.iter().filter_map(Weak::upgrade).find(|hub| hub.at == at) {
            return Ok(hub);
        }
        let hub = Arc::new(Hub { at, socket: open(at)?, members: RwLock::new(Vec::new()) });
        hubs.push(Arc::downgrade(&hub));
        Ok(hub)
    }

    /// The same, with a socket that another process had open there.
    pub(super) fn inherit(at: SocketAddr, socket: OwnedFd) -> Arc<Hub> {
        let mut hubs: MutexGuard<'_, _> = HUBS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = hubs.iter().filter_map(Weak::upgrade).find(|hub| hub.at == at) {
            return hub;
        }
        let hub = Arc::new(Hub { at, socket, members: RwLock::new(Vec::new()) });
        hubs.push(Arc::downgrade(&hub));
        hub
    }

    /// Where it listens.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Gives the frame that `from` sent to the network it is of, if that is here.
    #[cold]
    pub(super) fn hand_over(&self, vni: u32, from: IpAddr, frame: GuestSlice<'_>) {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, inbox)) = members.iter().find(|(member, _)| *member == vni) {
            inbox.put(from, frame);
        }
    }
}

fn open(at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    // Whole or not at all.
    if at.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
    } else {
        sockopt::set_ipv6_v6only(&socket, true)?;
        sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
    }
    // More than the machine's limit needs CAP_NET_ADMIN, and is not worth failing for.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES));
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES));
    bind(&socket, &at)?;
    Ok(socket)
}

/// A network's place in a hub.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) hub: Arc<Hub>,
    pub(super) vni: u32,
    pub(super) inbox: Arc<Inbox>,
    /// Readable when the socket or the inbox is.
    epoll: OwnedFd,
}

impl Membership {
    /// `None` if the network has one already.
    pub(super) fn new(
        hub: Arc<Hub>,
        vni: u32,
        peers: &[IpAddr],
    ) -> Result<Option<Membership>, Errno> {
        let inbox = Arc::new(Inbox::new(peers)?);
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let (none, readable) = (EventData::new_u64(0), EventFlags::IN);
        epoll::add(&epoll, &hub.socket, none, readable)?;
        epoll::add(&epoll, inbox.event(), none, readable)?;
        let mut members = hub.members.write().unwrap_or_else(PoisonError::into_inner);
        if members.iter().any(|(member, _)| *member == vni) {
            return Ok(None);
        }
        members.push((vni, inbox.clone()));
        drop(members);
        Ok(Some(Membership { hub, vni, inbox, epoll }))
    }

    /// Readable when the socket or the inbox is.
    pub(super) fn kick(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut members = self.hub.members.write().unwrap_or_else(PoisonError::into_inner);
        members.retain(|(member, _)| *member != self.vni);
    }
}

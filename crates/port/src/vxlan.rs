//! VXLAN tunnels (RFC 7348) to switches on other hosts, with configured peers.
//!
//! # Model
//! One network (a VNI) is one port. Each frame travels in a UDP datagram behind a header of 8
//! bytes. Addresses are learned from received frames ([`fdb`]). Multicast and unknown unicast
//! frames go to every peer (head-end replication). Networks on the same address and UDP port share
//! a socket: a lane that receives a datagram of another network puts it into that network's
//! [`datagram_queue`].
//!
//! The kernel makes outer headers and checksums. Its packets are never fragmented: a frame that
//! does not fit is counted as too large. So the MTU of adapters on a network must be [`overhead`]
//! less than that of the hosts' network.
//!
//! # Limits
//! At most [`PEERS_MAX`] peers and [`ADDRESSES_MAX`] addresses. Datagrams from unknown senders or
//! of unknown networks are dropped. All frames leave from one UDP port, so routers that hash by
//! source port do not spread these flows. Checksums of inner frames and segmentation are completed
//! before sending. There is no encryption: a host that can spoof a peer's address is in the
//! network.

mod datagram_queue;
mod fdb;
mod from_tunnel;
mod socket;
mod to_tunnel;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use guestmem::MapError;
use wire::Mac;
use wire::virtio_net::OffloadSet;

use crate::handover::{IncompleteHandover, PortHandover, StateReader, StateWriter};
use crate::kernel::{KernelRx, KernelTx, RxBuffer};
use crate::opened::{Housekeeping, LinkHealth, OpenedDevice, QueuePair};
use crate::validate::FrameRules;
use fdb::VxlanFdb;
use from_tunnel::FromTunnel;
use socket::{TunnelMember, TunnelSocket};
use to_tunnel::ToTunnel;

pub use fdb::{ADDRESSES_MAX, AGE_MAX};

/// Maximum number of peers of a network: a multicast frame is sent once to each.
pub const PEERS_MAX: usize = 64;
/// Bytes of the VXLAN header (section 5).
const HEADER_LEN: u32 = 8;
/// The I flag: the VNI is valid; all other flags must be ignored.
const FLAG_VNI: u8 = 0x08;
const VNI_MAX: u32 = (1 << 24) - 1;
const UDP_HEADER_LEN: u32 = 8;
/// Longest UDP payload over IPv4, bytes.
const DATAGRAM_MAX: u32 = 65535 - 20 - UDP_HEADER_LEN;

/// Configuration of a VXLAN tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VxlanSpec {
    /// VNI of the network, 1 to 16777215.
    pub vni: u32,
    /// Address of this host; `None`: chosen by the routes.
    pub local: Option<IpAddr>,
    /// UDP port, of this host and of the peers.
    pub port: u16,
    /// Addresses of the other hosts, all of one family.
    pub peers: Vec<IpAddr>,
    /// Longest IP packet between the hosts, bytes; `None`: no limit of our own.
    pub mtu: Option<u16>,
}

/// Reason for which a tunnel cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum VxlanError {
    /// The configuration is invalid.
    #[error("VXLAN {vni}: {what}")]
    VxlanSpec {
        /// VNI of the network.
        vni: u32,
        /// Problem, and the values allowed.
        what: &'static str,
    },
    /// The network is already open in this process.
    #[error(
        "VXLAN {vni}: already open on {at}; choose another VNI, or another local address or port"
    )]
    Taken {
        /// VNI of the network.
        vni: u32,
        /// Local address and port.
        at: SocketAddr,
    },
    /// The address or port cannot be bound.
    #[error(
        "VXLAN {vni}: cannot bind UDP {at}; use an address of this host, and a port that no other program and no \
         kernel interface uses (ip -d link show type vxlan)"
    )]
    Socket {
        /// VNI of the network.
        vni: u32,
        /// Local address and port.
        at: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The hand-over state is incomplete.
    #[error(transparent)]
    IncompleteHandover(#[from] IncompleteHandover),
    /// No memory for receive buffers.
    #[error("VXLAN {vni}: no memory for receive buffers; free memory")]
    Memory {
        /// VNI of the network.
        vni: u32,
        /// Error of the kernel.
        source: MapError,
    },
}

/// Bytes by which a network's MTU is smaller than that of the network between the hosts.
pub const fn overhead(peer: IpAddr) -> u32 {
    const ETHERNET: u32 = 14;
    ip_header_len(peer) + UDP_HEADER_LEN + HEADER_LEN + ETHERNET
}

const fn ip_header_len(peer: IpAddr) -> u32 {
    match peer {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    }
}

/// Opens a tunnel.
///
/// # Errors
/// [`VxlanError`].
pub fn open(spec: &VxlanSpec) -> Result<OpenedDevice, VxlanError> {
    open_on(spec, None, VxlanFdb::new(Instant::now()))
}

/// Adopts an open tunnel of the previous process (hot restart), with its learned addresses and
/// queued frames.
///
/// # Errors
/// [`VxlanError`].
pub fn resume(spec: &VxlanSpec, handover: PortHandover) -> Result<OpenedDevice, VxlanError> {
    let vni = spec.vni;
    let incomplete = IncompleteHandover("a VXLAN tunnel");
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), spec.port);
    let socket = handover.fds.first().ok_or(incomplete)?.try_clone();
    let socket = socket.map_err(|source| VxlanError::Socket { vni, at, source })?;
    let mut state = StateReader(&handover.state);
    let now = Instant::now();
    let mut fdb = VxlanFdb::new(now.checked_sub(AGE_MAX).unwrap_or(now));
    for _ in 0..state.number().ok_or(incomplete)? {
        let mac = state.bytes().and_then(|mac| mac.try_into().ok()).ok_or(incomplete)?;
        let peer = state.number().ok_or(incomplete)? as u16;
        let age = Duration::from_secs(state.number().ok_or(incomplete)?);
        fdb.learn(Mac(mac), peer, now.checked_sub(age).unwrap_or(now));
    }
    let mut datagrams = Vec::new();
    for _ in 0..state.number().ok_or(incomplete)? {
        let from = state.bytes().and_then(|from| std::str::from_utf8(from).ok()?.parse().ok());
        datagrams.push((from.ok_or(incomplete)?, state.bytes().ok_or(incomplete)?.to_vec()));
    }
    open_on(spec, Some((socket, datagrams)), fdb)
}

/// Socket of the previous process, and the datagrams queued for a network.
type InheritedSocket = (OwnedFd, Vec<(IpAddr, Vec<u8>)>);

fn open_on(
    spec: &VxlanSpec,
    found: Option<InheritedSocket>,
    fdb: VxlanFdb,
) -> Result<OpenedDevice, VxlanError> {
    let vni = spec.vni;
    let first = check(spec).map_err(|what| VxlanError::VxlanSpec { vni, what })?;
    let any = match first {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let at = SocketAddr::new(spec.local.unwrap_or(any), spec.port);
    let (socket, datagrams) = found.unzip();
    let socket = match socket {
        Some(socket) => TunnelSocket::inherit(at, socket),
        None => {
            TunnelSocket::get(at).map_err(|e| VxlanError::Socket { vni, at, source: e.into() })?
        }
    };
    let at = socket.at();
    let member = TunnelMember::new(socket, vni, &spec.peers)
        .map_err(|e| VxlanError::Socket { vni, at, source: e.into() })?
        .ok_or(VxlanError::Taken { vni, at })?;
    let headers = ip_header_len(first) + UDP_HEADER_LEN + HEADER_LEN;
    let datagram_max = spec.mtu.map_or(DATAGRAM_MAX, |mtu| u32::from(mtu) - headers + HEADER_LEN);
    let frame_bytes_max = datagram_max.min(DATAGRAM_MAX) - HEADER_LEN;
    let rules = FrameRules { frame_bytes_max, leaves: OffloadSet::empty() };
    let rx_buffer = RxBuffer::new("vxlan", from_tunnel::POOL_BYTES, rules)
        .map_err(|source| VxlanError::Memory { vni, source })?;
    let health = Arc::new(LinkHealth::default()); // a socket is never lost
    let fdb = Arc::new(Mutex::new(fdb));
    let member = Arc::new(member);
    let datagrams = datagrams.into_iter().flatten();
    datagrams.for_each(|(from, frame)| member.queue.put_back(from, frame));
    let housekeeping = VxlanHousekeeping { member: member.clone(), fdb: fdb.clone() };
    let peers: Arc<[IpAddr]> = spec.peers.clone().into();
    let source = FromTunnel::new(member.clone(), peers.clone(), fdb.clone());
    let sink = ToTunnel::new(member, (&peers, spec.port), frame_bytes_max, fdb);
    let transmit = Box::new(KernelRx::new(source, rx_buffer, health.clone()));
    let receive = Box::new(KernelTx::new(sink, health.clone()));
    let pairs = vec![QueuePair { transmit, receive }];
    let housekeeping: Option<Box<dyn Housekeeping>> = Some(Box::new(housekeeping));
    Ok(OpenedDevice { pairs, health, housekeeping, notes: Vec::new() })
}

/// Work of control for the tunnel.
#[derive(Debug)]
struct VxlanHousekeeping {
    member: Arc<TunnelMember>,
    fdb: Arc<Mutex<VxlanFdb>>,
}

impl Housekeeping for VxlanHousekeeping {
    fn tick(&mut self, _: Instant) {}

    fn handover(&mut self, _: &[Vec<u8>]) -> Option<PortHandover> {
        let VxlanHousekeeping { member, fdb } = self;
        let socket = Arc::new(member.socket.socket().try_clone_to_owned().ok()?);
        let mut state = StateWriter::default();
        let fdb = fdb.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<_> = fdb.all(Instant::now()).collect();
        state.number(known.len() as u64);
        for (mac, peer, age) in known {
            state.bytes(&mac.0);
            state.number(peer.into());
            state.number(age.into());
        }
        let datagrams = member.queue.copies();
        state.number(datagrams.len() as u64);
        for (from, frame) in datagrams {
            state.bytes(from.to_string().as_bytes());
            state.bytes(&frame);
        }
        Some(PortHandover { fds: vec![socket], state: state.0 })
    }
}

/// Validates a configuration; returns the first peer, or the problem.
fn check(spec: &VxlanSpec) -> Result<IpAddr, &'static str> {
    let VxlanSpec { vni, local, port, peers, mtu } = spec;
    let first = *peers.first().ok_or("no peer; name at least one")?;
    if !(1..=VNI_MAX).contains(vni) {
        return Err("not a VNI; choose 1 to 16777215");
    }
    if *port == 0 {
        return Err("UDP port 0 cannot be sent to; choose 1 to 65535");
    }
    if peers.len() > PEERS_MAX {
        return Err("more than 64 peers; name at most 64");
    }
    let mut all = peers.iter().chain(local);
    if all.any(|other| other.is_ipv4() != first.is_ipv4()) {
        return Err("IPv4 and IPv6 addresses mixed; use one family");
    }
    if mtu.is_some_and(|mtu| u32::from(mtu) < 576) {
        return Err("MTU too small; choose 576 to 65535 bytes");
    }
    Ok(first)
}

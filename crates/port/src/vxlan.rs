//! Tunnels to switches on other hosts: VXLAN (RFC 7348), with peers that are known beforehand.
//!
//! # Model
//! One network (a VNI) is one port. Each frame travels in a UDP datagram behind a header of 8
//! bytes. Where an address is, is learnt from the frames that come ([`learned`]); frames for a
//! group, or for an address that is not known, go to every peer (head-end replication). Networks on
//! the same address and UDP port share a socket: a datagram of another network than the one whose
//! lane found it is put into that one's [`inbox`].
//!
//! Outer headers and checksums are the kernel's. Its packets are never fragmented: a frame that
//! does not fit is counted as too large, so adapters on a network have an MTU of [`overhead`] less
//! than the hosts' network has.
//!
//! # Limits
//! [`PEERS_MAX`] peers, [`ADDRESSES_MAX`] addresses; datagrams from anybody else, or of another
//! network than was asked for, are dropped. All frames leave from one UDP port, so networks between
//! the hosts that spread flows by it do not spread these. Checksums of inner frames are made and
//! segments cut before they are sent. There is no encryption: whoever can send in a peer's name is
//! in the network.

mod halves;
mod hub;
mod inbox;
mod learned;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use guestmem::MapError;
use wire::Mac;
use wire::virtio_net::Accepts;

use crate::device::{KernelRx, KernelTx, RxBuffer};
use crate::judge::Rules;
use crate::legacy::{Said, Words};
use crate::{Housekeeping, Incomplete, Legacy, LinkHealth, Opened, Pair};
use halves::{FromTunnel, ToTunnel};
use hub::{Hub, Membership};
use learned::Learned;

pub use learned::{ADDRESSES_MAX, AGE_MAX};

/// Most peers of a network: each frame for a group is sent once to each.
pub const PEERS_MAX: usize = 64;
/// Bytes of the header (section 5).
const HEADER_LEN: u32 = 8;
/// The flag that says that there is a VNI; all others are to be overlooked.
const FLAG_VNI: u8 = 0x08;
const VNI_MAX: u32 = (1 << 24) - 1;
const UDP_HEADER_LEN: u32 = 8;
/// Longest datagram over IP.
const DATAGRAM_MAX: u32 = 65535 - 20 - UDP_HEADER_LEN;

/// Which network, and between whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The network's number, 1 to 16777215.
    pub vni: u32,
    /// This host's address; `None`: whichever the routes give.
    pub local: Option<IpAddr>,
    /// The UDP port, here and there.
    pub port: u16,
    /// The other hosts, all of one family.
    pub peers: Vec<IpAddr>,
    /// Longest IP packet between the hosts, bytes; `None`: whatever the kernel sends whole.
    pub mtu: Option<u16>,
}

/// Why a tunnel cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum VxlanError {
    /// What was asked for makes no sense.
    #[error("VXLAN {vni}: {what}")]
    Spec {
        /// The network.
        vni: u32,
        /// What is wrong, and what is allowed.
        what: &'static str,
    },
    /// This process has the network already.
    #[error(
        "VXLAN {vni}: already open on {at}; choose another VNI, or another local address or port"
    )]
    Taken {
        /// The network.
        vni: u32,
        /// Where.
        at: SocketAddr,
    },
    /// The address or port cannot be used.
    #[error(
        "VXLAN {vni}: UDP {at} cannot be listened on; the address must be this host's, and no other program or \
         interface of the kernel (ip -d link show type vxlan) may use the port"
    )]
    Socket {
        /// The network.
        vni: u32,
        /// Where.
        at: SocketAddr,
        /// The kernel's word.
        source: io::Error,
    },
    /// Another process handed over something else.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// There is no memory to receive into.
    #[error("VXLAN {vni}: no memory to receive into; free memory")]
    Memory {
        /// The network.
        vni: u32,
        /// The kernel's word.
        source: MapError,
    },
}

/// Bytes by which the MTU of a network is less than that of the network between the hosts.
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
pub fn open(spec: &Spec) -> Result<Opened, VxlanError> {
    open_on(spec, None, Learned::new(Instant::now()))
}

/// Goes on with a tunnel that another process had open: knows the addresses that it had learned,
/// and has its frames.
///
/// # Errors
/// [`VxlanError`].
pub fn resume(spec: &Spec, legacy: Legacy) -> Result<Opened, VxlanError> {
    let vni = spec.vni;
    let incomplete = Incomplete("a VXLAN tunnel");
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), spec.port);
    let socket = legacy.fds.first().ok_or(incomplete)?.try_clone();
    let socket = socket.map_err(|source| VxlanError::Socket { vni, at, source })?;
    let mut said = Said(&legacy.words);
    let now = Instant::now();
    let mut learned = Learned::new(now.checked_sub(AGE_MAX).unwrap_or(now));
    for _ in 0..said.number().ok_or(incomplete)? {
        let mac = said.bytes().and_then(|mac| mac.try_into().ok()).ok_or(incomplete)?;
        let peer = said.number().ok_or(incomplete)? as u16;
        let age = Duration::from_secs(said.number().ok_or(incomplete)?);
        learned.learn(Mac(mac), peer, now.checked_sub(age).unwrap_or(now));
    }
    let mut mail = Vec::new();
    for _ in 0..said.number().ok_or(incomplete)? {
        let from = said.bytes().and_then(|from| std::str::from_utf8(from).ok()?.parse().ok());
        mail.push((from.ok_or(incomplete)?, said.bytes().ok_or(incomplete)?.to_vec()));
    }
    open_on(spec, Some((socket, mail)), learned)
}

/// A socket, and frames that others had found for a network.
type Found = (OwnedFd, Vec<(IpAddr, Vec<u8>)>);

fn open_on(spec: &Spec, found: Option<Found>, learned: Learned) -> Result<Opened, VxlanError> {
    let vni = spec.vni;
    let first = check(spec).map_err(|what| VxlanError::Spec { vni, what })?;
    let any = match first {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let at = SocketAddr::new(spec.local.unwrap_or(any), spec.port);
    let (socket, mail) = found.unzip();
    let hub = match socket {
        Some(socket) => Hub::inherit(at, socket),
        None => Hub::get(at).map_err(|e| VxlanError::Socket { vni, at, source: e.into() })?,
    };
    let at = hub.at();
    let member = Membership::new(hub, vni, &spec.peers)
        .map_err(|e| VxlanError::Socket { vni, at, source: e.into() })?
        .ok_or(VxlanError::Taken { vni, at })?;
    let headers = ip_header_len(first) + UDP_HEADER_LEN + HEADER_LEN;
    let datagram_max = spec.mtu.map_or(DATAGRAM_MAX, |mtu| u32::from(mtu) - headers + HEADER_LEN);
    let frame_bytes_max = datagram_max.min(DATAGRAM_MAX) - HEADER_LEN;
    let rules = Rules { frame_bytes_max, leaves: Accepts::empty() };
    let rx_buffer = RxBuffer::new("vxlan", halves::POOL_BYTES, rules)
        .map_err(|source| VxlanError::Memory { vni, source })?;
    let condition = Arc::new(LinkHealth::default()); // a socket of ours is not lost
    let learned = Arc::new(Mutex::new(learned));
    let member = Arc::new(member);
    let mail = mail.into_iter().flatten();
    mail.for_each(|(from, frame)| member.inbox.put_back(from, frame));
    let kept = Kept { member: member.clone(), learned: learned.clone() };
    let peers: Arc<[IpAddr]> = spec.peers.clone().into();
    let source = FromTunnel::new(member.clone(), peers.clone(), learned.clone());
    let sink = ToTunnel::new(member, (&peers, spec.port), frame_bytes_max, learned);
    let transmit = Box::new(KernelRx::new(source, rx_buffer, condition.clone()));
    let receive = Box::new(KernelTx::new(sink, condition.clone()));
    let pairs = vec![Pair { transmit, receive }];
    let tend: Option<Box<dyn Housekeeping>> = Some(Box::new(kept));
    Ok(Opened { pairs, condition, tend, notes: Vec::new() })
}

/// The tunnel beside the lanes.
#[derive(Debug)]
struct Kept {
    member: Arc<Membership>,
    learned: Arc<Mutex<Learned>>,
}

impl Housekeeping for Kept {
    fn tend(&mut self, _: Instant) {}

    fn legacy(&mut self, _: &[Vec<u8>]) -> Option<Legacy> {
        let Kept { member, learned } = self;
        let socket = Arc::new(member.hub.socket().try_clone_to_owned().ok()?);
        let mut words = Words::default();
        let learned = learned.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<_> = learned.all(Instant::now()).collect();
        words.number(known.len() as u64);
        for (mac, peer, age) in known {
            words.bytes(&mac.0);
            words.number(peer.into());
            words.number(age.into());
        }
        let mail = member.inbox.copies();
        words.number(mail.len() as u64);
        for (from, frame) in mail {
            words.bytes(from.to_string().as_bytes());
            words.bytes(&frame);
        }
        Some(Legacy { fds: vec![socket], words: words.0 })
    }
}

/// What is wrong; the first peer if nothing is.
fn check(spec: &Spec) -> Result<IpAddr, &'static str> {
    let Spec { vni, local, port, peers, mtu } = spec;
    let first = *peers.first().ok_or("has no peer; name at least one")?;
    if !(1..=VNI_MAX).contains(vni) {
        return Err("not a VNI; choose 1 to 16777215");
    }
    if *port == 0 {
        return Err("UDP port 0 cannot be sent to; choose 1 to 65535");
    }
    if peers.len() > PEERS_MAX {
        return Err("more than 64 peers");
    }
    let mut all = peers.iter().chain(local);
    if all.any(|other| other.is_ipv4() != first.is_ipv4()) {
        return Err("addresses of both families; use one");
    }
    if mtu.is_some_and(|mtu| u32::from(mtu) < 576) {
        return Err("MTU too small; choose 576 to 65535 bytes");
    }
    Ok(first)
}

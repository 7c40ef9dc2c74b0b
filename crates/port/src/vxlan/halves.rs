//! Frames from the tunnel, and into it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use guestmem::io;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use wire::Mac;
use wire::virtio_net::Accepts;

use super::hub::Membership;
use super::learned::Learned;
use super::{DATAGRAM_MAX, FLAG_VNI, HEADER_LEN};
use crate::Offload;
use crate::burst::BURST;
use crate::device::{Outgoing, PREFIX_MAX, Refusal, RxBuffer, Sink, Source, is_readable};

/// Where in its line the header of a frame begins, so that the frame begins a line.
const HEADER_AT: u64 = 64 - HEADER_LEN as u64;
/// From frame to frame: not a power of two, or all would lie in the same lines of the caches.
const STRIDE: u64 = 65536 + 7 * 64;
/// A burst.
pub(super) const POOL_BYTES: u64 = STRIDE * BURST as u64;

/// Two addresses and a type: a frame has these at the least.
const FRAME_MIN: u32 = 14;

const _: () = assert!(HEADER_AT + DATAGRAM_MAX as u64 <= STRIDE);

type Table = Arc<Mutex<Learned>>;

fn lock(table: &Table) -> MutexGuard<'_, Learned> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The frames of a network that its peers send.
#[derive(Debug)]
pub(super) struct FromTunnel {
    member: Arc<Membership>,
    peers: Arc<[IpAddr]>,
    learned: Table,
    receiver: io::Receiver,
    /// Who sent the frames of the burst.
    senders: [u16; BURST],
}

impl FromTunnel {
    pub(super) fn new(member: Arc<Membership>, peers: Arc<[IpAddr]>, learned: Table) -> FromTunnel {
        let (receiver, senders) = (io::Receiver::default(), [0; BURST]);
        FromTunnel { member, peers, learned, receiver, senders }
    }

    /// Takes a frame, if a peer of the network sent it.
    fn accept(&mut self, rx_buffer: &mut RxBuffer, from: IpAddr, at: u64, len: u32) {
        if let Some(place) = self.peers.iter().position(|peer| *peer == from) {
            self.senders[rx_buffer.len()] = place as u16;
            rx_buffer.take(at, len, Offload::PLAIN);
        }
    }

    /// Takes what another network's lane found for this one.
    #[cold]
    fn take_mail(&mut self, rx_buffer: &mut RxBuffer) {
        let inbox = self.member.inbox.clone();
        inbox.take(BURST, |from, frame| {
            let at = rx_buffer.len() as u64 * STRIDE + HEADER_AT + u64::from(HEADER_LEN);
            let len = rx_buffer.room(at, frame.len() as u32).write_bytes(frame);
            self.accept(rx_buffer, from, at, len);
        });
    }

    /// Takes the i-th datagram that was received, if it is of this network.
    fn take_one(&mut self, rx_buffer: &mut RxBuffer, i: usize) {
        let at = i as u64 * STRIDE + HEADER_AT;
        let len = self.receiver.len(i);
        let Some(from) = ip_of(self.receiver.from(i)) else {
            return;
        };
        if len < HEADER_LEN || self.receiver.is_truncated(i) {
            return;
        }
        let [flags, _, _, _, a, b, c, _]: [u8; 8] = rx_buffer.room(at, HEADER_LEN).read(0);
        if flags & FLAG_VNI == 0 {
            return;
        }
        let vni = u32::from_be_bytes([0, a, b, c]);
        let (at, len) = (at + u64::from(HEADER_LEN), len - HEADER_LEN);
        match vni == self.member.vni {
            true => self.accept(rx_buffer, from, at, len),
            false => self.member.hub.hand_over(vni, from, rx_buffer.room(at, len)),
        }
    }

    /// Learns where the senders of the burst's frames are.
    fn learn(&self, rx_buffer: &RxBuffer) {
        let burst = rx_buffer.burst();
        if burst.frames.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut learned = lock(&self.learned);
        for ((frame, head), sender) in burst.frames.iter().zip(burst.heads).zip(&self.senders) {
            let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *head;
            if frame.len >= FRAME_MIN {
                learned.learn(Mac([a, b, c, d, e, f]), *sender, now);
            }
        }
    }
}

impl Source for FromTunnel {
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        let more = if self.member.inbox.is_empty() {
            let rooms =
                (0..BURST as u64).map(|i| rx_buffer.room(i * STRIDE + HEADER_AT, DATAGRAM_MAX));
            // An error says what ICMP said of a datagram of ours: no news for those that come.
            let received = self.receiver.receive(self.member.hub.socket(), rooms).unwrap_or(0);
            (0..received).for_each(|i| self.take_one(rx_buffer, i));
            received == BURST
        } else {
            self.take_mail(rx_buffer);
            true
        };
        self.learn(rx_buffer);
        Ok(more)
    }

    fn enable_notification(&mut self) -> bool {
        is_readable(self.member.kick())
    }

    fn kick(&self) -> BorrowedFd<'_> {
        self.member.kick()
    }
}

/// An address as the kernel has it, `struct sockaddr_in` or `sockaddr_in6`.
fn sockaddr(to: IpAddr, port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    match to {
        IpAddr::V4(ip) => {
            bytes.extend(AddressFamily::INET.as_raw().to_ne_bytes());
            bytes.extend(port.to_be_bytes());
            bytes.extend(ip.octets());
            bytes.extend([0; 8]);
        }
        IpAddr::V6(ip) => {
            bytes.extend(AddressFamily::INET6.as_raw().to_ne_bytes());
            bytes.extend(port.to_be_bytes());
            bytes.extend([0; 4]); // flow
            bytes.extend(ip.octets());
            bytes.extend([0; 4]); // scope
        }
    }
    bytes
}

/// The IP address in such an address.
fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    let family = AddressFamily::from_raw(u16::from_ne_bytes(*bytes.first_chunk()?));
    match family {
        AddressFamily::INET => {
            bytes.get(4..)?.first_chunk::<4>().map(|ip| Ipv4Addr::from(*ip).into())
        }
        AddressFamily::INET6 => {
            bytes.get(8..)?.first_chunk::<16>().map(|ip| Ipv6Addr::from(*ip).into())
        }
        _ => None,
    }
}

/// Frames for the peers.
#[derive(Debug)]
pub(super) struct ToTunnel {
    member: Arc<Membership>,
    peers: Vec<Vec<u8>>,
    frame_bytes_max: u32,
    learned: Table,
    prefix: [u8; PREFIX_MAX],
    /// Copies that may still be made of frames to unknown addresses.
    copies_left: u32,
    /// Copies that were made, and their bytes.
    copies: (u32, u64),
}

impl ToTunnel {
    pub(super) fn new(
        member: Arc<Membership>,
        (peers, port): (&[IpAddr], u16),
        frame_bytes_max: u32,
        learned: Table,
    ) -> ToTunnel {
        let [_, a, b, c] = member.vni.to_be_bytes();
        let prefix = [0, 0, 0, 0, FLAG_VNI, 0, 0, 0, a, b, c, 0];
        let peers = peers.iter().map(|peer| sockaddr(*peer, port)).collect();
        let (copies_left, copies) = (u32::MAX, (0, 0));
        ToTunnel { member, peers, frame_bytes_max, learned, prefix, copies_left, copies }
    }

    /// The peers that the frame is for; `true` if these are all because its address is unknown.
    fn peers_of(
        &self,
        frame: &Outgoing<'_>,
        learned: &Learned,
        now: Instant,
    ) -> (&[Vec<u8>], bool) {
        let mac = frame.head.first_chunk().map_or(Mac::BROADCAST, |mac| Mac(*mac));
        match learned.find(mac, now) {
            Some(place) => (std::slice::from_ref(&self.peers[usize::from(place)]), false),
            None => (&self.peers, !mac.is_multicast()),
        }
    }

    /// Sends the messages of the frames from `first` on, `counts` of them for each; how many frames
    /// were taken, and why not the next. A frame that one peer of several gets is taken.
    fn send_all(&self, messages: &[io::Message<'_>], counts: &[usize]) -> (usize, Option<Refusal>) {
        let mut sent = 0;
        let mut begin = 0;
        for (i, count) in counts.iter().enumerate() {
            let end = begin + count;
            let mut refusal = None;
            let mut reached = sent > begin;
            while sent < end {
                match io::send_many(self.member.hub.socket(), &messages[sent..]) {
                    Ok(n) => {
                        sent += n.max(1);
                        reached = true;
                    }
                    Err(errno) => {
                        let why = refusal_of(errno);
                        refusal = Some(why);
                        // The other peers are tried by themselves.
                        if why != Refusal::NoRoom {
                            reached |= self.try_each(&messages[sent + 1..end]);
                        }
                        sent = end;
                    }
                }
            }
            if !reached {
                return (i, refusal);
            }
            begin = end;
        }
        (counts.len(), None)
    }

    /// Sends the messages one by one; says whether any was taken.
    #[cold]
    fn try_each(&self, messages: &[io::Message<'_>]) -> bool {
        let each = messages.iter().map(std::slice::from_ref);
        each.filter(|one| io::send_many(self.member.hub.socket(), one).is_ok()).count() > 0
    }
}

/// Why the kernel did not take a datagram.
fn refusal_of(errno: Errno) -> Refusal {
    match errno {
        Errno::AGAIN | Errno::NOBUFS | Errno::INTR => Refusal::NoRoom,
        Errno::MSGSIZE | Errno::FAULT => Refusal::Frame,
        _ => Refusal::Unreachable, // a peer without a route, for one
    }
}

impl Sink for ToTunnel {
    const PREFIX: usize = HEADER_LEN as usize;

    fn takes(&self) -> Accepts {
        Accepts::empty()
    }

    fn prefix(&self, _: Offload, _: u32) -> [u8; PREFIX_MAX] {
        self.prefix
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> (usize, Option<Refusal>) {
        let mut messages = [io::Message { pieces: &[], to: &[] }; io::MESSAGES_MAX];
        let mut counts = [0; BURST];
        let now = Instant::now();
        let learned = lock(&self.learned);
        let (mut used, mut done) = (0, 0);
        let (mut copies_left, mut may_copy) = (self.copies_left, true);
        // As many frames as there are messages for; the rest comes next.
        for (count, frame) in counts.iter_mut().zip(frames) {
            let (peers, is_unknown) = self.peers_of(frame, &learned, now);
            let is_too_long = frame.len > self.frame_bytes_max;
            if is_too_long || used + peers.len() > messages.len() {
                break;
            }
            if is_unknown && peers.len() > 1 {
                // Groups were counted by the sender's storm limit.
                may_copy = copies_left > 0;
                if !may_copy {
                    break;
                }
                copies_left = copies_left.saturating_sub(peers.len() as u32 - 1);
            }
            for (message, to) in messages[used..].iter_mut().zip(peers) {
                *message = io::Message { pieces: frame.pieces(), to };
            }
            *count = peers.len();
            used += peers.len();
            done += 1;
        }
        drop(learned);
        let (taken, refusal) = self.send_all(&messages[..used], &counts[..done]);
        for (frame, count) in frames.iter().zip(&counts[..taken]) {
            let copies = count.saturating_sub(1) as u32;
            self.copies.0 += copies;
            self.copies.1 += u64::from(copies) * u64::from(frame.len);
        }
        if self.copies_left != u32::MAX {
            self.copies_left = copies_left;
        }
        match (refusal, frames.get(done)) {
            (None, Some(next)) if next.len > self.frame_bytes_max => (taken, Some(Refusal::Frame)),
            (None, Some(_)) if !may_copy => (taken, Some(Refusal::Copies)),
            _ => (taken, refusal),
        }
    }

    fn makes_copies(&self) -> bool {
        self.peers.len() > 1
    }

    fn allow_copies(&mut self, copies: u32) {
        self.copies_left = copies;
    }

    fn take_copies(&mut self) -> (u32, u64) {
        std::mem::take(&mut self.copies)
    }
}

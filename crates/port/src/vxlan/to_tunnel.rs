//! Receive half: frames into the tunnel.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use guestmem::io;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use wire::Mac;
use wire::virtio_net::OffloadSet;

use super::fdb::{SharedFdb, VxlanFdb, lock};
use super::socket::TunnelMember;
use super::{FLAG_VNI, HEADER_LEN};
use crate::burst::{BURST, NetHeader};
use crate::kernel::{PREFIX_MAX, TxFrame, TxRefusal, TxSink};

/// Encodes an address as the kernel's `struct sockaddr_in` or `sockaddr_in6`.
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

/// Frames for the peers.
#[derive(Debug)]
pub(super) struct ToTunnel {
    member: Arc<TunnelMember>,
    peers: Vec<Vec<u8>>,
    frame_bytes_max: u32,
    fdb: SharedFdb,
    prefix: [u8; PREFIX_MAX],
    /// Remaining copies of unknown unicast.
    copies_left: u32,
    /// Copies made, and their bytes.
    copies: (u32, u64),
}

impl ToTunnel {
    pub(super) fn new(
        member: Arc<TunnelMember>,
        (peers, port): (&[IpAddr], u16),
        frame_bytes_max: u32,
        fdb: SharedFdb,
    ) -> ToTunnel {
        let [_, a, b, c] = member.vni.to_be_bytes();
        let prefix = [0, 0, 0, 0, FLAG_VNI, 0, 0, 0, a, b, c, 0];
        let peers = peers.iter().map(|peer| sockaddr(*peer, port)).collect();
        let (copies_left, copies) = (u32::MAX, (0, 0));
        ToTunnel { member, peers, frame_bytes_max, fdb, prefix, copies_left, copies }
    }

    /// Peers to send the frame to; `true` if all because its address is unknown.
    fn peers_of(&self, frame: &TxFrame<'_>, fdb: &VxlanFdb, now: Instant) -> (&[Vec<u8>], bool) {
        let mac = frame.header.first_chunk().map_or(Mac::BROADCAST, |mac| Mac(*mac));
        match fdb.find(mac, now) {
            Some(peer) => (std::slice::from_ref(&self.peers[usize::from(peer)]), false),
            None => (&self.peers, !mac.is_multicast()),
        }
    }

    /// Sends the messages, `counts` of them for each frame. Returns the number of frames taken, and
    /// the reason for refusing the next. A frame counts as taken if at least one peer got it.
    fn send_all(
        &self,
        messages: &[io::Datagram<'_>],
        counts: &[usize],
    ) -> (usize, Option<TxRefusal>) {
        let mut sent = 0;
        let mut begin = 0;
        for (i, count) in counts.iter().enumerate() {
            let end = begin + count;
            let mut refusal = None;
            let mut reached = sent > begin;
            while sent < end {
                match io::send_many(self.member.socket.socket(), &messages[sent..]) {
                    Ok(n) => {
                        sent += n.max(1);
                        reached = true;
                    }
                    Err(errno) => {
                        let why = refusal_of(errno);
                        refusal = Some(why);
                        // Tries the other peers one by one.
                        if why != TxRefusal::NoRoom {
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

    /// Sends the messages one by one; returns `true` if any was taken.
    #[cold]
    fn try_each(&self, messages: &[io::Datagram<'_>]) -> bool {
        let each = messages.iter().map(std::slice::from_ref);
        each.filter(|one| io::send_many(self.member.socket.socket(), one).is_ok()).count() > 0
    }
}

/// Reason for which the kernel refused a datagram.
fn refusal_of(errno: Errno) -> TxRefusal {
    match errno {
        Errno::AGAIN | Errno::NOBUFS | Errno::INTR => TxRefusal::NoRoom,
        Errno::MSGSIZE | Errno::FAULT => TxRefusal::Frame,
        _ => TxRefusal::Unreachable, // for example no route to the peer
    }
}

impl TxSink for ToTunnel {
    const PREFIX: usize = HEADER_LEN as usize;

    fn takes(&self) -> OffloadSet {
        OffloadSet::empty()
    }

    fn prefix(&self, _: NetHeader, _: u32) -> [u8; PREFIX_MAX] {
        self.prefix
    }

    fn send(&mut self, frames: &[TxFrame<'_>]) -> (usize, Option<TxRefusal>) {
        let mut messages = [io::Datagram { pieces: &[], to: &[] }; io::MESSAGES_MAX];
        let mut counts = [0; BURST];
        let now = Instant::now();
        let fdb = lock(&self.fdb);
        let (mut used, mut done) = (0, 0);
        let (mut copies_left, mut may_copy) = (self.copies_left, true);
        // As many frames as there are messages for; the rest comes with the next call.
        for (count, frame) in counts.iter_mut().zip(frames) {
            let (peers, is_unknown) = self.peers_of(frame, &fdb, now);
            let is_too_long = frame.len > self.frame_bytes_max;
            if is_too_long || used + peers.len() > messages.len() {
                break;
            }
            if is_unknown && peers.len() > 1 {
                // Multicast was charged to the sender's storm limit.
                may_copy = copies_left > 0;
                if !may_copy {
                    break;
                }
                copies_left = copies_left.saturating_sub(peers.len() as u32 - 1);
            }
            for (message, to) in messages[used..].iter_mut().zip(peers) {
                *message = io::Datagram { pieces: frame.pieces(), to };
            }
            *count = peers.len();
            used += peers.len();
            done += 1;
        }
        drop(fdb);
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
            (None, Some(next)) if next.len > self.frame_bytes_max => {
                (taken, Some(TxRefusal::Frame))
            }
            (None, Some(_)) if !may_copy => (taken, Some(TxRefusal::Copies)),
            _ => (taken, refusal),
        }
    }

    fn replicates(&self) -> bool {
        self.peers.len() > 1
    }

    fn allow_copies(&mut self, copies: u32) {
        self.copies_left = copies;
    }

    fn take_copies(&mut self) -> (u32, u64) {
        std::mem::take(&mut self.copies)
    }
}

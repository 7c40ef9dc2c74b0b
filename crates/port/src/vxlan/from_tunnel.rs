//! Transmit half: frames from the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use guestmem::io;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use wire::Mac;

use super::fdb::{SharedFdb, lock};
use super::socket::TunnelMember;
use super::{DATAGRAM_MAX, FLAG_VNI, HEADER_LEN};
use crate::burst::{BURST, NetHeader};
use crate::kernel::{RxBuffer, RxSource, is_readable};

/// Offset of the header in its cache line, so that the frame begins a line.
const HEADER_AT: u64 = 64 - HEADER_LEN as u64;
/// Bytes from frame to frame: not a power of two, or all frames would share cache sets.
const STRIDE: u64 = 65536 + 7 * 64;
/// Bytes of the receive buffer: a burst.
pub(super) const POOL_BYTES: u64 = STRIDE * BURST as u64;

/// Shortest frame, bytes: two addresses and a type.
const FRAME_MIN: u32 = 14;

const _: () = assert!(HEADER_AT + DATAGRAM_MAX as u64 <= STRIDE);

/// Frames from the peers of a network.
#[derive(Debug)]
pub(super) struct FromTunnel {
    member: Arc<TunnelMember>,
    peers: Arc<[IpAddr]>,
    fdb: SharedFdb,
    receiver: io::DatagramReceiver,
    /// Sender of each frame of the burst: index of a peer.
    senders: [u16; BURST],
}

impl FromTunnel {
    pub(super) fn new(
        member: Arc<TunnelMember>,
        peers: Arc<[IpAddr]>,
        fdb: SharedFdb,
    ) -> FromTunnel {
        let (receiver, senders) = (io::DatagramReceiver::default(), [0; BURST]);
        FromTunnel { member, peers, fdb, receiver, senders }
    }

    /// Takes a frame if its sender is a peer of the network.
    fn accept(&mut self, rx_buffer: &mut RxBuffer, from: IpAddr, at: u64, len: u32) {
        if let Some(peer) = self.peers.iter().position(|known| *known == from) {
            self.senders[rx_buffer.len()] = peer as u16;
            rx_buffer.take(at, len, NetHeader::PLAIN);
        }
    }

    /// Takes datagrams that another network's lane received for this network.
    #[cold]
    fn take_queued(&mut self, rx_buffer: &mut RxBuffer) {
        let queue = self.member.queue.clone();
        queue.take(BURST, |from, frame| {
            let at = rx_buffer.len() as u64 * STRIDE + HEADER_AT + u64::from(HEADER_LEN);
            let len = rx_buffer.room(at, frame.len() as u32).write_bytes(frame);
            self.accept(rx_buffer, from, at, len);
        });
    }

    /// Takes the i-th datagram received, if it is of this network.
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
            false => self.member.socket.hand_over(vni, from, rx_buffer.room(at, len)),
        }
    }

    /// Learns the senders' addresses of a burst.
    fn learn(&self, rx_buffer: &RxBuffer) {
        if rx_buffer.len() == 0 {
            return;
        }
        let now = Instant::now();
        let mut fdb = lock(&self.fdb);
        for ((len, header), sender) in rx_buffer.headers().zip(&self.senders) {
            let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = header;
            if len >= FRAME_MIN {
                fdb.learn(Mac([a, b, c, d, e, f]), *sender, now);
            }
        }
    }
}

impl RxSource for FromTunnel {
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        let more = if self.member.queue.is_empty() {
            let rooms =
                (0..BURST as u64).map(|i| rx_buffer.room(i * STRIDE + HEADER_AT, DATAGRAM_MAX));
            // An error reports an ICMP message for a datagram that we sent; irrelevant for
            // receiving.
            let received = self.receiver.receive(self.member.socket.socket(), rooms).unwrap_or(0);
            (0..received).for_each(|i| self.take_one(rx_buffer, i));
            received == BURST
        } else {
            self.take_queued(rx_buffer);
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

/// Decodes the IP address of a `sockaddr`.
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

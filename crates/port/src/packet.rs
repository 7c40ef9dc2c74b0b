//! Packet socket: any interface of this machine as a port, with any driver.
//!
//! # Model
//! Frames are received and sent in batches (recvmmsg, sendmmsg), directly into the port's memory
//! and directly from their senders' memory. A virtio-net header precedes each frame, so that
//! checksums and segmentation are left to the interface, or to the kernel where the interface
//! cannot. A VLAN tag that the kernel stripped is restored before the frame is examined.
//!
//! Frames that this host sends through the interface are not received, so neither are the port's
//! own. The host still gets incoming frames. An interface that is down takes no frames, which is no
//! failure; one that is removed is lost.
//!
//! # Limits
//! One queue pair; use AF_XDP for more.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use guestmem::{MapError, io};
use host::interface::{InterfaceError, Interfaces};
use host::packet::{self, HEADER_LEN, PacketError};
use rustix::io::Errno;
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::OffloadSet;

use crate::burst::{BURST, NetHeader};
use crate::handover::{IncompleteHandover, PortHandover};
use crate::kernel::{KernelRx, KernelTx, Link, PREFIX_MAX, RxBuffer, TxFrame, TxRefusal};
use crate::kernel::{RxSource, TxSink, is_readable};
use crate::opened::{Housekeeping, LinkHealth, OpenedDevice, QueuePair};
use crate::validate::{FRAME_MAX, FrameRules};

/// Offset of the header in its cache line, so that the frame begins a line.
const HEADER_AT: u64 = 64 - HEADER_LEN as u64;
/// Bytes of a VLAN tag.
const TAG: u64 = 4;
/// One byte more than the longest frame: a truncated frame then counts as too long.
const ROOM: u32 = HEADER_LEN + FRAME_MAX + 1;
/// Bytes from frame to frame: not a power of two, or all frames would share cache sets.
const STRIDE: u64 = 65536 + 7 * 64;
/// Calls after which a poll gives up on a socket that returns only errors.
const ERRORS_MAX: u32 = 8;

const _: () = assert!(HEADER_AT + ROOM as u64 <= STRIDE);

/// Configuration of a packet-socket port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSpec {
    /// Name of the interface.
    pub name: String,
    /// Network namespace of the interface, by name or path; `None`: the current one.
    pub netns: Option<String>,
    /// Maximum packet length in a frame, bytes; `None`: the interface's MTU.
    pub mtu: Option<u16>,
    /// Set to bypass the interface's queueing discipline.
    pub bypass: bool,
}

/// Reason for which a packet-socket port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketPortError {
    /// The packet socket cannot be opened.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The interface's state cannot be read.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The hand-over state is incomplete.
    #[error(transparent)]
    IncompleteHandover(#[from] IncompleteHandover),
    /// No memory for receive buffers.
    #[error("interface {name:?}: no memory for receive buffers; free memory")]
    Memory {
        /// Name of the interface.
        name: String,
        /// Error of the kernel.
        source: MapError,
    },
}

/// Opens an interface.
///
/// # Errors
/// [`PacketPortError`].
pub fn open(spec: &PacketSpec) -> Result<OpenedDevice, PacketPortError> {
    let PacketSpec { name, netns, .. } = spec;
    let interfaces = Interfaces::of(netns.as_deref())?;
    let state = interfaces.state(name)?;
    let socket = Arc::new(packet::open(netns.as_deref(), name, spec.bypass)?);
    let mtu = spec.mtu.map_or(state.mtu, u32::from);
    let mut notes = Vec::new();
    if mtu > state.mtu {
        notes.push(format!("interface {name}: its MTU of {} limits packets", state.mtu));
    }
    if !state.is_up {
        notes.push(format!("interface {name}: down (ip link set {name} up)"));
    }
    with_socket(spec, interfaces, (socket, mtu), notes)
}

/// Adopts an open packet socket of the previous process (hot restart).
///
/// # Errors
/// [`PacketPortError`].
pub fn resume(spec: &PacketSpec, handover: PortHandover) -> Result<OpenedDevice, PacketPortError> {
    let PacketSpec { name, netns, .. } = spec;
    let socket = handover.fds.into_iter().next().ok_or(IncompleteHandover("a packet socket"))?;
    let interfaces = Interfaces::of(netns.as_deref())?;
    let mtu = match spec.mtu {
        Some(mtu) => u32::from(mtu),
        None => interfaces.state(name)?.mtu,
    };
    with_socket(spec, interfaces, (socket, mtu), Vec::new())
}

fn with_socket(
    spec: &PacketSpec,
    interfaces: Interfaces,
    (socket, mtu): (Arc<OwnedFd>, u32),
    notes: Vec<String>,
) -> Result<OpenedDevice, PacketPortError> {
    let name = &spec.name;
    let health = Arc::new(LinkHealth::default());
    let rules = FrameRules { frame_bytes_max: mtu + OVERHEAD_MAX, leaves: OffloadSet::all() };
    let rx_buffer = RxBuffer::new("packet", STRIDE * BURST as u64, rules)
        .map_err(|source| PacketPortError::Memory { name: name.clone(), source })?;
    let source =
        FromInterface { socket: socket.clone(), receiver: io::DatagramReceiver::default() };
    let transmit = KernelRx::new(source, rx_buffer, health.clone());
    let receive = KernelTx::new(ToInterface { socket: socket.clone() }, health.clone());
    let link = Link::new(interfaces, name, health.clone())?;
    let pair = QueuePair { transmit: Box::new(transmit), receive: Box::new(receive) };
    let housekeeping: Option<Box<dyn Housekeeping>> =
        Some(Box::new(PacketHousekeeping { link, socket }));
    Ok(OpenedDevice { pairs: vec![pair], health, housekeeping, notes })
}

/// Work of control for the interface.
#[derive(Debug)]
struct PacketHousekeeping {
    link: Link,
    socket: Arc<OwnedFd>,
}

impl Housekeeping for PacketHousekeeping {
    fn tick(&mut self, now: Instant) {
        self.link.tick(now);
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Unread frames stay in the socket.
    fn handover(&mut self, _: &[Vec<u8>]) -> Option<PortHandover> {
        let PacketHousekeeping { link: _, socket } = self;
        Some(PortHandover { fds: vec![socket.clone()], state: Vec::new() })
    }
}

/// Frames received from the interface.
#[derive(Debug)]
struct FromInterface {
    socket: Arc<OwnedFd>,
    receiver: io::DatagramReceiver,
}

impl FromInterface {
    /// Receives a burst; an error only if the interface is removed.
    fn receive(&mut self, rx_buffer: &RxBuffer) -> Result<usize, Errno> {
        for _ in 0..ERRORS_MAX {
            let rooms = (0..BURST as u64).map(|i| rx_buffer.room(i * STRIDE + HEADER_AT, ROOM));
            match self.receiver.receive(self.socket.as_fd(), rooms) {
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno @ (Errno::NODEV | Errno::NXIO | Errno::BADF)) => return Err(errno),
                // The interface is down, or the header cannot express a frame's offload. Either is
                // reported once, and the next call succeeds.
                Err(_) => {}
                received => return received,
            }
        }
        Ok(0)
    }

    /// Takes the i-th received frame.
    fn take_one(&self, rx_buffer: &mut RxBuffer, i: usize) {
        let at = i as u64 * STRIDE + HEADER_AT;
        let header = rx_buffer.room(at, HEADER_LEN).read(0);
        let offload = NetHeader::from_legacy_bytes(header);
        let frame = at + u64::from(HEADER_LEN);
        // A truncated frame keeps the extra byte, so that it counts as too long.
        let len = self.receiver.len(i).min(ROOM).saturating_sub(HEADER_LEN);
        let Some(tag) = packet::tag_of(self.receiver.control(i)).filter(|_| len >= 14) else {
            return rx_buffer.take(frame, len, offload);
        };
        // The addresses move over the header, and the tag into the gap.
        let addresses: [u8; 12] = rx_buffer.room(frame, 12).read(0);
        let room = rx_buffer.room(frame - TAG, 12 + TAG as u32);
        room.write(0, addresses);
        room.write(12, tag);
        // An offload that cannot be moved fails validation, and the frame is dropped.
        let offload = offload.moved_by(TAG as i32).unwrap_or(offload);
        rx_buffer.take(frame - TAG, len + TAG as u32, offload);
    }
}

impl RxSource for FromInterface {
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        let received = self.receive(rx_buffer)?;
        (0..received).for_each(|i| self.take_one(rx_buffer, i));
        Ok(received == BURST)
    }

    fn enable_notification(&mut self) -> bool {
        is_readable(self.socket.as_fd())
    }

    fn kick(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Frames sent through the interface.
#[derive(Debug)]
struct ToInterface {
    socket: Arc<OwnedFd>,
}

impl TxSink for ToInterface {
    const PREFIX: usize = HEADER_LEN as usize;

    fn takes(&self) -> OffloadSet {
        OffloadSet::all()
    }

    fn prefix(&self, offload: NetHeader, _: u32) -> [u8; PREFIX_MAX] {
        let mut prefix = [0; PREFIX_MAX];
        let header = &offload.to_bytes()[..HEADER_LEN as usize];
        prefix[PREFIX_MAX - HEADER_LEN as usize..].copy_from_slice(header);
        prefix
    }

    fn send(&mut self, frames: &[TxFrame<'_>]) -> (usize, Option<TxRefusal>) {
        let mut messages = [io::Datagram { pieces: &[], to: &[] }; BURST];
        let mut taken = 0;
        for (message, frame) in messages.iter_mut().zip(frames) {
            message.pieces = frame.pieces();
        }
        let messages = &messages[..frames.len().min(BURST)];
        while taken < messages.len() {
            let refusal = match io::send_many(self.socket.as_fd(), &messages[taken..]) {
                Ok(n) if n > 0 => {
                    taken += n;
                    continue;
                }
                // NETDOWN: the interface is down; NOBUFS: its queue is full.
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NETDOWN | Errno::INTR) => {
                    TxRefusal::NoRoom
                }
                Err(errno @ (Errno::NODEV | Errno::NXIO | Errno::BADF)) => TxRefusal::Lost(errno),
                Err(_) => TxRefusal::Frame, // for example too long for the interface
            };
            return (taken, Some(refusal));
        }
        (taken, None)
    }
}

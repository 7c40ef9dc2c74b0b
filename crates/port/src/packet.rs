//! Any interface of this machine as a port, by a packet socket: what every driver can.
//!
//! # Model
//! Frames are taken and sent many at a time (recvmmsg, sendmmsg), straight into memory of the
//! port's and straight from their senders'. In front of each stands a virtio-net header, so that
//! checksums and segments are left to the interface where it can make them, and to the kernel where
//! not. A VLAN tag that the kernel took off is put back before anybody looks at the frame.
//!
//! Frames that this host sends through the interface are not seen, so neither are our own. The host
//! gets those that come, as before. While the interface is switched off it takes no frames, which
//! is no failure; when it is gone it is lost.
//!
//! # Limits
//! One queue pair: who needs more takes AF_XDP.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use guestmem::{MapError, io};
use host::interface::{InterfaceError, Interfaces};
use host::packet::{self, HEADER_LEN, PacketError};
use rustix::io::Errno;
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::Accepts;

use crate::burst::BURST;
use crate::device::{KernelRx, KernelTx, Link, Outgoing, PREFIX_MAX, Refusal, RxBuffer};
use crate::device::{Sink, Source, is_readable};
use crate::judge::{FRAME_MAX, Rules};
use crate::{Housekeeping, Incomplete, Legacy, LinkHealth, Offload, Opened, Pair};

/// Where in its line the header of a frame begins, so that the frame begins a line.
const HEADER_AT: u64 = 64 - HEADER_LEN as u64;
/// Bytes of a tag.
const TAG: u64 = 4;
/// A byte more than the longest frame, so that one that was cut is seen to be too long.
const ROOM: u32 = HEADER_LEN + FRAME_MAX + 1;
/// From frame to frame: not a power of two, or all would lie in the same lines of the caches.
const STRIDE: u64 = 65536 + 7 * 64;
/// Calls after which a poll gives up on a socket that has nothing but errors.
const ERRORS_MAX: u32 = 8;

const _: () = assert!(HEADER_AT + ROOM as u64 <= STRIDE);

/// Which interface, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The interface.
    pub name: String,
    /// The network namespace it is in, by name or path; `None`: this one.
    pub netns: Option<String>,
    /// Longest packet in a frame, bytes; `None`: the interface's.
    pub mtu: Option<u16>,
    /// Whether frames go past the interface's queueing discipline.
    pub bypass: bool,
}

/// Why an interface cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its frames cannot be taken.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// It cannot be asked.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Another process handed over something else.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// There is no memory to receive into.
    #[error("interface {name:?}: no memory to receive into; free memory")]
    Memory {
        /// The interface.
        name: String,
        /// The kernel's word.
        source: MapError,
    },
}

/// Opens an interface.
///
/// # Errors
/// [`OpenError`].
pub fn open(spec: &Spec) -> Result<Opened, OpenError> {
    let Spec { name, netns, .. } = spec;
    let interfaces = Interfaces::of(netns.as_deref())?;
    let state = interfaces.state(name)?;
    let socket = Arc::new(packet::open(netns.as_deref(), name, spec.bypass)?);
    let mtu = spec.mtu.map_or(state.mtu, u32::from);
    let mut notes = Vec::new();
    if mtu > state.mtu {
        notes
            .push(format!("interface {name}: its MTU is {}, so no longer packets pass", state.mtu));
    }
    if !state.is_up {
        notes.push(format!("interface {name}: switched off (ip link set {name} up)"));
    }
    with_socket(spec, interfaces, (socket, mtu), notes)
}

/// Goes on with a packet socket that another process had open.
///
/// # Errors
/// [`OpenError`].
pub fn resume(spec: &Spec, legacy: Legacy) -> Result<Opened, OpenError> {
    let Spec { name, netns, .. } = spec;
    let socket = legacy.fds.into_iter().next().ok_or(Incomplete("a packet socket"))?;
    let interfaces = Interfaces::of(netns.as_deref())?;
    let mtu = match spec.mtu {
        Some(mtu) => u32::from(mtu),
        None => interfaces.state(name)?.mtu,
    };
    with_socket(spec, interfaces, (socket, mtu), Vec::new())
}

fn with_socket(
    spec: &Spec,
    interfaces: Interfaces,
    (socket, mtu): (Arc<OwnedFd>, u32),
    notes: Vec<String>,
) -> Result<Opened, OpenError> {
    let name = &spec.name;
    let condition = Arc::new(LinkHealth::default());
    let rules = Rules { frame_bytes_max: mtu + OVERHEAD_MAX, leaves: Accepts::all() };
    let rx_buffer = RxBuffer::new("packet", STRIDE * BURST as u64, rules)
        .map_err(|source| OpenError::Memory { name: name.clone(), source })?;
    let source = FromInterface { socket: socket.clone(), receiver: io::Receiver::default() };
    let transmit = KernelRx::new(source, rx_buffer, condition.clone());
    let receive = KernelTx::new(ToInterface { socket: socket.clone() }, condition.clone());
    let link = Link::new(interfaces, name, condition.clone())?;
    let pair = Pair { transmit: Box::new(transmit), receive: Box::new(receive) };
    let tend: Option<Box<dyn Housekeeping>> = Some(Box::new(Kept { link, socket }));
    Ok(Opened { pairs: vec![pair], condition, tend, notes })
}

/// The interface beside the lanes.
#[derive(Debug)]
struct Kept {
    link: Link,
    socket: Arc<OwnedFd>,
}

impl Housekeeping for Kept {
    fn tend(&mut self, now: Instant) {
        self.link.tend(now);
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Frames wait in the socket, none here.
    fn legacy(&mut self, _: &[Vec<u8>]) -> Option<Legacy> {
        let Kept { link: _, socket } = self;
        Some(Legacy { fds: vec![socket.clone()], words: Vec::new() })
    }
}

/// Frames that the interface receives.
#[derive(Debug)]
struct FromInterface {
    socket: Arc<OwnedFd>,
    receiver: io::Receiver,
}

impl FromInterface {
    /// Receives a burst; an error is told only if the interface is gone.
    fn receive(&mut self, rx_buffer: &RxBuffer) -> Result<usize, Errno> {
        for _ in 0..ERRORS_MAX {
            let rooms = (0..BURST as u64).map(|i| rx_buffer.room(i * STRIDE + HEADER_AT, ROOM));
            match self.receiver.receive(self.socket.as_fd(), rooms) {
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno @ (Errno::NODEV | Errno::NXIO | Errno::BADF)) => return Err(errno),
                // It was switched off, or a frame had something left to do that the header cannot
                // say; either is told once, and the next call goes on.
                Err(_) => {}
                received => return received,
            }
        }
        Ok(0)
    }

    /// Takes the i-th frame that was received.
    fn take_one(&self, rx_buffer: &mut RxBuffer, i: usize) {
        let at = i as u64 * STRIDE + HEADER_AT;
        let header = rx_buffer.room(at, HEADER_LEN).read(0);
        let offload = Offload::from_legacy_bytes(header);
        let frame = at + u64::from(HEADER_LEN);
        // A frame that was cut keeps the byte too much by which it is seen to be too long.
        let len = self.receiver.len(i).min(ROOM).saturating_sub(HEADER_LEN);
        let Some(tag) = packet::tag_of(self.receiver.control(i)).filter(|_| len >= 14) else {
            return rx_buffer.take(frame, len, offload);
        };
        // The addresses move over the header, and the tag into the gap.
        let addresses: [u8; 12] = rx_buffer.room(frame, 12).read(0);
        let room = rx_buffer.room(frame - TAG, 12 + TAG as u32);
        room.write(0, addresses);
        room.write(12, tag);
        // What cannot be moved is judged as what it is not, and dropped.
        let offload = offload.moved_by(TAG as i32).unwrap_or(offload);
        rx_buffer.take(frame - TAG, len + TAG as u32, offload);
    }
}

impl Source for FromInterface {
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

/// Frames that the interface sends.
#[derive(Debug)]
struct ToInterface {
    socket: Arc<OwnedFd>,
}

impl Sink for ToInterface {
    const PREFIX: usize = HEADER_LEN as usize;

    fn takes(&self) -> Accepts {
        Accepts::all()
    }

    fn prefix(&self, offload: Offload, _: u32) -> [u8; PREFIX_MAX] {
        let mut prefix = [0; PREFIX_MAX];
        let header = &offload.to_bytes()[..HEADER_LEN as usize];
        prefix[PREFIX_MAX - HEADER_LEN as usize..].copy_from_slice(header);
        prefix
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> (usize, Option<Refusal>) {
        let mut messages = [io::Message { pieces: &[], to: &[] }; BURST];
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
                // NETDOWN: it is switched off; NOBUFS: its queue is full.
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NETDOWN | Errno::INTR) => {
                    Refusal::NoRoom
                }
                Err(errno @ (Errno::NODEV | Errno::NXIO | Errno::BADF)) => Refusal::Lost(errno),
                Err(_) => Refusal::Frame, // too long for the interface, for one
            };
            return (taken, Some(refusal));
        }
        (taken, None)
    }
}

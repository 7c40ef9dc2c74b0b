//! Taps: an Ethernet interface of this machine, or of a container on it, as a port.
//!
//! # Model
//! Each queue of the tap is a queue pair of the port. A frame is read straight into memory of the
//! port's, one behind the other, and written straight from wherever its sender has it. In front of
//! each stands a virtio-net header, so that checksums and segments are left to whoever puts the
//! frame on a wire, if anybody does: 64 KiB cross between two kernels uncut.
//!
//! An interface that is not there is made within the namespace named, gets the address and the MTU,
//! is switched on, and vanishes with the port, or with its namespace. One that is there is used as
//! it is. While it is switched off it takes no frames, which is no failure.
//!
//! # Limits
//! [`BURST_BYTES`] a burst. A read of a silent tap is a system call: 200 ns.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use guestmem::{MapError, io};
use host::interface::{InterfaceError, Interfaces};
use host::tun::{self, HEADER_LEN, Tap, TunError};
use rustix::io::Errno;
use wire::Mac;
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::Accepts;

use crate::burst::BURST;
use crate::device::{KernelRx, KernelTx, Link, Outgoing, PREFIX_MAX, Refusal, RxBuffer};
use crate::device::{Sink, Source, is_readable};
use crate::judge::{FRAME_MAX, Rules};
use crate::legacy::{Said, Words};
use crate::{Housekeeping, Incomplete, Legacy, LinkHealth, Offload, Opened, Pair};

/// Bytes after which a burst ends, so that what was read is still in the nearest caches when it is
/// written: four of the longest frames.
pub const BURST_BYTES: u64 = 256 << 10;

/// Where in its line the header of a frame begins, so that the frame begins a line.
const HEADER_AT: u64 = 64 - HEADER_LEN as u64;
/// A byte more than the longest frame, so that one that was cut is seen to be too long.
const ROOM: u32 = HEADER_LEN + FRAME_MAX + 1;
/// A burst ends when this is begun.
const POOL_BYTES: u64 = BURST_BYTES + 128 + ROOM as u64;

/// Which tap, and how it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The interface.
    pub name: String,
    /// The network namespace it is or is to be in, by name or path; `None`: this one.
    pub netns: Option<String>,
    /// Queues, 1 to 256.
    pub queue_pairs: u16,
    /// Longest packet in a frame, bytes; frames that are longer are dropped.
    pub mtu: u16,
    /// Whether checksums and segments are left to be done.
    pub offload: bool,
    /// The address of an interface that is made; `None`: one that the kernel makes up.
    pub mac: Option<Mac>,
    /// Whether an interface that is made is switched on.
    pub begins_up: bool,
}

/// Why a tap cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// It cannot be opened.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// It cannot be made what it is to be.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Another process handed over something else.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// There is no memory to receive into.
    #[error("tap {name:?}: no memory to receive into; free memory, or ask for fewer queue pairs")]
    Memory {
        /// The interface.
        name: String,
        /// The kernel's word.
        source: MapError,
    },
}

/// Opens a tap.
///
/// # Errors
/// [`TapError`]; an interface that was made for it is gone again then.
pub fn open(spec: &Spec) -> Result<Opened, TapError> {
    let Spec { name, mtu, .. } = spec;
    let tap = tun::open(spec.netns.as_deref(), name, spec.queue_pairs, spec.offload)?;
    let interfaces = Interfaces::of(spec.netns.as_deref())?;
    let notes = if tap.existed { differences(&interfaces, spec)? } else { Vec::new() };
    if !tap.existed {
        if let Some(mac) = spec.mac {
            interfaces.set_mac(name, mac.0)?;
        }
        interfaces.set_mtu(name, u32::from(*mtu))?;
        interfaces.set_up(name, spec.begins_up)?;
    }
    let Tap { queues, has_uso, .. } = tap;
    let queues = queues.into_iter().map(Arc::new).collect();
    with_queues(spec, interfaces, (queues, has_uso), notes)
}

/// Adopts an open tap of the previous process (hot restart).
///
/// # Errors
/// [`TapError`]; the tap stays as long as somebody has it open.
pub fn resume(spec: &Spec, legacy: Legacy) -> Result<Opened, TapError> {
    let Legacy { fds, words } = legacy;
    let has_uso = Said(&words).flag();
    let whole = has_uso.filter(|_| fds.len() == usize::from(spec.queue_pairs));
    let has_uso = whole.ok_or(Incomplete("a tap"))?;
    let interfaces = Interfaces::of(spec.netns.as_deref())?;
    with_queues(spec, interfaces, (fds, has_uso), Vec::new())
}

fn with_queues(
    spec: &Spec,
    interfaces: Interfaces,
    (queues, has_uso): (Vec<Arc<OwnedFd>>, bool),
    notes: Vec<String>,
) -> Result<Opened, TapError> {
    let Spec { name, mtu, .. } = spec;
    let condition = Arc::new(LinkHealth::default());
    let takes = match (spec.offload, has_uso) {
        (false, _) => Accepts::empty(),
        (true, false) => Accepts::all() - Accepts::USO,
        (true, true) => Accepts::all(),
    };
    let rules = Rules { frame_bytes_max: u32::from(*mtu) + OVERHEAD_MAX, leaves: takes };
    let pairs = queues
        .iter()
        .map(|queue| pair(queue.clone(), takes, rules, &condition))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TapError::Memory { name: name.clone(), source })?;
    let mut link = Link::new(interfaces, name, condition.clone())?;
    if let [first, ..] = &queues[..] {
        link = link.with_queue(first);
    }
    let tend: Option<Box<dyn Housekeeping>> = Some(Box::new(Kept { link, queues, has_uso }));
    Ok(Opened { pairs, condition, tend, notes })
}

/// The tap beside the lanes.
#[derive(Debug)]
struct Kept {
    link: Link,
    queues: Vec<Arc<OwnedFd>>,
    has_uso: bool,
}

impl Housekeeping for Kept {
    fn tend(&mut self, now: Instant) {
        self.link.tend(now);
    }

    fn set_carrier(&mut self, up: bool) {
        self.link.set_carrier(up);
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Frames wait in the kernel, none here.
    fn legacy(&mut self, _: &[Vec<u8>]) -> Option<Legacy> {
        let Kept { link: _, queues, has_uso } = self;
        let mut words = Words::default();
        words.flag(*has_uso);
        Some(Legacy { fds: queues.clone(), words: words.0 })
    }
}

/// The halves of a queue.
pub(crate) fn pair(
    queue: Arc<OwnedFd>,
    takes: Accepts,
    rules: Rules,
    condition: &Arc<LinkHealth>,
) -> Result<Pair, MapError> {
    let rx_buffer = RxBuffer::new("tap", POOL_BYTES, rules)?;
    let transmit = KernelRx::new(FromTap { queue: queue.clone() }, rx_buffer, condition.clone());
    let receive = KernelTx::new(ToTap { queue, takes }, condition.clone());
    Ok(Pair { transmit: Box::new(transmit), receive: Box::new(receive) })
}

/// What an interface that is used as it is has otherwise than asked for.
fn differences(interfaces: &Interfaces, spec: &Spec) -> Result<Vec<String>, InterfaceError> {
    let Spec { name, mtu, mac, .. } = spec;
    let state = interfaces.state(name)?;
    let mut notes = Vec::new();
    if state.mtu != u32::from(*mtu) {
        notes.push(format!("tap {name}: its MTU is {}, not {mtu}, and is left so", state.mtu));
    }
    if let Some(mac) = mac.filter(|mac| mac.0 != state.mac) {
        let its = Mac(state.mac);
        notes.push(format!("tap {name}: its address is {its}, not {mac}, and is left so"));
    }
    if !state.is_up {
        notes.push(format!("tap {name}: switched off, and left so (ip link set {name} up)"));
    }
    Ok(notes)
}

/// A queue, read from.
#[derive(Debug)]
struct FromTap {
    queue: Arc<OwnedFd>,
}

impl Source for FromTap {
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        let mut line = 0;
        while rx_buffer.len() < BURST && line < BURST_BYTES {
            let at = line + HEADER_AT;
            let room = rx_buffer.room(at, ROOM);
            let read = match io::read(self.queue.as_fd(), room) {
                Ok(read) => read as u32,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(errno) => return Err(errno),
            };
            // The kernel gives no less than the header.
            let offload = Offload::from_bytes(room.read(0));
            rx_buffer.take(at + u64::from(HEADER_LEN), read.saturating_sub(HEADER_LEN), offload);
            line = (at + u64::from(read)).next_multiple_of(64);
        }
        Ok(true)
    }

    fn enable_notification(&mut self) -> bool {
        is_readable(self.queue.as_fd())
    }

    fn kick(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// A queue, written to.
#[derive(Debug)]
struct ToTap {
    queue: Arc<OwnedFd>,
    takes: Accepts,
}

impl Sink for ToTap {
    const PREFIX: usize = HEADER_LEN as usize;

    fn takes(&self) -> Accepts {
        self.takes
    }

    fn prefix(&self, offload: Offload, _: u32) -> [u8; PREFIX_MAX] {
        offload.to_bytes()
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> (usize, Option<Refusal>) {
        for (i, frame) in frames.iter().enumerate() {
            let refusal = match io::write(self.queue.as_fd(), frame.pieces()) {
                Ok(_) => continue,
                // IO: the interface is switched off.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR | Errno::IO) => {
                    Refusal::NoRoom
                }
                Err(errno @ (Errno::BADFD | Errno::BADF | Errno::NODEV)) => Refusal::Lost(errno),
                Err(_) => Refusal::Frame,
            };
            return (i, Some(refusal));
        }
        (frames.len(), None)
    }
}

//! Taps: an Ethernet interface of this machine, or of a container on it, as a port.
//!
//! # Model
//! Each queue of the tap is a queue pair of the port. Frames are read directly into the port's
//! memory, one behind the other, and written directly from their sender's memory. A virtio-net
//! header precedes each frame, so checksums and segmentation are left to the sender on a wire, if
//! there is one: 64 KiB cross between two kernels uncut.
//!
//! A missing interface is created in the named namespace with the given addresses, routes and MTU,
//! and set up. It is removed with the port or with its namespace. If a setting fails, so does the
//! opening; the error has all failures.
//!
//! A tap with a mark is persistent instead: it is removed by its maker, which finds it by name and
//! mark, and keeps all that its namespace has set. A setting that fails is a note: its namespace
//! may have changed anything, which is no reason to leave it without frames.
//!
//! An existing interface without the mark is used unchanged. While it is down it takes no frames,
//! which is no failure.
//!
//! # Limits
//! [`BURST_BYTES`] a burst. Reading an idle tap is a system call: 200 ns.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use guestmem::{MapError, io};
use host::interface::{InterfaceError, Interfaces};
use host::links::{LinkAddress, LinkError, Links};
use host::netns;
use host::tun::{self, HEADER_LEN, Tap, TunError};
use rustix::io::Errno;
use wire::Mac;
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::OffloadSet;

use crate::burst::{BURST, BURST_BYTES, NetHeader};
use crate::handover::{IncompleteHandover, PortHandover, StateReader, StateWriter};
use crate::kernel::{KernelRx, KernelTx, Link, PREFIX_MAX, RxBuffer, TxFrame, TxRefusal};
use crate::kernel::{RxSource, TxSink, is_readable};
use crate::opened::{Housekeeping, LinkHealth, OpenedDevice, QueuePair};
use crate::validate::{FRAME_MAX, FrameRules};

/// Offset of the header in its cache line, so that the frame begins a line.
const HEADER_AT: u64 = 64 - HEADER_LEN as u64;
/// One byte more than the longest frame: a truncated frame then counts as too long.
const ROOM: u32 = HEADER_LEN + FRAME_MAX + 1;
/// Bytes of the receive buffer: a burst, and room for one more frame.
const POOL_BYTES: u64 = BURST_BYTES + 128 + ROOM as u64;

/// Configuration of a tap port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// Name of the interface.
    pub name: String,
    /// Network namespace of the interface, by name or path; `None`: the current one.
    pub netns: Option<String>,
    /// Queues, 1 to 256.
    pub queue_pairs: u16,
    /// Maximum packet length in a frame, bytes; longer frames are dropped.
    pub mtu: u16,
    /// Set to leave checksums and segmentation to the peer.
    pub offload: bool,
    /// MAC address of a created interface; `None`: chosen by the kernel.
    pub mac: Option<Mac>,
    /// Set a created interface up.
    pub begins_up: bool,
    /// Addresses of a created interface.
    pub addresses: Vec<LinkAddress>,
    /// Gateways of default routes through a created interface, at most one a family.
    pub gateways: Vec<IpAddr>,
    /// Addresses and gateways to remove from a marked interface. Each is forgotten once removed:
    /// an address that the container adds later stays.
    pub removed: (Vec<LinkAddress>, Vec<IpAddr>),
    /// Mark of a created interface, which is then persistent.
    pub mark: Option<String>,
}

/// Reason for which a tap port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The tap cannot be opened.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The interface cannot be configured.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The kernel refuses a request on the interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Settings of the interface that fail, each with its cause.
    #[error("tap {name:?}: {}", failures.join(", "))]
    Settings {
        /// Name of the interface.
        name: String,
        /// A text for each.
        failures: Vec<String>,
    },
    /// The interface cannot be made persistent.
    #[error("tap {name:?}: cannot be made persistent; leave netns out")]
    Persistence {
        /// Name of the interface.
        name: String,
        /// Error of the kernel.
        source: Errno,
    },
    /// The hand-over state is incomplete.
    #[error(transparent)]
    IncompleteHandover(#[from] IncompleteHandover),
    /// No memory for receive buffers.
    #[error("tap {name:?}: no memory for receive buffers; free memory, or lower queue_pairs")]
    Memory {
        /// Name of the interface.
        name: String,
        /// Error of the kernel.
        source: MapError,
    },
}

/// Opens a tap.
///
/// # Errors
/// [`TapError`]; a created interface is removed then.
pub fn open(spec: &mut TapSpec) -> Result<OpenedDevice, TapError> {
    // Outside the specification meanwhile: this alone changes.
    let mut removed = std::mem::take(&mut spec.removed);
    let opened = open_and_remove(spec, &mut removed);
    spec.removed = removed;
    opened
}

/// Checks that an existing interface can be opened as this tap. Opens and changes nothing.
///
/// # Errors
/// [`TapError`]; not for an interface with the mark, nor for a missing one.
pub fn check(spec: &TapSpec) -> Result<(), TapError> {
    let TapSpec { name, mark, .. } = spec;
    let netns = spec.netns.as_deref();
    let links = netns::within(netns, Links::open).map_err(InterfaceError::from)??;
    if !mark.as_ref().is_some_and(|mark| links.has_mark(name, mark)) {
        tun::check(netns, name, spec.queue_pairs)?;
    }
    Ok(())
}

/// Opens a tap; leaves what could not be removed in `removed`.
fn open_and_remove(
    spec: &TapSpec,
    removed: &mut (Vec<LinkAddress>, Vec<IpAddr>),
) -> Result<OpenedDevice, TapError> {
    let TapSpec { name, mark, .. } = spec;
    let netns = spec.netns.as_deref();
    let interfaces = Interfaces::of(netns)?;
    let mut links = netns::within(netns, Links::open).map_err(InterfaceError::from)??;
    let is_own = mark.as_ref().is_some_and(|mark| links.has_mark(name, mark));
    let open = || tun::open(netns, name, spec.queue_pairs, spec.offload);
    let tap = match open() {
        // A tap is made for one queue or for several.
        Err(TunError::OneQueue { .. }) if is_own => {
            links.remove(name)?;
            open()?
        }
        opened => opened?,
    };
    let notes = if tap.existed && !is_own {
        differences(&interfaces, spec)?
    } else {
        let failures = configure(&interfaces, &mut links, spec, removed, !tap.existed);
        if !failures.is_empty() && mark.is_none() {
            return Err(TapError::Settings { name: name.clone(), failures });
        }
        failures
    };
    if let (Some(mark), [first, ..], false) = (mark, &tap.queues[..], tap.existed) {
        links.set_mark(name, mark)?;
        // Last: until here a failure removes the interface.
        tun::persist(first.as_fd())
            .map_err(|source| TapError::Persistence { name: name.clone(), source })?;
    }
    let Tap { queues, has_uso, .. } = tap;
    let queues = queues.into_iter().map(Arc::new).collect();
    with_queues(spec, interfaces, (queues, has_uso), notes)
}

/// Configures our interface, where it differs, and sets up a new one. Each failure leaves the other
/// settings; returns all failures.
fn configure(
    interfaces: &Interfaces,
    links: &mut Links,
    spec: &TapSpec,
    (addresses, gateways): &mut (Vec<LinkAddress>, Vec<IpAddr>),
    is_new: bool,
) -> Vec<String> {
    let TapSpec { name, mac, .. } = spec;
    let text = |error: &dyn std::error::Error| {
        let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
        format!("{error}{cause}")
    };
    let mut failures = Vec::new();
    match interfaces.state(name) {
        Ok(state) => {
            let (mac, mtu) = (mac.filter(|mac| mac.0 != state.mac), u32::from(spec.mtu));
            let mac = mac.map(|mac| interfaces.set_mac(name, mac.0));
            let mtu = (state.mtu != mtu).then(|| interfaces.set_mtu(name, mtu));
            let up = is_new.then(|| interfaces.set_up(name, spec.begins_up));
            let results = [mac, mtu, up].into_iter().flatten();
            failures.extend(results.filter_map(Result::err).map(|error| text(&error)));
        }
        Err(error) => failures.push(text(&error)),
    }
    let mut fails = |removed: Result<(), _>| {
        let failure = removed.err().map(|error| text(&error));
        let fails = failure.is_some();
        failures.extend(failure);
        fails
    };
    gateways.retain(|gateway| fails(links.remove_gateway(name, *gateway)));
    addresses.retain(|address| fails(links.remove_address(name, *address)));
    for address in &spec.addresses {
        failures.extend(links.add_address(name, *address).err().map(|error| text(&error)));
    }
    for gateway in &spec.gateways {
        let failure = links.add_gateway(name, *gateway).err();
        failures.extend(failure.map(|error| match error.source {
            Errno::EXIST => format!(
                "there is another default route beside gateway {gateway}; delete that route, or \
                 leave the gateway out"
            ),
            _ => text(&error),
        }));
    }
    failures
}

/// Adopts an open tap of the previous process (hot restart).
///
/// # Errors
/// [`TapError`]; the tap stays while another process has it open.
pub fn resume(spec: &TapSpec, handover: PortHandover) -> Result<OpenedDevice, TapError> {
    let PortHandover { fds, state } = handover;
    let has_uso = StateReader(&state).flag();
    let whole = has_uso.filter(|_| fds.len() == usize::from(spec.queue_pairs));
    let has_uso = whole.ok_or(IncompleteHandover("a tap"))?;
    let interfaces = Interfaces::of(spec.netns.as_deref())?;
    with_queues(spec, interfaces, (fds, has_uso), Vec::new())
}

fn with_queues(
    spec: &TapSpec,
    interfaces: Interfaces,
    (queues, has_uso): (Vec<Arc<OwnedFd>>, bool),
    notes: Vec<String>,
) -> Result<OpenedDevice, TapError> {
    let TapSpec { name, mtu, .. } = spec;
    let health = Arc::new(LinkHealth::default());
    let takes = match (spec.offload, has_uso) {
        (false, _) => OffloadSet::empty(),
        (true, false) => OffloadSet::all() - OffloadSet::USO,
        (true, true) => OffloadSet::all(),
    };
    let rules = FrameRules { frame_bytes_max: u32::from(*mtu) + OVERHEAD_MAX, leaves: takes };
    let pairs = queues
        .iter()
        .map(|queue| pair(queue.clone(), takes, rules, &health))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TapError::Memory { name: name.clone(), source })?;
    let mut link = Link::new(interfaces, name, health.clone())?;
    if let [first, ..] = &queues[..] {
        link = link.with_queue(first);
    }
    let housekeeping: Option<Box<dyn Housekeeping>> =
        Some(Box::new(TapHousekeeping { link, queues, has_uso }));
    Ok(OpenedDevice { pairs, health, housekeeping, notes })
}

/// Work of control for the tap.
#[derive(Debug)]
struct TapHousekeeping {
    link: Link,
    queues: Vec<Arc<OwnedFd>>,
    has_uso: bool,
}

impl Housekeeping for TapHousekeeping {
    fn tick(&mut self, now: Instant) {
        self.link.tick(now);
    }

    fn set_carrier(&mut self, up: bool) {
        self.link.set_carrier(up);
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Unread frames stay in the kernel.
    fn handover(&mut self, _: &[Vec<u8>]) -> Option<PortHandover> {
        let TapHousekeeping { link: _, queues, has_uso } = self;
        let mut state = StateWriter::default();
        state.flag(*has_uso);
        Some(PortHandover { fds: queues.clone(), state: state.0 })
    }
}

/// Both halves of a queue.
pub(crate) fn pair(
    queue: Arc<OwnedFd>,
    takes: OffloadSet,
    rules: FrameRules,
    health: &Arc<LinkHealth>,
) -> Result<QueuePair, MapError> {
    let rx_buffer = RxBuffer::new("tap", POOL_BYTES, rules)?;
    let transmit = KernelRx::new(FromTap { queue: queue.clone() }, rx_buffer, health.clone());
    let receive = KernelTx::new(ToTap { queue, takes }, health.clone());
    Ok(QueuePair { transmit: Box::new(transmit), receive: Box::new(receive) })
}

/// Notes on the differences between an existing interface and the configuration.
fn differences(interfaces: &Interfaces, spec: &TapSpec) -> Result<Vec<String>, InterfaceError> {
    let TapSpec { name, mtu, mac, .. } = spec;
    let state = interfaces.state(name)?;
    let mut notes = Vec::new();
    if state.mtu != u32::from(*mtu) {
        notes.push(format!("tap {name}: its MTU stays {}, not {mtu}", state.mtu));
    }
    if let Some(mac) = mac.filter(|mac| mac.0 != state.mac) {
        let its = Mac(state.mac);
        notes.push(format!("tap {name}: its address stays {its}, not {mac}"));
    }
    let addresses = spec.addresses.iter().map(ToString::to_string);
    let gateways = spec.gateways.iter().map(|gateway| format!("gateway {gateway}"));
    notes.extend(addresses.chain(gateways).map(|it| {
        format!("tap {name}: {it} is not set, since the daemon did not create the interface")
    }));
    if !state.is_up {
        notes.push(format!("tap {name}: stays down (ip link set {name} up)"));
    }
    Ok(notes)
}

/// Frames read from a queue.
#[derive(Debug)]
struct FromTap {
    queue: Arc<OwnedFd>,
}

impl RxSource for FromTap {
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
            // A read returns at least the header.
            let offload = NetHeader::from_bytes(room.read(0));
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

/// Frames written to a queue.
#[derive(Debug)]
struct ToTap {
    queue: Arc<OwnedFd>,
    takes: OffloadSet,
}

impl TxSink for ToTap {
    const PREFIX: usize = HEADER_LEN as usize;

    fn takes(&self) -> OffloadSet {
        self.takes
    }

    fn prefix(&self, offload: NetHeader, _: u32) -> [u8; PREFIX_MAX] {
        offload.to_bytes()
    }

    fn send(&mut self, frames: &[TxFrame<'_>]) -> (usize, Option<TxRefusal>) {
        for (i, frame) in frames.iter().enumerate() {
            let refusal = match io::write(self.queue.as_fd(), frame.pieces()) {
                Ok(_) => continue,
                // IO: the interface is down.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR | Errno::IO) => {
                    TxRefusal::NoRoom
                }
                Err(errno @ (Errno::BADFD | Errno::BADF | Errno::NODEV)) => TxRefusal::Lost(errno),
                Err(_) => TxRefusal::Frame,
            };
            return (i, Some(refusal));
        }
        (frames.len(), None)
    }
}

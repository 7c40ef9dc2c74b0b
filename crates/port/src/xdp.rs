//! AF_XDP: an interface of this machine as a port, bypassing the kernel's network stack.
//!
//! # Model
//! Each receive queue of the interface is a queue pair of the port, with its own socket and memory
//! (UMEM). A program on the interface redirects the frames of each queue to its socket; it is
//! removed with the port. The host keeps frames that the port does not take. Received frames are
//! lent from where the kernel or the device put them. A frame to the wire is copied once, into the
//! UMEM.
//!
//! The interface is promiscuous while the port is open: the addresses of guests are not its own,
//! and a card would drop their frames. A card also leaves VLAN tags in received frames meanwhile.
//!
//! With an [`AddressFilter`], only frames for its addresses are taken. Multicast and broadcast
//! frames are copied, because the host needs them too, for example for ARP.
//!
//! Frames carry no offloads here. Checksums and segmentation are completed in software before
//! sending ([`crate::software_offload`]). The kernel does not tell a socket about an incomplete
//! checksum, nor about a stripped VLAN tag. So a veth peer needs these offloads off: `ethtool -K
//! PEER tx off txvlan off`.
//!
//! # Queues steered to a guest
//! An interface may have more receive queues than the port: [`GuestQueues`]. The device steers the
//! frames for one guest's address to such a queue. Then the guest's memory is the UMEM of the
//! queue's socket, and frames are placed in the buffers of its receive ring without a copy of ours
//! ([`GuestQueues::place`]). Or the frames of the queue are received as the port's other frames are
//! ([`GuestQueues::take`]).
//!
//! # Failures
//! The port is lost if its interface is removed, set down, or gets other queues: its [`LinkHealth`]
//! says so, and the port is reopened when the interface is back. A larger MTU also loses the port,
//! but only where the device cannot receive frames in several buffers.

mod direct;
mod from_wire;
mod queues;
mod to_wire;
mod watch;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guestmem::{MapError, Mapping, Pages, SharedFile};
use host::netns::{self, NetnsError};
use host::packet;
use rustix::io::Errno;
use wire::ethernet::OVERHEAD_MAX;
pub use xdp::{Address, FlowRule, ZeroCopy};
use xdp::{
    BusyPoll, Chunks, Groups, Inbound, Interface, Interfaces, KERNEL_HEADROOM, KeptTags, Outbound,
    ProgramMode, Redirect, RedirectSpec, Socket, SocketSpec, Umem,
};

use crate::opened::{LinkHealth, OpenedDevice, QueuePair};
#[cfg(test)]
pub(crate) use direct::DirectRing;
pub use direct::{DirectError, DirectStatus};
pub(crate) use from_wire::FromWire;
pub(crate) use queues::DirectQueue;
pub use queues::{DirectSpec, GuestQueues, PINNED_BYTES_MAX};
pub(crate) use to_wire::ToWire;
use watch::{InterfaceWatch, WatchedSocket};

/// Maximum number of queue pairs by default.
pub const QUEUE_PAIRS_DEFAULT_MAX: u32 = 16;

/// Entries of each ring, and chunks for each direction: a millisecond of small frames at 2 Mpps.
const RING: u32 = 2048;
/// Chunks for copies of multicast frames: two bursts of ordinary ones.
const SPARE: u32 = 128;
/// Frames that one call handles while it polls the device.
const BUSY_POLL_BUDGET: u32 = 64;
/// Smallest chunk, bytes: a frame of an ordinary MTU. Jumbo frames get whole pages.
const CHUNK: u32 = 2048;

/// Configuration of an AF_XDP port.
#[derive(Clone, Debug)]
pub struct XdpSpec {
    /// Name of the interface.
    pub interface: String,
    /// Network namespace of the interface, by name or path; `None`: the current one.
    pub netns: Option<String>,
    /// Queues, 1 to the interface's number of receive queues; `None`: all, but at most
    /// [`QUEUE_PAIRS_DEFAULT_MAX`].
    pub queue_pairs: Option<u16>,
    /// Takes only frames for these addresses; `None`: all frames.
    pub filter: Option<Arc<AddressFilter>>,
    /// Zero-copy mode.
    pub zero_copy: ZeroCopy,
    /// Time for which a call polls the device, microseconds; 0: the device interrupts.
    pub busy_poll_us: u32,
}

/// Addresses whose frames a port takes; the host keeps all others. May change at any time; a change
/// takes effect at the port's next [housekeeping](crate::Housekeeping::tick).
#[derive(Debug, Default)]
pub struct AddressFilter {
    addresses: Mutex<Vec<Address>>,
    changes: AtomicU32,
}

/// Reason for which an AF_XDP port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpPortError {
    /// The interface, its driver or the kernel lacks a required feature.
    #[error(transparent)]
    Xdp(#[from] xdp::XdpError),
    /// The network namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// No memory for frames.
    #[error("{interface}: no memory for frames; free memory, or lower queue_pairs")]
    Memory {
        /// Name of the interface.
        interface: String,
        /// Error of the kernel.
        source: MapError,
    },
    /// Frames cannot be placed in the guest's memory or its buffers.
    #[error(transparent)]
    DirectError(#[from] DirectError),
    /// Zero queue pairs were requested.
    #[error("{interface}: queue_pairs 0 is not allowed; set 1 or more")]
    NoPairs {
        /// Name of the interface.
        interface: String,
    },
}

impl XdpPortError {
    /// Returns `true` if a guest's memory is too large to be pinned.
    pub fn is_limit_of_memory(&self) -> bool {
        let too_large =
            |error: &_| matches!(error, DirectError::TooLarge { .. } | DirectError::Sparse { .. });
        matches!(self, XdpPortError::DirectError(error) if too_large(error))
    }
}

/// State shared by the halves of all pairs: while any half lives, so does the program.
#[derive(Debug)]
pub(crate) struct XdpShared {
    pub(crate) health: Arc<LinkHealth>,
    /// Longest frame in either direction, bytes; follows the interface's MTU.
    pub(crate) frame_bytes_max: AtomicU32,
    /// The redirect program; `None` without an interface, in tests.
    pub(crate) redirect: Option<Mutex<Redirect>>,
    /// Keeps the interface promiscuous; `None` without an interface, in tests.
    pub(crate) _promiscuous: Option<OwnedFd>,
    /// Keeps VLAN tags in received frames; `None` if the interface is no card, or does so anyway.
    pub(crate) _tags: Option<KeptTags>,
}

impl AddressFilter {
    /// Takes frames for these addresses. A multicast address stands for all groups of its VLAN; the
    /// host gets their frames as well.
    pub fn new(addresses: Vec<Address>) -> AddressFilter {
        AddressFilter { addresses: Mutex::new(addresses), changes: AtomicU32::new(0) }
    }

    /// Replaces the addresses.
    pub fn set(&self, addresses: Vec<Address>) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Generation of the addresses, which each change increments.
    fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    fn addresses(&self) -> Vec<Address> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Opens an interface.
///
/// # Errors
/// [`XdpPortError`]; the interface is unchanged then.
pub fn open(spec: &XdpSpec) -> Result<OpenedDevice, XdpPortError> {
    netns::within(spec.netns.as_deref(), || open_here(spec, false))?.map(|(opened, _)| opened)
}

/// As [`open`]; also returns the queues behind those of the port, if the interface has more. Each
/// may be steered to one guest.
///
/// # Errors
/// As [`open`].
pub fn open_with_queues(
    spec: &XdpSpec,
) -> Result<(OpenedDevice, Option<GuestQueues>), XdpPortError> {
    netns::within(spec.netns.as_deref(), || open_here(spec, true))?
}

fn open_here(
    spec: &XdpSpec,
    with_queues: bool,
) -> Result<(OpenedDevice, Option<GuestQueues>), XdpPortError> {
    let mut interface = Interface::find(&spec.interface)?;
    let queues = queues_of(&interface, spec)?;
    let changes = spec.filter.as_ref().map_or(0, |filter| filter.changes());
    let filter = spec.filter.as_ref().map(|filter| filter.addresses());
    let tags = KeptTags::on(&interface);
    interface.strips_vlan &= tags.is_none();
    let steered_from = (with_queues && queues < interface.rx_queues).then_some(queues);
    let redirect = RedirectSpec { filter: filter.as_deref(), steered_from };
    let name = &interface.name;
    let mut redirect = Redirect::attach(&interface, &redirect)?;
    let mut groups = redirect.groups();
    let driver = redirect.driver();
    let mut sockets = Vec::new();
    for queue in 0..queues {
        let socket = bind(&interface, spec, queue)?;
        redirect.insert(queue, &socket.handle)?;
        sockets.push(socket);
    }
    let promiscuous = packet::open_promiscuous(interface.index)
        .map_err(|source| kernel(name, "receiving frames to all addresses", source))?;
    let zero_copy = sockets.iter().all(|socket| socket.handle.is_zero_copy());
    let device = Arc::new(XdpShared {
        health: Arc::default(),
        frame_bytes_max: AtomicU32::new(interface.mtu + OVERHEAD_MAX),
        redirect: Some(Mutex::new(redirect)),
        _promiscuous: Some(promiscuous),
        _tags: tags,
    });
    let (mut pairs, mut watched) = (Vec::new(), Vec::new());
    for socket in sockets {
        let unsent = Arc::new(AtomicBool::new(false));
        let handle = Arc::downgrade(&socket.handle);
        watched.push(WatchedSocket { socket: handle, unsent: unsent.clone() });
        // Multicast copies of all queues go to the first pair.
        let ends = socket.split(if groups.is_some() { SPARE } else { 0 });
        let pair = pair(ends, (&device, unsent), spec.busy_poll_us > 0, groups.take());
        pairs.push(pair.map_err(|source| kernel(name, "watching a BPF ring", source))?);
    }
    let notes = notes(&interface, queues, driver, zero_copy);
    let here = Interfaces::here().map_err(|source| kernel(name, "opening a socket", source))?;
    let more = steered_from.map(|first| GuestQueues::new(&device, interface.clone(), spec, first));
    let watch =
        InterfaceWatch::new(here, interface, &device, watched, spec.filter.clone(), changes);
    let health = device.health.clone();
    Ok((OpenedDevice { pairs, health, housekeeping: Some(Box::new(watch)), notes }, more))
}

/// Number of queues of a port with this configuration; the interface must be up.
fn queues_of(interface: &Interface, spec: &XdpSpec) -> Result<u32, XdpPortError> {
    let name = &interface.name;
    let queues = match spec.queue_pairs {
        None => interface.rx_queues.min(QUEUE_PAIRS_DEFAULT_MAX),
        Some(0) => return Err(XdpPortError::NoPairs { interface: name.clone() }),
        Some(queues) => queues.into(),
    };
    if queues > interface.rx_queues {
        let (interface, has) = (name.clone(), interface.rx_queues);
        return Err(xdp::XdpError::NoQueue { interface, queue: queues - 1, queues: has }.into());
    }
    if !interface.up {
        return Err(xdp::XdpError::Down(name.clone()).into());
    }
    Ok(queues)
}

/// Binds a socket to a queue, with its own UMEM.
fn bind(interface: &Interface, spec: &XdpSpec, queue: u32) -> Result<Socket, XdpPortError> {
    let page = rustix::param::page_size() as u32;
    let longest = interface.mtu + OVERHEAD_MAX;
    let size = if longest > CHUNK - KERNEL_HEADROOM { page } else { CHUNK };
    let bytes = u64::from(2 * RING) * u64::from(size);
    let memory = SharedFile::create("shunt-xdp", bytes, Pages::Collapsed)
        .and_then(|file| Mapping::new(file.fd(), bytes, 0))
        .map_err(|source| XdpPortError::Memory { interface: interface.name.clone(), source })?;
    let chunks = Chunks { size, headroom: 0, unaligned: false };
    let umem = Umem::new(Arc::new(memory), chunks)?;
    let busy_poll = BusyPoll { micros: spec.busy_poll_us, budget: BUSY_POLL_BUDGET };
    let spec = SocketSpec {
        queue,
        ring: RING,
        zero_copy: spec.zero_copy,
        fragments: longest > umem.room(),
        busy_poll: (spec.busy_poll_us > 0).then_some(busy_poll),
    };
    Ok(Socket::bind(interface, umem, &spec)?)
}

fn pair(
    (inbound, outbound): (Inbound, Outbound),
    (device, unsent): (&Arc<XdpShared>, Arc<AtomicBool>),
    busy_poll: bool,
    groups: Option<Groups>,
) -> Result<QueuePair, Errno> {
    let mut transmit = FromWire::new(inbound, device.clone(), unsent.clone(), busy_poll);
    if let Some(groups) = groups {
        transmit = transmit.with_groups(groups)?;
    }
    let receive = ToWire::new(outbound, device.clone(), unsent);
    Ok(QueuePair { transmit: Box::new(transmit), receive: Box::new(receive) })
}

fn kernel(interface: &str, call: &'static str, source: Errno) -> XdpPortError {
    xdp::XdpError::Kernel { call, interface: interface.to_owned(), source }.into()
}

/// Notes for the operator.
fn notes(interface: &Interface, queues: u32, driver: ProgramMode, zero_copy: bool) -> Vec<String> {
    let Interface { name, rx_queues, .. } = interface;
    let program = match driver {
        ProgramMode::Native => "program in the driver".to_owned(),
        ProgramMode::Generic { refusal } => {
            format!("program behind the driver, which is slower (the driver said: {refusal})")
        }
    };
    let copy = if zero_copy { "zero-copy" } else { "the kernel copies" };
    let mut notes = vec![format!("{name}: {queues} of {rx_queues} queues, {program}, {copy}")];
    if queues < *rx_queues {
        notes.push(format!(
            "{name}: frames of queues {queues} to {} stay with the host; ask for more queue pairs, or \
             ethtool -L {name} combined {queues}",
            rx_queues - 1
        ));
    }
    if interface.strips_vlan {
        notes.push(format!(
            "{name}: VLAN tags that the device takes off are lost; if VLANs come from there, \
             ethtool -K {name} rxvlan off (of a veth, its peer's txvlan)"
        ));
    }
    notes
}

impl XdpShared {
    /// Sets the addresses of the program's filter; returns `true` on success.
    fn set_filter(&self, addresses: &[Address]) -> bool {
        self.redirect().is_some_and(|mut redirect| redirect.set_filter(addresses).is_ok())
    }

    fn redirect(&self) -> Option<MutexGuard<'_, Redirect>> {
        let redirect = self.redirect.as_ref()?;
        Some(redirect.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;

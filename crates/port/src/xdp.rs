//! AF_XDP: an interface of this machine as a port, past the kernel's stack.
//!
//! # Model
//! Each receive queue of the interface is a queue pair of the port, with a socket and a memory
//! (UMEM) of its own. A program on the interface, which goes when the port does, hands the frames
//! of each queue to its socket; what the port does not take, the host keeps. Received frames are
//! lent from where the kernel or the device put them; a frame to the wire is copied once, into the
//! memory.
//!
//! With a [`Filter`], only frames for its addresses are taken. Those to its groups are taken as
//! copies, for the host needs them too: its ARP above all.
//!
//! Nothing is left to be done on frames here: checksums and segments are made before they are sent
//! ([`crate::plain`]), and frames that come have none to be made, if their sender does as it must:
//! a veth's peer needs its checksum offload off, `ethtool -K PEER tx off`, for the kernel does not
//! tell a socket that a checksum is not made yet. Nor does it tell VLAN tags that were taken off.
//!
//! # Queues that are steered to a guest
//! An interface may have more receive queues than the port: [`Queues`]. Where the device steers the
//! frames for one guest's address to such a queue, the guest's memory is the memory of the queue's
//! socket, and frames are placed in the buffers of its receive ring without a copy of ours
//! ([`Queues::place`]); or the queue's frames are taken as the port's other frames are
//! ([`Queues::take`]).
//!
//! # Failures
//! An interface that goes away, is switched off, or gets other queues, loses the port: its
//! [`LinkHealth`] says so, and it is opened again when the interface is back. A larger MTU does so
//! only where the device cannot take frames in pieces.

mod direct;
mod from_wire;
mod queues;
mod to_wire;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guestmem::{MapError, Mapping, Pages, SharedFile};
use host::netns::{self, NetnsError};
use rustix::io::Errno;
use wire::ethernet::OVERHEAD_MAX;
pub use xdp::{Address, FlowRule, ZeroCopy};
use xdp::{
    BusyPoll, Chunks, Driver, Groups, Inbound, Interface, Interfaces, KERNEL_HEADROOM, Outbound,
    Redirect, RedirectSpec, Socket, SocketSpec, Umem,
};

use crate::{LinkHealth, Opened, Pair};
#[cfg(test)]
pub(crate) use direct::Placing;
pub use direct::{Direct, Over};
pub(crate) use from_wire::FromWire;
pub(crate) use queues::Place;
pub use queues::{DirectSpec, Queues};
pub(crate) use to_wire::ToWire;
use watch::{Watch, Watched};

/// Most queue pairs, unless more are asked for.
pub const QUEUE_PAIRS_DEFAULT_MAX: u32 = 16;

/// Entries of each ring, and chunks for each direction: a millisecond of small frames at 2 Mpps.
const RING: u32 = 2048;
/// Chunks for copies of frames to groups: two bursts of ordinary ones.
const SPARE: u32 = 128;
/// Frames that one call handles while it polls the device.
const BUSY_POLL_BUDGET: u32 = 64;
/// Smallest chunk, for a frame of an ordinary MTU; jumbo frames get whole pages.
const CHUNK: u32 = 2048;

/// Which interface, and how it is to be used.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The interface.
    pub interface: String,
    /// The network namespace it is in, by name or path; `None`: this one.
    pub netns: Option<String>,
    /// Queues, 1 to as many as the interface receives by; `None`: all, but at most
    /// [`QUEUE_PAIRS_DEFAULT_MAX`].
    pub queue_pairs: Option<u16>,
    /// Takes only frames for these addresses; `None`: all frames.
    pub filter: Option<Arc<Filter>>,
    /// Who copies.
    pub zero_copy: ZeroCopy,
    /// How long a call polls the device, microseconds; 0: the device interrupts.
    pub busy_poll_us: u32,
}

/// The addresses whose frames a port takes; the host keeps the others. May change at any time: what
/// is set is in effect when control next [tends](crate::Housekeeping) the port.
#[derive(Debug, Default)]
pub struct Filter {
    addresses: Mutex<Vec<Address>>,
    changes: AtomicU32,
}

/// Why an interface cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The interface, its driver or the kernel has not what is needed.
    #[error(transparent)]
    Xdp(#[from] xdp::XdpError),
    /// Its namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// There is no memory for frames.
    #[error("{interface}: no memory for frames; free memory, or ask for fewer queue pairs")]
    Memory {
        /// The interface.
        interface: String,
        /// The kernel's word.
        source: MapError,
    },
    /// The guest's memory or its buffers do not allow that frames are placed there.
    #[error(transparent)]
    Over(#[from] Over),
    /// No queue pair at all.
    #[error("{interface}: 0 queue pairs are not possible; ask for 1 or more")]
    NoPairs {
        /// The interface.
        interface: String,
    },
}

/// What both halves of all pairs hold: while any of them lives, so does the program.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) condition: Arc<LinkHealth>,
    /// Longest frame either way, bytes; follows the interface's MTU.
    pub(crate) frame_bytes_max: AtomicU32,
    /// The program; none where there is no interface, in tests.
    pub(crate) redirect: Option<Mutex<Redirect>>,
}

impl Filter {
    /// A filter that takes frames for these. A group's address stands for all groups of its VLAN,
    /// whose frames the host gets as well.
    pub fn new(addresses: Vec<Address>) -> Filter {
        Filter { addresses: Mutex::new(addresses), changes: AtomicU32::new(0) }
    }

    /// Takes frames for these, and no others.
    pub fn set(&self, addresses: Vec<Address>) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// A number that is another one once the addresses were changed.
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
/// [`XdpError`]; the interface is then as it was.
pub fn open(spec: &Spec) -> Result<Opened, XdpError> {
    netns::within(spec.netns.as_deref(), || open_here(spec, false))?.map(|(opened, _)| opened)
}

/// As [`open`]; and gives the queues behind those of the port, if the interface has more, which may
/// be steered to somebody each.
///
/// # Errors
/// As [`open`].
pub fn open_with_queues(spec: &Spec) -> Result<(Opened, Option<Queues>), XdpError> {
    netns::within(spec.netns.as_deref(), || open_here(spec, true))?
}

fn open_here(spec: &Spec, with_queues: bool) -> Result<(Opened, Option<Queues>), XdpError> {
    let interface = Interface::find(&spec.interface)?;
    let name = &interface.name;
    let queues = queues_of(&interface, spec)?;
    let changes = spec.filter.as_ref().map_or(0, |filter| filter.changes());
    let filter = spec.filter.as_ref().map(|filter| filter.addresses());
    let steered_from = (with_queues && queues < interface.rx_queues).then_some(queues);
    let redirect = RedirectSpec { filter: filter.as_deref(), steered_from };
    let mut redirect = Redirect::attach(&interface, &redirect)?;
    let mut groups = redirect.groups();
    let driver = redirect.driver();
    let mut sockets = Vec::new();
    for queue in 0..queues {
        let socket = bind(&interface, spec, queue)?;
        redirect.insert(queue, &socket.handle)?;
        sockets.push(socket);
    }
    let zero_copy = sockets.iter().all(|socket| socket.handle.is_zero_copy());
    let device = Arc::new(Device {
        condition: Arc::default(),
        frame_bytes_max: AtomicU32::new(interface.mtu + OVERHEAD_MAX),
        redirect: Some(Mutex::new(redirect)),
    });
    let (mut pairs, mut watched) = (Vec::new(), Vec::new());
    for socket in sockets {
        let unsent = Arc::new(AtomicBool::new(false));
        let handle = Arc::downgrade(&socket.handle);
        watched.push(Watched { socket: handle, unsent: unsent.clone() });
        // Copies are of all queues; the first pair takes them.
        let ends = socket.split(if groups.is_some() { SPARE } else { 0 });
        let pair = pair(ends, (&device, unsent), spec.busy_poll_us > 0, groups.take());
        pairs.push(pair.map_err(|source| kernel(name, "watching a BPF ring", source))?);
    }
    let notes = notes(&interface, queues, driver, zero_copy);
    let here = Interfaces::here().map_err(|source| kernel(name, "opening a socket", source))?;
    let more = steered_from.map(|first| Queues::new(&device, interface.clone(), spec, first));
    let watch = Watch::new(here, interface, &device, watched, spec.filter.clone(), changes);
    let condition = device.condition.clone();
    Ok((Opened { pairs, condition, tend: Some(Box::new(watch)), notes }, more))
}

/// How many queues a port with this specification has on an interface, which must be up.
fn queues_of(interface: &Interface, spec: &Spec) -> Result<u32, XdpError> {
    let name = &interface.name;
    let queues = match spec.queue_pairs {
        None => interface.rx_queues.min(QUEUE_PAIRS_DEFAULT_MAX),
        Some(0) => return Err(XdpError::NoPairs { interface: name.clone() }),
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

/// A socket on a queue, with a memory of its own.
fn bind(interface: &Interface, spec: &Spec, queue: u32) -> Result<Socket, XdpError> {
    let page = rustix::param::page_size() as u32;
    let longest = interface.mtu + OVERHEAD_MAX;
    let size = if longest > CHUNK - KERNEL_HEADROOM { page } else { CHUNK };
    let bytes = u64::from(2 * RING) * u64::from(size);
    let memory = SharedFile::create("shunt-xdp", bytes, Pages::Gathered)
        .and_then(|file| Mapping::new(file.fd(), bytes, 0))
        .map_err(|source| XdpError::Memory { interface: interface.name.clone(), source })?;
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
    (device, unsent): (&Arc<Device>, Arc<AtomicBool>),
    busy_poll: bool,
    groups: Option<Groups>,
) -> Result<Pair, Errno> {
    let mut transmit = FromWire::new(inbound, device.clone(), unsent.clone(), busy_poll);
    if let Some(groups) = groups {
        transmit = transmit.with_groups(groups)?;
    }
    let receive = ToWire::new(outbound, device.clone(), unsent);
    Ok(Pair { transmit: Box::new(transmit), receive: Box::new(receive) })
}

fn kernel(interface: &str, call: &'static str, source: Errno) -> XdpError {
    xdp::XdpError::Kernel { call, interface: interface.to_owned(), source }.into()
}

/// What an operator should know.
fn notes(interface: &Interface, queues: u32, driver: Driver, zero_copy: bool) -> Vec<String> {
    let Interface { name, rx_queues, .. } = interface;
    let program = match driver {
        Driver::Native => "program in the driver".to_owned(),
        Driver::Generic { refusal } => {
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

impl Device {
    /// Lets frames for these through the program's filter; says whether they are.
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

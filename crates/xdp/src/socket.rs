//! AF_XDP sockets: one for each receive queue of an interface.
//!
//! Follows the kernel's documentation of AF_XDP. A socket is created, registers its memory and the
//! sizes of its rings, maps the rings, and is bound to one queue. Then it can send; it receives
//! once the [redirect program](crate::Redirect) has it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use host::launcher::{Answer, Request, ask};
use host::socket::{self, SocketKind};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
};
use rustix::net::{bind, sockopt};
use serde::{Deserialize, Serialize};

use crate::error::XdpError;
use crate::handle::SocketHandle;
use crate::inbound::Inbound;
use crate::interface::Interface;
use crate::outbound::Outbound;
use crate::ring::{Consumer, Descriptor, Producer, RING_MAX};
use crate::umem::Umem;

/// Copy mode between the device and the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// By the device if its driver supports it, else by the kernel.
    #[default]
    Auto,
    /// Always by the kernel.
    Never,
    /// By the device, or an error.
    Require,
}

/// Busy polling: the caller's system calls do the driver's work (`SO_PREFER_BUSY_POLL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Time that a call polls the device, microseconds.
    pub micros: u32,
    /// Most frames that a call handles.
    pub budget: u32,
}

/// Settings of a socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketSpec {
    /// The hardware queue.
    pub queue: u32,
    /// Entries of each of the four rings: a power of two, at most [`RING_MAX`].
    pub ring: u32,
    /// Copy mode.
    pub zero_copy: ZeroCopy,
    /// `true` if frames longer than a chunk must be supported, in several descriptors (Linux 6.6).
    pub fragments: bool,
    /// Busy polling, if wanted.
    pub busy_poll: Option<BusyPoll>,
}

/// A bound socket; its rings can be moved to different threads.
#[derive(Debug)]
pub struct Socket {
    /// Chunks for received frames: [`Umem::address`], [`Umem::chunk_of`].
    pub fill: Producer<u64>,
    /// Received frames.
    pub rx: Consumer<Descriptor>,
    /// Frames to send.
    pub tx: Producer<Descriptor>,
    /// Sent frames: the addresses of `tx`, in order.
    pub completion: Consumer<u64>,
    /// The socket itself.
    pub handle: Arc<SocketHandle>,
}

const SOL_XDP: i32 = 283;
/// Frames that one system call may send in copy mode (`XDP_MAX_TX_SKB_BUDGET`, Linux 6.17).
const TX_BUDGET: i32 = 9;
const TX_BUDGET_WANTED: i32 = 256;

/// Memory of frames in the kernel in copy mode: a ring of 2048 frames of 1500 bytes, with the
/// kernel's overhead for each.
const SEND_BYTES: usize = 8 << 20;

/// Retries for a queue whose last socket was just closed: the kernel frees it a little later.
const BUSY_TRIES: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

impl Socket {
    /// Creates a socket over all of `umem` and binds it to a queue of `interface`, which must be in
    /// the calling thread's network namespace. Each socket needs a memory of its own.
    pub fn bind(interface: &Interface, umem: Umem, spec: &SocketSpec) -> Result<Socket, XdpError> {
        if !spec.ring.is_power_of_two() || spec.ring > RING_MAX {
            return Err(XdpError::BadRing(spec.ring));
        }
        if spec.queue >= interface.rx_queues {
            return Err(no_queue(interface, spec.queue));
        }
        let fd = create(interface)?;
        register(&fd, interface, &umem, spec.ring)?;
        let kernel = |call| move |errno| XdpError::of(call, &interface.name, "CAP_NET_RAW", errno);
        let offsets = sockopt::xdp_mmap_offsets(&fd).map_err(kernel("XDP_MMAP_OFFSETS"))?;
        let (at, ring, mapping) = (fd.as_fd(), spec.ring, "mapping a ring");
        let fill = Producer::map(at, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, ring);
        let completion = Consumer::map(at, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, ring);
        let rx = Consumer::map(at, XDP_PGOFF_RX_RING, offsets.rx, ring);
        let tx = Producer::map(at, XDP_PGOFF_TX_RING, offsets.tx, ring);
        let fill = fill.map_err(kernel(mapping))?;
        let completion = completion.map_err(kernel(mapping))?;
        let (rx, tx) = (rx.map_err(kernel(mapping))?, tx.map_err(kernel(mapping))?);
        // Hints: older kernels send 32 frames a call, and without permission for more memory a slow
        // device has 277 frames at a time.
        let _ = set(&fd, SOL_XDP, TX_BUDGET, TX_BUDGET_WANTED.min(ring as i32));
        socket::set_buffers(fd.as_fd(), None, Some(SEND_BYTES));
        if let Some(busy_poll) = spec.busy_poll {
            prefer_busy_poll(&fd, interface, busy_poll)?;
        }
        let fragments = attach_to_queue(&fd, interface, spec)?;
        let options = sockopt::xdp_options(&fd).map_err(kernel("XDP_OPTIONS"))?;
        let zero_copy = options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        let handle = Arc::new(SocketHandle { fd, umem, zero_copy, fragments });
        Ok(Socket { fill, rx, tx, completion, handle })
    }
}

impl Socket {
    /// Splits the socket into two halves for receiving and sending in bursts. The kernel gets as
    /// many chunks as a ring has entries to receive into, but at most half of them; up to as many
    /// others are for sending. Of these, `spare` are reserved for [`Inbound::append`].
    pub fn split(mut self, spare: u32) -> (Inbound, Outbound) {
        let umem = self.handle.umem().clone();
        let receiving = self.fill.size().min(umem.count() / 2);
        let sending = (umem.count() - receiving).min(self.tx.size());
        for chunk in 0..receiving {
            self.fill.put(umem.address(chunk));
        }
        self.fill.submit();
        let mut free: Vec<u64> =
            (receiving..receiving + sending).map(|chunk| umem.address(chunk)).collect();
        let spare = free.split_off(free.len().saturating_sub(spare as usize));
        let inbound = Inbound::new(self.rx, self.fill, self.handle.clone(), spare);
        (inbound, Outbound::new(self.tx, self.completion, self.handle, free))
    }
}

fn create(interface: &Interface) -> Result<OwnedFd, XdpError> {
    socket::open(SocketKind::Xdp).map_err(|errno| match errno {
        Errno::AFNOSUPPORT => XdpError::NotSupported {
            what: "an AF_XDP socket",
            interface: interface.name.clone(),
            needs: "a kernel with CONFIG_XDP_SOCKETS",
        },
        errno => XdpError::of("socket(AF_XDP)", &interface.name, "CAP_NET_RAW", errno),
    })
}

/// Registers the memory and the sizes of the rings.
fn register(fd: &OwnedFd, interface: &Interface, umem: &Umem, ring: u32) -> Result<(), XdpError> {
    let name = &interface.name;
    let registration = umem.registration();
    sockopt::set_xdp_umem_reg(fd, registration).map_err(|errno| match errno {
        Errno::NOBUFS | Errno::NOMEM => {
            XdpError::NoMemory { interface: name.clone(), size: registration.len }
        }
        errno => XdpError::of("XDP_UMEM_REG", name, "CAP_NET_RAW", errno),
    })?;
    sockopt::set_xdp_umem_fill_ring_size(fd, ring)
        .and_then(|()| sockopt::set_xdp_umem_completion_ring_size(fd, ring))
        .and_then(|()| sockopt::set_xdp_rx_ring_size(fd, ring))
        .and_then(|()| sockopt::set_xdp_tx_ring_size(fd, ring))
        .map_err(|errno| XdpError::of("making rings", name, "CAP_NET_RAW", errno))
}

/// Binds the socket with the best flags that driver and kernel support; returns `true` if frames
/// may use several descriptors.
fn attach_to_queue(
    fd: &OwnedFd,
    interface: &Interface,
    spec: &SocketSpec,
) -> Result<bool, XdpError> {
    let mut refusal = Errno::INVAL;
    for &flags in bind_flags(spec) {
        let all = flags | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        match bind_once_free(fd, &SocketAddrXdp::new(all, interface.index, spec.queue)) {
            Ok(()) => return Ok(flags.contains(SocketAddrXdpFlags::XDP_USE_SG)),
            Err(errno @ (Errno::OPNOTSUPP | Errno::INVAL)) => refusal = errno,
            Err(errno) => {
                refusal = errno;
                break;
            }
        }
    }
    let (name, queue) = (interface.name.clone(), spec.queue);
    Err(match refusal {
        Errno::BUSY => XdpError::QueueBusy { interface: name, queue },
        Errno::OPNOTSUPP | Errno::INVAL if spec.zero_copy == ZeroCopy::Require => {
            XdpError::NoZeroCopy { interface: name, queue }
        }
        Errno::INVAL if spec.fragments => XdpError::NotSupported {
            what: "receiving frames longer than a page",
            interface: name,
            needs: "Linux 6.6",
        },
        Errno::INVAL => no_queue(interface, queue),
        errno => XdpError::of("binding an AF_XDP socket", &name, "CAP_NET_RAW", errno),
    })
}

/// Flags to try, best first. In copy mode fragments cost nothing, so they are used if the kernel
/// has them: the MTU may then grow while the socket is in use. A driver may have zero-copy without
/// them.
fn bind_flags(spec: &SocketSpec) -> &'static [SocketAddrXdpFlags] {
    const COPY: SocketAddrXdpFlags = SocketAddrXdpFlags::XDP_COPY;
    const COPY_SG: SocketAddrXdpFlags = COPY.union(SocketAddrXdpFlags::XDP_USE_SG);
    const ZERO: SocketAddrXdpFlags = SocketAddrXdpFlags::XDP_ZEROCOPY;
    const ZERO_SG: SocketAddrXdpFlags = ZERO.union(SocketAddrXdpFlags::XDP_USE_SG);
    match (spec.zero_copy, spec.fragments) {
        (ZeroCopy::Auto, true) => &[ZERO_SG, COPY_SG],
        (ZeroCopy::Auto, false) => &[ZERO, COPY_SG, COPY],
        (ZeroCopy::Never, true) => &[COPY_SG],
        (ZeroCopy::Never, false) => &[COPY_SG, COPY],
        (ZeroCopy::Require, true) => &[ZERO_SG],
        (ZeroCopy::Require, false) => &[ZERO],
    }
}

/// Binds, with retries for a queue that is not free yet.
fn bind_once_free(fd: &OwnedFd, address: &SocketAddrXdp) -> Result<(), Errno> {
    for _ in 0..BUSY_TRIES {
        match bind(fd, address) {
            Err(Errno::BUSY) => std::thread::sleep(BUSY_PAUSE),
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

fn no_queue(interface: &Interface, queue: u32) -> XdpError {
    let (interface, queues) = (interface.name.clone(), interface.rx_queues);
    XdpError::NoQueue { interface, queue, queues }
}

fn prefer_busy_poll(fd: &OwnedFd, interface: &Interface, wanted: BusyPoll) -> Result<(), XdpError> {
    let BusyPoll { micros, budget } = wanted;
    ask(PreferBusyPoll { micros, budget }, &[fd.as_fd()]).map(drop).map_err(|errno| match errno {
        Errno::NOPROTOOPT => XdpError::NotSupported {
            what: "busy polling",
            interface: interface.name.clone(),
            needs: "Linux 5.11 with CONFIG_NET_RX_BUSY_POLL",
        },
        errno => XdpError::of("SO_BUSY_POLL", &interface.name, "CAP_NET_ADMIN", errno),
    })
}

/// Has a socket polled by its reader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PreferBusyPoll {
    micros: u32,
    budget: u32,
}

impl Request for PreferBusyPoll {
    const NAME: &'static str = "prefer-busy-poll";
    const DOES: &'static str = "has an AF_XDP socket polled by its reader";
    type Reply = ();

    fn check(&self, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        socket::check(*socket, SocketKind::Xdp)
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<()> {
        let [fd] = fds else { return Err(Errno::INVAL) };
        let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        set(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
        set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, number(self.micros))?;
        set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, number(self.budget))?;
        Ok(((), Vec::new()))
    }
}

/// Sets an option that rustix lacks.
fn set(fd: impl AsFd, level: i32, option: i32, value: i32) -> Result<(), Errno> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is an int that outlives the call, and `len` is its size.
    let result = unsafe {
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), len)
    };
    if result == 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(errno))
}

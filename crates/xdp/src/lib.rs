//! AF_XDP: frames between an interface and memory of our own, bypassing the kernel's stack.
//!
//! # Model
//! - An [`Interface`] describes an interface: index, queues, attached program.
//! - A [`Umem`] is memory for frames, cut into chunks: our own, or a guest's.
//! - A [`Socket`] belongs to one hardware queue and has four rings over one memory: fill and rx to
//!   receive, tx and completion to send. The rings can be used one by one. Or the socket is
//!   [split](Socket::split) into an [`Inbound`] and an [`Outbound`] half, which work in bursts and
//!   may belong to two threads.
//! - A [`Redirect`] is the program that passes the interface's frames to the sockets, by receive
//!   queue; the host keeps all others. It is written in [`asm`], so it needs no compiler. A BPF
//!   link attaches it, so it ends with the process. With a filter, the host also receives frames to
//!   groups, and we get copies of them: [`Groups`].
//!
//! ```no_run
//! # fn open(memory: std::sync::Arc<guestmem::Mapping>) -> Result<(), xdp::XdpError> {
//! use xdp::{Chunks, Interface, Redirect, RedirectSpec, Socket, SocketSpec, Umem, ZeroCopy};
//!
//! let interface = Interface::find("eth1")?;
//! let umem = Umem::new(memory, Chunks { size: 2048, headroom: 0, unaligned: false })?;
//! let redirect = Redirect::attach(&interface, &RedirectSpec::default())?;
//! let zero_copy = ZeroCopy::Auto;
//! let spec =
//!     SocketSpec { queue: 0, ring: 2048, zero_copy, fragments: false, busy_poll: None };
//! let mut socket = Socket::bind(&interface, umem, &spec)?;
//! for chunk in 0..1024 {
//!     socket.fill.put(socket.handle.umem().address(chunk));
//! }
//! socket.fill.submit();
//! redirect.insert(0, &socket.handle)?; // from here on, frames arrive
//! while let Some(descriptor) = socket.rx.take() {
//!     let frame = socket.handle.umem().frame(&descriptor);
//! #   drop(frame);
//!     // ... and then its chunk goes back to the fill ring.
//!     socket.fill.put(socket.handle.umem().chunk_of(descriptor.addr));
//! }
//! socket.rx.release();
//! socket.fill.submit();
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//! - There are no references into the memory: a frame is a [`guestmem::GuestSlice`] of a checked
//!   range, although the kernel is trusted.
//! - Checksum offload, segmentation and hardware VLAN tags do not cross AF_XDP. A sender behind a
//!   veth must have its checksum and VLAN offload off (`ethtool -K X tx off txvlan off`), a card
//!   its rx-vlan-offload ([`KeptTags`]).
//!
//! # Limits
//! Linux 5.9 (BPF links for XDP); 5.18 for frames of several fragments through the program, 6.6
//! for them through a socket. Frames longer than [`Umem::room`] need those.
//!
//! Follows the kernel's Documentation/networking/af_xdp.rst and linux/if_xdp.h.
//!
//! This crate holds `unsafe` code: the rings, and the system calls that rustix lacks.
#![allow(unsafe_code)] // This is the room for it: rings shared with the kernel, bpf(2), ioctl(2).

pub mod asm;
mod bpf;
mod error;
mod flow;
mod groups;
mod handle;
mod inbound;
mod interface;
#[cfg(any(test, feature = "kit"))]
pub mod kit;
mod netlink;
mod outbound;
mod placer;
mod program;
mod redirect;
mod ring;
mod socket;
mod tags;
mod umem;

pub use bpf::{AttachProgram, CreateMap};
pub use error::XdpError;
pub use flow::{ChangeFlowRule, FlowRule};
pub use groups::Groups;
pub use handle::{SocketHandle, Statistics, WakeResult};
pub use inbound::{Inbound, PIECES_MAX, STAGED_MAX};
pub use interface::{Interface, Interfaces};
pub use netlink::AttachedProgram;
pub use outbound::{Flushed, NoRoom, Outbound};
pub use placer::{BufferError, Misplaced, Placer};
pub use program::{Address, SteeringRule};
pub use redirect::{FILTER_MAX, LoadRedirect, ProgramMode, Redirect, RedirectSpec};
pub use ring::{Consumer, Descriptor, Entry, Producer, RING_MAX};
pub use socket::{BusyPoll, PreferBusyPoll, Socket, SocketSpec, ZeroCopy};
pub use tags::{KeepTags, KeptTags};
pub use umem::{Chunks, KERNEL_HEADROOM, Umem};

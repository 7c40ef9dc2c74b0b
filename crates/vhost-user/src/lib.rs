//! The vhost-user protocol: messages, sockets, back-end and front-end.
//!
//! A front-end (a VMM, DPDK's `virtio_user`, a guest of the lab) shares its memory and its
//! virtqueues with a back-end (the daemon) by messages over a Unix stream socket, with file
//! descriptors beside the bytes. This crate follows QEMU's `docs/interop/vhost-user.rst`.
//!
//! # Model
//!
//! ```text
//!   front-end                             back-end
//!   Frontend (blocking)                   Listener / Connector -> UnixStream
//!      |  request + fds                      |
//!      v                                     v
//!   socket  ------- Unix stream ------>   Receiver::poll -> Message
//!      ^                                     |
//!      |  reply                              v
//!      +------------------------------    Backend::handle(message, &mut device) -> reply
//! ```
//!
//! * [`message`], [`payload`]: header, requests, payloads and their limits;
//! * [`features`]: the bits of both negotiations;
//! * [`socket`]: one message in, one message out, never blocked by a half one;
//! * [`listener`], [`connector`]: server and client mode, with reconnection;
//! * [`backend`]: the state machine, without I/O and without a clock, that drives a [`Device`];
//! * [`frontend`]: the other side, blocking, for guests of the lab;
//! * [`checked`]: a device that asserts what the state machine promises, for tests and fuzzing.
//!
//! # Limits
//!
//! Little is believed of what a peer says: sizes, counts, indices and bits are checked before
//! anything is kept, and a peer that breaks a rule loses its own connection and nothing else.
//! Split rings only; no dirty log, no in-flight buffer, no IOTLB, no postcopy, no request channel
//! from back-end to front-end: none of these is offered.

pub mod backend;
pub mod checked;
pub mod connector;
pub mod features;
pub mod frontend;
pub mod listener;
pub mod message;
pub mod payload;
mod request;
pub mod socket;

pub use backend::{
    Backend, BackendConfig, Device, MemoryRegion, ProtocolError, Reason, Refused, RingSetup,
};
pub use connector::{ConnectError, Connector, Retry};
pub use features::{Features, ProtocolFeatures};
pub use frontend::{Frontend, FrontendError, Negotiated, Region, RingConfig};
pub use listener::{ListenError, Listener};
pub use message::{Flags, Message, Request, RequestName};
pub use socket::{Receiver, SocketError};

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
//! * [`foreign`]: descriptors that a peer sent, and the thread for calls on them that may wait;
//! * [`listener`], [`connector`]: server and client mode, with reconnection;
//! * [`backend`]: the state machine, without I/O and without a clock, that drives a [`Device`];
//! * [`frontend`]: the other side, blocking, for guests of the lab;
//! * [`transfer`]: a device's state through the pipe that a front-end gives;
//! * [`checked`]: a device that asserts what the state machine promises, for tests and fuzzing.
//!
//! # Limits
//!
//! Little is believed of what a peer says: sizes, counts, indices and bits are checked before
//! anything is kept, and a peer that breaks a rule loses its own connection and nothing else. Split
//! rings only; no IOTLB, no postcopy: neither is offered. What is, and with what it was tested, is
//! in `docs/virtio.md`.

pub mod backend;
pub mod checked;
pub mod connector;
pub mod features;
pub mod foreign;
pub mod frontend;
pub mod listener;
pub mod message;
pub mod payload;
mod request;
pub mod socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfer;

pub use backend::{
    Backend, BackendConfig, Device, InflightArea, MemoryRegion, ProtocolError, Reason, Refused,
    RingLog, RingSetup, SharedArea,
};
pub use connector::{ConnectError, Connector, Retry};
pub use features::{Features, ProtocolFeatures};
pub use foreign::{ByteStream, Closer, ForeignFd, Load, Pending};
pub use frontend::{Frontend, FrontendError, Negotiated, Region, RingConfig};
pub use listener::{ListenError, Listener, remove_stale};
pub use message::{BackendRequest, Flags, Message, Request, RequestName};
pub use socket::{Receiver, SocketError};

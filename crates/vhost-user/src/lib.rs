//! The vhost-user protocol: messages, sockets, back-end and front-end.
//!
//! A front-end (a VMM, DPDK's `virtio_user`, a guest of the lab) shares its memory and its
//! virtqueues with a back-end (the daemon). They exchange messages over a Unix stream socket, with
//! file descriptors as ancillary data. This crate follows QEMU's `docs/interop/vhost-user.rst`.
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
//! * [`socket`]: receives and sends messages, without blocking on a partial one;
//! * [`foreign`]: descriptors from a peer, and the thread for calls on them that may wait;
//! * [`listener`], [`connector`]: server and client mode, with reconnection;
//! * [`backend`]: the state machine, without I/O and without a clock, that drives a
//!   [`BackendDevice`];
//! * [`frontend`]: the other side, blocking, for guests of the lab;
//! * [`transfer`]: a device's state through the front-end's pipe;
//! * [`checked`]: a device that asserts the guarantees of the state machine, for tests and fuzzing.
//!
//! # Limits
//!
//! A peer is untrusted: sizes, counts, indices and bits are checked before anything is stored, and
//! a peer that breaks a rule loses only its own connection. IOTLB and postcopy are not offered.
//! `docs/virtio.md` lists the supported features and the tested peers.

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
mod socket_file;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfer;

pub use backend::{
    Backend, BackendConfig, BackendDevice, InflightArea, MemoryRegion, ProtocolError, Reason,
    Refused, RingLog, RingSetup, SharedArea,
};
pub use connector::{ConnectError, Connector, Retry};
pub use features::{Features, ProtocolFeatures};
pub use foreign::{ByteStream, Closer, CloserLoad, ForeignFd, Pending};
pub use frontend::{Frontend, FrontendError, Negotiated, RingConfig, SharedRegion};
pub use listener::{ListenError, Listener, SocketAccess, remove_stale};
pub use message::{BackendRequest, Flags, Message, Request, RequestName};
pub use socket::{Receiver, SocketError};
pub use socket_file::SocketFile;

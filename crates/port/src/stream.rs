//! Frames over a Unix stream socket, in the protocol of QEMU's `-netdev stream` and `-netdev
//! socket`. So any NIC that QEMU emulates can be an adapter.
//!
//! # Model
//! A length of 4 bytes, big-endian, precedes each frame; there is nothing else. As
//! [`SocketRole::Server`] the port listens and serves one peer at a time. As [`SocketRole::Client`]
//! it connects, and reconnects after losing its peer. Control makes connections; the lanes read
//! from and write to the current one ([`connection`]).
//!
//! Frames for the peer are copied into a buffer and written at the end of each delivery. The rest
//! is written when the socket accepts more. So a peer that does not read misses whole frames, never
//! a part of one. A peer that announces an impossible length is disconnected, because the start of
//! the next frame is unknown then. So is a peer that sends file descriptors.
//!
//! # Limits
//! At most [`OUT_BYTES`] wait for a peer. Checksums and segmentation are completed before a frame
//! is sent, because the protocol has no offloads.

mod connection;
mod to_stream;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use guestmem::MapError;
use rustix::io::Errno;
use vhost_user::{ConnectError, Connector, ListenError, Listener, SocketAccess};
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::OffloadSet;

use crate::handover::{IncompleteHandover, PortHandover, StateReader, StateWriter};
use crate::kernel::{KernelRx, RxBuffer};
use crate::opened::{Housekeeping, LinkHealth, OpenedDevice, QueuePair};
use crate::validate::FrameRules;
use connection::{FromStream, StreamConnection};
use to_stream::ToStream;

pub use connection::OUT_BYTES;

/// Role of the port in making a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRole {
    /// The port listens.
    Server,
    /// The peer listens.
    Client,
}

/// Configuration of a stream-socket port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// The socket's path.
    pub socket: PathBuf,
    /// Role of the port.
    pub role: SocketRole,
    /// Users that may connect to a listening port.
    pub access: SocketAccess,
    /// Maximum packet length in a frame, bytes; longer frames are dropped.
    pub mtu: u16,
}

/// Reason for which a stream-socket port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The port cannot listen on the socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The path can never be connected to. A peer that is not there yet is no error.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The hand-over state is incomplete.
    #[error(transparent)]
    IncompleteHandover(#[from] IncompleteHandover),
    /// No memory for the receive buffer.
    #[error("socket {}: no memory for the receive buffer; free memory", path.display())]
    Memory {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the kernel.
        source: MapError,
    },
    /// No file descriptor is left to watch the socket.
    #[error("socket {}: cannot be watched; raise the limit of open files (ulimit -n)", path.display())]
    Wait {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Opens the port, and connects if the peer is there.
///
/// # Errors
/// [`StreamError`]. A missing peer is no error.
pub fn open(spec: &StreamSpec) -> Result<OpenedDevice, StreamError> {
    let path = || spec.socket.clone();
    let connection = new_connection(spec)?;
    let endpoint = match spec.role {
        SocketRole::Server => Endpoint::Server(Listener::bind_for(path(), spec.access)?),
        SocketRole::Client => Endpoint::Client(Connector::new(path())),
    };
    let mut housekeeping = StreamHousekeeping { connection, endpoint };
    housekeeping.connect(Instant::now())?;
    with_peer(spec, housekeeping, &[])
}

/// Adopts an open socket of the previous process (hot restart), and its peer.
///
/// # Errors
/// [`StreamError`].
pub fn resume(spec: &StreamSpec, handover: PortHandover) -> Result<OpenedDevice, StreamError> {
    let path = || spec.socket.clone();
    let incomplete = IncompleteHandover("a stream socket");
    let mut fds = handover.fds.into_iter();
    let mut fd = || {
        let fd = fds.next().ok_or(incomplete)?;
        fd.try_clone().map_err(|source| StreamError::Wait { path: path(), source })
    };
    let mut state = StateReader(&handover.state);
    let file = state.flag().ok_or(incomplete)?;
    let file = file.then(|| state.number().zip(state.number()).ok_or(incomplete)).transpose()?;
    let endpoint = match spec.role {
        SocketRole::Server => Endpoint::Server(
            Listener::inherit(fd()?, path(), file)
                .map_err(|source| StreamError::Wait { path: path(), source })?,
        ),
        SocketRole::Client => Endpoint::Client(Connector::new(path())),
    };
    let connection = new_connection(spec)?;
    let mut received: &[u8] = &[];
    if state.flag().ok_or(incomplete)? {
        connection.connect(fd()?);
        received = state.bytes().ok_or(incomplete)?;
        connection.restore_unsent(state.bytes().ok_or(incomplete)?);
    }
    with_peer(spec, StreamHousekeeping { connection, endpoint }, received)
}

fn new_connection(spec: &StreamSpec) -> Result<Arc<StreamConnection>, StreamError> {
    let connection = StreamConnection::new();
    let wait = |e: Errno| StreamError::Wait { path: spec.socket.clone(), source: e.into() };
    connection.map(Arc::new).map_err(wait)
}

/// Makes the halves of the port; `received` was received and not forwarded.
fn with_peer(
    spec: &StreamSpec,
    housekeeping: StreamHousekeeping,
    received: &[u8],
) -> Result<OpenedDevice, StreamError> {
    let connection = housekeeping.connection.clone();
    let frame_bytes_max = u32::from(spec.mtu) + OVERHEAD_MAX;
    let rules = FrameRules { frame_bytes_max, leaves: OffloadSet::empty() };
    let rx_buffer = RxBuffer::new("stream", connection::IN_BYTES, rules)
        .map_err(|source| StreamError::Memory { path: spec.socket.clone(), source })?;
    // There is no device to lose: another peer may connect at any time.
    let health = Arc::new(LinkHealth::default());
    let source = FromStream::within(connection.clone(), &rx_buffer, received);
    let transmit = KernelRx::new(source, rx_buffer, health.clone());
    let receive = ToStream::new(connection);
    let pair = QueuePair { transmit: Box::new(transmit), receive: Box::new(receive) };
    let housekeeping: Option<Box<dyn Housekeeping>> = Some(Box::new(housekeeping));
    Ok(OpenedDevice { pairs: vec![pair], health, housekeeping, notes: Vec::new() })
}

#[derive(Debug)]
enum Endpoint {
    Server(Listener),
    Client(Connector),
}

/// Work of control: connections are made and closed here.
#[derive(Debug)]
struct StreamHousekeeping {
    connection: Arc<StreamConnection>,
    endpoint: Endpoint,
}

impl StreamHousekeeping {
    /// Connects to a peer if there is none.
    fn connect(&mut self, now: Instant) -> Result<(), ConnectError> {
        self.connection.close_unused();
        if self.connection.is_connected() || !self.connection.may_connect() {
            return Ok(());
        }
        let peer = match &mut self.endpoint {
            // An error, such as too many open files, leaves the peer waiting.
            Endpoint::Server(listener) => listener.accept().unwrap_or(None),
            Endpoint::Client(connector) => connector.poll(now)?,
        };
        if let Some(peer) = peer {
            self.connection.connect(peer);
        }
        Ok(())
    }
}

impl Housekeeping for StreamHousekeeping {
    fn tick(&mut self, now: Instant) {
        // A bad path was reported at opening; retried here.
        let _ = self.connect(now);
    }

    fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    fn adopt(&mut self) {
        if let Endpoint::Server(listener) = &self.endpoint {
            listener.adopt();
        }
    }

    fn handover(&mut self, handover_state: &[Vec<u8>]) -> Option<PortHandover> {
        let StreamHousekeeping { connection, endpoint } = self;
        let (mut fds, mut state) = (Vec::new(), StateWriter::default());
        let mut file = None;
        if let Endpoint::Server(listener) = endpoint {
            fds.push(Arc::new(listener.as_fd().try_clone_to_owned().ok()?));
            file = listener.file();
            listener.leave();
        }
        state.flag(file.is_some());
        if let Some((device, inode)) = file {
            state.number(device);
            state.number(inode);
        }
        let peer = connection.peer();
        state.flag(peer.is_some());
        if let Some(peer) = peer {
            fds.push(Arc::new(peer.as_fd().try_clone_to_owned().ok()?));
            state.bytes(handover_state.first().map_or(&[], Vec::as_slice));
            state.bytes(&connection.unsent());
        }
        Some(PortHandover { fds, state: state.0 })
    }
}

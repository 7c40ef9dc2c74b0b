//! Frames over a Unix stream socket, as QEMU's `-netdev stream` and `-netdev socket` speak it: so
//! any NIC that QEMU emulates can be an adapter.
//!
//! # Model
//! In front of each frame stands its length, 4 bytes, big-endian; there is nothing else. The port
//! listens and serves one peer at a time, the next when that leaves ([`Role::Server`]), or connects
//! and does so again whenever it lost its peer ([`Role::Client`]). Connections are control's: the
//! lanes read from and write to the one that there is ([`line`]).
//!
//! Frames for the peer are copied into a buffer and written at the end of each delivery. What the
//! socket does not take is written as soon as it does; so a peer that does not read misses whole
//! frames, never a part of one. A peer that announces a frame of an impossible length is cut off:
//! where the next one begins is unknown then. So is one that sends file descriptors.
//!
//! # Limits
//! [`OUT_BYTES`] wait for a peer. Checksums are made and segments cut before a frame goes to a
//! peer, for the protocol cannot leave them to it.

mod line;
mod receive;

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use guestmem::MapError;
use rustix::io::Errno;
use vhost_user::{ConnectError, Connector, ListenError, Listener};
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::Accepts;

use crate::device::{KernelRx, RxBuffer};
use crate::judge::Rules;
use crate::legacy::{Said, Words};
use crate::{Housekeeping, Incomplete, Legacy, LinkHealth, Opened, Pair};
use line::{FromStream, Line};
use receive::ToStream;

pub use line::OUT_BYTES;

/// Who waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The port listens.
    Server,
    /// The peer listens.
    Client,
}

/// Which socket, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The socket's path.
    pub socket: PathBuf,
    /// Who listens there.
    pub role: Role,
    /// Longest packet in a frame, bytes; frames that are longer are dropped.
    pub mtu: u16,
}

/// Why a stream socket cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// It can never be connected to. A peer that is not there yet is no error.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Another process handed over something else.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// There is no memory to receive into.
    #[error("socket {}: no memory to receive into; free memory", path.display())]
    Memory {
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: MapError,
    },
    /// There is no epoll to be had.
    #[error("socket {}: cannot be waited for; raise the limit of open files", path.display())]
    Wait {
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
}

/// Opens the port, and connects it if its peer is there.
///
/// # Errors
/// [`StreamError`]. That nobody is there yet is none.
pub fn open(spec: &Spec) -> Result<Opened, StreamError> {
    let path = || spec.socket.clone();
    let line = new_line(spec)?;
    let side = match spec.role {
        Role::Server => Side::Server(Listener::bind(path())?),
        Role::Client => Side::Client(Connector::new(path())),
    };
    let mut tender = Tender { line, side };
    tender.connect(Instant::now())?;
    with_peer(spec, tender, &[])
}

/// Goes on with a socket that another process had open, and with its peer.
///
/// # Errors
/// [`StreamError`].
pub fn resume(spec: &Spec, legacy: Legacy) -> Result<Opened, StreamError> {
    let path = || spec.socket.clone();
    let incomplete = Incomplete("a stream socket");
    let mut fds = legacy.fds.into_iter();
    let mut fd = || {
        let fd = fds.next().ok_or(incomplete)?;
        fd.try_clone().map_err(|source| StreamError::Wait { path: path(), source })
    };
    let mut said = Said(&legacy.words);
    let file = said.flag().ok_or(incomplete)?;
    let file = file.then(|| said.number().zip(said.number()).ok_or(incomplete)).transpose()?;
    let side = match spec.role {
        Role::Server => Side::Server(
            Listener::inherit(fd()?, path(), file)
                .map_err(|source| StreamError::Wait { path: path(), source })?,
        ),
        Role::Client => Side::Client(Connector::new(path())),
    };
    let line = new_line(spec)?;
    let mut received: &[u8] = &[];
    if said.flag().ok_or(incomplete)? {
        line.connect(fd()?);
        received = said.bytes().ok_or(incomplete)?;
        line.go_on(said.bytes().ok_or(incomplete)?);
    }
    with_peer(spec, Tender { line, side }, received)
}

fn new_line(spec: &Spec) -> Result<Arc<Line>, StreamError> {
    let line = Line::new();
    let wait = |e: Errno| StreamError::Wait { path: spec.socket.clone(), source: e.into() };
    line.map(Arc::new).map_err(wait)
}

/// The port of a tender, with what was received and not taken.
fn with_peer(spec: &Spec, tender: Tender, received: &[u8]) -> Result<Opened, StreamError> {
    let line = tender.line.clone();
    let frame_bytes_max = u32::from(spec.mtu) + OVERHEAD_MAX;
    let rules = Rules { frame_bytes_max, leaves: Accepts::empty() };
    let rx_buffer = RxBuffer::new("stream", line::IN_BYTES, rules)
        .map_err(|source| StreamError::Memory { path: spec.socket.clone(), source })?;
    // There is no device that could be lost: another peer may always come.
    let condition = Arc::new(LinkHealth::default());
    let source = FromStream::within(line.clone(), &rx_buffer, received);
    let transmit = KernelRx::new(source, rx_buffer, condition.clone());
    let receive = ToStream::new(line);
    let pair = Pair { transmit: Box::new(transmit), receive: Box::new(receive) };
    let tend: Option<Box<dyn Housekeeping>> = Some(Box::new(tender));
    Ok(Opened { pairs: vec![pair], condition, tend, notes: Vec::new() })
}

#[derive(Debug)]
enum Side {
    Server(Listener),
    Client(Connector),
}

/// Control's part: connections come and go here.
#[derive(Debug)]
struct Tender {
    line: Arc<Line>,
    side: Side,
}

impl Tender {
    /// Looks for a peer if there is none.
    fn connect(&mut self, now: Instant) -> Result<(), ConnectError> {
        self.line.let_go();
        if self.line.is_connected() || !self.line.may_connect() {
            return Ok(());
        }
        let peer = match &mut self.side {
            // Too many open files, for one: the peer waits, and so do we.
            Side::Server(listener) => listener.accept().unwrap_or(None),
            Side::Client(connector) => connector.poll(now)?,
        };
        if let Some(peer) = peer {
            self.line.connect(peer);
        }
        Ok(())
    }
}

impl Housekeeping for Tender {
    fn tend(&mut self, now: Instant) {
        // What was wrong with the path when it was opened was told then; it is tried again.
        let _ = self.connect(now);
    }

    fn is_connected(&self) -> bool {
        self.line.is_connected()
    }

    fn adopt(&mut self) {
        if let Side::Server(listener) = &self.side {
            listener.adopt();
        }
    }

    fn legacy(&mut self, remains: &[Vec<u8>]) -> Option<Legacy> {
        let Tender { line, side } = self;
        let (mut fds, mut words) = (Vec::new(), Words::default());
        let mut file = None;
        if let Side::Server(listener) = side {
            fds.push(Arc::new(listener.as_fd().try_clone_to_owned().ok()?));
            file = listener.file();
            listener.leave();
        }
        words.flag(file.is_some());
        if let Some((device, inode)) = file {
            words.number(device);
            words.number(inode);
        }
        let peer = line.peer();
        words.flag(peer.is_some());
        if let Some(peer) = peer {
            fds.push(Arc::new(peer.as_fd().try_clone_to_owned().ok()?));
            words.bytes(remains.first().map_or(&[], Vec::as_slice));
            words.bytes(&line.unsent());
        }
        Some(Legacy { fds, words: words.0 })
    }
}

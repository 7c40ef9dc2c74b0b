//! Frames over a Unix stream socket, as QEMU's `-netdev stream` and `-netdev socket` speak it: so any
//! NIC that QEMU emulates can be an adapter.
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
//! where the next one begins is unknown then.
//!
//! # Limits
//! [`OUT_BYTES`] wait for a peer. Checksums are made and segments cut before a frame goes to a peer,
//! for the protocol cannot leave them to it.

mod line;
mod receive;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use guestmem::MapError;
use vhost_user::{ConnectError, Connector, ListenError, Listener};
use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::Accepts;

use crate::device::{Inlet, Intake};
use crate::judge::Rules;
use crate::{Condition, Opened, Pair, Tend};
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
    let line = Line::new().map_err(|e| StreamError::Wait { path: path(), source: e.into() })?;
    let line = Arc::new(line);
    let side = match spec.role {
        Role::Server => Side::Server(Listener::bind(path())?),
        Role::Client => Side::Client(Connector::new(path())),
    };
    let mut tender = Tender { line: line.clone(), side };
    tender.connect(Instant::now())?;
    let frame_bytes_max = u32::from(spec.mtu) + OVERHEAD_MAX;
    let rules = Rules { frame_bytes_max, leaves: Accepts::empty() };
    let intake = Intake::new("stream", line::IN_BYTES, rules)
        .map_err(|source| StreamError::Memory { path: path(), source })?;
    // There is no device that could be lost: another peer may always come.
    let condition = Arc::new(Condition::default());
    let transmit = Inlet::new(FromStream::new(line.clone()), intake, condition.clone());
    let receive = ToStream::new(line);
    let pair = Pair { transmit: Box::new(transmit), receive: Box::new(receive) };
    let tend: Option<Box<dyn Tend>> = Some(Box::new(tender));
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
        if self.line.is_connected() {
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

impl Tend for Tender {
    fn tend(&mut self, now: Instant) {
        // What was wrong with the path when it was opened was told then; it is tried again.
        let _ = self.connect(now);
    }

    fn is_connected(&self) -> bool {
        self.line.is_connected()
    }
}

//! Our end of a vhost-user socket.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use model::state::{SocketMode, VhostUser};
use vhost_user::{Connector, Listener};

/// Our end of a socket: listening, or connecting.
#[derive(Debug)]
pub(in super::super) enum SocketEndpoint {
    Server(Arc<Listener>),
    Client(Connector),
}

impl SocketEndpoint {
    /// Opens the socket; in server mode it listens from now on.
    pub(in super::super) fn open(spec: &VhostUser) -> Result<SocketEndpoint> {
        let socket = Path::new(&spec.socket);
        Ok(match spec.mode {
            SocketMode::Server => SocketEndpoint::Server(Arc::new(Listener::bind(socket)?)),
            SocketMode::Client => SocketEndpoint::Client(Connector::new(socket)),
        })
    }
}

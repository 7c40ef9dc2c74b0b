//! Our end of a vhost-user socket.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use model::state::{SocketMode, VhostUser};
use vhost_user::{Connector, Listener, SocketAccess};

/// Our end of a socket: listening, or connecting.
#[derive(Debug)]
pub(in super::super) enum SocketEndpoint {
    Server(Arc<Listener>),
    Client(Connector),
}

impl SocketEndpoint {
    /// Opens the socket; in server mode it listens from now on, for the users of `access`.
    pub(in super::super) fn open(
        spec: &VhostUser,
        access: Option<SocketAccess>,
    ) -> Result<SocketEndpoint> {
        let socket = Path::new(&spec.socket);
        Ok(match spec.mode {
            SocketMode::Server => {
                let access = access.unwrap_or(SocketAccess::OWNER);
                SocketEndpoint::Server(Arc::new(Listener::bind_for(socket, access)?))
            }
            SocketMode::Client => SocketEndpoint::Client(Connector::new(socket)),
        })
    }
}

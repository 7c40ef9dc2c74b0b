//! Connections: from the UNIX socket, whose peer is checked, or from TCP, with TLS if that is
//! configured.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::server::{Tcp, Tls};

/// A UNIX socket of mode 0600; its file goes with it.
#[derive(Debug)]
pub(super) struct OwnersSocket {
    socket: std::os::unix::net::UnixListener,
    path: vhost_user::Listener,
}

impl OwnersSocket {
    pub(super) fn bind(path: &Path) -> Result<OwnersSocket> {
        let listener = vhost_user::Listener::bind(path)?;
        // Whoever connects before this is turned away by who it is.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot make socket {} its owner's alone", path.display()))?;
        OwnersSocket::on(listener)
    }

    /// On a socket that is its owner's alone.
    pub(super) fn on(listener: vhost_user::Listener) -> Result<OwnersSocket> {
        let socket = std::os::unix::net::UnixListener::from(listener.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Ok(OwnersSocket { socket, path: listener })
    }

    /// The socket, and where it is.
    pub(super) fn listener(&self) -> &vhost_user::Listener {
        &self.path
    }

    /// For the runtime that this is called in.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.socket.try_clone()?)
    }
}

/// The user at the other end of a connection on the UNIX socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer(pub(super) u32);

/// Who the peer is, if that is this process's user or root.
pub(super) fn owner(stream: &tokio::net::UnixStream) -> Option<Peer> {
    let us = rustix::process::geteuid().as_raw();
    let user = stream.peer_cred().ok()?.uid();
    [0, us].contains(&user).then_some(Peer(user))
}

/// A TCP socket, and what encrypts its connections.
pub(super) struct TcpSocket {
    socket: std::net::TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
}

impl std::fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TcpSocket").field(&self.socket).finish()
    }
}

impl TcpSocket {
    pub(super) fn bind(tcp: &Tcp) -> Result<TcpSocket> {
        if tcp.tls.is_none() && !tcp.address.ip().is_loopback() {
            bail!(
                "the API's address {} would send its token in the clear; configure TLS, or use 127.0.0.1",
                tcp.address
            );
        }
        let tls = tcp.tls.as_ref().map(acceptor).transpose()?;
        let socket = std::net::TcpListener::bind(tcp.address)
            .with_context(|| format!("cannot listen on {}", tcp.address))?;
        socket.set_nonblocking(true)?;
        Ok(TcpSocket { socket, tls })
    }

    /// Goes on with a socket that another process listened on.
    pub(super) fn inherit(tcp: &Tcp, socket: OwnedFd) -> Result<TcpSocket> {
        let tls = tcp.tls.as_ref().map(acceptor).transpose()?;
        let socket = std::net::TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        Ok(TcpSocket { socket, tls })
    }

    /// The socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.socket.local_addr()
    }

    /// For the runtime that this is called in.
    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        TcpListener::from_std(self.socket.try_clone()?)
    }
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let certificate = tls.certificate.display();
    let chain = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read the certificate {certificate}"))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .with_context(|| format!("cannot read the key {}", tls.key.display()))?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .with_context(|| format!("the certificate {certificate} and its key do not go together"))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

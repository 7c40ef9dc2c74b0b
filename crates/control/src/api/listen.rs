//! Connections: from the UNIX socket, whose peer is checked, or from TCP, with TLS if that is configured.

use std::fs;
use std::io;
use std::os::fd::AsFd;
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
pub(super) struct OwnersSocket {
    socket: std::os::unix::net::UnixListener,
    _path: vhost_user::Listener,
}

impl OwnersSocket {
    pub(super) fn bind(path: &Path) -> Result<OwnersSocket> {
        let listener = vhost_user::Listener::bind(path)?;
        // Whoever connects before this is turned away by who it is.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot make socket {} its owner's alone", path.display()))?;
        let socket = std::os::unix::net::UnixListener::from(listener.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Ok(OwnersSocket { socket, _path: listener })
    }

    /// For the runtime that this is called in.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.socket.try_clone()?)
    }
}

/// Whether the peer is this process's user, or root.
pub(super) fn is_owner(stream: &tokio::net::UnixStream) -> bool {
    let us = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == us || peer.uid() == 0)
}

/// A TCP socket, and what encrypts its connections.
pub(super) struct TcpSocket {
    socket: std::net::TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
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

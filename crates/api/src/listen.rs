//! Listeners: the UNIX socket, which checks its peer, and TCP, optionally with TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use model::config::{Config, socket_path};
use model::state::ApiSettings;
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::token::Token;

/// Addresses of the API.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The UNIX socket; only this process's user and root can use it.
    pub socket: PathBuf,
    /// TCP.
    pub tcp: Option<Tcp>,
}

impl Listen {
    /// Addresses of a configuration; `None` if the API is disabled.
    ///
    /// # Errors
    /// The token cannot be read.
    pub fn of(config: &Config) -> Result<Option<Listen>> {
        let ApiSettings { enabled, socket, tcp, token_file, tls_certificate, tls_key, public_read } =
            &config.api;
        if !enabled {
            return Ok(None);
        }
        let tls = tls_certificate.clone().zip(tls_key.clone());
        let tls = tls.map(|(certificate, key)| Tls { certificate, key });
        let tcp = tcp.zip(token_file.as_ref()).map(|(address, token_file)| {
            let token = Token::read(token_file)?;
            anyhow::Ok(Tcp { address, token, tls, public_read: *public_read })
        });
        let socket = socket.clone().unwrap_or_else(|| socket_path(&config.run_dir));
        Ok(Some(Listen { socket, tcp: tcp.transpose()? }))
    }

    /// Reads the files of a configuration's API: token, certificate and key.
    ///
    /// # Errors
    /// This user cannot read one, or its content is wrong.
    pub fn check(config: &Config) -> Result<()> {
        let tcp = Listen::of(config)?.and_then(|listen| listen.tcp);
        tcp.and_then(|tcp| tcp.tls).map_or(Ok(()), |tls| acceptor(&tls).map(drop))
    }
}

/// The API over TCP.
#[derive(Debug, Clone)]
pub struct Tcp {
    /// Address and port; port 0: any free one.
    pub address: SocketAddr,
    /// Token that clients must present.
    pub token: Token,
    /// TLS; without it only loopback addresses are allowed.
    pub tls: Option<Tls>,
    /// Serve requests that change nothing without the token.
    pub public_read: bool,
}

/// A server's identity, as PEM files.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// A UNIX socket of mode 0600; drop removes its file.
#[derive(Debug)]
pub(super) struct OwnersSocket {
    socket: std::os::unix::net::UnixListener,
    path: vhost_user::Listener,
}

impl OwnersSocket {
    pub(super) fn bind(path: &Path) -> Result<OwnersSocket> {
        OwnersSocket::on(vhost_user::Listener::bind(path)?)
    }

    /// Takes a listener that is restricted to its owner.
    pub(super) fn on(listener: vhost_user::Listener) -> Result<OwnersSocket> {
        let socket = std::os::unix::net::UnixListener::from(listener.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Ok(OwnersSocket { socket, path: listener })
    }

    /// The listening socket and its path.
    pub(super) fn listener(&self) -> &vhost_user::Listener {
        &self.path
    }

    /// Registers with the current runtime.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.socket.try_clone()?)
    }
}

/// User ID of the peer of a UNIX connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer(pub(super) u32);

/// Credentials of the peer, if it is this process's user or root.
pub(super) fn owner(stream: &tokio::net::UnixStream) -> Option<Peer> {
    let us = rustix::process::geteuid().as_raw();
    let user = stream.peer_cred().ok()?.uid();
    [0, us].contains(&user).then_some(Peer(user))
}

/// A TCP listener, and the TLS configuration of its connections.
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

    /// Continues with an inherited socket.
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

    /// Registers with the current runtime.
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
        .with_context(|| format!("the certificate {certificate} and its key do not match"))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

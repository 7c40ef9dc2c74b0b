//! Address of a daemon for clients: the UNIX socket on the same host, or TCP with a token, and with
//! TLS to other hosts.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::token::Token;

/// Address of a daemon.
#[derive(Clone)]
pub(super) enum DaemonAddress {
    /// UNIX socket on this host.
    Socket(PathBuf),
    /// TCP.
    Tcp {
        /// `host:port`.
        address: String,
        token: Token,
        /// TLS configuration, and the name that the certificate must have.
        tls: Option<(TlsConnector, ServerName<'static>)>,
    },
}

impl fmt::Debug for DaemonAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reach({self})")
    }
}

impl fmt::Display for DaemonAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonAddress::Socket(path) => write!(f, "{}", path.display()),
            DaemonAddress::Tcp { address, tls: None, .. } => write!(f, "http://{address}"),
            DaemonAddress::Tcp { address, .. } => write!(f, "https://{address}"),
        }
    }
}

/// A connection of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl DaemonAddress {
    /// Parses `http://HOST:PORT` (loopback only) or `https://HOST:PORT`; `ca` has the CA
    /// certificates to trust.
    ///
    /// # Errors
    /// The URL is invalid, the token would be sent in the clear, or the certificates cannot be
    /// read.
    pub(super) fn url(url: &str, token: Token, ca: Option<&Path>) -> Result<DaemonAddress> {
        let (address, encrypted) = match (url.strip_prefix("http://"), url.strip_prefix("https://"))
        {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => {
                bail!("{url} is not an API address; write http://HOST:PORT or https://HOST:PORT")
            }
        };
        let address = address.trim_end_matches('/').to_owned();
        let Some((host, port)) = address.rsplit_once(':') else {
            bail!("{url} has no port; write https://HOST:PORT");
        };
        if port.parse::<u16>().is_err() {
            bail!("{url} has an invalid port; write https://HOST:PORT");
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if !encrypted {
            if !matches!(host, "127.0.0.1" | "::1" | "localhost") {
                bail!(
                    "{url} would send the token in the clear; write https://, or reach it through 127.0.0.1"
                );
            }
            return Ok(DaemonAddress::Tcp { address, token, tls: None });
        }
        let name = ServerName::try_from(host.to_owned());
        let name = name.with_context(|| format!("{host} is not a host name"))?;
        let Some(ca) = ca else { bail!("{url} needs a CA certificate; name its file") };
        Ok(DaemonAddress::Tcp { address, token, tls: Some((connector(ca)?, name)) })
    }

    /// Connects.
    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            DaemonAddress::Socket(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            DaemonAddress::Tcp { address, tls, .. } => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Ok(Box::new(stream)),
                    Some((connector, name)) => {
                        Ok(Box::new(connector.connect(name.clone(), stream).await?))
                    }
                }
            }
        }
    }

    /// Token to send with each request.
    pub(super) fn token(&self) -> Option<&Token> {
        match self {
            DaemonAddress::Socket(_) => None,
            DaemonAddress::Tcp { token, .. } => Some(token),
        }
    }
}

fn connector(ca: &Path) -> Result<TlsConnector> {
    let shown = ca.display();
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(ca)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read the certificates {shown}"))?;
    for certificate in certificates {
        roots.add(certificate).with_context(|| format!("{shown} has an invalid certificate"))?;
    }
    if roots.is_empty() {
        bail!("{shown} has no certificate; write the daemon's CA certificate as PEM");
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

//! What a checked configuration says of the API.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::api::{Listen, Tcp, Tls, Token};

/// Where the API is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Its UNIX socket; absolute, and no attachment's.
    pub socket: PathBuf,
    /// The same over TCP.
    pub tcp: Option<ApiTcp>,
}

/// The API over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiTcp {
    /// The address and port; a loopback address if there is no TLS. Port 0: any that is free.
    pub address: SocketAddr,
    /// The file whose first line clients must show; absolute.
    pub token_file: PathBuf,
    /// How connections are encrypted.
    pub tls: Option<ApiTls>,
}

/// A server's identity, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiTls {
    /// The certificate, with those that vouch for it after it; absolute.
    pub certificate: PathBuf,
    /// Its key; absolute.
    pub key: PathBuf,
}

impl Api {
    /// What the server needs, with the token read from its file.
    ///
    /// # Errors
    /// The token file cannot be read, others may read it, or it holds no token.
    pub fn listen(&self) -> anyhow::Result<Listen> {
        let tcp = self.tcp.as_ref().map(|tcp| {
            let tls = tcp
                .tls
                .as_ref()
                .map(|tls| Tls { certificate: tls.certificate.clone(), key: tls.key.clone() });
            let token = Token::read(&tcp.token_file)?;
            anyhow::Ok(Tcp { address: tcp.address, token, tls })
        });
        Ok(Listen { socket: self.socket.clone(), tcp: tcp.transpose()? })
    }
}

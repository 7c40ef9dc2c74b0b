//! A client of the API, for the command line: one request, one answer, and it waits.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::fault::Trouble;
use super::reach::Reach;
use super::token::Token;

/// The largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// How long an answer may take: an apply waits for the disk and the data plane.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The status of a daemon that another process has replaced: nothing was done, and that one answers
/// at the same place in a moment.
const REPLACED: u16 = 421;
const REPLACED_PAUSE: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("is a daemon running? its API should be at {}; start it, or name its --run-dir", .path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody answers there.
    #[error(
        "no daemon answers at {place}; see whether it runs there, with api.address in its configuration"
    )]
    NotReached {
        /// Where.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// The daemon belongs to somebody else.
    #[error("the API at {} is its owner's alone; run this as the daemon's user, or as root", .path.display())]
    NotOwner {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon said no.
    #[error("{}", shown(.0))]
    Refused(Box<Refusal>),
    /// The conversation broke off.
    #[error("the daemon's answer broke off: {0}; see its log")]
    Broken(String),
}

/// A request that the daemon did not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// What it says.
    pub trouble: Trouble,
}

impl ClientError {
    /// Whether the user wrote something wrong, rather than the machine failing.
    pub fn is_mistake(&self) -> bool {
        let mistakes = [400, 404, 409, 413, 422];
        matches!(self, ClientError::Refused(refusal) if mistakes.contains(&refusal.status))
    }
}

/// One line for the first mistake, and one for each further.
fn shown(refusal: &Refusal) -> String {
    let Trouble { error, field, value, allowed, more } = &refusal.trouble;
    let mut text = String::new();
    if !field.is_empty() {
        text += &format!("{field}: ");
    }
    if !value.is_empty() {
        text += &format!("{value} ");
    }
    text += error;
    if !allowed.is_empty() {
        text += &format!("; {allowed}");
    }
    for line in more {
        text += &format!("\n{line}");
    }
    text
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status, from 200 to 299.
    pub status: u16,
    /// The body; null if there is none.
    pub body: Value,
    /// The generation of the state that it is about, if it says.
    pub generation: Option<u64>,
}

/// A client. It connects anew for each request.
#[derive(Debug, Clone)]
pub struct Client {
    reach: Reach,
}

impl Client {
    /// A client of the API at that socket.
    pub fn new(socket: &Path) -> Client {
        Client { reach: Reach::Socket(socket.to_owned()) }
    }

    /// A client of the API at `http://HOST:PORT`, on this host only, or `https://HOST:PORT`, whose
    /// certificate one of the file `ca` vouches for.
    ///
    /// # Errors
    /// It is no such address, the token would go in the clear, or the certificates cannot be read.
    pub fn at(url: &str, token: Token, ca: Option<&Path>) -> anyhow::Result<Client> {
        Ok(Client { reach: Reach::url(url, token, ca)? })
    }

    /// Where the daemon is.
    pub fn place(&self) -> String {
        self.reach.to_string()
    }

    /// Sends a request and waits for the answer, for a minute at most. `expected` is the generation
    /// that the state must have.
    ///
    /// # Errors
    /// Nobody answers, or the answer is a refusal.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        expected: Option<u64>,
    ) -> Result<Reply, ClientError> {
        let broken = |error: &dyn std::fmt::Display| ClientError::Broken(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| broken(&error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "shunt")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = self.reach.token() {
            request = request.header(header::AUTHORIZATION, token.bearer());
        }
        if let Some(generation) = expected {
            request = request.header(header::IF_MATCH, format!("\"{generation}\""));
        }
        let body = body.map_or(Bytes::new(), |body| Bytes::from(body.to_string()));
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        runtime.block_on(async {
            let answered = tokio::time::timeout(ANSWER_TIME, self.ask(request)).await;
            answered.unwrap_or_else(|_| Err(ClientError::Broken("it took over a minute".into())))
        })
    }

    /// Asks again while it meets a daemon that another process has just replaced.
    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Reply, ClientError> {
        loop {
            match self.exchange(request.clone()).await {
                Err(ClientError::Refused(refusal)) if refusal.status == REPLACED => {
                    tokio::time::sleep(REPLACED_PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply, ClientError> {
        let stream = self.reach.connect().await;
        let stream = stream.map_err(|source| match (&self.reach, source.kind()) {
            (Reach::Socket(path), io::ErrorKind::PermissionDenied) => {
                ClientError::NotOwner { path: path.clone() }
            }
            (Reach::Socket(path), _) => ClientError::NoDaemon { path: path.clone(), source },
            (place, _) => ClientError::NotReached { place: place.to_string(), source },
        })?;
        let broken = |error: hyper::Error| ClientError::Broken(error.to_string());
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with the connection, or with the runtime.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        let collected = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let bytes = collected.map_err(|error| ClientError::Broken(error.to_string()))?.to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)
                .map_err(|error| ClientError::Broken(error.to_string()))?
        };
        let status = head.status.as_u16();
        if !head.status.is_success() {
            let trouble = serde_json::from_value(body).unwrap_or_else(|_| Trouble {
                error: format!("the daemon answered with status {status}"),
                ..Trouble::default()
            });
            return Err(ClientError::Refused(Box::new(Refusal { status, trouble })));
        }
        let tag = head.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
        let generation = tag.and_then(|tag| tag.trim_matches('"').parse().ok());
        Ok(Reply { status, body, generation })
    }
}

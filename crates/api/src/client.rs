//! Blocking API client for the command line: one request, one response.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use model::state::{Problem, Problems};
use serde_json::Value;

use super::address::DaemonAddress;
use super::token::Token;

/// Largest response, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Limit for a response: an apply waits for the disk and the data plane.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Part of the limit after which a client tells that it waits.
const TELLING_PART: u32 = 20;

/// Status of a daemon that a hot restart has replaced. Nothing was done; the new process serves the
/// same address.
const REPLACED: u16 = 421;
const REPLACED_PAUSE: Duration = Duration::from_millis(5);

/// Reason for a missing response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error("is a daemon running? its API should be at {}; start it, or name its --run-dir", .path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No daemon answers at the address.
    #[error(
        "no daemon answers at {place}; check that it runs there with api.tcp in its configuration"
    )]
    NotReached {
        /// URL of the daemon.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon belongs to another user.
    #[error("the API at {} accepts only its owner; run this as the daemon's user, or as root", .path.display())]
    NotOwner {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon rejected the request.
    #[error("{}", .0.body)]
    Refused(Box<ErrorReply>),
    /// The daemon does not answer.
    #[error(
        "the daemon at {place} has not answered within {} s; see its log, and restart it if it hangs",
        limit.as_secs_f64()
    )]
    Silent {
        /// Its address.
        place: String,
        /// Time that the client waited.
        limit: Duration,
    },
    /// The connection broke.
    #[error("the daemon's response broke off: {0}; see its log")]
    Broken(String),
}

impl ClientError {
    /// `true` for a mistake of the user (4xx), `false` for a failure of the machine.
    pub fn is_mistake(&self) -> bool {
        let mistakes = [400, 404, 409, 413, 422];
        matches!(self, ClientError::Refused(refusal) if mistakes.contains(&refusal.status))
    }
}

/// An error response of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    /// The HTTP status.
    pub status: u16,
    /// Body of the response.
    pub body: Problems,
}

impl ErrorReply {
    /// The first problem; an empty one if the response has none.
    pub fn first(&self) -> Problem {
        self.body.problems.first().cloned().unwrap_or_default()
    }
}

/// A successful response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status, from 200 to 299.
    pub status: u16,
    /// The body; null if there is none.
    pub body: Value,
    /// Generation of the state in the response (ETag), if given.
    pub generation: Option<u64>,
    /// Warning about a change that was made.
    pub warning: Option<String>,
}

/// API client. It opens a new connection for each request.
#[derive(Debug, Clone)]
pub struct Client {
    address: DaemonAddress,
    limit: Duration,
    on_wait: Option<fn(&str)>,
}

impl Client {
    /// A client of the API at that socket.
    pub fn new(socket: &Path) -> Client {
        Client::of(DaemonAddress::Socket(socket.to_owned()))
    }

    fn of(address: DaemonAddress) -> Client {
        Client { address, limit: ANSWER_TIME, on_wait: None }
    }

    /// The client with another limit for a response than a minute.
    #[must_use]
    pub fn within(self, limit: Duration) -> Client {
        Client { limit, ..self }
    }

    /// The client that calls `tell` with a sentence when a response takes long: after 3 s of a
    /// minute.
    #[must_use]
    pub fn telling(self, tell: fn(&str)) -> Client {
        Client { on_wait: Some(tell), ..self }
    }

    /// A client of the API at `http://HOST:PORT` (loopback only) or `https://HOST:PORT`. The file
    /// `ca` has the CA certificates to trust.
    ///
    /// # Errors
    /// The URL is invalid, the token would be sent in the clear, or the certificates cannot be
    /// read.
    pub fn at(url: &str, token: Token, ca: Option<&Path>) -> anyhow::Result<Client> {
        Ok(Client::of(DaemonAddress::url(url, token, ca)?))
    }

    /// Address of the daemon, for messages.
    pub fn place(&self) -> String {
        self.address.to_string()
    }

    /// Sends a request and waits for the response, at most the client's limit. `expected` is the
    /// generation that the state must have.
    ///
    /// # Errors
    /// No daemon responds, or it rejects the request.
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
        if let Some(token) = self.address.token() {
            request = request.header(header::AUTHORIZATION, token.bearer());
        }
        if let Some(generation) = expected {
            request = request.header(header::IF_MATCH, format!("\"{generation}\""));
        }
        let body = body.map_or(Bytes::new(), |body| Bytes::from(body.to_string()));
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        runtime.block_on(async {
            let mut answer = pin!(self.ask(request));
            let soon = self.limit / TELLING_PART;
            if let Ok(answered) = tokio::time::timeout(soon, &mut answer).await {
                return answered;
            }
            let limit = self.limit;
            if let Some(tell) = self.on_wait {
                let place = self.place();
                tell(&format!(
                    "waiting for the daemon at {place}, up to {} s",
                    limit.as_secs_f64()
                ));
            }
            let answered = tokio::time::timeout(limit - soon, answer).await;
            answered.unwrap_or_else(|_| Err(ClientError::Silent { place: self.place(), limit }))
        })
    }

    /// Retries while the daemon reports that it was just replaced.
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
        let stream = self.address.connect().await;
        let stream = stream.map_err(|source| match (&self.address, source.kind()) {
            (DaemonAddress::Socket(path), io::ErrorKind::PermissionDenied) => {
                ClientError::NotOwner { path: path.clone() }
            }
            (DaemonAddress::Socket(path), _) => {
                ClientError::NoDaemon { path: path.clone(), source }
            }
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
            let body = serde_json::from_value(body).unwrap_or_else(|_| {
                let message = format!("the daemon answered with status {status}");
                Problem::new("", (), message, "see its log").into()
            });
            return Err(ClientError::Refused(Box::new(ErrorReply { status, body })));
        }
        let tag = head.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
        let generation = tag.and_then(|tag| tag.trim_matches('"').parse().ok());
        let warning = head.headers.get(header::WARNING).map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            text.trim_start_matches("299 shunt ").trim_matches('"').to_owned()
        });
        Ok(Reply { status, body, generation, warning })
    }
}

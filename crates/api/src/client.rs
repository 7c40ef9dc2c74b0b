//! Blocking API client for the command line: one request, one response.

use std::fmt::Display;
use std::io;
use std::path::Path;
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
use super::run_dir;
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
    #[error("{0}")]
    NoDaemon(Problems),
    /// No daemon answers at the address.
    #[error("{0}")]
    NotReached(Problems),
    /// The daemon belongs to another user.
    #[error("{0}")]
    NotOwner(Problems),
    /// The daemon rejected the request.
    #[error("{}", .0.body)]
    Refused(Box<ErrorReply>),
    /// The daemon does not answer.
    #[error("{0}")]
    Silent(Problems),
    /// The connection broke.
    #[error("{0}")]
    Broken(Problems),
}

impl ClientError {
    /// `true` for a mistake of the user (4xx), `false` for a failure of the machine.
    pub fn is_mistake(&self) -> bool {
        let mistakes = [400, 404, 409, 413, 422];
        matches!(self, ClientError::Refused(refusal) if mistakes.contains(&refusal.status))
    }

    /// The problems, of the daemon or of the connection.
    pub fn problems(&self) -> Problems {
        match self {
            ClientError::Refused(refusal) => refusal.body.clone(),
            ClientError::NoDaemon(problems)
            | ClientError::NotReached(problems)
            | ClientError::NotOwner(problems)
            | ClientError::Silent(problems)
            | ClientError::Broken(problems) => problems.clone(),
        }
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
        let broken = |error: &dyn Display| self.broken(error);
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
            answered.unwrap_or_else(|_| {
                let message = format!("has not answered within {} s", limit.as_secs_f64());
                let remedy = "see its log, and restart it if it hangs";
                Err(ClientError::Silent(self.problem(message, remedy)))
            })
        })
    }

    /// A problem of the daemon.
    fn problem(&self, message: impl Into<String>, remedy: &str) -> Problems {
        Problem::new("", (), message, remedy).of(format!("daemon at {}", self.address)).into()
    }

    fn broken(&self, error: &dyn Display) -> ClientError {
        ClientError::Broken(self.problem(format!("broke off its response: {error}"), "see its log"))
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
        let stream = stream.map_err(|error| match (&self.address, error.kind()) {
            (DaemonAddress::Socket(_), io::ErrorKind::PermissionDenied) => {
                let remedy = "run this as the daemon's user, or as root";
                ClientError::NotOwner(self.problem("accepts only its owner", remedy))
            }
            (DaemonAddress::Socket(path), _) => {
                let run_dir = path.parent().unwrap_or(path);
                let why = format!("its API should be at {}: {error}", path.display());
                ClientError::NoDaemon(run_dir::no_daemon(run_dir, why).into())
            }
            _ => {
                let remedy = "check that it runs there with api.tcp in its configuration";
                ClientError::NotReached(self.problem(format!("does not answer: {error}"), remedy))
            }
        })?;
        let broken = |error: hyper::Error| self.broken(&error);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with the connection, or with the runtime.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        let collected = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let bytes = collected.map_err(|error| self.broken(&error))?.to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))?
        };
        let status = head.status.as_u16();
        if !head.status.is_success() {
            let body = serde_json::from_value(body).unwrap_or_else(|_| {
                let message = format!("answered with status {status}");
                self.problem(message, "see its log")
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

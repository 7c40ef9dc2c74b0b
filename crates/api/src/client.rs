//! Blocking API client for the command line: one request, one response.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use model::state::{Problem, Problems};
use serde_json::Value;
use tokio::runtime::Runtime;

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
        let runtime = self.runtime()?;
        let request = self.request(method, path, body, expected)?;
        runtime.block_on(self.in_time(self.ask(request)))
    }

    /// Sends a request whose answer is a stream, and waits for its begin, at most the client's
    /// limit.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn stream(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<AnswerStream, ClientError> {
        let runtime = self.runtime()?;
        let request = self.request(method, path, body, None)?;
        let body = runtime.block_on(self.in_time(self.ask_stream(request)))?;
        Ok(AnswerStream { client: self.clone(), runtime, body })
    }

    fn runtime(&self) -> Result<Runtime, ClientError> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().map_err(|error| self.broken(&error))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        expected: Option<u64>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
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
        request.body(Full::new(body)).map_err(|error| self.broken(&error))
    }

    /// Waits for an answer, at most the client's limit.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let mut answer = pin!(answer);
        let soon = self.limit / TELLING_PART;
        if let Ok(answered) = tokio::time::timeout(soon, &mut answer).await {
            return answered;
        }
        let limit = self.limit;
        if let Some(tell) = self.on_wait {
            let place = self.place();
            tell(&format!("waiting for the daemon at {place}, up to {} s", limit.as_secs_f64()));
        }
        let answered = tokio::time::timeout(limit - soon, answer).await;
        answered.unwrap_or_else(|_| {
            let message = format!("has not answered within {} s", limit.as_secs_f64());
            let remedy = "see its log, and restart it if it hangs";
            Err(ClientError::Silent(self.problem(message, remedy)))
        })
    }

    /// A problem of the daemon.
    fn problem(&self, message: impl Into<String>, remedy: &str) -> Problems {
        Problem::new("", (), message, remedy).of(format!("daemon at {}", self.address)).into()
    }

    fn broken(&self, error: &dyn Display) -> ClientError {
        ClientError::Broken(self.problem(format!("broke off its response: {error}"), "see its log"))
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Reply, ClientError> {
        self.collected(self.answered(request).await?).await
    }

    /// Body of an answer that is a stream.
    async fn ask_stream(&self, request: Request<Full<Bytes>>) -> Result<Incoming, ClientError> {
        let response = self.answered(request).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        match self.collected(response).await {
            Err(error) => Err(error),
            Ok(_) => Err(self.broken(&"it is no stream")),
        }
    }

    /// Retries while the daemon reports that it was just replaced.
    async fn answered(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        loop {
            let response = self.open(request.clone()).await?;
            if response.status().as_u16() != REPLACED {
                return Ok(response);
            }
            tokio::time::sleep(REPLACED_PAUSE).await;
        }
    }

    /// Sends a request on a new connection; returns the response when its headers are there.
    async fn open(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
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
        sender.send_request(request).await.map_err(broken)
    }

    /// Reads a response to its end.
    async fn collected(&self, response: Response<Incoming>) -> Result<Reply, ClientError> {
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

/// Answer that is a stream, without end until one side ends it.
#[derive(Debug)]
pub struct AnswerStream {
    client: Client,
    runtime: Runtime,
    body: Incoming,
}

/// The next part of a stream.
#[derive(Debug)]
pub enum StreamPart {
    /// Bytes.
    Bytes(Bytes),
    /// None in time.
    Nothing,
    /// The daemon ended the stream.
    End,
}

impl AnswerStream {
    /// Waits for the next bytes, at most `most`.
    ///
    /// # Errors
    /// The connection broke.
    pub fn next(&mut self, most: Duration) -> Result<StreamPart, ClientError> {
        let body = &mut self.body;
        let next = self.runtime.block_on(async { tokio::time::timeout(most, body.frame()).await });
        match next {
            Err(_) => Ok(StreamPart::Nothing),
            Ok(None) => Ok(StreamPart::End),
            Ok(Some(Ok(frame))) => {
                Ok(frame.into_data().map_or(StreamPart::Nothing, StreamPart::Bytes))
            }
            Ok(Some(Err(error))) => Err(self.client.broken(&error)),
        }
    }
}

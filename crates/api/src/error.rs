//! Errors of API requests: an HTTP status, and a body of [`Problems`].

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::state::{Problem, Problems};

use crate::plane::PlaneError;
use crate::store::{NotOwner, StoreError};

/// Reason for an error response.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Malformed request: 400.
    #[error("{0}")]
    BadRequest(Box<Problem>),
    /// Invalid document, or part of one: 422.
    #[error("{0}")]
    Wrong(Problems),
    /// No transition to this state from the one in force: 409.
    #[error("{0}")]
    Impossible(Problems),
    /// The data plane rejected the state: 409.
    #[error("{0}")]
    Refused(#[from] PlaneError),
    /// The VF has another owner: 409.
    #[error("{0}")]
    NotOwner(#[from] NotOwner),
    /// No such object: 404.
    #[error("{0}")]
    NotFound(Box<Problem>),
    /// Method not allowed on this path: 405.
    #[error("this path does not have that method; see /openapi.json")]
    Method,
    /// The state has changed meanwhile: 412.
    #[error("the generation is {now}, not {expected}; read the state again")]
    Stale {
        /// The generation in force.
        now: u64,
        /// Generation that the client expects.
        expected: u64,
    },
    /// The body is larger than allowed: 413.
    #[error("the body is too large; send at most {} bytes", super::MAX_BODY_BYTES)]
    TooLarge,
    /// The Content-Type is not JSON: 415.
    #[error("the body must be JSON; send Content-Type: application/json")]
    MediaType,
    /// Token missing or wrong: 401.
    #[error("the token is missing or wrong; send Authorization: Bearer TOKEN")]
    Unauthorised,
    /// The Host is not a name of the daemon: 403.
    #[error(
        "the Host is no name of the daemon; send an IP address, localhost or shunt, or use TLS"
    )]
    Host,
    /// A page of another site made the request: 403.
    #[error("the Origin is another site; open the dashboard at the daemon's own address")]
    Origin,
    /// The body took too long: 408.
    #[error("the body did not arrive in time; send it again")]
    Slow,
    /// The state could not be stored: 500.
    #[error("the state could not be stored")]
    Store(#[from] StoreError),
    /// Counters cannot be read: 503.
    #[error("the counters cannot be read now: {0:#}")]
    NoStats(anyhow::Error),
    /// The kernel has no memory left: 503.
    #[error("no memory for the request; free some memory, or raise the cgroup's memory.max")]
    NoMemory(#[source] engine::trace::MapError),
    /// No buffer for a capture: 503.
    #[error("the capture cannot begin")]
    NoCapture(#[source] port::capture::CaptureError),
    /// Too many captures: 503.
    #[error("{} captures run already; end one", crate::capture::CAPTURES_MAX)]
    TooManyCaptures,
    /// Available on the UNIX socket only: 403.
    #[error("available on the UNIX socket only; use it as the daemon's user or as root")]
    SocketOnly,
    /// The hot restart failed: 409.
    #[error("{0}")]
    NotReplaced(Problems),
    /// Another process has taken over, and serves the same socket: 421.
    #[error("another process has taken over; try again")]
    Replaced,
    /// The state of the data plane is unknown: 500.
    #[error("{0}; restart the daemon, which brings back the stored state")]
    Broken(String),
}

impl ApiError {
    /// The error of an object that does not exist.
    pub(super) fn absent(object: &str, remedy: &str) -> ApiError {
        ApiError::NotFound(Problem::new("", (), "does not exist", remedy).of(object).into())
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            ApiError::BadRequest(_) => StatusCode::BAD_REQUEST,
            ApiError::Wrong(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ApiError::Impossible(_)
            | ApiError::Refused(_)
            | ApiError::NotOwner(_)
            | ApiError::NotReplaced(_) => StatusCode::CONFLICT,
            ApiError::SocketOnly | ApiError::Host | ApiError::Origin => StatusCode::FORBIDDEN,
            ApiError::NotFound(..) => StatusCode::NOT_FOUND,
            ApiError::Method => StatusCode::METHOD_NOT_ALLOWED,
            ApiError::Stale { .. } => StatusCode::PRECONDITION_FAILED,
            ApiError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ApiError::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ApiError::Unauthorised => StatusCode::UNAUTHORIZED,
            ApiError::Slow => StatusCode::REQUEST_TIMEOUT,
            ApiError::Store(_) | ApiError::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
            ApiError::NoStats(_)
            | ApiError::NoMemory(_)
            | ApiError::NoCapture(_)
            | ApiError::TooManyCaptures => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Replaced => StatusCode::MISDIRECTED_REQUEST,
        }
    }

    /// Response body. Includes system errors: only the operator receives it.
    pub fn body(&self) -> Problems {
        let plain = |message: String| Problem::new("", (), message, "").into();
        match self {
            ApiError::Wrong(problems)
            | ApiError::Impossible(problems)
            | ApiError::NotReplaced(problems)
            | ApiError::Refused(PlaneError(problems)) => problems.clone(),
            ApiError::BadRequest(problem) | ApiError::NotFound(problem) => {
                Problem::clone(problem).into()
            }
            // These texts repeat their source.
            ApiError::NotOwner(_) | ApiError::NoStats(_) | ApiError::Broken(_) => {
                plain(self.to_string())
            }
            other => Problem::of_error(other).into(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.body()).expect("an error body is JSON");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        if matches!(self, ApiError::Unauthorised) {
            let bearer = header::HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

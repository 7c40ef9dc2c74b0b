//! What is answered when something cannot be done: a status, and a body that says what, where and
//! what to do.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::state::{Problem, Problems};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::plane::Refused;
use crate::store::{NotYours, StoreError};

/// The body of every answer that is not a success.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trouble {
    /// What is wrong, as a sentence.
    pub error: String,
    /// The field it is about, such as `nic[0].vf[2].mac`; empty if it is about none.
    pub field: String,
    /// The field's value as JSON, cut to a readable length; empty if it does not help.
    pub value: String,
    /// What is allowed, or what to do.
    pub allowed: String,
    /// Further mistakes of the same document, each as one line.
    pub more: Vec<String>,
}

/// Why a request is not done.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The request is not one: 400.
    #[error("{error}; {allowed}")]
    BadRequest {
        /// What is wrong with it.
        error: String,
        /// What to do.
        allowed: String,
    },
    /// The document, or a part of it, is wrong: 422.
    #[error("{0}")]
    Wrong(Problems),
    /// The state in force cannot become this one: 409.
    #[error("{0}")]
    Impossible(Problems),
    /// The data plane refuses: 409.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The VF has another owner: 409.
    #[error("{0}")]
    NotYours(#[from] NotYours),
    /// There is no such thing: 404.
    #[error("there is no {0}")]
    NotFound(String),
    /// The path has other methods only: 405.
    #[error("this path does not have that method; see /openapi.json")]
    Method,
    /// Somebody was faster: 412.
    #[error("the state is of generation {now} and not of {expected}; read it again")]
    Stale {
        /// The generation in force.
        now: u64,
        /// The one that the client took it for.
        expected: u64,
    },
    /// The body is larger than allowed: 413.
    #[error("the body is too large; send at most {} bytes", super::MAX_BODY_BYTES)]
    TooLarge,
    /// The body is not JSON by its header: 415.
    #[error("the body must be JSON; send Content-Type: application/json")]
    MediaType,
    /// No token, or a wrong one: 401.
    #[error("the token is missing or wrong; send Authorization: Bearer TOKEN")]
    Unauthorised,
    /// The body did not come in time: 408.
    #[error("the body did not arrive in time; send it again")]
    Slow,
    /// The state could not be stored: 500.
    #[error("the state could not be stored")]
    Store(#[from] StoreError),
    /// Counters cannot be read: 503.
    #[error("the counters cannot be read now: {0:#}")]
    NoStats(anyhow::Error),
    /// Only who is at the UNIX socket may ask that: 403.
    #[error("this is served on the UNIX socket only; ask there, as the daemon's user or as root")]
    NotHere,
    /// No other process took over: 409.
    #[error("{0}")]
    NotReplaced(String),
    /// Another process took over meanwhile, and answers on the same socket: 421.
    #[error("another process has taken over; ask again")]
    Replaced,
    /// The data plane is in a state that is not known: 500.
    #[error("{0}; restart the daemon, which brings back the stored state")]
    Broken(String),
}

impl Fault {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Fault::BadRequest { .. } => StatusCode::BAD_REQUEST,
            Fault::Wrong(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Fault::Impossible(_)
            | Fault::Refused(_)
            | Fault::NotYours(_)
            | Fault::NotReplaced(_) => StatusCode::CONFLICT,
            Fault::NotHere => StatusCode::FORBIDDEN,
            Fault::NotFound(_) => StatusCode::NOT_FOUND,
            Fault::Method => StatusCode::METHOD_NOT_ALLOWED,
            Fault::Stale { .. } => StatusCode::PRECONDITION_FAILED,
            Fault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Fault::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Fault::Unauthorised => StatusCode::UNAUTHORIZED,
            Fault::Slow => StatusCode::REQUEST_TIMEOUT,
            Fault::Store(_) | Fault::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Fault::NoStats(_) => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Replaced => StatusCode::MISDIRECTED_REQUEST,
        }
    }

    /// The body. What the system said is for the operator too, who is the only one that is
    /// answered.
    pub fn trouble(&self) -> Trouble {
        let plain = |error: String| Trouble { error, ..Trouble::default() };
        match self {
            Fault::Wrong(problems) | Fault::Impossible(problems) => of_problems(problems),
            Fault::Refused(Refused(problems)) => of_problems(problems),
            Fault::BadRequest { error, allowed } => {
                Trouble { allowed: allowed.clone(), ..plain(error.clone()) }
            }
            Fault::Store(source) => {
                let cause = std::error::Error::source(source);
                let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
                plain(format!("{self}: {source}{cause}"))
            }
            // These repeat what others say.
            Fault::NotFound(_)
            | Fault::NotYours(_)
            | Fault::NoStats(_)
            | Fault::NotReplaced(_)
            | Fault::Broken(_) => plain(self.to_string()),
            // Sentences of our own, with what is allowed after the semicolon.
            other => {
                let text = other.to_string();
                let (error, allowed) = text.split_once("; ").unwrap_or((&text, ""));
                Trouble { allowed: allowed.to_owned(), ..plain(error.to_owned()) }
            }
        }
    }
}

fn of_problem(problem: &Problem) -> Trouble {
    let Problem { field, value, error, allowed } = problem.clone();
    Trouble { error, field, value, allowed, more: Vec::new() }
}

fn of_problems(problems: &Problems) -> Trouble {
    let Some((first, rest)) = problems.problems.split_first() else {
        return Trouble::default();
    };
    let mut more: Vec<String> = rest.iter().map(Problem::to_string).collect();
    if problems.more > 0 {
        more.push(format!("and {} more mistakes; correct these first", problems.more));
    }
    Trouble { more, ..of_problem(first) }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.trouble()).expect("a trouble is JSON");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        if matches!(self, Fault::Unauthorised) {
            let bearer = header::HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, bearer);
            // A client without the token must not hold a connection.
            headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        response
    }
}

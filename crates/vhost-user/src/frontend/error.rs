//! Errors of the front-end.

use std::path::PathBuf;
use std::time::Duration;

use crate::connector::ConnectError;
use crate::message::RequestName;
use crate::socket::SocketError;

/// Reasons that a front-end's call failed.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// Connecting failed.
    #[error("no vhost-user connection")]
    Connect(#[from] ConnectError),
    /// No back-end connected or listened in time.
    #[error(
        "no back-end {what} {path} within {wait:?}; is the daemon running, and is this its path?"
    )]
    NoBackend {
        /// "listens on" or "connected to".
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// Time waited.
        wait: Duration,
    },
    /// Waiting for a connection failed.
    #[error("cannot accept a connection on {path}")]
    Accept {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The request could not be sent or no answer came.
    #[error("{request} failed: the back-end may have rejected it, see its log")]
    Socket {
        /// The request.
        request: RequestName,
        /// Cause.
        source: SocketError,
    },
    /// The back-end refused.
    #[error("the back-end rejected {request} (answer {answer}), see its log")]
    Refused {
        /// The request.
        request: RequestName,
        /// The acknowledgement, not zero.
        answer: u64,
    },
    /// The answer does not match the request.
    #[error("the back-end answered {request} with {got} and {bytes} bytes")]
    WrongReply {
        /// The request.
        request: RequestName,
        /// Request named in the answer.
        got: RequestName,
        /// Bytes of its payload.
        bytes: usize,
    },
    /// A call needs a feature that was not negotiated.
    #[error("{request} needs {feature}, which was not negotiated")]
    NotNegotiated {
        /// The request.
        request: RequestName,
        /// The feature.
        feature: String,
    },
    /// Too much for one message.
    #[error("{request}: too many {what} for one message")]
    TooMuch {
        /// The request.
        request: RequestName,
        /// Items that are too many.
        what: String,
    },
}

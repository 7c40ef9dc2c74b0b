//! What can go wrong at the front-end's side.

use std::path::PathBuf;
use std::time::Duration;

use crate::connector::ConnectError;
use crate::message::RequestName;
use crate::socket::SocketError;

/// Why a front-end's call failed.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// Connecting failed.
    #[error("no vhost-user connection")]
    Connect(#[from] ConnectError),
    /// Nobody was there in time.
    #[error(
        "no back-end {what} {path} within {wait:?}; is the daemon running, and is this its path?"
    )]
    NobodyThere {
        /// "listens on" or "connected to".
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// How long was waited.
        wait: Duration,
    },
    /// Waiting for a connection failed.
    #[error("cannot accept a connection on {path}")]
    Accept {
        /// The path.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The request could not be sent or no answer came.
    #[error("{request} failed: the back-end may have refused it, see its log")]
    Socket {
        /// The request.
        request: RequestName,
        /// What happened.
        source: SocketError,
    },
    /// The back-end refused.
    #[error("{request} was refused by the back-end (answer {answer}), see its log")]
    Refused {
        /// The request.
        request: RequestName,
        /// The acknowledgement, not zero.
        answer: u64,
    },
    /// The answer is none to the request.
    #[error("the back-end answered {request} with {got} and {bytes} bytes")]
    WrongReply {
        /// The request.
        request: RequestName,
        /// What the answer says it answers.
        got: RequestName,
        /// Bytes of its payload.
        bytes: usize,
    },
    /// A call needs a feature that was not negotiated.
    #[error("{request} needs {feature}, which the back-end does not offer or was not asked for")]
    NotNegotiated {
        /// The request.
        request: RequestName,
        /// The feature.
        feature: String,
    },
    /// Too much for one message.
    #[error("{request}: {what} do not fit into one message")]
    TooMuch {
        /// The request.
        request: RequestName,
        /// What is too much.
        what: String,
    },
}

//! The HTTP API: on a UNIX socket that only its owner can use, and optionally on TCP with a token
//! and TLS.
//!
//! # Model
//! [`operation`] is the table of all operations; the router and the OpenAPI document come from it.
//! [`Manager`] has the state, its store and the data plane, and runs one operation at a time.
//! [`Server`] is a thread with a single-threaded runtime. Work that may wait for the disk or the
//! data plane runs on another thread, so no request delays the reading of others.
//!
//! # Limits
//! Bodies of 1 MiB; 30 s for a body; 10 s for headers and for a client that reads nothing. 64
//! connections a listener; 1024 events. Over TCP 2 s until authentication; the oldest connection
//! without it is closed for a new one.

mod address;
mod bytes;
pub mod capture;
mod client;
pub mod clock;
pub mod compile;
pub mod daemons;
mod dashboard;
mod deadline;
mod error;
mod events;
pub mod fdb;
mod guests;
mod handler;
pub mod hex;
mod history;
mod listen;
pub mod log_limiter;
mod manager;
mod merge;
mod metrics;
mod openapi;
mod operation;
mod origin;
pub mod peer;
mod plan;
pub mod plane;
pub mod reasons;
mod resource;
mod router;
pub mod run_dir;
mod server;
pub mod stats;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod token;
mod token_bucket;
pub mod trace;
mod unauthenticated;
mod vf_in_use;
mod worker;

pub use client::{AnswerStream, Client, ClientError, ErrorReply, Reply, StreamPart};
pub use events::Cause;
pub use events::{Event, EventKind, EventList, Events, MAX_EVENTS};
pub use handler::{ApplyOutcome, InForce, UpgradeRequest};
pub use hyper::Method;

pub use error::ApiError;
pub use listen::{Listen, Tcp, Tls};
pub use manager::{Applied, Manager, StatsSource, UpgradeOrder, Upgraded, Upgrader};
pub use manager::{MoveStatus, serve_guests};
pub use openapi::document as openapi;
pub use openapi::schemas;
pub use server::{ApiSockets, Server};
pub use token::{MAX_TOKEN_BYTES, MIN_TOKEN_BYTES, Token};

/// The largest body that is read, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;

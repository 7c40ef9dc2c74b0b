//! The HTTP API: on a UNIX socket that only its owner can use, and on TCP with a token and TLS if
//! that is configured.
//!
//! # Model
//! [`operation`] is the table of everything that can be asked; the router and the OpenAPI document,
//! which is served, are made of it. [`Manager`] holds the state, its store and the data plane, and
//! does one thing at a time. [`Server`] is a thread of its own with a single-threaded runtime; work
//! that may wait for the disk or the data plane is done on another thread, so that no request holds
//! up the reading of others.
//!
//! # Limits
//! Bodies of 1 MiB, 30 s for a body, 10 s for headers and for a client that takes nothing of its
//! answer, 64 connections a listener, 1024 events. Over TCP 2 s until the token was shown; the
//! oldest connection without it makes room.

mod answer;
mod bytes;
mod client;
pub mod clock;
pub mod compile;
mod deadline;
mod events;
mod fault;
mod guests;
mod held;
pub mod hex;
mod listen;
pub mod log_limiter;
mod manager;
mod moves;
mod openapi;
mod operation;
pub mod peer;
pub mod plane;
mod reach;
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
mod visitors;
mod whole;
mod worker;

pub use answer::{InForce, Outcome, Upgrade};
pub use client::{Client, ClientError, Refusal, Reply};
pub use events::Cause;
pub use events::{Event, EventKind, EventList, Events, MAX_EVENTS};
pub use hyper::Method;

pub use fault::{Fault, Trouble};
pub use manager::serve_guests;
pub use manager::{Applied, Manager, StatsSource, UpgradeOrder, Upgraded, Upgrader};
pub use moves::MoveStatus;
pub use openapi::document as openapi;
pub use server::{Doors, Listen, Server, Tcp, Tls};
pub use token::{MAX_TOKEN_BYTES, MIN_TOKEN_BYTES, Token};

/// The largest body that is read, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;

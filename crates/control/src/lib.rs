//! Desired state to running daemon: configuration, vhost-user sessions, and what was counted.

pub mod api;
pub mod compile;
pub mod config;
pub mod daemon;
pub mod follow;
mod guests;
pub mod migrate;
mod quiet;
mod ration;
pub mod state;
pub mod stats;
pub mod store;

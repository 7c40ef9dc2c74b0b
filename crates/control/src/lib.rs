//! Desired state to running daemon: configuration, vhost-user sessions, and what was counted.

pub mod api;
pub mod compile;
pub mod config;
pub mod daemon;
pub mod follow;
mod guests;
pub mod migrate;
pub mod state;
pub mod stats;
pub mod store;

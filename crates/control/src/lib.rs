//! Desired state to running daemon: configuration, vhost-user sessions, and what was counted.

pub mod api;
mod clock;
pub mod compile;
pub mod config;
pub mod daemon;
pub mod follow;
mod guests;
mod hex;
pub mod json;
pub mod log;
pub mod migrate;
mod peer;
mod quiet;
mod ration;
mod run_dir;
pub mod state;
pub mod stats;
pub mod store;

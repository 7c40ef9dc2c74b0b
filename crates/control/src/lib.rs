//! Desired state to running daemon: configuration, vhost-user sessions, and what was counted.

pub mod api;
mod clock;
pub mod compile;
pub mod daemon;
pub mod follow;
mod guests;
mod hex;
pub mod log;
pub mod migrate;
mod peer;
pub mod plane;
mod quiet;
mod ration;
mod run_dir;
pub mod stats;
pub mod store;

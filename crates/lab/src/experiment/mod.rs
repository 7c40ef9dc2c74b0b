//! The experiments. Each is one file: what it sets up, what it measures, what it concludes.

pub mod forwarding;
mod sample;
pub mod scale;
pub mod suite;

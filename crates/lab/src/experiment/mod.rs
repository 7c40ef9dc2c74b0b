//! The experiments. Each is one file: what it sets up, what it measures, what it concludes.

pub mod copy;
pub mod distance;
pub mod fairness;
pub mod forwarding;
pub mod hostile;
pub mod idle;
pub mod netperf;
pub mod ntttcp;
pub mod overhead;
pub mod path_changes;
mod sample;
pub mod scale;
pub mod succession;
pub mod suite;
pub mod switches;
pub mod switching;
pub mod throughput;
pub mod transfer;
pub mod vmdq;
pub mod vpf;

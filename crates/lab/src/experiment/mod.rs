//! Experiments. [`runner`] runs those of files ([`report::experiment`]) step by step; each kind of
//! load is one Rust file. Each other experiment is one file: setup, measurement, conclusion.

pub mod calibrate;
pub mod compare;
pub mod copy;
pub mod distance;
pub mod fairness;
pub mod forwarding;
pub mod hostile;
pub mod idle;
pub mod path_changes;
pub mod receive;
pub mod restarts;
pub mod runner;
mod sample;
pub mod scale;
pub mod soak;
pub mod step;
pub mod switches;
pub mod throughput;
pub mod transfer;

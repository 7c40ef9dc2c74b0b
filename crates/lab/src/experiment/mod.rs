//! The experiments. Those of files ([`report::experiment`]) are run by [`runner`], step by step; a
//! kind of load is one Rust file. The others are one file each: what it sets up, what it measures,
//! what it concludes.

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
pub mod runner;
mod sample;
pub mod scale;
pub mod step;
pub mod succession;
pub mod switches;
pub mod throughput;
pub mod transfer;

//! Measurements of single parts.

pub mod copy_loop;
pub mod delay;
pub mod distance;
pub mod other_processes;
pub mod softirq;
pub(crate) mod stages;

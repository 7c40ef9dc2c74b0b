//! Measurements of single parts, beside which the whole is judged.

pub mod copy_loop;
pub mod delay;
pub mod distance;
pub mod others;
pub mod softirq;
pub(crate) mod stages;

//! Measurements of single parts, beside which the whole is judged.

pub mod bare;
pub mod delay;
pub mod distance;
pub mod softirq;
pub(crate) mod stages;

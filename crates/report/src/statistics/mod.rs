//! Statistics of measurements on shared machines.
//!
//! [`search`] finds throughput and [`burst`] the longest burst without loss, [`permutation`]
//! compares two builds measured in turn, [`bands`] groups such pairs by the distance of their CPUs,
//! and [`quantile`] summarises figures. All of it is pure: trials, samples, durations and random
//! numbers are parameters.

pub mod bands;
pub mod burst;
pub mod permutation;
pub mod quantile;
pub mod random;
pub mod search;

/// Cycles per frame of two builds, measured one right after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CyclePair {
    /// Build A, the baseline.
    pub a: f64,
    /// Build B, the candidate.
    pub b: f64,
}

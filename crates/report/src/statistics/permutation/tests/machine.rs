//! Simulated measurements on a shared machine.

use std::f64::consts::TAU;

use super::CyclePair;
use crate::statistics::random::Random;

/// A number from 0 to 1.
fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// Factor of one slot: log-normal with `sigma`, and 3 % of slots 20 to 50 % slow.
fn slot(random: &mut Random, sigma: f64) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random)).ln()).sqrt();
    let normal = radius * (TAU * unit(random)).cos();
    let outlier = if unit(random) < 0.03 { 1.2 + 0.3 * unit(random) } else { 1.0 };
    (sigma * normal).exp() * outlier
}

/// Pairs in which B takes `ratio` times the cycles of A; the slots' common factor varies from 1 to
/// 3.
pub(super) fn measure(random: &mut Random, n: usize, sigma: f64, ratio: f64) -> Vec<CyclePair> {
    let pair = |_| {
        let cycles = 150.0 * (1.0 + 2.0 * unit(random));
        CyclePair { a: cycles * slot(random, sigma), b: cycles * ratio * slot(random, sigma) }
    };
    (0..n).map(pair).collect()
}

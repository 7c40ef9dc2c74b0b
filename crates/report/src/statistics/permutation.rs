//! Comparison of two builds by paired samples: a sign-flip permutation test.
//!
//! # Model
//! A pair is one slot of build A and one of build B, measured one right after the other, in the
//! order A B B A. The log ratio ln(B / A) of a pair removes the slots' common factors: CPU
//! distance, clock and neighbours. If the builds are equal, each log ratio is as likely as its
//! negative. The test flips signs and counts how often the statistic is at least as extreme.
//!
//! # Statistic
//! The Wilcoxon signed-rank sum, with the Hodges-Lehmann estimate and its interval of Walsh
//! averages, so that verdict and interval agree. Share of 1000 simulated comparisons (slots
//! log-normal with sigma 3 %, 3 % of them 20 to 50 % slow; alpha 0.01) that find a planted 5 %:
//!
//! | pairs | mean | median | 20 % trimmed mean | Huber score | signed rank |
//! |---|---|---|---|---|---|
//! | 20 | 61 % | 73 % | 84 % | 80 % | 79 % |
//! | 24 | 62 % | 87 % | 92 % | 89 % | 89 % |
//! | 32 | 73 % | 97 % | 99 % | 96 % | 97 % |
//!
//! The mean is sensitive to outliers. The trimmed mean needs about two pairs less than the signed
//! rank. But only ranks have a null distribution that depends on the number of pairs alone. It is
//! exact up to 340 pairs, and gives the interval without a search.
//!
//! # Limits
//! Below 8 pairs no sign flip reaches alpha = 0.01: the verdict is
//! [`PairedVerdict::NoDifferenceFound`] and the interval is unbounded. Drift within a pair is not
//! removed, only balanced by the order A B B A: measure an even number of pairs. Strata assume one
//! common ratio; for a ratio per band, compare each band by itself.

mod null;
mod power;
#[cfg(test)]
mod tests;

use std::fmt;

use super::CyclePair;
use null::Null;

pub use null::{Method, PERMUTATIONS};
pub use power::{POWER, pairs_needed};

/// Maximum number of pairs of one comparison: the interval needs the averages of all pairs of
/// pairs.
pub const PAIRS_MAX: usize = 2000;

/// Ratio of cycles per frame, B / A: below 1, B is faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioEstimate {
    /// Estimate (Hodges-Lehmann).
    pub ratio: f64,
    /// Lower end of the interval of confidence 1 - alpha; 0 with too few pairs.
    pub low: f64,
    /// Upper end; infinite with too few pairs.
    pub high: f64,
}

/// Verdict on build B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PairedVerdict {
    /// B takes fewer cycles per frame than A.
    Faster(RatioEstimate),
    /// B takes more cycles per frame than A.
    Slower(RatioEstimate),
    /// No significant difference; see [`Comparison::detectable`].
    NoDifferenceFound,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Verdict at the level alpha.
    pub verdict: PairedVerdict,
    /// Ratio B / A and its interval, with any verdict.
    pub estimate: RatioEstimate,
    /// Two-sided p-value.
    pub p: f64,
    /// Number of pairs.
    pub pairs: usize,
    /// Smallest relative effect (0.05: 5 % more cycles) found with 90 % power at this number of
    /// pairs and this spread; `None` with too few pairs.
    pub detectable: Option<f64>,
    /// Method of the null distribution.
    pub method: Method,
}

/// Invalid samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InvalidSamples {
    /// No pairs.
    Empty,
    /// More than [`PAIRS_MAX`] pairs: their number.
    TooMany(usize),
    /// A pair with a value that is not a finite number above 0.
    Value(CyclePair),
    /// A level outside 0 to 1.
    Alpha(f64),
}

impl fmt::Display for InvalidSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidSamples::Empty => write!(f, "no pairs to compare; measure at least 8"),
            InvalidSamples::TooMany(n) => write!(f, "{n} pairs exceed max {PAIRS_MAX}"),
            InvalidSamples::Value(CyclePair { a, b }) => {
                write!(f, "pair with {a} and {b} cycles per frame; both must be finite and above 0")
            }
            InvalidSamples::Alpha(alpha) => {
                write!(f, "alpha {alpha} is out of range; allowed: above 0 and below 1")
            }
        }
    }
}

impl std::error::Error for InvalidSamples {}

/// Compares build B with build A at the two-sided level `alpha` (recommended: 0.01). `random` gives
/// 64 random bits; it is used only if the null distribution is too large to be exact.
///
/// # Errors
/// No pairs, too many, or a value that is not a finite number above 0.
pub fn compare(
    pairs: &[CyclePair],
    alpha: f64,
    random: impl FnMut() -> u64,
) -> Result<Comparison, InvalidSamples> {
    compare_stratified(&[pairs], alpha, random)
}

/// As [`compare`], over several strata such as distance bands. Log ratios are ranked within their
/// stratum, and strata have weights of 1 / (pairs + 1) (van Elteren, 1960).
///
/// # Errors
/// Those of [`compare`].
pub fn compare_stratified(
    strata: &[&[CyclePair]],
    alpha: f64,
    mut random: impl FnMut() -> u64,
) -> Result<Comparison, InvalidSamples> {
    let strata = log_ratios(strata)?;
    if !(alpha > 0.0 && alpha < 1.0) {
        return Err(InvalidSamples::Alpha(alpha));
    }
    let weights = weights(&strata);
    // Scores of all pairs, with ties and without. A log ratio of 0 has no sign to flip.
    let (mut scores, mut untied, mut positive) = (Vec::new(), Vec::new(), 0);
    for (stratum, weight) in strata.iter().zip(&weights) {
        untied.extend((1..=stratum.len() as u64).map(|rank| weight * 2 * rank));
        for (log_ratio, rank) in stratum.iter().zip(doubled_ranks(stratum)) {
            if *log_ratio != 0.0 {
                scores.push(weight * rank);
            }
            if *log_ratio > 0.0 {
                positive += weight * rank;
            }
        }
    }
    let pairs = untied.len();
    scores.sort_unstable();
    untied.sort_unstable();
    let null = Null::new(&untied, &mut random);
    let (log_ratio, [low, high]) = estimate(&strata, &weights, null.critical(alpha));
    let null = if scores == untied { null } else { Null::new(&scores, &mut random) };
    let p = null.p(positive);
    let estimate = RatioEstimate { ratio: log_ratio.exp(), low: low.exp(), high: high.exp() };
    // Uses the reported ratios: a log ratio of 1e-17 is a ratio of 1.
    let verdict = match p <= alpha {
        true if estimate.high < 1.0 => PairedVerdict::Faster(estimate),
        true if estimate.low > 1.0 => PairedVerdict::Slower(estimate),
        _ => PairedVerdict::NoDifferenceFound,
    };
    let detectable = power::detectable(high - low, alpha);
    Ok(Comparison { verdict, estimate, p, pairs, detectable, method: null.method() })
}

/// Log ratios ln(B / A) of all non-empty strata.
fn log_ratios(strata: &[&[CyclePair]]) -> Result<Vec<Vec<f64>>, InvalidSamples> {
    match strata.iter().map(|pairs| pairs.len()).sum() {
        0 => return Err(InvalidSamples::Empty),
        n if n > PAIRS_MAX => return Err(InvalidSamples::TooMany(n)),
        _ => {}
    }
    let is_valid = |value: f64| value.is_finite() && value > 0.0;
    let log_ratio = |pair: &CyclePair| match is_valid(pair.a) && is_valid(pair.b) {
        true => Ok(pair.b.ln() - pair.a.ln()),
        false => Err(InvalidSamples::Value(*pair)),
    };
    let filled = strata.iter().filter(|pairs| !pairs.is_empty());
    filled.map(|pairs| pairs.iter().map(log_ratio).collect()).collect()
}

/// Whole numbers about proportional to 1 / (pairs + 1): 4 for the largest stratum, more for others;
/// 1 for a single stratum.
fn weights(strata: &[Vec<f64>]) -> Vec<u64> {
    let most = strata.iter().map(Vec::len).max().unwrap_or(0) + 1;
    let weight = |stratum: &Vec<f64>| (4.0 * most as f64 / (stratum.len() + 1) as f64).round();
    match strata {
        [_] => vec![1],
        _ => strata.iter().map(|stratum| weight(stratum) as u64).collect(),
    }
}

/// Twice the rank of each absolute value, from 2; ties share the mean of their ranks.
fn doubled_ranks(values: &[f64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].abs().total_cmp(&values[j].abs()));
    let mut ranks = vec![0; values.len()];
    let mut begin = 0;
    for group in order.chunk_by(|&i, &j| values[i].abs() == values[j].abs()) {
        let doubled = (2 * begin + group.len() + 1) as u64;
        group.iter().for_each(|&i| ranks[i] = doubled);
        begin += group.len();
    }
    ranks
}

/// Hodges-Lehmann estimate of the log ratio, and the interval at a critical value of the rank sum.
/// Both come from the sorted Walsh averages, of which the rank sum counts those above 0.
fn estimate(strata: &[Vec<f64>], weights: &[u64], critical: Option<u64>) -> (f64, [f64; 2]) {
    let mut averages = Vec::new();
    for (stratum, weight) in strata.iter().zip(weights) {
        for (i, first) in stratum.iter().enumerate() {
            let walsh = stratum[i..].iter().map(|second| (first + second) / 2.0);
            averages.extend(walsh.map(|average| (average, 2 * weight)));
        }
    }
    averages.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: u64 = averages.iter().map(|(_, weight)| weight).sum();
    // The smallest average at which the weights exceed a sum; from the top for the other end.
    let from_bottom = |sum: u64| exceeding(averages.iter(), sum);
    let from_top = |sum: u64| exceeding(averages.iter().rev(), sum);
    let half = (total - 1) / 2;
    let interval = match critical {
        Some(critical) => [from_bottom(critical), from_top(critical)],
        None => [f64::NEG_INFINITY, f64::INFINITY],
    };
    ((from_bottom(half) + from_top(half)) / 2.0, interval)
}

/// First of the averages at which the sum of weights exceeds `sum`.
fn exceeding<'a>(averages: impl Iterator<Item = &'a (f64, u64)>, sum: u64) -> f64 {
    let mut so_far = 0;
    let mut last = 0.0;
    for (average, weight) in averages {
        last = *average;
        so_far += weight;
        if so_far > sum {
            break;
        }
    }
    last
}

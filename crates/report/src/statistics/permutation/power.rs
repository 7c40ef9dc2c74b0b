//! Power of the comparison: effects that it finds, and pairs that it needs.

use std::f64::consts::SQRT_2;

/// Power of [`pairs_needed`] and of the detectable effect.
pub const POWER: f64 = 0.9;
/// Share of slots that are outliers on a shared machine, for [`pairs_needed`].
const OUTLIERS: f64 = 0.03;

/// Pairs that find a relative `effect` (0.05: 5 %) with 90 % power at the level `alpha`. One slot
/// varies by `sigma` (0.03: 3 %, the standard deviation of its logarithm without the slots' common
/// factors), and 3 % of slots are outliers. The number is even, as A B B A needs.
///
/// Noether's formula for the signed-rank test (1987) is (z(1 - alpha / 2) + z(0.9))^2 divided by 3
/// (q - 1/2)^2, where q is the probability that the mean of two log ratios has the effect's sign.
/// It is conservative for effects larger than sigma. At alpha = 0.01:
///
/// | sigma \ effect | 2 % | 3 % | 5 % | 10 % |
/// |---|---|---|---|---|
/// | 2 % | 56 | 36 | 28 | 26 |
/// | 3 % | 106 | 56 | 32 | 26 |
/// | 5 % | 268 | 128 | 58 | 30 |
pub fn pairs_needed(sigma: f64, effect: f64, alpha: f64) -> usize {
    let log_effect = effect.ln_1p().abs();
    // Two log ratios of two slots each.
    let clean = (1.0 - OUTLIERS).powi(4);
    let same_sign = clean * normal_cdf(log_effect / sigma) + (1.0 - clean) * 0.5;
    let z = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(POWER);
    let pairs = (z * z / (3.0 * (same_sign - 0.5).powi(2))).ceil();
    2usize.saturating_mul((pairs / 2.0).ceil() as usize)
}

/// Smallest relative effect found with 90 % power, from the length of the interval of log ratios at
/// the level `alpha`. The interval is 2 z(1 - alpha / 2) standard errors of the estimate long
/// (Lehmann 1963), and an effect of z(1 - alpha / 2) + z(0.9) of them is found with 90 % power.
/// Simulation finds such effects in 86 % (20 pairs) to 91 % (60 pairs).
pub(super) fn detectable(length: f64, alpha: f64) -> Option<f64> {
    let z = normal_quantile(1.0 - alpha / 2.0);
    let log_effect = length * (z + normal_quantile(POWER)) / (2.0 * z);
    log_effect.is_finite().then(|| log_effect.exp_m1())
}

/// Standard normal quantile for shares from one half up, to 0.0005 (Abramowitz and Stegun 26.2.23).
fn normal_quantile(share: f64) -> f64 {
    let t = (-2.0 * (1.0 - share).ln()).sqrt();
    let numerator = 2.515517 + t * (0.802853 + t * 0.010328);
    t - numerator / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
}

/// Standard normal distribution function from 0 up, to 0.0000002 (Abramowitz and Stegun 7.1.26).
fn normal_cdf(z: f64) -> f64 {
    let x = z / SQRT_2;
    let t = 1.0 / (1.0 + 0.3275911 * x);
    let terms = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
    let polynomial = terms.iter().fold(0.0, |sum, term| (sum + term) * t);
    1.0 - 0.5 * polynomial * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_values_are_those_of_tables() {
        for (share, z) in [(0.9, 1.28155), (0.975, 1.95996), (0.995, 2.57583), (0.9995, 3.29053)] {
            assert!((normal_quantile(share) - z).abs() < 5e-4, "{share}");
            assert!((normal_cdf(z) - share).abs() < 1e-5, "{z}");
        }
    }

    #[test]
    fn pairs_are_those_of_the_table() {
        let table = [0.02, 0.03, 0.05]
            .map(|sigma| [0.02, 0.03, 0.05, 0.10].map(|effect| pairs_needed(sigma, effect, 0.01)));
        assert_eq!(table, [[56, 36, 28, 26], [106, 56, 32, 26], [268, 128, 58, 30]]);
        assert_eq!(pairs_needed(0.03, 0.0, 0.01), usize::MAX);
    }
}

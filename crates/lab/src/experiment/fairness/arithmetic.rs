//! Jain's index, and the expected rate of each contender.

/// Jain's index of fairness (Jain, Chiu and Hawe 1984): 1 if all are equal, 1/n if one has
/// everything, and 1 of all zeros.
pub(super) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// Share of each value in their sum; zeros for a sum of zero.
pub(super) fn shares(values: &[f64]) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    values.iter().map(|value| if sum > 0.0 { value / sum } else { 0.0 }).collect()
}

/// Entitlement of a contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Claim {
    /// Its weight.
    pub(super) weight: f64,
    /// Minimum rate, if the total suffices.
    pub(super) min: f64,
    /// Maximum rate.
    pub(super) max: f64,
}

/// Expected rates of `total` under full contention: the share by weight, at least the minimum and
/// at most the maximum. Minima that exceed the total are reduced in proportion.
pub(super) fn expected(total: f64, claims: &[Claim]) -> Vec<f64> {
    let minima: f64 = claims.iter().map(|claim| claim.min).sum();
    if minima >= total {
        return claims.iter().map(|claim| claim.min * total / minima).collect();
    }
    let at = |level: f64| -> Vec<f64> {
        claims.iter().map(|claim| (level * claim.weight).clamp(claim.min, claim.max)).collect()
    };
    // Bisects the level at which the total is used up; the sum grows with the level.
    let (mut low, mut high) = (0.0, total / claims.iter().map(|c| c.weight).fold(1.0, f64::min));
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if at(middle).iter().sum::<f64>() < total { low = middle } else { high = middle }
    }
    at(high)
}

/// Deviation of `value` from `expected`, in percent of that.
pub(super) fn error_pct(value: f64, expected: f64) -> f64 {
    (value / expected - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Claim = Claim { weight: 1.0, min: 0.0, max: f64::INFINITY };

    fn close(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 1e-6, "{a} and not {b}");
        }
    }

    #[test]
    fn jains_index_has_its_bounds() {
        assert_eq!(jain(&[3.0; 8]), 1.0);
        assert_eq!(jain(&[0.0, 0.0, 5.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0; 4]), 1.0);
        // (1 + 2 + 3)^2 / (3 * 14)
        close(&[jain(&[1.0, 2.0, 3.0])], &[36.0 / 42.0]);
    }

    #[test]
    fn shares_add_up_to_one() {
        close(&shares(&[1.0, 3.0, 4.0]), &[0.125, 0.375, 0.5]);
        close(&shares(&[0.0, 0.0]), &[0.0, 0.0]);
    }

    #[test]
    fn weights_divide_what_there_is() {
        let claims = [1.0, 2.0, 5.0].map(|weight| Claim { weight, ..OPEN });
        close(&expected(80.0, &claims), &[10.0, 20.0, 50.0]);
    }

    #[test]
    fn a_minimum_counts_when_it_is_more_than_the_share() {
        let claims = [Claim { min: 40.0, ..OPEN }, Claim { min: 5.0, ..OPEN }, OPEN];
        close(&expected(100.0, &claims), &[40.0, 30.0, 30.0]);
        // With more to divide, the minimum is below the share.
        close(&expected(150.0, &claims), &[50.0, 50.0, 50.0]);
    }

    #[test]
    fn minima_that_are_too_much_are_cut_in_proportion() {
        let claims = [Claim { min: 90.0, ..OPEN }, Claim { min: 30.0, ..OPEN }];
        close(&expected(60.0, &claims), &[45.0, 15.0]);
    }

    #[test]
    fn what_a_maximum_leaves_is_the_others() {
        let claims = [Claim { max: 4.0, ..OPEN }, OPEN, Claim { weight: 3.0, ..OPEN }];
        close(&expected(100.0, &claims), &[4.0, 24.0, 72.0]);
        let all = [Claim { max: 4.0, ..OPEN }, Claim { max: 6.0, ..OPEN }];
        close(&expected(100.0, &all), &[4.0, 6.0]);
    }

    #[test]
    fn errors_are_relative() {
        close(&[error_pct(98.0, 100.0), error_pct(0.3, 0.2)], &[-2.0, 50.0]);
    }
}

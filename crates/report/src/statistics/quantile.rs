//! Quantiles of a sample.

/// Median: the middle value, or the mean of the two middle ones; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Quantile at `share`, interpolated between neighbours: type 7 of Hyndman and Fan (1996), the
/// default of R and NumPy. `None` without values. A share outside 0 to 1 counts as the nearer of
/// both. Values may be in any order; a NaN sorts as in [`f64::total_cmp`].
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let below = sorted[rank.floor() as usize];
    let above = sorted[rank.ceil() as usize];
    // Otherwise two infinite neighbours would give a NaN.
    Some(if below == above { below } else { below + (above - below) * rank.fract() })
}

/// Item of median `key`, the lower of two, to report a whole round.
pub fn median_item<T>(items: &[T], key: impl Fn(&T) -> f64) -> Option<&T> {
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort_by(|a, b| key(a).total_cmp(&key(b)));
    sorted.get(items.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_few_and_many() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[5.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[f64::INFINITY, f64::INFINITY]), Some(f64::INFINITY));
    }

    #[test]
    fn quantiles_interpolate_as_r_does() {
        let values = [40.0, 10.0, 20.0, 30.0];
        // R: quantile(c(10, 20, 30, 40), c(0, .1, .25, .5, .99, 1))
        for (share, expected) in
            [(0.0, 10.0), (0.1, 13.0), (0.25, 17.5), (0.5, 25.0), (0.99, 39.7), (1.0, 40.0)]
        {
            assert!((quantile(&values, share).unwrap() - expected).abs() < 1e-9, "{share}");
        }
        assert_eq!(quantile(&values, 7.0), Some(40.0));
        assert_eq!(quantile(&values, -1.0), Some(10.0));
    }

    #[test]
    fn the_median_item_is_one_of_them() {
        let rounds = [("c", 3.0), ("a", 1.0), ("d", 4.0), ("b", 2.0)];
        assert_eq!(median_item(&rounds, |round| round.1), Some(&("b", 2.0)));
        assert_eq!(median_item(&rounds[..3], |round| round.1), Some(&("c", 3.0)));
        assert_eq!(median_item::<f64>(&[], |value| *value), None);
    }
}

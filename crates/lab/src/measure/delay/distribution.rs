//! Distributions of delays, by their quantile functions.
//!
//! A delay is drawn by inverse transform sampling: the quantile at a uniformly distributed share.
//! So the theoretical quantiles and the drawn delays come from one function.

use std::fmt;
use std::str::FromStr;

use report::statistics::random::Random;

/// Longest delay of a bounded distribution.
pub const DELAY_US_MAX: f64 = 10_000.0;
/// Longest mean of an exponential distribution: one delay in 22 000 exceeds ten times the mean, one
/// in 485 million twenty times.
const MEAN_US_MAX: f64 = 1_000.0;

/// Distribution of delays, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// One value.
    Constant {
        /// The delay.
        us: f64,
    },
    /// Uniform distribution over a range.
    Uniform {
        /// Shortest delay.
        min_us: f64,
        /// Longest delay.
        max_us: f64,
    },
    /// Exponential distribution: no memory, a long tail.
    Exponential {
        /// Mean.
        mean_us: f64,
    },
    /// A short delay, and rarely a long one.
    TwoValued {
        /// Short delay.
        short_us: f64,
        /// Long delay.
        long_us: f64,
        /// Share of frames with the long delay: 0 to 1.
        long_share: f64,
    },
}

impl Distribution {
    /// Default distributions of a calibration. The rare delay of the last one is above the 98th
    /// percentile, so p99 differs from p50 by its full length.
    pub const USUAL: [Distribution; 4] = [
        Distribution::Constant { us: 100.0 },
        Distribution::Uniform { min_us: 50.0, max_us: 150.0 },
        Distribution::Exponential { mean_us: 100.0 },
        Distribution::TwoValued { short_us: 50.0, long_us: 1_000.0, long_share: 0.02 },
    ];

    /// Theoretical quantile at `share`, 0 to 1 (1 excluded, where the exponential one is infinite).
    pub fn quantile_us(self, share: f64) -> f64 {
        match self {
            Distribution::Constant { us } => us,
            Distribution::Uniform { min_us, max_us } => min_us + (max_us - min_us) * share,
            Distribution::Exponential { mean_us } => -mean_us * (-share).ln_1p(),
            Distribution::TwoValued { short_us, long_us, long_share } => {
                if share < 1.0 - long_share { short_us } else { long_us }
            }
        }
    }

    /// Draws a delay.
    pub fn draw_us(self, random: &mut Random) -> f64 {
        // 53 bits: the resolution of a share in 0 to 1, 1 excluded.
        let share = (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
        self.quantile_us(share)
    }

    /// Rejects values out of range.
    fn check(self) -> Result<Distribution, String> {
        let allowed = |name: &str, value: f64, max: f64| match (0.0..=max).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} {value}: allowed are 0 to {max}")),
        };
        match self {
            Distribution::Constant { us } => allowed("delay", us, DELAY_US_MAX)?,
            Distribution::Uniform { min_us, max_us } => {
                allowed("longest delay", max_us, DELAY_US_MAX)?;
                allowed("shortest delay", min_us, max_us)?;
            }
            Distribution::Exponential { mean_us } => allowed("mean", mean_us, MEAN_US_MAX)?,
            Distribution::TwoValued { short_us, long_us, long_share } => {
                allowed("long delay", long_us, DELAY_US_MAX)?;
                allowed("short delay", short_us, long_us)?;
                allowed("share", long_share, 1.0)?;
            }
        }
        Ok(self)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Constant { us } => write!(f, "constant:{us}"),
            Distribution::Uniform { min_us, max_us } => write!(f, "uniform:{min_us},{max_us}"),
            Distribution::Exponential { mean_us } => write!(f, "exponential:{mean_us}"),
            Distribution::TwoValued { short_us, long_us, long_share } => {
                write!(f, "two-valued:{short_us},{long_us},{long_share}")
            }
        }
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let (kind, values) = text.split_once(':').unwrap_or((text, ""));
        let numbers: Result<Vec<f64>, _> = values.split(',').map(str::parse).collect();
        let distribution = match (kind, numbers.as_deref()) {
            ("constant", Ok(&[us])) => Distribution::Constant { us },
            ("uniform", Ok(&[min_us, max_us])) => Distribution::Uniform { min_us, max_us },
            ("exponential", Ok(&[mean_us])) => Distribution::Exponential { mean_us },
            ("two-valued", Ok(&[short_us, long_us, long_share])) => {
                Distribution::TwoValued { short_us, long_us, long_share }
            }
            _ => {
                return Err("expected constant:US, uniform:MIN,MAX, exponential:MEAN or \
                            two-valued:SHORT,LONG,SHARE, in microseconds"
                    .into());
            }
        };
        distribution.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::statistics::quantile::quantile;

    /// Quantiles of 200 000 drawn delays.
    fn drawn(distribution: Distribution, shares: [f64; 4]) -> [f64; 4] {
        let mut random = Random::new(1);
        let delays: Vec<f64> = (0..200_000).map(|_| distribution.draw_us(&mut random)).collect();
        shares.map(|share| quantile(&delays, share).unwrap())
    }

    #[test]
    fn drawn_delays_have_the_quantiles_of_the_textbook() {
        let shares = [0.5, 0.9, 0.99, 0.999];
        let ln = |odds: f64| 100.0 * odds.ln();
        for (distribution, known) in Distribution::USUAL.into_iter().zip([
            [100.0; 4],
            [100.0, 140.0, 149.0, 149.9],
            [ln(2.0), ln(10.0), ln(100.0), ln(1000.0)],
            [50.0, 50.0, 1000.0, 1000.0],
        ]) {
            for (drawn, known) in drawn(distribution, shares).into_iter().zip(known) {
                // 200 of 200 000 draws are above p99.9: its error is some 1 % of an exponential's.
                assert!((drawn / known - 1.0).abs() < 0.02, "{distribution}: {drawn}, not {known}");
            }
            for (share, known) in shares.into_iter().zip(known) {
                let theory = distribution.quantile_us(share);
                assert!((theory - known).abs() < 1e-9, "{distribution}: {theory}, not {known}");
            }
        }
    }

    #[test]
    fn rare_delays_are_as_rare_as_they_should_be() {
        let two = Distribution::TwoValued { short_us: 1.0, long_us: 2.0, long_share: 0.02 };
        let mut random = Random::new(7);
        let long = (0..100_000).filter(|_| two.draw_us(&mut random) > 1.5).count();
        // The standard deviation is 44.
        assert!((1_800..=2_200).contains(&long), "{long} of 100000");
    }

    #[test]
    fn the_same_seed_draws_the_same_delays() {
        let exponential = Distribution::Exponential { mean_us: 100.0 };
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| exponential.draw_us(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!(draw(3).iter().all(|us| us.is_finite() && *us >= 0.0));
    }

    #[test]
    fn a_distribution_is_read_as_it_is_written() {
        for distribution in Distribution::USUAL {
            assert_eq!(distribution.to_string().parse(), Ok(distribution));
        }
        for (text, words) in [
            ("constant", "expected constant:US"),
            ("constant:1,2", "expected constant:US"),
            ("normal:1,2", "expected constant:US"),
            ("uniform:1,x", "expected constant:US"),
            ("constant:NaN", "delay NaN: allowed are 0 to 10000"),
            ("constant:20000", "delay 20000: allowed are 0 to 10000"),
            ("uniform:2,1", "shortest delay 2: allowed are 0 to 1"),
            ("exponential:1001", "mean 1001: allowed are 0 to 1000"),
            ("two-valued:1,2,1.5", "share 1.5: allowed are 0 to 1"),
        ] {
            let error = text.parse::<Distribution>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}

//! Null distribution of a sum of scores, each of which counts with probability one half.

/// Number of random permutations if the distribution is too large to be exact.
pub const PERMUTATIONS: usize = 20_000;
/// Maximum number of additions for an exact distribution: about 20 ms; 340 pairs without ties.
const ADDITIONS_MAX: u64 = 20_000_000;

/// Method of a comparison's null distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// All sign flips.
    Exact,
    /// [`PERMUTATIONS`] random ones.
    MonteCarlo,
}

/// Distribution of the smaller of the sums of both signs, over all flips of signs.
pub(super) struct Null {
    /// Greatest common divisor of the scores: the unit of `tail`.
    unit: u64,
    /// Sum of all scores, in units.
    total: u64,
    tail: Tail,
}

enum Tail {
    /// Probability that the smaller sum is no more than the index.
    Exact(Vec<f64>),
    /// The smaller sums of random permutations, in ascending order.
    Sampled(Vec<u64>),
}

impl Null {
    pub(super) fn new(scores: &[u64], random: &mut impl FnMut() -> u64) -> Null {
        let unit = scores.iter().copied().fold(0, divisor).max(1);
        let scores: Vec<u64> = scores.iter().map(|score| score / unit).collect();
        let total = scores.iter().sum::<u64>();
        let additions = (total + 1).saturating_mul(scores.len() as u64);
        let tail = match additions <= ADDITIONS_MAX {
            true => Tail::Exact(exact(&scores, total)),
            false => Tail::Sampled(sampled(&scores, total, random)),
        };
        Null { unit, total, tail }
    }

    /// Two-sided p-value of a sum of the scores of one sign.
    pub(super) fn p(&self, sum: u64) -> f64 {
        let sum = sum / self.unit;
        let smaller = sum.min(self.total - sum);
        match &self.tail {
            Tail::Exact(tail) => tail[smaller as usize],
            // The sample itself is one of the permutations (Phipson and Smyth 2010).
            Tail::Sampled(sums) => {
                let count = sums.partition_point(|other| *other <= smaller);
                (count + 1) as f64 / (sums.len() + 1) as f64
            }
        }
    }

    /// Largest sum whose p-value is at most `alpha`, of one sign; `None` if there is none.
    pub(super) fn critical(&self, alpha: f64) -> Option<u64> {
        let count = match &self.tail {
            Tail::Exact(tail) => tail.partition_point(|p| *p <= alpha) as u64,
            Tail::Sampled(sums) => {
                let most = (alpha * (sums.len() + 1) as f64).floor() as usize;
                // At most `most - 1` sums may be equally small.
                most.checked_sub(1).map_or(0, |most| sums.get(most).copied().unwrap_or(self.total))
            }
        };
        count.checked_sub(1).map(|sum| sum * self.unit)
    }

    pub(super) fn method(&self) -> Method {
        match self.tail {
            Tail::Exact(_) => Method::Exact,
            Tail::Sampled(_) => Method::MonteCarlo,
        }
    }
}

/// Tail probabilities over all flips, by convolution: one score after the other.
fn exact(scores: &[u64], total: u64) -> Vec<f64> {
    let mut probability = vec![0.0; total as usize + 1];
    probability[0] = 1.0;
    let mut reached = 0;
    for score in scores {
        let score = *score as usize;
        reached += score;
        for sum in (0..=reached).rev() {
            let without = probability[sum];
            let with = if sum >= score { probability[sum - score] } else { 0.0 };
            probability[sum] = 0.5 * (without + with);
        }
    }
    let total = total as usize;
    let mut so_far = 0.0;
    let tails = (0..=total / 2).map(|sum| {
        let mirrored = total - sum;
        so_far += probability[sum] + if mirrored > sum { probability[mirrored] } else { 0.0 };
        f64::min(so_far, 1.0)
    });
    tails.collect()
}

/// The smaller sums of random permutations.
fn sampled(scores: &[u64], total: u64, random: &mut impl FnMut() -> u64) -> Vec<u64> {
    let mut sum = || {
        let sums = scores.chunks(64).map(|scores| {
            let signs = random();
            let is_positive = |i: &usize| signs >> i & 1 == 1;
            (0..scores.len()).filter(is_positive).map(|i| scores[i]).sum::<u64>()
        });
        let sum = sums.sum::<u64>();
        sum.min(total - sum)
    };
    let mut sums: Vec<u64> = (0..PERMUTATIONS).map(|_| sum()).collect();
    sums.sort_unstable();
    sums
}

/// Greatest common divisor; of 0 and `b`, `b`.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random::Random;

    #[test]
    fn critical_values_are_those_of_wilcoxons_table() {
        let critical = |n: u64| {
            let scores: Vec<u64> = (1..=n).collect();
            Null::new(&scores, &mut || 0).critical(0.01)
        };
        assert_eq!([critical(5), critical(7)], [None; 2]);
        for (n, value) in [(8, 0), (10, 3), (12, 7), (15, 15), (20, 37), (25, 68), (30, 109)] {
            assert_eq!(critical(n), Some(value), "{n} pairs");
        }
    }

    #[test]
    fn the_exact_distribution_is_that_of_all_sign_flips() {
        let mut random = Random::new(3);
        for n in 1..=11 {
            let scores: Vec<u64> = (0..n).map(|_| 1 + random.below(9)).collect();
            let null = Null::new(&scores, &mut || 0);
            let total: u64 = scores.iter().sum();
            let sum = |signs: u32| (0..n).filter(|i| signs >> i & 1 == 1).map(|i| scores[i]).sum();
            let sums: Vec<u64> = (0..1u32 << n).map(sum).collect();
            for sum in &sums {
                let smaller = |sum: &u64| (*sum).min(total - sum);
                let count = sums.iter().filter(|other| smaller(other) <= smaller(sum)).count();
                let p = count as f64 / sums.len() as f64;
                assert!((null.p(*sum) - p).abs() < 1e-12, "{scores:?}, {sum}");
            }
        }
    }
}

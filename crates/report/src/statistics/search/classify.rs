//! Load classification and conditional throughput: RFC 9971, appendices A and B.
//!
//! The effective duration of a trial is its requested duration, the RFC's default.

use super::goal::Goal;
use super::trial::TrialRecord;

/// Relative difference below which two sums are equal: durations such as 0.1 s do not add up
/// exactly.
const ROUNDING: f64 = 1e-9;

/// Classification of a load for one goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadClass {
    /// The trials uphold the goal, independent of further trials.
    Lower,
    /// The trials fail the goal, independent of further trials.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// Classifies the load of `trials`; irregular ones must not be among them.
pub fn classify<'a>(goal: &Goal, trials: impl Iterator<Item = &'a TrialRecord>) -> LoadClass {
    let (mut full_low, mut full_high, mut short_low, mut short_high) = (0.0, 0.0, 0.0, 0.0);
    for trial in trials {
        let is_full = trial.duration_s >= goal.final_trial_s;
        let is_low = trial.loss_ratio() <= goal.loss_ratio_max();
        let sum = match (is_full, is_low) {
            (true, true) => &mut full_low,
            (true, false) => &mut full_high,
            (false, true) => &mut short_low,
            (false, false) => &mut short_high,
        };
        *sum += trial.duration_s;
    }
    let exceed_coefficient = goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let positive_excess = f64::max(0.0, short_high - short_low * exceed_coefficient);
    let high: f64 = full_high + positive_excess;
    let whole = (full_low + high).max(goal.duration_sum_s);
    let tolerated = whole * (goal.exceed_ratio + ROUNDING);
    let pessimistic_high = whole - full_low;
    if high > tolerated {
        LoadClass::Upper
    } else if pessimistic_high <= tolerated {
        LoadClass::Lower
    } else {
        LoadClass::Undecided
    }
}

/// Conditional Throughput of a load that is a lower bound, in frames per second; `None` without a
/// trial of full length.
pub fn conditional_throughput<'a>(
    goal: &Goal,
    load_fps: f64,
    trials: impl Iterator<Item = &'a TrialRecord>,
) -> Option<f64> {
    let mut full: Vec<&TrialRecord> =
        trials.filter(|trial| trial.duration_s >= goal.final_trial_s).collect();
    full.sort_by(|a, b| a.loss_ratio().total_cmp(&b.loss_ratio()));
    let sum: f64 = full.iter().map(|trial| trial.duration_s).sum();
    let whole = sum.max(goal.duration_sum_s);
    let mut remaining = whole * (1.0 - goal.exceed_ratio - ROUNDING);
    let mut loss_ratio = full.first()?.loss_ratio();
    for trial in full {
        if remaining <= 0.0 {
            return Some(load_fps * (1.0 - loss_ratio));
        }
        loss_ratio = trial.loss_ratio();
        remaining -= trial.duration_s;
    }
    // Too few trials for the quantile: not a lower bound.
    Some(if remaining > 0.0 { 0.0 } else { load_fps * (1.0 - loss_ratio) })
}

#[cfg(test)]
mod tests {
    use super::super::trial::TrialOutcome;
    use super::*;

    /// Trial Results of the example in RFC 9971, appendix C: count, seconds, loss in per mille.
    fn example(points: usize) -> Vec<TrialRecord> {
        let added =
            [(59, 1.0, 0), (1, 1.0, 10), (59, 1.0, 10), (1, 1.0, 0), (1, 60.0, 1), (1, 60.0, 0)];
        let trial = |seconds: f64, lost: u64| {
            let outcome =
                TrialOutcome { offered: 1000, delivered: 1000 - lost, seconds, generator_ok: true };
            TrialRecord::new(1e6, seconds, outcome)
        };
        let trials = added[..points]
            .iter()
            .flat_map(|(n, s, lost)| std::iter::repeat_n(trial(*s, *lost), *n));
        trials.collect()
    }

    fn example_goals() -> [Goal; 4] {
        let goal = |final_trial_s, duration_sum_s, loss_ratio, exceed_ratio| Goal {
            loss_ratio,
            loss_tolerance: 0.0,
            exceed_ratio,
            initial_trial_s: final_trial_s,
            final_trial_s,
            duration_sum_s,
            width: 0.005,
        };
        [
            goal(60.0, 60.0, 0.0, 0.0),
            goal(60.0, 120.0, 0.0, 0.5),
            goal(1.0, 120.0, 0.005, 0.5),
            goal(60.0, 60.0, 0.005, 0.2),
        ]
    }

    #[test]
    fn loads_are_classified_as_in_the_example_of_the_rfc() {
        use LoadClass::{Lower as L, Undecided as U, Upper as H};
        // At points 5 and 6 the example calls the load a lower bound of the fourth goal, against
        // its own rule: the exceed ratios of 42.9 % and 27.3 % are larger than the goal's 20 %.
        let expected =
            [[U, U, U, U], [H, U, U, U], [H, U, U, H], [H, U, L, H], [H, U, L, H], [H, L, L, H]];
        for (point, expected) in expected.iter().enumerate() {
            let trials = example(point + 1);
            let classes = example_goals().map(|goal| classify(&goal, trials.iter()));
            assert_eq!(classes, *expected, "point {}", point + 1);
        }
        assert_eq!(classify(&Goal::ndr(), [].iter()), LoadClass::Undecided);
    }

    #[test]
    fn conditional_throughput_is_that_of_the_example_of_the_rfc() {
        let trials = example(6);
        let of = |goal: &Goal| conditional_throughput(goal, 1e6, trials.iter()).unwrap();
        let [_, tst009, one_second, exceed_20] = example_goals();
        assert_eq!([of(&tst009), of(&one_second), of(&exceed_20)], [1e6, 1e6, 999e3]);
        assert_eq!(conditional_throughput(&tst009, 1e6, example(4).iter()), None);
    }
}

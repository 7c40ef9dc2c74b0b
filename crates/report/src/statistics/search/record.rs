//! Trials performed so far, by load.

use super::classify::{Bound, classify};
use super::goal::Goal;

/// Irregular trials at one load from which on it can be out of the generator's reach.
pub const IRREGULAR_TRIALS_MAX: usize = 3;
/// Least share of the duration asked for that a trial must have lasted.
const DURATION_MIN: f64 = 0.99;

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Frames that the generator sent.
    pub offered: u64,
    /// Frames that came back.
    pub delivered: u64,
    /// Time that the trial took, seconds.
    pub seconds: f64,
    /// `true` if the generator kept its rate for the whole trial.
    pub generator_ok: bool,
}

/// A trial and its outcome: the Trial Result of RFC 9971.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialRecord {
    /// Load asked for, frames per second.
    pub load_fps: f64,
    /// Duration asked for, seconds.
    pub duration_s: f64,
    /// Outcome.
    pub outcome: Outcome,
    /// `false` if the trial does not count: the generator missed its rate, or the trial ended
    /// early.
    pub regular: bool,
}

impl TrialRecord {
    /// Trial of `duration_s` at `load_fps` that ended with `outcome`.
    pub fn new(load_fps: f64, duration_s: f64, outcome: Outcome) -> TrialRecord {
        let lasted = outcome.seconds.is_finite() && outcome.seconds >= DURATION_MIN * duration_s;
        let regular = outcome.generator_ok && outcome.offered > 0 && lasted;
        TrialRecord { load_fps, duration_s, outcome, regular }
    }

    /// Trial Loss Ratio: 0 to 1; 1 if no frame was sent.
    pub fn loss_ratio(&self) -> f64 {
        let Outcome { offered, delivered, .. } = self.outcome;
        if offered == 0 {
            return 1.0;
        }
        // A duplicated frame does not make up for a lost one, but cannot be told from it here.
        offered.saturating_sub(delivered) as f64 / offered as f64
    }

    /// Time that counts against the limit, seconds: at least the time asked for.
    fn spent_s(&self) -> f64 {
        let seconds = self.outcome.seconds;
        if seconds.is_finite() { seconds.max(self.duration_s) } else { self.duration_s }
    }
}

/// Relevant bounds of a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bounds {
    /// Largest lower bound below `upper`; without one, the largest of all.
    pub(super) lower: Option<f64>,
    /// Smallest upper bound.
    pub(super) upper: Option<f64>,
    /// Smallest load above `lower` that is out of the generator's reach.
    pub(super) out_of_reach: Option<f64>,
}

/// All trials.
#[derive(Default)]
pub(super) struct Record {
    /// In the order of time.
    pub(super) trials: Vec<TrialRecord>,
    /// Time spent, seconds.
    pub(super) seconds: f64,
    /// Loads in ascending order, each with the indices of its trials.
    loads: Vec<(f64, Vec<usize>)>,
}

impl Record {
    pub(super) fn add(&mut self, trial: TrialRecord) {
        let index = self.trials.len();
        match self.loads.binary_search_by(|(load, _)| load.total_cmp(&trial.load_fps)) {
            Ok(at) => self.loads[at].1.push(index),
            Err(at) => self.loads.insert(at, (trial.load_fps, vec![index])),
        }
        self.seconds += trial.spent_s();
        self.trials.push(trial);
    }

    /// Trials at a load.
    pub(super) fn trials_at(&self, load_fps: f64) -> impl Iterator<Item = &TrialRecord> {
        let at = self.loads.binary_search_by(|(load, _)| load.total_cmp(&load_fps));
        let indices = at.map_or(&[][..], |at| &self.loads[at].1);
        indices.iter().map(|&index| &self.trials[index])
    }

    /// Loss inversion: a load above `upper` is a lower bound.
    pub(super) fn is_inverted(&self, goal: &Goal, upper: f64) -> bool {
        self.loads.iter().any(|(load, _)| {
            let regular = self.trials_at(*load).filter(|trial| trial.regular);
            *load > upper && classify(goal, regular) == Bound::Lower
        })
    }

    /// Relevant bounds for `goal`.
    pub(super) fn bounds(&self, goal: &Goal) -> Bounds {
        let mut bounds = Bounds::default();
        for (load, indices) in &self.loads {
            let regular = indices.iter().map(|&index| &self.trials[index]).filter(|t| t.regular);
            let irregular = indices.len() - regular.clone().count();
            match classify(goal, regular) {
                Bound::Upper => {
                    bounds.upper = Some(*load);
                    break;
                }
                Bound::Lower => {
                    bounds.lower = Some(*load);
                    // The generator did reach this load.
                    bounds.out_of_reach = None;
                }
                Bound::Undecided => {
                    let fails = irregular >= IRREGULAR_TRIALS_MAX && 2 * irregular >= indices.len();
                    if fails && bounds.out_of_reach.is_none() {
                        bounds.out_of_reach = Some(*load);
                    }
                }
            }
        }
        bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_ends_early_does_not_count() {
        let outcome = |seconds| Outcome { offered: 9, delivered: 9, seconds, generator_ok: true };
        let is_regular = |seconds| TrialRecord::new(9.0, 1.0, outcome(seconds)).regular;
        assert!(is_regular(1.0) && is_regular(2.5));
        assert!(!is_regular(0.5) && !is_regular(f64::NAN) && !is_regular(-1.0));
        let nothing = Outcome { offered: 0, delivered: 0, ..outcome(1.0) };
        assert!(!TrialRecord::new(9.0, 1.0, nothing).regular);
    }

    #[test]
    fn a_load_is_out_of_reach_until_a_higher_one_is_reached() {
        let goal = Goal { duration_sum_s: 9.0, ..Goal::ndr() };
        let mut record = Record::default();
        let mut run = |load_fps, count, generator_ok| {
            let outcome = Outcome { offered: 9, delivered: 9, seconds: 1.0, generator_ok };
            (0..count).for_each(|_| record.add(TrialRecord::new(load_fps, 1.0, outcome)));
            record.bounds(&goal).out_of_reach
        };
        assert_eq!(run(2e6, 2, false), None);
        assert_eq!(run(2e6, 1, false), Some(2e6));
        assert_eq!(run(3e6, 3, false), Some(2e6));
        // More regular trials than irregular ones: noise.
        assert_eq!(run(2e6, 3, true), Some(2e6));
        assert_eq!(run(2e6, 1, true), Some(3e6));
        assert_eq!(run(1e6, 3, false), Some(1e6));
        assert_eq!(run(2e6, 4, true), Some(3e6));
        assert_eq!(record.bounds(&goal).lower, Some(2e6));
    }
}

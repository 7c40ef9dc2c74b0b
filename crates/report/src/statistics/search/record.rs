//! Trials performed so far, by load.

use super::classify::{LoadClass, classify};
use super::goal::Goal;
use super::trial::TrialRecord;

/// Number of irregular trials at one load after which it may be out of the generator's reach.
pub const IRREGULAR_TRIALS_MAX: usize = 3;

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
pub(super) struct TrialLog {
    /// In the order of time.
    pub(super) trials: Vec<TrialRecord>,
    /// Time spent, seconds.
    pub(super) seconds: f64,
    /// Loads in ascending order, each with the indices of its trials.
    loads: Vec<(f64, Vec<usize>)>,
}

impl TrialLog {
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
            *load > upper && classify(goal, regular) == LoadClass::Lower
        })
    }

    /// Relevant bounds for `goal`.
    pub(super) fn bounds(&self, goal: &Goal) -> Bounds {
        let mut bounds = Bounds::default();
        for (load, indices) in &self.loads {
            let regular = indices.iter().map(|&index| &self.trials[index]).filter(|t| t.regular);
            let irregular = indices.len() - regular.clone().count();
            match classify(goal, regular) {
                LoadClass::Upper => {
                    bounds.upper = Some(*load);
                    break;
                }
                LoadClass::Lower => {
                    bounds.lower = Some(*load);
                    // The generator did reach this load.
                    bounds.out_of_reach = None;
                }
                LoadClass::Undecided => {
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
    use super::super::trial::TrialOutcome;
    use super::*;

    #[test]
    fn a_trial_that_ends_early_does_not_count() {
        let outcome =
            |seconds| TrialOutcome { offered: 9, delivered: 9, seconds, generator_ok: true };
        let is_regular = |seconds| TrialRecord::new(9.0, 1.0, outcome(seconds)).regular;
        assert!(is_regular(1.0) && is_regular(2.5));
        assert!(!is_regular(0.5) && !is_regular(f64::NAN) && !is_regular(-1.0));
        let nothing = TrialOutcome { offered: 0, delivered: 0, ..outcome(1.0) };
        assert!(!TrialRecord::new(9.0, 1.0, nothing).regular);
    }

    #[test]
    fn a_load_is_out_of_reach_until_a_higher_one_is_reached() {
        let goal = Goal { duration_sum_s: 9.0, ..Goal::ndr() };
        let mut record = TrialLog::default();
        let mut run = |load_fps, count, generator_ok| {
            let outcome = TrialOutcome { offered: 9, delivered: 9, seconds: 1.0, generator_ok };
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

//! Throughput search for several loss ratios at once: MLRsearch, RFC 9971.
//!
//! # Model
//! [`ThroughputSearch::run`] is the RFC's Controller, [`Trial`] its Measurer. Each goal is searched
//! in stages: short single trials at a coarse width first, then trials of final length until their
//! sum of durations classifies the load. Each trial counts for every goal. A stage begins at the
//! bounds of the stage before it and expands them outwards in doubling steps if they do not hold.
//! It then halves the interval geometrically until it is as narrow as the stage's width.
//!
//! The result follows appendices A and B of the RFC to the letter, for any sequence of loads: see
//! [`classify`] and [`GoalResult`]. All loads are frames per second as offered in total; the caller
//! decides whether they count one direction or both.
//!
//! # Irregular trials
//! A trial whose generator missed its rate, or that ended early, classifies no load: neither up, as
//! the device saw less than the load, nor down, as a stalled generator sends bursts afterwards. The
//! trial is repeated. After [`IRREGULAR_TRIALS_MAX`] of them, if they are at least half of the
//! trials at that load, the load is out of the generator's reach and the search stays below it. A
//! goal that ends there has [`StopReason::GeneratorLimit`] and no regular result.
//!
//! # Stolen time
//! A goal without loss needs trials most of which see no steal. Choose a final duration so short
//! that at most one trial in five is hit, and a sum of 21 of them. Simulated devices that lose
//! their CPU for 2 to 8 ms show why. At 0.2 steals per trial of 1 s, NDR and PDR agree with a sweep
//! in 200 of 200 searches; at 0.2 per trial of 0.25 s, in 197 and 199. At 0.4 per trial of 1 s, the
//! NDR agrees in 28 of 50 only, although each result is regular: the width does not show noise. To
//! check a host, run trials at half of the NDR found: at most one in five may show loss.
//!
//! # Limits
//! The search ends within its limits of trials and of time, also on a device whose loss does not
//! grow with load. The last trial may exceed the time limit by its own overrun.

mod classify;
mod goal;
mod progress;
mod record;
#[cfg(test)]
mod tests;
mod trial;

pub use classify::{LoadClass, classify, conditional_throughput};
pub use goal::{Goal, InvalidSetting, NDR_TOLERANCE, SearchLimits};
pub use progress::StopReason;
pub use record::IRREGULAR_TRIALS_MAX;
pub use trial::{Trial, TrialOutcome, TrialRecord};

use progress::{Next, Progress};
use record::TrialLog;

/// Result of one goal, as RFC 9971 defines it, at the end of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalResult {
    /// Goal it belongs to.
    pub goal: Goal,
    /// Relevant lower bound: the largest lower bound below `upper_fps`. Without an upper bound, the
    /// largest lower bound of all.
    pub lower_fps: Option<f64>,
    /// Relevant upper bound: the smallest load classified as an upper bound.
    pub upper_fps: Option<f64>,
    /// Forwarding rate at `lower_fps` (appendix B): the figure to compare and to report.
    pub conditional_throughput_fps: Option<f64>,
    /// Loss inversion: a load above `upper_fps` is a lower bound for this goal. The result is then
    /// conservative, and the host or the device is noisy. Without it they may be noisy as well.
    pub loss_inversion: bool,
    /// Reason why the search for it ended.
    pub stop: StopReason,
}

impl GoalResult {
    /// Regular Goal Result: both bounds exist, no further apart than the goal's width. Values of
    /// any other result must be marked as irregular where they are shown.
    pub fn is_regular(&self) -> bool {
        self.stop == StopReason::Width
    }
}

/// Result of a search: the RFC's Controller Output.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// One result per goal, in their order.
    pub goals: Vec<GoalResult>,
    /// Every trial, in the order of time.
    pub trials: Vec<TrialRecord>,
    /// Time that the trials took, in seconds.
    pub seconds: f64,
}

/// A search with valid settings.
#[derive(Clone, Debug)]
pub struct ThroughputSearch {
    goals: Vec<Goal>,
    limits: SearchLimits,
}

impl ThroughputSearch {
    /// Search for `goals` within `limits`. List the goal of the smallest loss ratio first: bounds
    /// found at low loads are less often invalidated by later trials.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn new(goals: Vec<Goal>, limits: SearchLimits) -> Result<ThroughputSearch, InvalidSetting> {
        limits.validate()?;
        if goals.is_empty() {
            return Err(InvalidSetting::new(None, "goals", 0.0, "at least one"));
        }
        for (index, goal) in goals.iter().enumerate() {
            goal.validate(index)?;
        }
        Ok(ThroughputSearch { goals, limits })
    }

    /// Runs trials until every goal has its result or a limit is reached.
    ///
    /// # Errors
    /// The first error of a trial.
    pub fn run<T: Trial>(&self, device: &mut T) -> Result<SearchResult, T::Error> {
        let mut record = TrialLog::default();
        let mut progress: Vec<Progress> = self.goals.iter().map(Progress::new).collect();
        let mut limit = None;
        while let Some((load_fps, seconds)) = self.next_trial(&mut progress, &record) {
            if record.trials.len() >= self.limits.trials_max {
                limit = Some(StopReason::TrialLimit);
                break;
            }
            if record.seconds + seconds > self.limits.seconds_max {
                limit = Some(StopReason::TimeLimit);
                break;
            }
            let outcome = device.run(load_fps, seconds)?;
            record.add(TrialRecord::new(load_fps, seconds, outcome));
        }
        Ok(SearchResult {
            goals: self.goals.iter().map(|goal| self.result(goal, &record, limit)).collect(),
            seconds: record.seconds,
            trials: record.trials,
        })
    }

    /// Load and duration of the next trial: the first is at maximum load, for an estimate.
    fn next_trial(&self, progress: &mut [Progress], record: &TrialLog) -> Option<(f64, f64)> {
        if record.trials.is_empty() {
            let shortest = self.goals.iter().map(|goal| goal.initial_trial_s);
            return Some((self.limits.max_load_fps, shortest.fold(f64::INFINITY, f64::min)));
        }
        progress.iter_mut().find_map(|goal| goal.next_trial(record, &self.limits))
    }

    fn result(&self, goal: &Goal, record: &TrialLog, limit: Option<StopReason>) -> GoalResult {
        let bounds = record.bounds(goal);
        let stop = match progress::next(goal, record, &self.limits, [None; 2], goal.width) {
            Next::Stop(stop) => stop,
            // Without a limit no goal has a next trial.
            Next::GeneratorLoad { .. } => limit.unwrap_or(StopReason::TrialLimit),
        };
        let regular = |load| record.trials_at(load).filter(|trial| trial.regular);
        let throughput = |load| conditional_throughput(goal, load, regular(load));
        GoalResult {
            goal: *goal,
            lower_fps: bounds.lower,
            upper_fps: bounds.upper,
            conditional_throughput_fps: bounds.lower.and_then(throughput),
            loss_inversion: bounds.upper.is_some_and(|upper| record.is_inverted(goal, upper)),
            stop,
        }
    }
}

//! Choice of the next load for one goal.

use super::goal::{Goal, SearchLimits};
use super::record::TrialLog;

/// Largest expansion step, relative to the bound.
const STEP_MAX: f64 = 0.5;

/// Reason why the search for a goal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The relevant bounds are as close as the goal's width. Only this result is regular.
    Width,
    /// The maximum load is a lower bound: the device may do more.
    MaxLoad,
    /// The minimum load is an upper bound: the device does less.
    MinLoad,
    /// The generator cannot offer more than about the lower bound: the device may do more.
    GeneratorLimit,
    /// The limit on the number of trials.
    TrialLimit,
    /// The limit on the time of all trials.
    TimeLimit,
}

/// Next action for a goal.
pub(super) enum Next {
    /// A trial at this load; `expanded` is the bound if the load lies outside known bounds.
    GeneratorLoad { load_fps: f64, expanded: Option<f64> },
    /// No more trials.
    Stop(StopReason),
}

/// Progress of one goal through its stages.
pub(super) struct Progress {
    stages: Vec<Goal>,
    stage: usize,
    /// Loads to try before any other: the expected lower and upper bound.
    hints: Option<[Option<f64>; 2]>,
    /// Relative step of the next expansion.
    step: f64,
    /// Bound from which the last expansion began.
    expanded: Option<f64>,
}

impl Progress {
    pub(super) fn new(goal: &Goal) -> Progress {
        let stages = goal.stages();
        let step = stages[0].width;
        Progress { stages, stage: 0, hints: None, step, expanded: None }
    }

    /// Load and duration of this goal's next trial; `None` if it has its result.
    pub(super) fn next_trial(
        &mut self,
        record: &TrialLog,
        limits: &SearchLimits,
    ) -> Option<(f64, f64)> {
        loop {
            let goal = self.stages[self.stage];
            let hints = *self.hints.get_or_insert_with(|| estimate(&goal, record));
            match next(&goal, record, limits, hints, self.step) {
                Next::GeneratorLoad { load_fps, expanded: None } => {
                    return Some((load_fps, goal.final_trial_s));
                }
                Next::GeneratorLoad { load_fps, expanded } => {
                    if expanded == self.expanded || self.expanded.is_none() {
                        self.expanded = expanded;
                        return Some((load_fps, goal.final_trial_s));
                    }
                    // The last expansion found the same kind of bound again.
                    self.expanded = None;
                    self.step = (2.0 * self.step).min(STEP_MAX);
                }
                Next::Stop(_) if self.stage + 1 < self.stages.len() => {
                    let bounds = record.bounds(&goal);
                    self.stage += 1;
                    self.hints = Some([bounds.lower, bounds.upper]);
                    self.step = self.stages[self.stage].width;
                    self.expanded = None;
                }
                Next::Stop(_) => return None,
            }
        }
    }
}

/// Expected bounds from the first trial, at maximum load: an overloaded device forwards at its
/// maximum rate.
fn estimate(goal: &Goal, record: &TrialLog) -> [Option<f64>; 2] {
    let Some(first) = record.trials.first() else {
        return [None; 2];
    };
    let rate_fps = first.load_fps * (1.0 - first.loss_ratio());
    let offered_fps = first.outcome.offered as f64 / first.duration_s;
    let load_fps = rate_fps.min(offered_fps) / (1.0 - goal.loss_ratio_max());
    [Some(load_fps * (1.0 - goal.width / 2.0)), Some(load_fps * (1.0 + goal.width / 2.0))]
}

/// Next load for `goal`, from all trials so far; `hints` are tried first, `step` is the relative
/// distance to a load outside known bounds.
pub(super) fn next(
    goal: &Goal,
    record: &TrialLog,
    limits: &SearchLimits,
    hints: [Option<f64>; 2],
    step: f64,
) -> Next {
    let bounds = record.bounds(goal);
    let lower = bounds.lower;
    let (top, at_top) = match (bounds.upper, bounds.out_of_reach) {
        (_, Some(load)) => (Some(load), StopReason::GeneratorLimit),
        (Some(load), None) => (Some(load), StopReason::Width),
        (None, None) => (None, StopReason::MaxLoad),
    };
    match (lower, top) {
        (Some(lower), None) if lower >= limits.max_load_fps => {
            return Next::Stop(StopReason::MaxLoad);
        }
        (None, Some(top)) if top <= limits.min_load_fps => {
            let is_upper = at_top == StopReason::Width;
            return Next::Stop(if is_upper { StopReason::MinLoad } else { at_top });
        }
        (Some(lower), Some(top)) if top - lower <= goal.width * top => return Next::Stop(at_top),
        _ => {}
    }
    let is_between = |load: &f64| {
        lower.is_none_or(|lower| *load > lower)
            && top.is_none_or(|top| *load < top)
            && (limits.min_load_fps..=limits.max_load_fps).contains(load)
    };
    if let Some(load_fps) = hints.into_iter().flatten().find(is_between) {
        return Next::GeneratorLoad { load_fps, expanded: None };
    }
    let (load_fps, expanded) = match (lower, top) {
        (Some(lower), Some(top)) => ((lower * top).sqrt(), None),
        (Some(lower), None) => ((lower / (1.0 - step)).min(limits.max_load_fps), Some(lower)),
        (None, Some(top)) => ((top * (1.0 - step)).max(limits.min_load_fps), Some(top)),
        (None, None) => (limits.max_load_fps, None),
    };
    Next::GeneratorLoad { load_fps, expanded }
}

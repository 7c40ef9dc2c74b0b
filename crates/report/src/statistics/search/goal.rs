//! Search goals and limits, and their ranges.

use std::fmt;

/// Loss ratio that still counts as no loss for [`Goal::ndr`]: the NDR of NFVbench, 0.001 %.
pub const NDR_TOLERANCE: f64 = 1e-5;

/// Search Goal of RFC 9971.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Goal Loss Ratio: the largest loss ratio of a low-loss trial; at least 0, below 1.
    pub loss_ratio: f64,
    /// Tolerance added to `loss_ratio`, to be stated with the result. A few frames lost to a
    /// stolen CPU are not the device's limit; at least 0.
    pub loss_tolerance: f64,
    /// Goal Exceed Ratio: the share of trial time with higher loss that a lower bound tolerates; at
    /// least 0, below 1. The RFC recommends 0.5: half of the trials decide, and stolen time hits
    /// less than half.
    pub exceed_ratio: f64,
    /// Goal Initial Trial Duration, seconds: the shortest trial; 0.001 to `final_trial_s`.
    pub initial_trial_s: f64,
    /// Goal Final Trial Duration, seconds: the length of a trial that counts in full.
    pub final_trial_s: f64,
    /// Goal Duration Sum, seconds: trials at one load until it is classified for certain; at least
    /// `final_trial_s`.
    pub duration_sum_s: f64,
    /// Goal Width: the largest distance of the relevant bounds, relative to the upper one; 0.0001
    /// to 0.5. The RFC recommends no less than the largest loss ratio of all goals.
    pub width: f64,
}

impl Goal {
    /// Non-drop rate with [`NDR_TOLERANCE`]; durations, exceed ratio and width of FD.io CSIT (1 s
    /// and 21 s, 0.5 and 0.5 %), initial trials of 0.25 s.
    pub fn ndr() -> Goal {
        Goal {
            loss_ratio: 0.0,
            loss_tolerance: NDR_TOLERANCE,
            exceed_ratio: 0.5,
            initial_trial_s: 0.25,
            final_trial_s: 1.0,
            duration_sum_s: 21.0,
            width: 0.005,
        }
    }

    /// Partial-drop rate at `loss_ratio` (CSIT: 0.005) without tolerance; the rest as
    /// [`Goal::ndr`], but a width of no less than `loss_ratio`.
    pub fn pdr(loss_ratio: f64) -> Goal {
        let width = Goal::ndr().width.max(loss_ratio);
        Goal { loss_ratio, loss_tolerance: 0.0, width, ..Goal::ndr() }
    }

    /// Loss ratio above which a trial is a high-loss trial.
    pub fn loss_ratio_max(&self) -> f64 {
        self.loss_ratio + self.loss_tolerance
    }

    /// Stages of the search, the last of which is the goal itself: single trials that grow fourfold
    /// from the initial to the final duration, at widths that halve from stage to stage.
    pub(super) fn stages(&self) -> Vec<Goal> {
        let mut duration = self.final_trial_s;
        let mut single_s = Vec::new();
        if self.duration_sum_s > duration {
            single_s.push(duration);
        }
        while duration > self.initial_trial_s {
            duration = (duration / 4.0).max(self.initial_trial_s);
            single_s.push(duration);
        }
        let mut stages = vec![*self];
        let mut width = self.width;
        for duration in single_s {
            width = (2.0 * width).min(0.5);
            stages.push(Goal { width, final_trial_s: duration, duration_sum_s: duration, ..*self });
        }
        stages.reverse();
        stages
    }

    /// Checks the ranges; `index` counts goals from 0.
    pub(super) fn validate(&self, index: usize) -> Result<(), InvalidSetting> {
        let one = 1.0 - f64::EPSILON;
        let checks = [
            ("loss_ratio", self.loss_ratio, 0.0, one, "0 or more and below 1"),
            ("loss_tolerance", self.loss_tolerance, 0.0, one, "0 or more and below 1"),
            ("loss_ratio_max", self.loss_ratio_max(), 0.0, one, "0 or more and below 1"),
            ("exceed_ratio", self.exceed_ratio, 0.0, one, "0 or more and below 1"),
            ("final_trial_s", self.final_trial_s, 0.001, 86_400.0, "0.001 to 86400 s"),
            (
                "initial_trial_s",
                self.initial_trial_s,
                0.001,
                self.final_trial_s,
                "0.001 s to final_trial_s",
            ),
            (
                "duration_sum_s",
                self.duration_sum_s,
                self.final_trial_s,
                1e7,
                "final_trial_s to 10000000 s",
            ),
            ("width", self.width, 1e-4, 0.5, "0.0001 to 0.5"),
        ];
        for (name, value, min, max, allowed) in checks {
            if !(min..=max).contains(&value) {
                return Err(InvalidSetting::new(Some(index), name, value, allowed));
            }
        }
        Ok(())
    }
}

/// Limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchLimits {
    /// Smallest load, frames per second: above 0, and large enough for some frames in the shortest
    /// trial.
    pub min_load_fps: f64,
    /// Largest load, frames per second: line rate, or the generator's measured maximum.
    pub max_load_fps: f64,
    /// Most trials.
    pub trials_max: usize,
    /// Most time of all trials together, seconds.
    pub seconds_max: f64,
}

impl SearchLimits {
    pub(super) fn validate(&self) -> Result<(), InvalidSetting> {
        let invalid = |name, value, allowed| Err(InvalidSetting::new(None, name, value, allowed));
        let SearchLimits { min_load_fps, max_load_fps, trials_max, seconds_max } = *self;
        if !(min_load_fps > 0.0 && min_load_fps.is_finite()) {
            return invalid("min_load_fps", min_load_fps, "above 0");
        }
        if !(max_load_fps > min_load_fps && max_load_fps.is_finite()) {
            return invalid("max_load_fps", max_load_fps, "above min_load_fps");
        }
        if trials_max == 0 {
            return invalid("trials_max", 0.0, "at least 1");
        }
        if seconds_max.is_nan() || seconds_max <= 0.0 {
            return invalid("seconds_max", seconds_max, "above 0");
        }
        Ok(())
    }
}

/// A setting out of its range.
#[derive(Clone, Debug, PartialEq)]
pub struct InvalidSetting {
    goal: Option<usize>,
    name: &'static str,
    value: f64,
    allowed: &'static str,
}

impl InvalidSetting {
    pub(super) fn new(
        goal: Option<usize>,
        name: &'static str,
        value: f64,
        allowed: &'static str,
    ) -> InvalidSetting {
        InvalidSetting { goal, name, value, allowed }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.goal {
            write!(f, "goal {}: ", index + 1)?;
        }
        write!(f, "{} = {}: out of range; allowed: {}", self.name, self.value, self.allowed)
    }
}

impl std::error::Error for InvalidSetting {}

#[cfg(test)]
mod tests {
    use super::super::ThroughputSearch;
    use super::*;

    const VALID: SearchLimits =
        SearchLimits { min_load_fps: 1e4, max_load_fps: 1e7, trials_max: 9, seconds_max: 9.0 };

    #[test]
    fn settings_out_of_range_are_rejected() {
        let error = |goal: Goal, limits| {
            ThroughputSearch::new(vec![Goal::ndr(), goal], limits)
                .err()
                .map(|error| error.to_string())
        };
        let ndr = Goal::ndr();
        assert_eq!(error(ndr, VALID), None);
        let text = error(Goal { exceed_ratio: 1.0, ..ndr }, VALID).unwrap();
        assert_eq!(text, "goal 2: exceed_ratio = 1: out of range; allowed: 0 or more and below 1");
        for bad in [
            Goal { width: f64::NAN, ..ndr },
            Goal { initial_trial_s: 2.0, ..ndr },
            Goal { duration_sum_s: 0.5, ..ndr },
            Goal { loss_ratio: 0.6, loss_tolerance: 0.6, ..ndr },
        ] {
            assert!(error(bad, VALID).is_some(), "{bad:?}");
        }
        let text = error(ndr, SearchLimits { min_load_fps: 0.0, ..VALID }).unwrap();
        assert_eq!(text, "min_load_fps = 0: out of range; allowed: above 0");
        assert!(error(ndr, SearchLimits { max_load_fps: 1.0, ..VALID }).is_some());
        assert!(error(ndr, SearchLimits { trials_max: 0, ..VALID }).is_some());
        assert!(error(ndr, SearchLimits { seconds_max: f64::NAN, ..VALID }).is_some());
        assert!(ThroughputSearch::new(vec![], VALID).is_err());
    }
}

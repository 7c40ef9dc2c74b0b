//! Trials and their outcomes.

/// Minimum share of the requested duration of a valid trial.
const DURATION_MIN: f64 = 0.99;

/// Device under test with its traffic generator: the Measurer of RFC 9971.
///
/// Closures `FnMut(load_fps, seconds) -> Result<TrialOutcome, E>` implement it.
pub trait Trial {
    /// Failure to perform a trial; it ends the search.
    type Error;

    /// Offers `load_fps` frames per second for `seconds`.
    ///
    /// # Errors
    /// The trial could not be performed.
    fn run(&mut self, load_fps: f64, seconds: f64) -> Result<TrialOutcome, Self::Error>;
}

impl<E, F: FnMut(f64, f64) -> Result<TrialOutcome, E>> Trial for F {
    type Error = E;

    fn run(&mut self, load_fps: f64, seconds: f64) -> Result<TrialOutcome, E> {
        self(load_fps, seconds)
    }
}

/// Raw result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialOutcome {
    /// Frames that the generator sent.
    pub offered: u64,
    /// Frames that returned.
    pub delivered: u64,
    /// Duration of the trial, in seconds.
    pub seconds: f64,
    /// `true` if the generator kept its rate for the whole trial.
    pub generator_ok: bool,
}

/// A trial and its outcome: the Trial Result of RFC 9971.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialRecord {
    /// Requested load, in frames per second.
    pub load_fps: f64,
    /// Requested duration, in seconds.
    pub duration_s: f64,
    /// Outcome.
    pub outcome: TrialOutcome,
    /// `false` if the trial does not count: the generator missed its rate, or the trial ended
    /// early.
    pub regular: bool,
}

impl TrialRecord {
    /// Trial of `duration_s` at `load_fps` that ended with `outcome`.
    pub fn new(load_fps: f64, duration_s: f64, outcome: TrialOutcome) -> TrialRecord {
        let lasted = outcome.seconds.is_finite() && outcome.seconds >= DURATION_MIN * duration_s;
        let regular = outcome.generator_ok && outcome.offered > 0 && lasted;
        TrialRecord { load_fps, duration_s, outcome, regular }
    }

    /// Trial Loss Ratio: 0 to 1; 1 if no frame was sent.
    pub fn loss_ratio(&self) -> f64 {
        let TrialOutcome { offered, delivered, .. } = self.outcome;
        if offered == 0 {
            return 1.0;
        }
        // A duplicated frame hides a lost one here.
        offered.saturating_sub(delivered) as f64 / offered as f64
    }

    /// Time that counts against the limit, in seconds: at least the requested duration.
    pub(super) fn spent_s(&self) -> f64 {
        let seconds = self.outcome.seconds;
        if seconds.is_finite() { seconds.max(self.duration_s) } else { self.duration_s }
    }
}

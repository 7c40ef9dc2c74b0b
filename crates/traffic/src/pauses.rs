//! Pauses of a polling generator, and the frames that met one.
//!
//! # Model
//! A polling thread that keeps its CPU polls again within a few microseconds. Two polls further
//! apart than [`PAUSE_MIN`] had a *pause* between them: an interrupt, the host's scheduler, another
//! process. A frame *met* a pause if it came back in one, so that it waited for the poll after it,
//! or if the pause began between its time stamp and its posting.
//!
//! # Limits
//! The generator sends nothing in its own pauses, so frames with delays shorter than a pause meet
//! fewer of them than frames with long delays: in an extreme, none, where these meet as many as the
//! pauses' share of the time. The other frames' quantiles are wrong by at most that share: with
//! pauses of 2 %, a p99 is at least the p98.98 of the device.

use std::collections::VecDeque;
use std::time::Duration;

use host::tsc;
use serde::{Deserialize, Serialize};

/// Shortest time between two polls that counts as a pause, per polled guest: longer than one full
/// burst takes.
pub const PAUSE_MIN: Duration = Duration::from_micros(10);
/// Maximum remembered time stamps of frames whose posting met a pause; a frame may be in flight for
/// as many pauses.
const STAMPS_MAX: usize = 4096;

/// Pauses of a generator, in the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PausesResult {
    /// Number of pauses.
    pub count: u64,
    /// Share of the time.
    pub share: f64,
    /// Longest pause, in microseconds.
    pub longest_us: f64,
}

impl PausesResult {
    /// Summary of trials of equal length: all pauses, the mean share, the longest of all.
    pub(super) fn of_trials(trials: impl ExactSizeIterator<Item = PausesResult>) -> PausesResult {
        let number = trials.len().max(1) as f64;
        trials.fold(PausesResult::default(), |all, trial| PausesResult {
            count: all.count + trial.count,
            share: all.share + trial.share / number,
            longest_us: all.longest_us.max(trial.longest_us),
        })
    }
}

/// Pauses between the polls of a generator. Times are readings of the time-stamp counter.
#[derive(Debug)]
pub(super) struct Pauses {
    /// Shortest pause.
    min: u64,
    /// First and last poll.
    polls: Option<(u64, u64)>,
    count: u64,
    sum: u64,
    longest: u64,
    /// `true` while frames that came back in a pause are not yet all polled.
    catching_up: bool,
    /// Time stamp of the frames posted since the last poll.
    posted: Option<u64>,
    /// Time stamps of frames whose posting met a pause, in ascending order.
    met: VecDeque<u64>,
}

impl Pauses {
    /// For a thread that polls `guests` guests.
    pub(super) fn new(guests: u32) -> Pauses {
        Pauses {
            min: tsc::duration_to_cycles(PAUSE_MIN * guests),
            polls: None,
            count: 0,
            sum: 0,
            longest: 0,
            catching_up: false,
            posted: None,
            met: VecDeque::new(),
        }
    }

    /// Records a poll of the receive ring at `now`; `full` means that frames remain in it. Returns
    /// `true` if its frames came back in a pause.
    pub(super) fn poll(&mut self, now: u64, full: bool) -> bool {
        let (first, last) = self.polls.unwrap_or((now, now));
        self.polls = Some((first, now));
        let posted = self.posted.take();
        let time = now.saturating_sub(last);
        let paused = time >= self.min;
        if paused {
            self.count += 1;
            self.sum += time;
            self.longest = self.longest.max(time);
            if let Some(stamp) = posted {
                self.met.truncate(STAMPS_MAX - 1);
                self.met.push_front(stamp);
            }
        }
        let late = paused || self.catching_up;
        self.catching_up = late && full;
        late
    }

    /// Records that frames with this time stamp are posted before the next poll.
    pub(super) fn post(&mut self, stamp: u64) {
        self.posted = Some(stamp);
    }

    /// `true` if frames with this time stamp met a pause as they were posted.
    pub(super) fn met(&self, stamp: u64) -> bool {
        self.met.binary_search_by(|met| stamp.cmp(met)).is_ok()
    }

    /// Restarts the count of pauses at the last poll; frames in flight keep theirs.
    pub(super) fn reset(&mut self) {
        self.polls = self.polls.map(|(_, last)| (last, last));
        (self.count, self.sum, self.longest) = (0, 0, 0);
    }

    pub(super) fn result(&self) -> PausesResult {
        let time = self.polls.map_or(0, |(first, last)| last.saturating_sub(first));
        PausesResult {
            count: self.count,
            share: self.sum as f64 / time.max(1) as f64,
            longest_us: tsc::cycles_to_ns(self.longest) / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses of 100 cycles or more.
    fn pauses() -> Pauses {
        Pauses { min: 100, ..Pauses::new(1) }
    }

    #[test]
    fn frames_of_the_polls_after_a_pause_met_it() {
        let mut pauses = pauses();
        let polls = [(1_000, false), (1_099, true), (1_199, true), (1_200, false), (1_201, true)];
        let late = polls.map(|(now, full)| pauses.poll(now, full));
        assert_eq!(late, [false, false, true, true, false], "the second poll after it is the rest");
        assert_eq!((pauses.count, pauses.sum, pauses.longest), (1, 100, 100));
        let share = pauses.result().share;
        assert!((share - 100.0 / 201.0).abs() < 1e-9, "{share}");
    }

    #[test]
    fn frames_that_were_posted_in_a_pause_met_it() {
        let mut pauses = pauses();
        pauses.poll(0, false);
        for (stamp, poll) in [(10, 20), (30, 200), (210, 220), (230, 400), (410, 420)] {
            pauses.post(stamp);
            pauses.poll(poll, false);
        }
        pauses.poll(600, false);
        assert_eq!(
            [10, 30, 210, 230, 410].map(|stamp| pauses.met(stamp)),
            [false, true, false, true, false]
        );
        assert_eq!(pauses.count, 3, "nothing was posted before the third");
    }

    #[test]
    fn stamps_are_bounded_and_outlive_a_reset() {
        let mut pauses = pauses();
        for n in 0..2 * STAMPS_MAX as u64 {
            pauses.post(n * 1_000);
            pauses.poll(n * 1_000 + 500, false);
        }
        pauses.reset();
        assert_eq!(pauses.met.len(), STAMPS_MAX);
        let newest = (2 * STAMPS_MAX as u64 - 1) * 1_000;
        assert!(pauses.met(newest) && !pauses.met(0));
        assert_eq!(pauses.result(), PausesResult::default());
    }
}

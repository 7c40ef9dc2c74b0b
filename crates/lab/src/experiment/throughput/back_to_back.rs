//! Back-to-back frames: the longest burst that a point forwards without loss.
//!
//! RFC 2544, section 26.4, as updated by RFC 9004. Each trial has a daemon and guests of its own: a
//! warm-up at a low rate, one burst at the generator's highest rate, and a wait until no frame
//! moves.
//!
//! # Limits
//! A virtio ring has back-pressure: a generator with a full transmit ring waits for the switch, so
//! the rate within a burst is at most the switch's. Frames are lost only behind it.

use std::path::Path;

use anyhow::{Context, Result};
use report::statistics::burst::{self, BurstLimits};
use report::statistics::quantile::median;
use serde::Serialize;
use traffic::{IN_FLIGHT, Role};

use super::trial::paced_trial;
use crate::bench::{Placement, interrupt};
use crate::experiment::forwarding::PointSpec;

/// Length of the first burst: the generator's number of buffers.
const FIRST: u64 = IN_FLIGHT as u64;
/// Seconds of the longest burst, at the closed loop's rate: a trial's shortest length by RFC 2544.
const LONGEST_S: f64 = 2.0;
/// Maximum distance of the shortest lossy burst from the longest without loss, relative.
const WIDTH: f64 = 0.02;
/// Seconds before a burst.
const WARMUP_S: f64 = 0.1;
/// Rate before a burst, relative to the closed loop's.
const WARMUP_LOAD: f64 = 0.05;
/// Seconds that a burst may exceed its expected time, besides the guests' own wait.
const SPARE_S: f64 = 0.05;

/// Longest bursts without loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackToBack {
    /// Frames of the longest burst without loss: the mean of all searches.
    pub average_frames: f64,
    /// Minimum.
    pub min_frames: u64,
    /// Maximum.
    pub max_frames: u64,
    /// Standard deviation.
    pub deviation_frames: f64,
    /// Number of searches.
    pub searches: usize,
    /// Searches without loss up to `longest_tried_frames`: their length is a lower limit.
    pub without_loss: usize,
    /// Longest tried burst.
    pub longest_tried_frames: u64,
    /// Bursts sent, in all searches.
    pub trials: usize,
    /// Bursts that the generator did not finish in time; they count as lossy.
    pub incomplete: usize,
    /// Rate within the bursts found, Mframes/s: the median. `None` if each was short enough to be
    /// posted at once.
    pub offered_mpps: Option<f64>,
    /// Meaning of the figures.
    pub statement: String,
}

/// A point, and its known figures.
pub(super) struct Point<'a> {
    /// The shunt binary.
    pub(super) program: &'a Path,
    /// Settings of the point.
    pub(super) spec: &'a PointSpec,
    /// CPUs.
    pub(super) placement: &'a Placement,
    /// Rate of the closed loop, frames a second.
    pub(super) closed_fps: f64,
}

/// Makes `searches` searches; `None` for 0. Passes each to `done`.
pub(super) fn measure(
    point: &Point<'_>,
    searches: usize,
    done: &mut impl FnMut(&str),
) -> Result<Option<BackToBack>> {
    let Point { program, spec, placement, closed_fps } = *point;
    let max = ((closed_fps * LONGEST_S) as u64).max(FIRST);
    let limits = BurstLimits { first: FIRST, max, width: WIDTH };
    let (mut found, mut rates, mut incomplete) = (Vec::new(), Vec::new(), 0);
    for search in 1..=searches {
        let mut rate = None;
        let longest = burst::longest(limits, |frames| {
            interrupt::check()?;
            let seconds = frames as f64 / closed_fps + SPARE_S;
            let spec = PointSpec { warmup_s: WARMUP_S, seconds, ..*spec };
            let account = paced_trial(program, &spec, placement, |flows| Role::Pace {
                flows,
                in_flight: IN_FLIGHT,
                load_fps: closed_fps * WARMUP_LOAD,
                burst: Some(frames),
            })?;
            let burst = account.burst.context("the generator sent no burst")?;
            incomplete += usize::from(burst.left > 0);
            let passed = burst.left == 0 && account.sent == account.received;
            if passed {
                rate = burst.rate_fps.map(|fps| fps / 1e6);
            }
            Ok::<_, anyhow::Error>(passed)
        })?;
        let (frames, trials) = (longest.frames, longest.trials);
        done(&format!("back to back {search} of {searches}: {frames} frames, {trials} trials"));
        rates.extend(rate);
        found.push(longest);
    }
    Ok(conclude(&found, &rates, incomplete, max))
}

fn conclude(
    found: &[burst::Longest],
    rates: &[f64],
    incomplete: usize,
    longest_tried_frames: u64,
) -> Option<BackToBack> {
    let lengths = || found.iter().map(|longest| longest.frames);
    let (min_frames, max_frames) = (lengths().min()?, lengths().max()?);
    let searches = found.len();
    let average_frames = lengths().sum::<u64>() as f64 / searches as f64;
    let squares = lengths().map(|frames| (frames as f64 - average_frames).powi(2));
    let deviation_frames = (squares.sum::<f64>() / (searches.max(2) - 1) as f64).sqrt();
    let without_loss = found.iter().filter(|longest| longest.lossy.is_none()).count();
    let statement = match without_loss {
        0 => "each search ended at a burst that lost frames twice in a row".to_owned(),
        all if all == searches => format!(
            "no loss up to {longest_tried_frames} frames, the longest burst tried: the figures are \
             lower limits, and no property of the switch"
        ),
        some => format!(
            "{some} of {searches} searches found no loss up to {longest_tried_frames} frames, the \
             longest burst tried: the losses of the others are not due to the length alone"
        ),
    };
    Some(BackToBack {
        average_frames,
        min_frames,
        max_frames,
        deviation_frames,
        searches,
        without_loss,
        longest_tried_frames,
        trials: found.iter().map(|longest| longest.trials).sum(),
        incomplete,
        offered_mpps: median(rates),
        statement,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::statistics::burst::Longest;

    fn search(frames: u64, lossy: Option<u64>) -> Longest {
        Longest { frames, lossy, trials: 10 }
    }

    #[test]
    fn searches_are_summed_up() {
        let found = [search(1_000, Some(1_010)), search(1_200, Some(1_210))];
        let result = conclude(&found, &[3.0, 4.0], 1, 9_000).unwrap();
        assert_eq!((result.min_frames, result.max_frames, result.trials), (1_000, 1_200, 20));
        assert!((result.average_frames - 1_100.0).abs() < 1e-9);
        assert!((result.deviation_frames - 141.42).abs() < 0.01, "{}", result.deviation_frames);
        assert_eq!((result.offered_mpps, result.incomplete), (Some(3.5), 1));
        assert!(result.statement.contains("each search ended at a burst that lost"));
        assert_eq!(conclude(&[], &[], 0, 1), None);
    }

    #[test]
    fn a_result_without_loss_is_stated_as_a_lower_limit() {
        let all = conclude(&[search(9_000, None)], &[], 0, 9_000).unwrap();
        assert!(all.statement.contains("no loss up to 9000 frames"), "{}", all.statement);
        assert_eq!((all.deviation_frames, all.offered_mpps), (0.0, None));
        let some = [search(9_000, None), search(700, Some(710))];
        let some = conclude(&some, &[], 0, 9_000).unwrap();
        assert!(some.statement.starts_with("1 of 2 searches found no loss"), "{}", some.statement);
    }
}

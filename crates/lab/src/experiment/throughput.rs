//! Throughput and latency of one point, by RFC 2544 and RFC 9971 (MLRsearch).
//!
//! The generator of [`forwarding`] sends at a constant rate, and each trial reports the offered and
//! the returned frames, and if the generator kept its rate. A search finds the non-drop rate (NDR)
//! and the partial-drop rate (PDR); then latency is measured at 10, 50 and 90 % of the NDR.
//!
//! On request, the longest burst without loss is searched for: [`BackToBack`].
//!
//! # Limits
//! A shared host takes CPU time away at any time, and frames are then lost at any rate: the NDR has
//! a loss tolerance, which is stated with it. With fewer than three CPUs the generator shares its
//! CPU with the guests, which then reach their limit first.

mod back_to_back;
mod trial;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use report::statistics::search::{
    Goal, GoalResult, SearchLimits, StopReason, ThroughputSearch, TrialOutcome, TrialRecord,
};
use report::{GeneratorLoad, PathKind, Pinned};
use serde::Serialize;
use traffic::{IN_FLIGHT, PacedResult, Role};

use super::forwarding::{self, PointSpec};
use crate::bench::Placement;
use crate::measure::distance;

pub use self::back_to_back::BackToBack;
use self::back_to_back::Point;
use self::trial::paced_trial;

/// Maximum share of due frames that a generator may skip and still count as on rate.
const SKIPPED_MAX: f64 = 0.005;
/// Shares of the NDR at which latency is measured.
const LATENCY_AT: [f64; 3] = [0.1, 0.5, 0.9];
/// Trials of each latency; the medians of their quantiles count (repetition: RFC 2544, section
/// 26.2).
const LATENCY_TRIALS: usize = 5;
/// Share of the NDR at which the soak runs.
const SOAK_AT: f64 = 0.5;
/// Largest load tried, relative to the closed loop's rate.
const MAX_LOAD: f64 = 2.0;
/// Smallest load tried, relative to the closed loop's rate.
const MIN_LOAD: f64 = 0.01;

/// Settings of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThroughputSettings {
    /// Loss ratio that counts as none for the NDR.
    pub ndr_tolerance: f64,
    /// Loss ratio of the PDR.
    pub pdr_loss: f64,
    /// Length of the shortest and of a full trial, seconds.
    pub trial_s: (f64, f64),
    /// Trial seconds at one load until it is decided.
    pub duration_sum_s: f64,
    /// Maximum share of trial time with more loss that a lower bound tolerates.
    pub exceed_ratio: f64,
    /// Maximum distance of lower and upper bound, relative to the upper one.
    pub width: f64,
    /// Maximum number of trials.
    pub trials_max: usize,
    /// Maximum seconds of all trials.
    pub seconds_max: f64,
    /// Seconds of the soak; 0: none.
    pub soak_s: f64,
    /// Searches for the longest burst without loss; 0: none.
    pub back_to_back: usize,
}

/// Result, printed by `shunt lab throughput --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Mframes/s in the closed loop.
    pub closed_loop_mpps: f64,
    /// NDR and PDR.
    pub rates: Vec<Rate>,
    /// Latency at shares of the NDR; empty without one.
    pub latency: Vec<LatencyAt>,
    /// One long trial at half of the NDR; `None` if not requested, or without an NDR.
    pub soak: Option<LatencyAt>,
    /// Longest burst without loss; `None` if not requested.
    pub back_to_back: Option<BackToBack>,
    /// All trials of the search, in the order of time.
    pub trials: Vec<TrialShown>,
    /// Seconds of all trials.
    pub seconds: f64,
    /// Pinned CPUs.
    pub pinned: Pinned,
    /// Round trip of a cache line between switch and guests, in cycles, before and after.
    pub round_trip_cycles: Option<[f64; 2]>,
}

/// A rate found by the search.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// `NDR` or `PDR`.
    pub name: &'static str,
    /// Maximum loss ratio of a low-loss trial, tolerance included.
    pub loss_ratio_max: f64,
    /// Relevant lower bound, Mframes/s: the rate. `None` without one.
    pub lower_mpps: Option<f64>,
    /// Relevant upper bound.
    pub upper_mpps: Option<f64>,
    /// Conditional throughput at the lower bound.
    pub throughput_mpps: Option<f64>,
    /// `true` if both bounds are as close as the width; otherwise the figure is invalid.
    pub regular: bool,
    /// `true` if a larger load than `upper_mpps` was a lower bound: the machine is noisy, and the
    /// rate may be too low.
    pub loss_inversion: bool,
    /// Reason for the end of the search.
    pub ended_by: &'static str,
}

/// Latency at one load.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyAt {
    /// Share of the NDR.
    pub share: f64,
    /// Load, Mframes/s.
    pub load_mpps: f64,
    /// `true` if the generator kept its rate in half of the trials; otherwise the figures are
    /// invalid.
    pub generator_ok: bool,
    /// Trials excluded because the generator missed its rate.
    pub left_out: usize,
    /// Account of the generator.
    #[serde(flatten)]
    pub account: PacedResult,
}

/// One trial.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TrialShown {
    /// Load, Mframes/s.
    pub load_mpps: f64,
    /// Length, seconds.
    pub seconds: f64,
    /// Frames offered.
    pub offered: u64,
    /// Frames that came back.
    pub delivered: u64,
    /// `false` if the generator missed its rate: the trial is ignored.
    pub regular: bool,
}

impl TrialShown {
    fn of(trial: &TrialRecord) -> TrialShown {
        TrialShown {
            load_mpps: trial.load_fps / 1e6,
            seconds: trial.duration_s,
            offered: trial.outcome.offered,
            delivered: trial.outcome.delivered,
            regular: trial.regular,
        }
    }
}

/// Searches, and measures latency. Passes each trial to `done`.
///
/// # Errors
/// A setting is out of range, or a trial fails.
pub fn run(
    program: &Path,
    spec: &PointSpec,
    cpus: &[usize],
    settings: &ThroughputSettings,
    mut done: impl FnMut(&str),
) -> Result<Throughput> {
    ensure!(spec.path != PathKind::Virtio, "the path virtio has no generator at a constant rate");
    let placement = forwarding::place(spec, cpus);
    let both = placement.switch.zip(placement.guests[0].0);
    let round_trip = || both.map(|(a, b)| distance::round_trip_cycles(a, b)).transpose();
    let before = round_trip()?;
    let seconds = settings.trial_s.1.max(0.5);
    let closed = PointSpec { load: GeneratorLoad::Closed, seconds, ..*spec };
    let closed = forwarding::run(program, &closed, cpus)?;
    done(&format!("closed loop: {:.3} Mpps", closed.offered_mpps));
    let closed_fps = closed.offered_mpps * 1e6;
    let [min_load_fps, max_load_fps] = [MIN_LOAD, MAX_LOAD].map(|share| closed_fps * share);
    let ThroughputSettings { trials_max, seconds_max, .. } = *settings;
    let limits = SearchLimits { min_load_fps, max_load_fps, trials_max, seconds_max };
    let search =
        ThroughputSearch::new(goals(settings), limits).context("the search cannot be made")?;
    let found = search.run(&mut |load_fps: f64, seconds: f64| {
        let account = trial(program, spec, &placement, load_fps, seconds)?;
        let PacedResult { sent, received, .. } = account;
        let lost = sent.saturating_sub(received) as f64 / sent.max(1) as f64;
        let generator_ok = kept_rate(&account);
        let missed = if generator_ok { "" } else { "; the generator missed its rate" };
        let (mpps, percent) = (load_fps / 1e6, lost * 100.0);
        done(&format!("{mpps:.3} Mpps for {seconds} s: loss {percent:.5} %{missed}"));
        Ok::<_, anyhow::Error>(TrialOutcome {
            offered: sent,
            delivered: received,
            seconds,
            generator_ok,
        })
    })?;
    let mut at = |share: f64, ndr_fps: f64, trials: usize, seconds: f64| {
        let load_fps = share * ndr_fps;
        let one = |_| trial(program, spec, &placement, load_fps, seconds);
        let all: Vec<PacedResult> = (0..trials).map(one).collect::<Result<_>>()?;
        done(&format!("{:.0} % of the NDR, {trials} x {seconds} s", share * 100.0));
        let (account, left_out, generator_ok) = of_trials(&all);
        let load_mpps = load_fps / 1e6;
        Ok::<_, anyhow::Error>(LatencyAt { share, load_mpps, generator_ok, left_out, account })
    };
    let (mut latency, mut soak) = (Vec::new(), None);
    if let Some(ndr_fps) = found.goals[0].lower_fps {
        for share in LATENCY_AT {
            latency.push(at(share, ndr_fps, LATENCY_TRIALS, settings.trial_s.1)?);
        }
        if settings.soak_s > 0.0 {
            soak = Some(at(SOAK_AT, ndr_fps, 1, settings.soak_s)?);
        }
    }
    let point = Point { program, spec, placement: &placement, closed_fps };
    let back_to_back = back_to_back::measure(&point, settings.back_to_back, &mut done)?;
    Ok(Throughput {
        closed_loop_mpps: closed.offered_mpps,
        rates: rates(&found.goals),
        latency,
        soak,
        back_to_back,
        trials: found.trials.iter().map(TrialShown::of).collect(),
        seconds: found.seconds,
        pinned: closed.pinned,
        round_trip_cycles: before.zip(round_trip()?).map(|(before, after)| [before, after]),
    })
}

/// NDR and PDR, as found.
fn rates(goals: &[GoalResult]) -> Vec<Rate> {
    let rate = |(goal, name): (&GoalResult, &'static str)| Rate {
        name,
        loss_ratio_max: goal.goal.loss_ratio_max(),
        lower_mpps: goal.lower_fps.map(|fps| fps / 1e6),
        upper_mpps: goal.upper_fps.map(|fps| fps / 1e6),
        throughput_mpps: goal.conditional_throughput_fps.map(|fps| fps / 1e6),
        regular: goal.is_regular(),
        loss_inversion: goal.loss_inversion,
        ended_by: ended_by(goal.stop),
    };
    goals.iter().zip(["NDR", "PDR"]).map(rate).collect()
}

fn goals(settings: &ThroughputSettings) -> Vec<Goal> {
    let ThroughputSettings {
        ndr_tolerance,
        pdr_loss,
        trial_s,
        duration_sum_s,
        exceed_ratio,
        width,
        ..
    } = *settings;
    let goal = |loss_ratio, loss_tolerance, width| Goal {
        loss_ratio,
        loss_tolerance,
        exceed_ratio,
        initial_trial_s: trial_s.0,
        final_trial_s: trial_s.1,
        duration_sum_s,
        width,
    };
    vec![goal(0.0, ndr_tolerance, width), goal(pdr_loss, 0.0, width.max(pdr_loss))]
}

/// One trial at a constant rate.
fn trial(
    program: &Path,
    spec: &PointSpec,
    placement: &Placement,
    load_fps: f64,
    seconds: f64,
) -> Result<PacedResult> {
    let spec = PointSpec { seconds, ..*spec };
    paced_trial(program, &spec, placement, |flows| Role::Pace {
        flows,
        in_flight: IN_FLIGHT,
        load_fps,
        burst: None,
    })
}

/// `true` if the generator kept its rate in the measured time.
fn kept_rate(account: &PacedResult) -> bool {
    // Each frame sent in the measured time has a recorded lateness.
    let due = account.lateness.frames + account.skipped;
    due > 0 && account.skipped as f64 <= SKIPPED_MAX * due as f64
}

/// Sum of repeated trials without those whose generator missed its rate; their number; and `true`
/// if at most half are excluded. If all are, the sum is that of all.
pub(super) fn of_trials(trials: &[PacedResult]) -> (PacedResult, usize, bool) {
    let kept: Vec<PacedResult> = trials.iter().copied().filter(kept_rate).collect();
    let left_out = trials.len() - kept.len();
    let account = PacedResult::of_trials(if kept.is_empty() { trials } else { &kept });
    (account, left_out, !kept.is_empty() && 2 * left_out <= trials.len())
}

fn ended_by(stop: StopReason) -> &'static str {
    match stop {
        StopReason::Width => "width",
        StopReason::MaxLoad => "max-load",
        StopReason::MinLoad => "min-load",
        StopReason::GeneratorLimit => "generator",
        StopReason::TrialLimit => "trials-max",
        StopReason::TimeLimit => "seconds-max",
    }
}

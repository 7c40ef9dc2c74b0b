//! Who gets what of a lane that all guests want more of.
//!
//! Guests in pairs keep their transmit rings full, on one lane: its time is what they share, and
//! receivers take everything, so that nothing else is contended for. Bytes that the switch took
//! from each guest are compared with what its settings entitle it to: with equal weights (frames
//! of one size, and of two), with other weights, with minimum and with maximum rates.
//!
//! Then one guest is deaf: frames for it are dropped, as its ring has no buffer, while its peer
//! goes on sending. What the other pairs receive is compared with what they receive when that guest
//! takes its frames, and when its peer sends nothing at all, in turn, in one daemon. Only the first
//! of the two is the switch's: a sender is entitled to its share whatever becomes of its frames.
//!
//! Limits: the guests' thread has to be faster than the lane, or rings are not full; each situation
//! says whether they were. Minima are chosen by what the lane carried a moment before.

mod arithmetic;
mod situation;

use std::path::Path;

use anyhow::{Result, ensure};
use serde::Serialize;
use traffic::contend::{Phase, Slice};

use super::sample::spread;
use crate::bench::plan;
use arithmetic::{error_pct, jain, shares};
use situation::{Outcome, Place, Plan, Slices};

pub use situation::Situation;

/// Frame sizes with FCS: the least and the most.
const SMALL: u32 = 64;
const LARGE: u32 = 1518;
/// Minima, as parts of what the lane carries, of the first guests: more than their shares.
const MINIMA: [f64; 2] = [0.25, 0.2];
/// Maxima of the first guests, Mbit/s: less than the share of one of eight.
const MAXIMA: [u32; 3] = [500, 1000, 2000];
/// Slices of a situation that has one kind of them.
const SLICES: usize = 10;
/// Seconds of one of them with `seconds` = 1 for a situation.
const SLICE_PART: f64 = 1.0 / SLICES as f64;
/// Rounds of three slices with a deaf guest, and seconds of a slice.
const ROUNDS: usize = 25;
const ROUND_SLICE_S: f64 = 0.06;
/// The guest that is deaf in some slices.
const DEAF: usize = 1;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairnessSpec {
    /// Guests: an even number, 4 to 64.
    pub guests: usize,
    /// Seconds to measure each situation for.
    pub seconds: f64,
}

impl FairnessSpec {
    /// Says what is wrong with it, if anything is.
    ///
    /// # Errors
    /// One sentence that names the option, the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if !(4..=64).contains(&self.guests) || !self.guests.is_multiple_of(2) {
            return Err(format!("--guests {}: an even number, 4 to 64, is possible", self.guests));
        }
        if !(self.seconds >= 0.1 && self.seconds <= 60.0) {
            return Err(format!("--seconds {}: 0.1 to 60 are possible", self.seconds));
        }
        Ok(())
    }
}

/// What `shunt lab fairness --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Fairness {
    /// Jain's index of the guests' bytes, with equal weights and frames of 64 bytes.
    pub jain_index: f64,
    /// Each guest's part of them.
    pub shares: Vec<f64>,
    /// The same with frames of 64 and of 1518 bytes.
    pub mixed: Mixed,
    /// Each guest with a weight of its own.
    pub weights: Vec<Weighted>,
    /// Guests some of which have a minimum rate.
    pub minima: Vec<Guaranteed>,
    /// Those guests that have a maximum rate.
    pub maxima: Vec<Limited>,
    /// One guest that takes no frames.
    pub stuck: Stuck,
    /// The situations, in the order of the above.
    pub situations: Vec<Situation>,
    /// Guests.
    pub guests: usize,
    /// Millions of frames a second that one generator could send to an instant sink: the least of
    /// all situations.
    pub generator_limit_mpps: f64,
    /// CPUs that were pinned: switch, guests.
    pub pinned: Vec<usize>,
}

/// Equal weights, frames of two sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Mixed {
    /// Jain's index of bytes.
    pub jain_index: f64,
    /// Each guest's part of the bytes.
    pub shares: Vec<f64>,
    /// Each guest's frames, with FCS.
    pub frame_bytes: Vec<u32>,
}

/// A guest with a weight.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weighted {
    /// Its weight.
    pub weight: u32,
    /// Its part of the bytes.
    pub share: f64,
    /// What it should be.
    pub expected: f64,
    /// By how much it is more, in per cent of what it should be.
    pub error_pct: f64,
}

/// A guest, perhaps with a minimum.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Guaranteed {
    /// Its minimum, Mbit/s; 0 for none.
    pub min_tx_mbps: u32,
    /// What it sent, Mbit/s.
    pub mbps: f64,
    /// What it should be: the minimum, or its share if that is more.
    pub expected_mbps: f64,
    /// Its part of the bytes.
    pub share: f64,
    /// What that should be.
    pub expected: f64,
    /// By how much it is more, in per cent of what it should be.
    pub error_pct: f64,
}

/// A guest with a maximum.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limited {
    /// Its maximum, Mbit/s.
    pub max_tx_mbps: u32,
    /// What it sent, Mbit/s.
    pub mbps: f64,
    /// By how much that is more, in per cent of the maximum.
    pub error_pct: f64,
}

/// The other pairs beside one with a deaf guest. Triples are least, median and most of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stuck {
    /// Millions of frames a second that the others received while the guest took its frames.
    pub receiving_mpps: [f64; 3],
    /// While it took none.
    pub stuck_mpps: [f64; 3],
    /// While it took none and its peer sent none.
    pub silent_mpps: [f64; 3],
    /// `stuck_mpps` over `receiving_mpps`, round by round.
    pub ratio: [f64; 3],
    /// `stuck_mpps` over `silent_mpps`, round by round: what is below 1 is the stuck guest's peer's
    /// share of the lane, which it would have anyhow.
    pub ratio_to_silent: [f64; 3],
    /// What a stuck receiver costs the others, in per cent of `receiving_mpps`; below 0, they gain.
    pub cost_pct: f64,
    /// Rounds.
    pub rounds: usize,
}

/// Measures all of it; `program` is shunt itself, `cpus` those it may use.
pub fn run(
    program: &Path,
    cpus: &[usize],
    spec: FairnessSpec,
    mut done: impl FnMut(usize, usize),
) -> Result<Fairness> {
    let FairnessSpec { guests, seconds } = spec;
    let place = Place { program, cpus };
    let mut situations = Vec::new();
    let mut measure = |name, plans: &[Plan], slices: &Slices| {
        let outcome = situation::measure(place, name, plans, slices)?;
        situations.push(outcome.told.clone());
        done(situations.len(), 6);
        Ok::<Outcome, anyhow::Error>(outcome)
    };
    let plain =
        Slices { round: vec![Phase::default()], rounds: SLICES, seconds: seconds * SLICE_PART };
    let small = vec![Plan::frames_of(SMALL); guests];
    let large = vec![Plan::frames_of(LARGE); guests];

    let equal = measure("equal weights, 64 B", &small, &plain)?;
    let sizes: Vec<u32> = (0..guests).map(|i| if i % 4 < 2 { SMALL } else { LARGE }).collect();
    let two: Vec<Plan> = sizes.iter().map(|size| Plan::frames_of(*size)).collect();
    let mixed = measure("equal weights, 64 and 1518 B", &two, &plain)?;

    let mut weighted = small.clone();
    weighted.iter_mut().enumerate().for_each(|(i, plan)| plan.weight = Some(i as u32 % 8 + 1));
    let by_weight = measure("weights 1 to 8, 64 B", &weighted, &plain)?;

    let limited = with_maxima(&large);
    let by_maximum = measure("maximum rates, 1518 B", &limited, &plain)?;
    let guaranteed = with_minima(&small, equal.told.mbps);
    let by_minimum = measure("minimum rates, 64 B", &guaranteed, &plain)?;

    let deaf = measure("a receiver that is stuck, 64 B", &small, &with_a_deaf_one())?;
    let heard = deaf.slices.iter().filter(|(phase, _)| phase.deaf.contains(&DEAF));
    let heard: u64 = heard.map(|(_, slice)| slice.received[DEAF]).sum();
    ensure!(heard == 0, "the guest that was to take no frame has taken {heard}");
    let placement = plan(cpus, 1);
    Ok(Fairness {
        jain_index: jain(&equal.mbps),
        shares: shares(&equal.mbps),
        mixed: Mixed {
            jain_index: jain(&mixed.mbps),
            shares: shares(&mixed.mbps),
            frame_bytes: sizes,
        },
        weights: weights(&weighted, &by_weight),
        minima: minima(&guaranteed, &by_minimum),
        maxima: maxima(&limited, &by_maximum),
        stuck: stuck(&deaf.slices),
        generator_limit_mpps: situations
            .iter()
            .map(|situation| situation.generator_limit_mpps)
            .fold(f64::INFINITY, f64::min),
        situations,
        guests,
        pinned: placement.switch.into_iter().chain(placement.guests[0].0).collect(),
    })
}

fn with_maxima(plans: &[Plan]) -> Vec<Plan> {
    let mut plans = plans.to_vec();
    plans.iter_mut().zip(MAXIMA).for_each(|(plan, max)| plan.max_tx_mbps = Some(max));
    plans
}

/// Gives the first ones minima, of a lane that carries so many Mbit/s.
fn with_minima(plans: &[Plan], mbps: f64) -> Vec<Plan> {
    let mut plans = plans.to_vec();
    let minima = MINIMA.map(|part| (mbps * part) as u32);
    plans.iter_mut().zip(minima).for_each(|(plan, min)| plan.min_tx_mbps = Some(min));
    plans
}

/// Rounds of three slices: all take part, one is deaf, and its peer is mute besides.
fn with_a_deaf_one() -> Slices {
    let round = vec![
        Phase::default(),
        Phase { deaf: vec![DEAF], mute: vec![] },
        Phase { deaf: vec![DEAF], mute: vec![DEAF ^ 1] },
    ];
    Slices { round, rounds: ROUNDS, seconds: ROUND_SLICE_S }
}

fn weights(plans: &[Plan], outcome: &Outcome) -> Vec<Weighted> {
    let (got, due) = (shares(&outcome.mbps), shares(&outcome.expected_mbps));
    let each = plans.iter().zip(got).zip(due);
    let weighted = |((plan, share), expected): ((&Plan, f64), f64)| Weighted {
        weight: plan.weight.unwrap_or_default(),
        share,
        expected,
        error_pct: error_pct(share, expected),
    };
    each.map(weighted).collect()
}

fn minima(plans: &[Plan], outcome: &Outcome) -> Vec<Guaranteed> {
    let (got, due) = (shares(&outcome.mbps), shares(&outcome.expected_mbps));
    let guaranteed = |i: usize| Guaranteed {
        min_tx_mbps: plans[i].min_tx_mbps.unwrap_or(0),
        mbps: outcome.mbps[i],
        expected_mbps: outcome.expected_mbps[i],
        share: got[i],
        expected: due[i],
        error_pct: error_pct(outcome.mbps[i], outcome.expected_mbps[i]),
    };
    (0..plans.len()).map(guaranteed).collect()
}

fn maxima(plans: &[Plan], outcome: &Outcome) -> Vec<Limited> {
    let each = plans.iter().zip(&outcome.mbps);
    each.filter_map(|(plan, mbps)| {
        let max_tx_mbps = plan.max_tx_mbps?;
        let error_pct = error_pct(*mbps, max_tx_mbps.into());
        Some(Limited { max_tx_mbps, mbps: *mbps, error_pct })
    })
    .collect()
}

fn stuck(slices: &[(Phase, Slice)]) -> Stuck {
    let others = |slice: &Slice| {
        let received = slice.received.iter().enumerate();
        let others = received.filter(|(guest, _)| *guest != DEAF && *guest != DEAF ^ 1);
        others.map(|(_, frames)| frames).sum::<u64>() as f64 / slice.seconds / 1e6
    };
    let mut mpps = [const { Vec::new() }; 3];
    for (phase, slice) in slices {
        mpps[phase.deaf.len() + phase.mute.len()].push(others(slice));
    }
    let [receiving, stuck, silent] = &mpps;
    let over = |by: &[f64]| spread(stuck.iter().zip(by).map(|(stuck, by)| stuck / by));
    let (ratio, ratio_to_silent) = (over(receiving), over(silent));
    let rounds = stuck.len();
    let cost_pct = (1.0 - ratio[1]) * 100.0;
    let [receiving_mpps, stuck_mpps, silent_mpps] = mpps.map(spread);
    Stuck { receiving_mpps, stuck_mpps, silent_mpps, ratio, ratio_to_silent, cost_pct, rounds }
}

#[cfg(test)]
mod tests;

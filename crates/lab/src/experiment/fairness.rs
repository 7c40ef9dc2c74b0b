//! Shares of a lane under contention: every guest offers more than its share.
//!
//! Guests in pairs keep their transmit rings full, on one lane. Its time is the only contended
//! resource, as receivers take everything. What each guest got is compared with the share that its
//! settings entitle it to: of the lane's time with frames of two sizes, with other weights, and
//! beside guests whose frames are dear (pieces, floods, slow interrupts); of bytes with frames of
//! one size, with minimum and with maximum rates.
//!
//! Then one guest is deaf: frames for it are dropped, as its ring has no buffer, while its peer
//! goes on sending. The rates of the other pairs are compared, in turn within one daemon, with two
//! cases: that guest takes its frames, or its peer sends none. Only the first difference is caused
//! by the switch: a sender is entitled to its share even if its frames are dropped.
//!
//! Limits: the guests' thread must be faster than the lane, or the rings are not full; each
//! situation reports if they were. Minima are derived from the lane's rate a moment before.

mod arithmetic;
mod situation;

use std::path::Path;

use anyhow::{Result, ensure};
use model::state::{Problem, Problems};
use serde::Serialize;
use traffic::protocol::contend::{Phase, Slice};

use super::sample::spread;
use crate::bench::plan;
use arithmetic::{error_pct, jain, shares};
use situation::{ContenderPlan, Machine, SituationResult, Slices};

pub use situation::Situation;
pub use traffic::protocol::contend::Burden;

/// Frame sizes with FCS: minimum and maximum.
const SMALL: u32 = 64;
const LARGE: u32 = 1518;
/// Minima of the first guests, as parts of the lane's rate: above their shares.
const MINIMA: [f64; 2] = [0.25, 0.2];
/// Guests whose frames are dear, by index.
const BURDENS: [(usize, Burden); 3] =
    [(1, Burden::Interrupt), (2, Burden::Pieces), (3, Burden::Flood)];
/// Guests beside them with a minimum: so many times what they get by weight.
const BURDENED_MINIMA: [(usize, f64); 1] = [(0, 4.0)];
/// Maxima of the first guests, Mbit/s: below the share of one of eight.
const MAXIMA: [u32; 3] = [500, 1000, 2000];
/// Slices of a situation with one kind of them.
const SLICES: usize = 10;
/// Length of such a slice, in seconds, with `seconds` = 1 for a situation.
const SLICE_PART: f64 = 1.0 / SLICES as f64;
/// Rounds of three slices with a deaf guest, and seconds of a slice.
const ROUNDS: usize = 25;
const ROUND_SLICE_S: f64 = 0.06;
/// Index of the guest that is deaf in some slices.
const DEAF: usize = 1;

/// Settings of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FairnessSpec {
    /// Guests: an even number, 4 to 64.
    pub guests: usize,
    /// Seconds to measure each situation.
    pub seconds: f64,
}

impl FairnessSpec {
    /// Validates the settings.
    ///
    /// # Errors
    /// An option, its value and the allowed range.
    pub fn check(&self) -> Result<(), Problems> {
        if !(4..=64).contains(&self.guests) || !self.guests.is_multiple_of(2) {
            let remedy = "write an even number, 4 to 64";
            return Err(Problem::new("--guests", self.guests, "is not allowed", remedy).into());
        }
        if !(self.seconds >= 0.1 && self.seconds <= 60.0) {
            return Err(Problem::out_of_range("--seconds", self.seconds, 0.1, 60).into());
        }
        Ok(())
    }
}

/// Result, printed by `shunt lab fairness --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Fairness {
    /// Jain's index of the guests' bytes, with equal weights and frames of 64 bytes.
    pub jain_index: f64,
    /// Share of each guest.
    pub shares: Vec<f64>,
    /// Result with frames of 64 and of 1518 bytes.
    pub mixed: Mixed,
    /// Result with different weights.
    pub weights: Vec<Weighted>,
    /// Result with different weights and frames of unequal cost.
    pub burdens: Vec<Burdened>,
    /// Result with the same frames, and a minimum rate for some guests: these guests.
    pub burdens_minima: Vec<Guaranteed>,
    /// Result with minimum rates for some guests.
    pub minima: Vec<Guaranteed>,
    /// Guests with a maximum rate.
    pub maxima: Vec<Limited>,
    /// Result with one guest that takes no frames.
    pub stuck: Stuck,
    /// All situations, in this order.
    pub situations: Vec<Situation>,
    /// Number of guests.
    pub guests: usize,
    /// Highest rate of one generator into an instant sink, Mframes/s: the lowest over all
    /// situations.
    pub generator_limit_mpps: f64,
    /// Pinned CPUs: switch, guests.
    pub pinned: Vec<usize>,
}

/// Equal weights, frames of two sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Mixed {
    /// Jain's index of the lane's time.
    pub jain_index: f64,
    /// Share of each guest in the lane's time.
    pub shares: Vec<f64>,
    /// Frame size of each guest, with FCS.
    pub frame_bytes: Vec<u32>,
}

/// A guest with a weight.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Weighted {
    /// Weight.
    pub weight: u32,
    /// Share of the lane's time.
    pub share: f64,
    /// Expected share.
    pub expected: f64,
    /// Excess over the expected share, in percent of it.
    pub error_pct: f64,
}

/// A guest with a weight, and frames of a certain cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Burdened {
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Reason why its frames are dear.
    pub burden: Burden,
    /// Cycles of the lane for a frame.
    pub cycles_per_frame: f64,
    /// Share of the lane's time.
    #[serde(flatten)]
    pub weighted: Weighted,
}

/// A guest, with or without a minimum.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Guaranteed {
    /// Minimum, Mbit/s; 0 for none.
    pub min_tx_mbps: u32,
    /// Rate, Mbit/s.
    pub mbps: f64,
    /// Expected rate: the minimum, or its share if that is higher.
    pub expected_mbps: f64,
    /// Share of the bytes.
    pub share: f64,
    /// Expected share.
    pub expected: f64,
    /// Excess over the expected rate, in percent of it.
    pub error_pct: f64,
}

/// A guest with a maximum.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limited {
    /// Maximum, Mbit/s.
    pub max_tx_mbps: u32,
    /// Rate, Mbit/s.
    pub mbps: f64,
    /// Excess over the maximum, in percent of it.
    pub error_pct: f64,
}

/// Other pairs beside one with a deaf guest. Triples are minimum, median and maximum of the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stuck {
    /// Mframes/s that the others received while the guest took its frames.
    pub receiving_mpps: [f64; 3],
    /// Mframes/s while it took none.
    pub stuck_mpps: [f64; 3],
    /// Mframes/s while it took none and its peer sent none.
    pub silent_mpps: [f64; 3],
    /// `stuck_mpps` over `receiving_mpps`, round by round.
    pub ratio: [f64; 3],
    /// `stuck_mpps` over `silent_mpps`, round by round: a value below 1 reflects the lane share of
    /// the stuck guest's peer, to which it is entitled.
    pub ratio_to_silent: [f64; 3],
    /// Cost of a stuck receiver for the others, in percent of `receiving_mpps`; negative for a
    /// gain.
    pub cost_pct: f64,
    /// Number of rounds.
    pub rounds: usize,
}

/// Measures all situations; `program` is the shunt binary, `cpus` the allowed CPUs.
pub fn run(
    program: &Path,
    cpus: &[usize],
    spec: FairnessSpec,
    mut done: impl FnMut(usize, usize),
) -> Result<Fairness> {
    let FairnessSpec { guests, seconds } = spec;
    let machine = Machine { program, cpus };
    let mut situations = Vec::new();
    let mut measure = |name, plans: &[ContenderPlan], slices: &Slices| {
        let outcome = situation::measure(machine, name, plans, slices)?;
        situations.push(outcome.told.clone());
        done(situations.len(), 8);
        Ok::<SituationResult, anyhow::Error>(outcome)
    };
    let plain =
        Slices { round: vec![Phase::default()], rounds: SLICES, seconds: seconds * SLICE_PART };
    let small = vec![ContenderPlan::frames_of(SMALL); guests];
    let large = vec![ContenderPlan::frames_of(LARGE); guests];

    let equal = measure("equal weights, 64 B", &small, &plain)?;
    let sizes: Vec<u32> = (0..guests).map(|i| if i % 4 < 2 { SMALL } else { LARGE }).collect();
    let two: Vec<ContenderPlan> =
        sizes.iter().map(|size| ContenderPlan::frames_of(*size)).collect();
    let mixed = measure("equal weights, 64 and 1518 B", &two, &plain)?;

    let mut weighted = small.clone();
    weighted.iter_mut().enumerate().for_each(|(i, plan)| plan.weight = Some(i as u32 % 8 + 1));
    let by_weight = measure("weights 1 to 8, 64 B", &weighted, &plain)?;

    let mut burdened: Vec<ContenderPlan> = weighted
        .iter()
        .zip(&two)
        .map(|(w, two)| ContenderPlan { weight: w.weight, ..*two })
        .collect();
    for (at, burden) in BURDENS {
        burdened[at].burden = burden;
    }
    let by_burden = measure("weights 1 to 8, unequal costs", &burdened, &plain)?;
    let mut burdened_minima = burdened.clone();
    for (at, times) in BURDENED_MINIMA {
        burdened_minima[at].min_tx_mbps = Some((by_burden.mbps[at] * times) as u32);
    }
    let by_burdened_minimum = measure("minimum rates, unequal costs", &burdened_minima, &plain)?;

    let limited = with_maxima(&large);
    let by_maximum = measure("maximum rates, 1518 B", &limited, &plain)?;
    let guaranteed = with_minima(&small, equal.told.mbps);
    let by_minimum = measure("minimum rates, 64 B", &guaranteed, &plain)?;

    let deaf = measure("a stuck receiver, 64 B", &small, &with_a_deaf_one())?;
    let heard = deaf.slices.iter().filter(|(phase, _)| phase.deaf.contains(&DEAF));
    let heard: u64 = heard.map(|(_, slice)| slice.received[DEAF]).sum();
    ensure!(heard == 0, "the deaf guest received {heard} frames");
    let placement = plan(cpus, 1);
    Ok(Fairness {
        jain_index: jain(&equal.mbps),
        shares: shares(&equal.mbps),
        mixed: Mixed {
            jain_index: jain(&mixed.cycles),
            shares: shares(&mixed.cycles),
            frame_bytes: sizes,
        },
        weights: weights(&weighted, &by_weight),
        burdens: burdens(&burdened, &by_burden),
        burdens_minima: honoured(&burdened_minima, &by_burdened_minimum),
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

fn with_maxima(plans: &[ContenderPlan]) -> Vec<ContenderPlan> {
    let mut plans = plans.to_vec();
    plans.iter_mut().zip(MAXIMA).for_each(|(plan, max)| plan.max_tx_mbps = Some(max));
    plans
}

/// Gives the first guests minima, for a lane of `mbps` Mbit/s.
fn with_minima(plans: &[ContenderPlan], mbps: f64) -> Vec<ContenderPlan> {
    let mut plans = plans.to_vec();
    let minima = MINIMA.map(|part| (mbps * part) as u32);
    plans.iter_mut().zip(minima).for_each(|(plan, min)| plan.min_tx_mbps = Some(min));
    plans
}

/// Rounds of three slices: all guests take part; one is deaf; one is deaf and its peer mute.
fn with_a_deaf_one() -> Slices {
    let round = vec![
        Phase::default(),
        Phase { deaf: vec![DEAF], mute: vec![] },
        Phase { deaf: vec![DEAF], mute: vec![DEAF ^ 1] },
    ];
    Slices { round, rounds: ROUNDS, seconds: ROUND_SLICE_S }
}

fn weights(plans: &[ContenderPlan], outcome: &SituationResult) -> Vec<Weighted> {
    let weights: Vec<f64> =
        plans.iter().map(|plan| plan.weight.unwrap_or_default().into()).collect();
    let each = plans.iter().zip(shares(&outcome.cycles)).zip(shares(&weights));
    let weighted = |((plan, share), expected): ((&ContenderPlan, f64), f64)| Weighted {
        weight: plan.weight.unwrap_or_default(),
        share,
        expected,
        error_pct: error_pct(share, expected),
    };
    each.map(weighted).collect()
}

fn burdens(plans: &[ContenderPlan], outcome: &SituationResult) -> Vec<Burdened> {
    let sent = |i: usize| outcome.slices.iter().map(|(_, slice)| slice.sent[i]).sum::<u64>();
    let each = plans.iter().zip(weights(plans, outcome)).enumerate();
    let burdened = |(i, (plan, weighted)): (usize, (&ContenderPlan, Weighted))| Burdened {
        frame_bytes: plan.frame_bytes,
        burden: plan.burden,
        cycles_per_frame: outcome.cycles[i] / sent(i).max(1) as f64,
        weighted,
    };
    each.map(burdened).collect()
}

fn minima(plans: &[ContenderPlan], outcome: &SituationResult) -> Vec<Guaranteed> {
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

/// The guests with a minimum above their share.
fn honoured(plans: &[ContenderPlan], outcome: &SituationResult) -> Vec<Guaranteed> {
    let own = minima(plans, outcome).into_iter().filter(|guest| guest.min_tx_mbps > 0);
    let own = own.map(|guest| {
        let expected_mbps = f64::from(guest.min_tx_mbps);
        let expected = guest.share * expected_mbps / guest.mbps;
        let error_pct = error_pct(guest.mbps, expected_mbps);
        Guaranteed { expected_mbps, expected, error_pct, ..guest }
    });
    own.collect()
}

fn maxima(plans: &[ContenderPlan], outcome: &SituationResult) -> Vec<Limited> {
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

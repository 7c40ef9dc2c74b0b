//! One situation: a daemon whose VFs have these settings, and guests at full load.

use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;
use traffic::lane_counts::LaneCounts;
use traffic::protocol::contend::{Burden, ContendSpec, Contender, Phase, Slice};
use traffic::{Event, Task};

use super::arithmetic::{Claim, expected, jain};
use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, lane_under_load, mac_text, plan};
use crate::measure::distance;

/// Seconds before the first slice.
const WARMUP_S: f64 = 0.2;
/// Uncounted seconds of each slice: a full ring of 1024 large frames drains in a tenth of it.
const SETTLE_S: f64 = 0.02;
/// Share of bursts that leave more in the ring, from which a lane counts as contended.
const CONTENDED: f64 = 0.75;
/// Maximum share of stalled time in a slice that counts.
const STILL: f64 = 0.005;
/// Bytes of a frame that are not in memory.
const FCS: u32 = 4;

/// A guest's settings and frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContenderPlan {
    pub(super) frame_bytes: u32,
    pub(super) burden: Burden,
    pub(super) weight: Option<u32>,
    pub(super) min_tx_mbps: Option<u32>,
    pub(super) max_tx_mbps: Option<u32>,
}

impl ContenderPlan {
    /// A guest with the daemon's defaults.
    pub(super) fn frames_of(frame_bytes: u32) -> ContenderPlan {
        let (weight, min_tx_mbps, max_tx_mbps) = (None, None, None);
        ContenderPlan { frame_bytes, burden: Burden::None, weight, min_tx_mbps, max_tx_mbps }
    }

    fn claim(&self) -> Claim {
        Claim {
            weight: self.weight.unwrap_or(10).into(),
            min: self.min_tx_mbps.unwrap_or(0).into(),
            max: self.max_tx_mbps.map_or(f64::INFINITY, f64::from),
        }
    }
}

/// Conditions of a situation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Situation {
    /// Name.
    pub name: &'static str,
    /// Counted seconds.
    pub seconds: f64,
    /// Counted slices.
    pub slices: usize,
    /// Slices that do not count: no frame moved in 0.5 % of their time or more, as the guests'
    /// process or the lane had no CPU. If there are no others, all are counted.
    pub slices_disturbed: usize,
    /// Mframes/s sent by all guests.
    pub mpps: f64,
    /// Mbit/s sent, in bytes of frames without FCS.
    pub mbps: f64,
    /// Busy cycles of the lane per frame.
    pub switch_cycles_per_frame: f64,
    /// Share of busy cycles of the lane.
    pub switch_busy_share: f64,
    /// Share of bursts that left more frames in the ring.
    pub backlog_share: f64,
    /// `true` if the lane was contended. If not, rings were not full, the guests' thread was the
    /// limit, and shares say nothing about the switch.
    pub contended: bool,
    /// Jain's index of each guest's bytes over its expected bytes: the lowest of all slices.
    pub jain_index_least: f64,
    /// Highest rate of one generator into an instant sink, Mframes/s.
    pub generator_limit_mpps: f64,
    /// Round trip of a cache line between the CPUs of switch and guests, in cycles, before and
    /// after; `None` with a single CPU.
    pub round_trip_cycles: Option<[f64; 2]>,
}

/// A situation, and the rates of its guests.
#[derive(Clone, Debug)]
pub(super) struct SituationResult {
    pub(super) told: Situation,
    /// Mbit/s of each guest, over all slices.
    pub(super) mbps: Vec<f64>,
    /// Cycles of the lane for each guest's frames, over all slices.
    pub(super) cycles: Vec<f64>,
    /// Expected Mbit/s of each guest.
    pub(super) expected_mbps: Vec<f64>,
    /// Counted slices, in order, in whole rounds.
    pub(super) slices: Vec<(Phase, Slice)>,
}

/// Machine and program of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    pub(super) program: &'a Path,
    pub(super) cpus: &'a [usize],
}

/// Slices of a situation.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    /// One round, counted as a whole or not at all; each following one begins one slice later.
    pub(super) round: Vec<Phase>,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
}

impl Slices {
    /// All slices in their order.
    pub(super) fn phases(&self) -> Vec<Phase> {
        let each = |round: usize| self.round.iter().cycle().skip(round % self.round.len());
        (0..self.rounds).flat_map(|round| each(round).take(self.round.len())).cloned().collect()
    }
}

/// Measures a situation.
pub(super) fn measure(
    machine: Machine<'_>,
    name: &'static str,
    guests: &[ContenderPlan],
    slices: &Slices,
) -> Result<SituationResult> {
    let placement = plan(machine.cpus, 1);
    let both = placement.switch.zip(placement.guests[0].0);
    let trip = || both.map(|(here, there)| distance::round_trip_cycles(here, there)).transpose();
    let before = trip()?;
    let vf = |(i, guest): (usize, &ContenderPlan)| VfPlan {
        macs: vec![mac_text(i, 0)],
        weight: guest.weight,
        min_tx_mbps: guest.min_tx_mbps,
        max_tx_mbps: guest.max_tx_mbps,
    };
    let nic = NicPlan {
        lanes: lane_under_load(placement.switch),
        uplink: false,
        vfs: guests.iter().enumerate().map(vf).collect(),
    };
    let mut bench = Bench::start(machine.program, &nic)?;
    let contender = |(i, guest): (usize, &ContenderPlan)| Contender {
        socket: bench.vf_socket(i),
        mac: mac_text(i, 0).to_string(),
        peer: mac_text(i ^ 1, 0).to_string(),
        frame_bytes: guest.frame_bytes,
        burden: guest.burden,
    };
    let spec = ContendSpec {
        cpu: placement.guests[0].0,
        run_dir: bench.run_dir().to_path_buf(),
        warmup_s: WARMUP_S,
        settle_s: SETTLE_S,
        slice_s: slices.seconds,
        guests: guests.iter().enumerate().map(contender).collect(),
        slices: slices.phases(),
    };
    let mut process = GuestProcess::start_task(bench.program(), &Task::Contend(spec))?;
    process.go()?;
    let result = match process.hear()? {
        Event::Contended(result) => result,
        other => bail!("the guest process said {other:?} and no result"),
    };
    bench.check_alive()?;
    let round_trip_cycles = before.zip(trip()?).map(|(before, after)| [before, after]);
    let seen: Vec<(Phase, Slice)> = slices.phases().into_iter().zip(result.slices).collect();
    let all = seen.len();
    let slices = undisturbed(seen, slices.round.len());
    let told = Situation {
        name,
        slices_disturbed: all - slices.len(),
        generator_limit_mpps: result.generator_limit_mpps,
        round_trip_cycles,
        ..Situation::default()
    };
    Ok(conclude(told, guests, slices))
}

/// Megabits of `frames` frames of a guest.
fn mbit(guest: &ContenderPlan, frames: u64) -> f64 {
    frames as f64 * f64::from(guest.frame_bytes - FCS) * 8.0 / 1e6
}

fn conclude(
    told: Situation,
    guests: &[ContenderPlan],
    slices: Vec<(Phase, Slice)>,
) -> SituationResult {
    let seconds: f64 = slices.iter().map(|(_, slice)| slice.seconds).sum();
    let claims: Vec<Claim> = guests.iter().map(ContenderPlan::claim).collect();
    let mut mbps = vec![0.0; guests.len()];
    let mut cycles = vec![0.0; guests.len()];
    let mut jain_index_least = 1.0f64;
    let mut lanes = LaneCounts::default();
    let mut frames = 0;
    for (phase, slice) in &slices {
        let sent = guests.iter().zip(&slice.sent);
        let own: Vec<f64> = sent.map(|(guest, frames)| mbit(guest, *frames)).collect();
        let due = expected(own.iter().sum::<f64>() / slice.seconds, &claims);
        let over = own.iter().zip(&due).map(|(own, due)| own / due / slice.seconds);
        if phase.mute.is_empty() {
            jain_index_least = jain_index_least.min(jain(&over.collect::<Vec<_>>()));
        }
        mbps.iter_mut().zip(&own).for_each(|(sum, mbit)| *sum += mbit / seconds);
        cycles.iter_mut().zip(&slice.cycles).for_each(|(sum, own)| *sum += *own as f64);
        lanes = lanes.and(&slice.lanes);
        frames += slice.sent.iter().sum::<u64>();
    }
    let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let backlog_share = ratio(lanes.backlog_bursts, lanes.bursts);
    let total = mbps.iter().sum();
    let told = Situation {
        seconds,
        slices: slices.len(),
        mpps: frames as f64 / seconds / 1e6,
        mbps: total,
        switch_cycles_per_frame: ratio(lanes.busy_cycles, lanes.frames),
        switch_busy_share: ratio(lanes.busy_cycles, lanes.busy_cycles + lanes.idle_cycles),
        backlog_share,
        contended: backlog_share >= CONTENDED,
        jain_index_least,
        ..told
    };
    SituationResult { told, mbps, cycles, expected_mbps: expected(total, &claims), slices }
}

/// Rounds of `round` slices with full load in all slices; all rounds, if there are none.
fn undisturbed(slices: Vec<(Phase, Slice)>, round: usize) -> Vec<(Phase, Slice)> {
    let is_full = |slices: &&[(Phase, Slice)]| slices.iter().all(|(_, s)| s.still_share < STILL);
    let full: Vec<_> = slices.chunks(round).filter(is_full).flatten().cloned().collect();
    if full.is_empty() { slices } else { full }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_begins_one_slice_later_than_the_last() {
        let deaf = |guest| Phase { deaf: vec![guest], mute: vec![] };
        let slices = Slices { round: vec![deaf(0), deaf(1), deaf(2)], rounds: 4, seconds: 1.0 };
        let order: Vec<usize> = slices.phases().iter().map(|phase| phase.deaf[0]).collect();
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]);
    }

    #[test]
    fn a_round_counts_as_a_whole_or_not_at_all() {
        let slice = |still_share| (Phase::default(), Slice { still_share, ..Slice::default() });
        let slices = vec![slice(0.0), slice(0.001), slice(0.0), slice(0.2), slice(0.0), slice(0.0)];
        assert_eq!(undisturbed(slices.clone(), 1).len(), 5);
        assert_eq!(undisturbed(slices.clone(), 2), [&slices[..2], &slices[4..]].concat());
        assert_eq!(undisturbed(slices[2..4].to_vec(), 2), slices[2..4], "there is no other");
    }

    #[test]
    fn bytes_are_counted_without_fcs_and_over_all_slices() {
        let guests = [ContenderPlan::frames_of(64), ContenderPlan::frames_of(1004)];
        let lanes =
            LaneCounts { frames: 30, bursts: 4, backlog_bursts: 3, ..LaneCounts::default() };
        let slice = |sent: [u64; 2], seconds| {
            let sent = sent.to_vec();
            (Phase::default(), Slice { seconds, sent, lanes, ..Slice::default() })
        };
        let slices = vec![slice([100_000, 6_000], 1.0), slice([300_000, 18_000], 3.0)];
        let outcome = conclude(Situation::default(), &guests, slices);
        assert_eq!(outcome.mbps, [48.0, 48.0]);
        assert!((outcome.expected_mbps[0] - 48.0).abs() < 1e-6);
        let told = outcome.told;
        assert!((told.jain_index_least - 1.0).abs() < 1e-6 && told.contended);
        assert_eq!((told.seconds, told.mbps, told.mpps), (4.0, 96.0, 0.106));
        assert_eq!((told.slices, told.backlog_share), (2, 0.75));
    }
}

//! One situation: a daemon whose VFs have these settings, and guests at full load.

use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;

use super::arithmetic::{Claim, expected, jain};
use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, mac_text, plan};
use crate::guest::contend::{ContendResult, ContendSpec, Contender, LaneCounts, Phase, Slice};
use crate::guest::{Event, Task};
use crate::measure::distance;

/// Seconds before the first slice.
const WARMUP_S: f64 = 0.2;
/// Seconds of each slice that do not count: a full ring of 1024 large frames drains in a tenth of it.
const SETTLE_S: f64 = 0.02;
/// A lane that finds more in a ring after so many of its bursts is contended for.
const CONTENDED: f64 = 0.75;
/// Bytes of a frame that are not in memory.
const FCS: u32 = 4;

/// A guest's settings and frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) frame_bytes: u32,
    pub(super) weight: Option<u32>,
    pub(super) min_tx_mbps: Option<u32>,
    pub(super) max_tx_mbps: Option<u32>,
}

impl Plan {
    /// With the daemon's defaults.
    pub(super) fn frames_of(frame_bytes: u32) -> Plan {
        Plan { frame_bytes, weight: None, min_tx_mbps: None, max_tx_mbps: None }
    }

    fn claim(&self) -> Claim {
        Claim {
            weight: self.weight.unwrap_or(10).into(),
            min: self.min_tx_mbps.unwrap_or(0).into(),
            max: self.max_tx_mbps.map_or(f64::INFINITY, f64::from),
        }
    }
}

/// How a situation was, beside what it shows.
#[derive(Clone, Debug, Serialize)]
pub struct Situation {
    /// What it is.
    pub name: &'static str,
    /// Seconds that were counted.
    pub seconds: f64,
    /// Millions of frames a second that guests sent, all together.
    pub mpps: f64,
    /// Mbit/s that they sent, in bytes of frames without FCS.
    pub mbps: f64,
    /// Busy cycles of the lane for each frame.
    pub switch_cycles_per_frame: f64,
    /// Share of its cycles in which it had something to do.
    pub switch_busy_share: f64,
    /// Share of its bursts after which the ring was known to have more.
    pub backlog_share: f64,
    /// Whether the lane was what all wanted more of. If not, rings were not full, the guests'
    /// thread was the limit, and shares say nothing of the switch.
    pub contended: bool,
    /// Jain's index of each guest's bytes over what it should have: the least of all slices.
    pub jain_index_least: f64,
    /// Millions of frames a second that one generator could send to an instant sink.
    pub generator_limit_mpps: f64,
    /// Cycles that a cache line took from the switch's CPU to the guests' and back, before and
    /// after; `None` if there is one CPU only.
    pub round_trip_cycles: Option<[f64; 2]>,
}

/// A situation, and what each guest did in it.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) told: Situation,
    /// Mbit/s of each guest, over all slices.
    pub(super) mbps: Vec<f64>,
    /// Mbit/s that each should have had.
    pub(super) expected_mbps: Vec<f64>,
    pub(super) slices: Vec<Slice>,
}

/// Where and with what it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) program: &'a Path,
    pub(super) cpus: &'a [usize],
}

/// Measures a situation in slices of `slice_s` seconds.
pub(super) fn measure(
    place: Place<'_>,
    name: &'static str,
    guests: &[Plan],
    slices: Vec<Phase>,
    slice_s: f64,
) -> Result<Outcome> {
    let placement = plan(place.cpus, 1);
    let both = placement.switch.zip(placement.guests[0].0);
    let trip = || both.map(|(here, there)| distance::round_trip_cycles(here, there)).transpose();
    let before = trip()?;
    let vf = |(i, guest): (usize, &Plan)| VfPlan {
        macs: vec![mac_text(i, 0)],
        weight: guest.weight,
        min_tx_mbps: guest.min_tx_mbps,
        max_tx_mbps: guest.max_tx_mbps,
    };
    let nic = NicPlan {
        cpu: placement.switch,
        uplink: false,
        vfs: guests.iter().enumerate().map(vf).collect(),
        busy: placement.switch.is_some(),
    };
    let mut bench = Bench::start(place.program, &nic)?;
    let contender = |(i, guest): (usize, &Plan)| Contender {
        socket: bench.vf_socket(i),
        mac: mac_text(i, 0).to_string(),
        peer: mac_text(i ^ 1, 0).to_string(),
        frame_bytes: guest.frame_bytes,
    };
    let spec = ContendSpec {
        cpu: placement.guests[0].0,
        run_dir: bench.run_dir().to_path_buf(),
        warmup_s: WARMUP_S,
        settle_s: SETTLE_S,
        slice_s,
        guests: guests.iter().enumerate().map(contender).collect(),
        slices,
    };
    let mut process = GuestProcess::start_task(&bench, &Task::Contend(spec))?;
    process.go()?;
    let result = match process.hear()? {
        Event::Contended(result) => result,
        other => bail!("the guest process said {other:?} and no result"),
    };
    bench.check_alive()?;
    let round_trip_cycles = before.zip(trip()?).map(|(before, after)| [before, after]);
    Ok(conclude(name, guests, result, round_trip_cycles))
}

/// Megabits of so many frames of a guest.
fn mbit(guest: &Plan, frames: u64) -> f64 {
    frames as f64 * f64::from(guest.frame_bytes - FCS) * 8.0 / 1e6
}

fn conclude(
    name: &'static str,
    guests: &[Plan],
    result: ContendResult,
    round_trip_cycles: Option<[f64; 2]>,
) -> Outcome {
    let slices = result.slices;
    let seconds: f64 = slices.iter().map(|slice| slice.seconds).sum();
    let claims: Vec<Claim> = guests.iter().map(Plan::claim).collect();
    let of = |slice: &Slice| -> Vec<f64> {
        guests.iter().zip(&slice.sent).map(|(guest, sent)| mbit(guest, *sent)).collect()
    };
    let mut mbps = vec![0.0; guests.len()];
    let mut jain_index_least = 1.0f64;
    for slice in &slices {
        let own: Vec<f64> = of(slice).iter().map(|mbit| mbit / slice.seconds).collect();
        let due = expected(own.iter().sum(), &claims);
        let over: Vec<f64> = own.iter().zip(&due).map(|(own, due)| own / due).collect();
        jain_index_least = jain_index_least.min(jain(&over));
        mbps.iter_mut().zip(of(slice)).for_each(|(sum, mbit)| *sum += mbit / seconds);
    }
    let lanes = slices.iter().fold(LaneCounts::default(), |sum, slice| sum.and(&slice.lanes));
    let frames: u64 = slices.iter().flat_map(|slice| &slice.sent).sum();
    let ratio = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    let backlog_share = ratio(lanes.backlog_bursts, lanes.bursts);
    let total = mbps.iter().sum();
    let told = Situation {
        name,
        seconds,
        mpps: frames as f64 / seconds / 1e6,
        mbps: total,
        switch_cycles_per_frame: ratio(lanes.busy_cycles, lanes.frames),
        switch_busy_share: ratio(lanes.busy_cycles, lanes.busy_cycles + lanes.idle_cycles),
        backlog_share,
        contended: backlog_share >= CONTENDED,
        jain_index_least,
        generator_limit_mpps: result.generator_limit_mpps,
        round_trip_cycles,
    };
    Outcome { told, mbps, expected_mbps: expected(total, &claims), slices }
}

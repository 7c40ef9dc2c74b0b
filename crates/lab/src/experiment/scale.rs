//! What a frame costs as VFs and addresses grow.
//!
//! VF i sends 64 B frames to VF i xor 1, from each of its addresses to each of its peer's in turn,
//! as fast as the rings take them. Each keeps the same number of frames in flight at every point,
//! so that bursts are equally long. Guests write a sequence number into every frame they send and
//! look at every frame they receive, as real ones do: what they touch is in another core's cache,
//! whether they are many or few.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::sample::{self, spread};
use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, mac_text, plan};
use crate::guest::{Guest, GuestSpec, Place, QUIET_S, Role};
use crate::measure::distance;

use crate::report::Load::Overload;
use crate::report::RingKind;
use crate::statistics::quantile::median_item;

/// The points: VFs, and addresses of all of them together.
pub const POINTS: [(usize, usize); 7] =
    [(2, 2), (8, 8), (8, 64), (32, 64), (32, 1024), (64, 64), (64, 4096)];

/// How the points are measured.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often each point is measured.
    pub rounds: usize,
    /// Frames that each VF keeps in flight.
    pub in_flight: u32,
    /// Whether guests touch the frames.
    pub touch: bool,
    /// Whether guests' memory is on 2 MiB pages that were reserved, instead of such that the kernel
    /// gathers.
    pub huge_pages: bool,
    /// The guests' rings.
    pub ring: RingKind,
    /// Seconds to measure each point for.
    pub seconds: f64,
}

/// What `shunt lab scale --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// In the order of [`POINTS`].
    pub points: Vec<ScalePoint>,
    /// Frames that each VF kept in flight.
    pub in_flight: u32,
    /// Whether guests touched the frames.
    pub touched: bool,
    /// Whether guests' memory was on 2 MiB pages, reserved or gathered.
    pub large_pages: bool,
    /// The guests' rings.
    pub ring: RingKind,
    /// CPUs that were pinned: switch, guests.
    pub pinned: Vec<usize>,
}

/// One point.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScalePoint {
    /// VFs.
    pub vfs: usize,
    /// Addresses of all VFs together.
    pub macs: usize,
    /// Busy time-stamp cycles of the lane for each frame; the median of the rounds that count.
    pub switch_cycles_per_frame: f64,
    /// Least and most of the rounds that count.
    pub range: (f64, f64),
    /// Millions of frames a second, in the median round.
    pub mpps: f64,
    /// Frames in a burst, on average.
    pub burst_mean: f64,
    /// Whether the guests' memory was on 2 MiB pages.
    pub large_pages: bool,
    /// Cycles that a cache line took from the switch's CPU to the guests' and back, in the median
    /// round; `None` if there is one CPU only.
    pub round_trip_cycles: Option<f64>,
    /// Rounds that count: those in which the two CPUs were near each other.
    pub near: usize,
}

/// Measures all points, interleaved.
pub fn run(
    program: &Path,
    cpus: &[usize],
    settings: Settings,
    mut done: impl FnMut(usize, usize),
) -> Result<Scale> {
    let Settings { rounds, in_flight, touch, huge_pages, ring, seconds } = settings;
    let mut seen = vec![Vec::new(); POINTS.len()];
    for round in 0..rounds {
        for (i, (vfs, macs)) in POINTS.iter().enumerate() {
            let (vfs, macs) = (*vfs, *macs);
            let frame_bytes = 64;
            let load = Load { vfs, macs, frame_bytes, in_flight, touch, huge_pages, ring, seconds };
            seen[i].push(steady_point(program, cpus, load)?);
            done(round * POINTS.len() + i + 1, rounds * POINTS.len());
        }
    }
    let placement = plan(cpus, 1);
    let guests = placement.guests[0].0;
    let large_pages = seen.iter().flatten().all(|point| point.large_pages);
    let all: Vec<f64> = seen.iter().flatten().filter_map(|point| point.round_trip_cycles).collect();
    let least = all.into_iter().reduce(f64::min);
    Ok(Scale {
        points: seen.into_iter().map(|rounds| median(&near(rounds, least))).collect(),
        in_flight,
        touched: touch,
        large_pages,
        ring,
        pinned: placement.switch.into_iter().chain(guests).collect(),
    })
}

/// A point, measured while the two CPUs stayed where they were.
pub(super) fn steady_point(program: &Path, cpus: &[usize], load: Load) -> Result<ScalePoint> {
    let placement = plan(cpus, 1);
    let measure = || point(program, cpus, load);
    let both = placement.switch.zip(placement.guests[0].0);
    let (point, round_trip_cycles) = distance::steadily_if(both, measure)?;
    Ok(ScalePoint { round_trip_cycles, ..point })
}

/// The rounds that were measured while the CPUs were near, as the shortest round trip of the whole
/// run tells; all, if none was.
fn near(rounds: Vec<ScalePoint>, least: Option<f64>) -> Vec<ScalePoint> {
    let is_near = |point: &ScalePoint| match (point.round_trip_cycles, least) {
        (Some(cycles), Some(least)) => distance::near(&[least, cycles])[1],
        _ => true,
    };
    if !rounds.iter().any(is_near) {
        return rounds;
    }
    rounds.into_iter().filter(is_near).collect()
}

fn median(points: &[ScalePoint]) -> ScalePoint {
    let cycles = |point: &ScalePoint| point.switch_cycles_per_frame;
    let [least, _, most] = spread(points.iter().map(cycles));
    let middle = median_item(points, cycles).expect("each round gives a point");
    ScalePoint { range: (least, most), near: points.len(), ..*middle }
}

/// What a point is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// VFs; an even number.
    pub vfs: usize,
    /// Addresses of all VFs together; a multiple of `vfs`.
    pub macs: usize,
    /// Bytes of a frame with FCS.
    pub frame_bytes: u32,
    /// Frames that each VF keeps in flight.
    pub in_flight: u32,
    /// Whether guests write each frame before they send it, and look at those they receive.
    pub touch: bool,
    /// Whether their memory is on 2 MiB pages that were reserved.
    pub huge_pages: bool,
    /// Their rings.
    pub ring: RingKind,
    /// Seconds to measure for.
    pub seconds: f64,
}

/// Measures one point.
pub fn point(program: &Path, cpus: &[usize], load: Load) -> Result<ScalePoint> {
    let Load { vfs, macs, frame_bytes, in_flight, touch, huge_pages, ring, seconds } = load;
    let placement = plan(cpus, 1);
    let each = macs / vfs;
    let addresses = |vf: usize| (0..each).map(move |n| mac_text(vf, n));
    let vf = |i| VfPlan { macs: addresses(i).collect(), ..VfPlan::default() };
    let nic = NicPlan {
        cpu: placement.switch,
        uplink: false,
        vfs: (0..vfs).map(vf).collect(),
        busy: placement.switch.is_some(),
    };
    let mut bench = Bench::start(program, &nic)?;
    let guest = |vf: usize| {
        let pairs = addresses(vf).zip(addresses(vf ^ 1));
        let flows = pairs.map(|(from, to)| (from.to_string(), to.to_string())).collect();
        Guest {
            place: Place::Socket(bench.vf_socket(vf)),
            role: Role::Generate { flows, in_flight, load: Overload, touch },
        }
    };
    let spec = GuestSpec {
        cpu: placement.guests[0].0,
        warmup_s: 0.2,
        seconds,
        quiet_s: QUIET_S,
        frame_bytes,
        huge_pages,
        ring,
        guests: (0..vfs).map(guest).collect(),
    };
    let mut guests = [GuestProcess::start(bench.program(), &spec)?];
    let measured = sample::measure(&mut bench, &mut guests)?;
    let cycles = measured.switch.cycles_per_frame().context("no frame passed")?;
    Ok(ScalePoint {
        vfs,
        macs,
        switch_cycles_per_frame: cycles,
        range: (cycles, cycles),
        mpps: measured.switch.frames as f64 / measured.results[0].seconds / 1e6,
        burst_mean: measured.switch.burst_mean().context("no frame passed")?,
        large_pages: measured.results.iter().all(|result| result.large_pages),
        round_trip_cycles: None,
        near: 1,
    })
}

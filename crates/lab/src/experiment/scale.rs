//! Cycles per frame by number of VFs and addresses.
//!
//! VF i sends 64 B frames to VF i xor 1, from each of its addresses to each of its peer's in turn,
//! in a closed loop: one for each returned frame. Each keeps the same number of frames in flight at
//! every point, so that bursts are equally long. Cycles are reported by band of CPU distance.
//! Guests write a sequence number into every sent frame and read every received one, as real ones
//! do: touched lines are in another core's cache at any number of guests.
//!
//! More guests have more memory than a core's caches hold, which slows any switch. So each round
//! also measures the [bare loop](crate::measure::copy_loop) with as many guests of the same kind.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use report::GeneratorLoad::Closed;
use report::RingKind;
use report::statistics::bands::{self, Band};
use serde::Serialize;
use traffic::{AdapterBackend, GuestSpec, HostedGuest, QUIET_S, Role};
use wire::Mac;

use super::sample::{Counting, Measured, measure_on, spread};
use crate::bench::bare::{BareProcess, BareSpec};
use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, lane_under_load, mac_text, plan};
use crate::measure::distance;

/// Points: VFs, and addresses of all of them together.
pub const POINTS: [(usize, usize); 7] =
    [(2, 2), (8, 8), (8, 64), (32, 64), (32, 1024), (64, 64), (64, 4096)];

/// Settings of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct ScaleSettings {
    /// Rounds: measurements of each point.
    pub rounds: usize,
    /// Frames that each VF keeps in flight.
    pub in_flight: u32,
    /// `true` if guests touch the frames.
    pub touch: bool,
    /// `true` for guest memory on reserved 2 MiB pages, instead of transparent huge pages.
    pub huge_pages: bool,
    /// Rings of the guests.
    pub ring: RingKind,
    /// Seconds to measure each point.
    pub seconds: f64,
}

/// Minimum rounds of a band that is reported.
pub const ROUNDS_MIN: usize = 3;

/// Result, printed by `shunt lab scale --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// Points, in the order of [`POINTS`].
    pub points: Vec<ScalePoint>,
    /// Frames that each VF kept in flight.
    pub in_flight: u32,
    /// `true` if guests touched the frames.
    pub touched: bool,
    /// `true` if guest memory was on 2 MiB pages, reserved or transparent.
    pub large_pages: bool,
    /// Rings of the guests.
    pub ring: RingKind,
    /// Pinned CPUs: switch, guests.
    pub pinned: Vec<usize>,
}

/// One point.
#[derive(Clone, Debug, Serialize)]
pub struct ScalePoint {
    /// Number of VFs.
    pub vfs: usize,
    /// Addresses of all VFs together.
    pub macs: usize,
    /// Bands of distance with at least [`ROUNDS_MIN`] rounds, nearest first.
    pub bands: Vec<ScaleBand>,
    /// Every round.
    pub rounds: Vec<ScaleRound>,
}

/// Rounds of a point in one band of distance.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleBand {
    /// Limits of the band.
    pub band: String,
    /// Number of rounds.
    pub rounds: usize,
    /// Busy time-stamp cycles of the lane for each delivered frame: minimum, median, maximum.
    pub switch_cycles_per_frame: [f64; 3],
    /// The same of the bare loop.
    pub bare_cycles_per_frame: [f64; 3],
    /// Mframes/s delivered by the switch, median.
    pub mpps: f64,
    /// Mean frames per burst, median.
    pub burst_mean: f64,
}

/// One round of a point.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleRound {
    /// Busy time-stamp cycles of the lane for each delivered frame.
    pub switch_cycles_per_frame: f64,
    /// Busy time-stamp cycles of the bare loop for each delivered frame.
    pub bare_cycles_per_frame: f64,
    /// Mframes/s delivered by the switch.
    pub mpps: f64,
    /// Mean frames per burst.
    pub burst_mean: f64,
    /// Frames dropped by either; a round with any is excluded.
    pub dropped: u64,
    /// `true` if guest memory was on 2 MiB pages.
    pub large_pages: bool,
    /// Round trip of a cache line between the CPUs of switch and guests, in cycles, before and
    /// after; `None` with a single CPU.
    pub round_trip_cycles: Option<[f64; 2]>,
}

impl ScaleRound {
    /// Band of distance; `None` if the CPUs moved, or frames were dropped.
    fn band(&self) -> Option<Band> {
        // A single CPU has no distance; all its rounds are in the first band.
        let [before, after] = self.round_trip_cycles.unwrap_or([1.0; 2]);
        Band::of(bands::around(before, after)).filter(|_| self.dropped == 0)
    }
}

/// Measures all points, interleaved.
///
/// # Errors
/// A daemon or a guest fails.
pub fn run(
    program: &Path,
    cpus: &[usize],
    settings: ScaleSettings,
    mut done: impl FnMut(usize, usize),
) -> Result<Scale> {
    let ScaleSettings { rounds, in_flight, touch, huge_pages, ring, seconds } = settings;
    let placement = plan(cpus, 1);
    let both = placement.switch.zip(placement.guests[0].0);
    let distance = || both.map(|(a, b)| distance::round_trip_cycles(a, b)).transpose();
    let mut seen = vec![Vec::new(); POINTS.len()];
    let mut before = distance()?;
    for round in 0..rounds {
        for (i, (vfs, macs)) in POINTS.into_iter().enumerate() {
            let frame_bytes = 64;
            let load =
                ScaleLoad { vfs, macs, frame_bytes, in_flight, touch, huge_pages, ring, seconds };
            let measured = point(program, cpus, load)?;
            let after = distance()?;
            let round_trip_cycles = before.zip(after).map(|(before, after)| [before, after]);
            seen[i].push(ScaleRound { round_trip_cycles, ..measured });
            before = after;
            done(round * POINTS.len() + i + 1, rounds * POINTS.len());
        }
    }
    let large_pages = seen.iter().flatten().all(|round| round.large_pages);
    let points = POINTS.into_iter().zip(seen);
    Ok(Scale {
        points: points
            .map(|((vfs, macs), rounds)| ScalePoint { vfs, macs, bands: bands(&rounds), rounds })
            .collect(),
        in_flight,
        touched: touch,
        large_pages,
        ring,
        pinned: placement.switch.into_iter().chain(placement.guests[0].0).collect(),
    })
}

/// Groups rounds by band of distance.
fn bands(rounds: &[ScaleRound]) -> Vec<ScaleBand> {
    let of = |band: Band| {
        let rounds: Vec<_> = rounds.iter().filter(|round| round.band() == Some(band)).collect();
        let over = |value: fn(&ScaleRound) -> f64| spread(rounds.iter().map(|round| value(round)));
        (rounds.len() >= ROUNDS_MIN).then(|| ScaleBand {
            band: band.to_string(),
            rounds: rounds.len(),
            switch_cycles_per_frame: over(|round| round.switch_cycles_per_frame),
            bare_cycles_per_frame: over(|round| round.bare_cycles_per_frame),
            mpps: over(|round| round.mpps)[1],
            burst_mean: over(|round| round.burst_mean)[1],
        })
    };
    Band::ALL.into_iter().filter_map(of).collect()
}

/// Settings of a point.
#[derive(Clone, Copy, Debug)]
struct ScaleLoad {
    /// Number of VFs; even.
    vfs: usize,
    /// Addresses of all VFs together; a multiple of `vfs`.
    macs: usize,
    /// Bytes of a frame with FCS.
    frame_bytes: u32,
    /// Frames that each VF keeps in flight.
    in_flight: u32,
    /// `true` if guests write each frame before sending and read each received one.
    touch: bool,
    /// `true` for guest memory on reserved 2 MiB pages.
    huge_pages: bool,
    /// Rings of the guests.
    ring: RingKind,
    /// Seconds of the measurement.
    seconds: f64,
}

impl ScaleLoad {
    /// Addresses of a VF.
    fn addresses(self, vf: usize) -> impl Iterator<Item = Mac> {
        (0..self.macs / self.vfs).map(move |n| mac_text(vf, n))
    }
}

/// Measures one point once, on the switch and on the bare loop; the caller sets the distance.
fn point(program: &Path, cpus: &[usize], load: ScaleLoad) -> Result<ScaleRound> {
    let cpu = plan(cpus, 1).switch;
    let vf = |i| VfPlan { macs: load.addresses(i).collect(), ..VfPlan::default() };
    let vfs = (0..load.vfs).map(vf).collect();
    let nic = NicPlan { lanes: lane_under_load(cpu), uplink: false, vfs };
    let mut bench = Bench::start(program, &nic)?;
    let sockets: Vec<PathBuf> = (0..load.vfs).map(|vf| bench.vf_socket(vf)).collect();
    let switch = on(&mut bench, &sockets, program, cpus, load)?;
    drop(bench);

    let dir = tempfile::tempdir().context("cannot make a directory for sockets")?;
    let sockets: Vec<PathBuf> = (0..load.vfs).map(|vf| dir.path().join(vf.to_string())).collect();
    let guests = sockets.iter().enumerate().map(|(vf, socket)| (socket.clone(), mac_text(vf, 0)));
    let spec = BareSpec {
        guests: guests.collect(),
        connect: false,
        cpu,
        delay_cycles: 0,
        packed: load.ring != RingKind::Split,
        mergeable: true,
        with_parent: true,
    };
    let bare = on(&mut BareProcess::start(program, &spec)?, &sockets, program, cpus, load)?;

    let cycles = |of: &Measured| of.switch.cycles_per_frame().context("no frame passed");
    let both = [&switch, &bare];
    Ok(ScaleRound {
        switch_cycles_per_frame: cycles(&switch)?,
        bare_cycles_per_frame: cycles(&bare)?,
        mpps: switch.switch.delivered as f64 / switch.results[0].seconds / 1e6,
        burst_mean: switch.switch.burst_mean().context("no frame passed")?,
        dropped: both.iter().flat_map(|measured| measured.drops.values()).sum(),
        large_pages: both.iter().all(|of| of.results.iter().all(|result| result.large_pages)),
        round_trip_cycles: None,
    })
}

/// Measures a switch whose guests attach to these sockets.
fn on(
    switch: &mut dyn Counting,
    sockets: &[PathBuf],
    program: &Path,
    cpus: &[usize],
    load: ScaleLoad,
) -> Result<Measured> {
    let ScaleLoad { frame_bytes, in_flight, touch, huge_pages, ring, seconds, .. } = load;
    let guest = |(vf, socket): (usize, &PathBuf)| {
        let pairs = load.addresses(vf).zip(load.addresses(vf ^ 1));
        let flows = pairs.map(|(from, to)| (from.to_string(), to.to_string())).collect();
        HostedGuest {
            place: AdapterBackend::Socket(socket.clone()),
            role: Role::Generate { flows, in_flight, load: Closed, touch },
        }
    };
    let spec = GuestSpec {
        cpu: plan(cpus, 1).guests[0].0,
        warmup_s: 0.2,
        seconds,
        quiet_s: QUIET_S,
        frame_bytes,
        huge_pages,
        ring,
        guests: sockets.iter().enumerate().map(guest).collect(),
    };
    measure_on(Some(switch), &mut [GuestProcess::start(program, &spec)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(cycles: f64, dropped: u64, trips: [f64; 2]) -> ScaleRound {
        ScaleRound {
            switch_cycles_per_frame: cycles,
            bare_cycles_per_frame: cycles / 2.0,
            mpps: 10.0,
            burst_mean: 32.0,
            dropped,
            large_pages: true,
            round_trip_cycles: Some(trips),
        }
    }

    #[test]
    fn rounds_count_in_the_band_they_stayed_in_if_nothing_was_dropped() {
        let near = [100.0, 110.0];
        let mut rounds = vec![round(40.0, 0, near), round(42.0, 0, near), round(41.0, 0, near)];
        rounds.push(round(10.0, 1, near));
        rounds.push(round(90.0, 0, [100.0, 400.0]));
        rounds.extend([round(70.0, 0, [400.0; 2]), round(71.0, 0, [410.0; 2])]);
        let [band] = &bands(&rounds)[..] else { panic!("one band with enough rounds") };
        assert_eq!((band.band.as_str(), band.rounds), ("under 120 cycles", 3));
        assert_eq!(band.switch_cycles_per_frame, [40.0, 41.0, 42.0]);
        assert_eq!(band.bare_cycles_per_frame, [20.0, 20.5, 21.0]);
    }

    #[test]
    fn rounds_of_one_cpu_have_no_distance_and_count() {
        let alone = ScaleRound { round_trip_cycles: None, ..round(40.0, 0, [1.0; 2]) };
        assert_eq!(bands(&[alone.clone(), alone.clone(), alone])[0].rounds, 3);
    }
}

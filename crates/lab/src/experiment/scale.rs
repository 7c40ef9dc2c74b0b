//! Cycles per frame by number of VFs and addresses.
//!
//! VF i sends 64 B frames to VF i xor 1, from each of its addresses to each of its peer's in turn,
//! in a closed loop: one for each returned frame. Each keeps the same number of frames in flight at
//! every point, so that bursts are equally long. Cycles are reported by band of CPU distance.
//! Guests write a sequence number into every sent frame and read every received one, as real ones
//! do: touched lines are in another core's cache at any number of guests.

use std::path::Path;

use anyhow::{Context, Result};
use report::GeneratorLoad::Closed;
use report::RingKind;
use report::statistics::bands::{self, Band};
use serde::Serialize;
use traffic::{AdapterBackend, GuestSpec, HostedGuest, QUIET_S, Role};

use super::sample::{self, spread};
use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, mac_text, plan};
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
    /// Mframes/s delivered, median.
    pub mpps: f64,
    /// Mean frames per burst, median.
    pub burst_mean: f64,
}

/// One round of a point.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleRound {
    /// Busy time-stamp cycles of the lane for each delivered frame.
    pub switch_cycles_per_frame: f64,
    /// Mframes/s delivered.
    pub mpps: f64,
    /// Mean frames per burst.
    pub burst_mean: f64,
    /// Frames dropped; a round with any is excluded.
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

/// Measures one point once; the caller sets the distance.
fn point(program: &Path, cpus: &[usize], load: ScaleLoad) -> Result<ScaleRound> {
    let ScaleLoad { vfs, macs, frame_bytes, in_flight, touch, huge_pages, ring, seconds } = load;
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
        HostedGuest {
            place: AdapterBackend::Socket(bench.vf_socket(vf)),
            role: Role::Generate { flows, in_flight, load: Closed, touch },
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
    Ok(ScaleRound {
        switch_cycles_per_frame: cycles,
        mpps: measured.switch.delivered as f64 / measured.results[0].seconds / 1e6,
        burst_mean: measured.switch.burst_mean().context("no frame passed")?,
        dropped: measured.drops.values().sum(),
        large_pages: measured.results.iter().all(|result| result.large_pages),
        round_trip_cycles: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(cycles: f64, dropped: u64, trips: [f64; 2]) -> ScaleRound {
        ScaleRound {
            switch_cycles_per_frame: cycles,
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
    }

    #[test]
    fn rounds_of_one_cpu_have_no_distance_and_count() {
        let alone = ScaleRound { round_trip_cycles: None, ..round(40.0, 0, [1.0; 2]) };
        assert_eq!(bands(&[alone.clone(), alone.clone(), alone])[0].rounds, 3);
    }
}

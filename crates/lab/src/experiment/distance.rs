//! Distance between the CPUs of switch and guests, and its changes over time.

use std::time::Duration;

use anyhow::{Context, Result};
use report::statistics::bands::Band;
use serde::Serialize;

use crate::bench::plan;
use crate::measure::distance;

/// Time between two samples.
const PAUSE: Duration = Duration::from_millis(20);

/// Result, printed by `shunt lab distance --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Distance {
    /// The two CPUs.
    pub cpus: (usize, usize),
    /// Round trip of a cache line in time-stamp cycles: minimum, median, maximum.
    pub round_trip_cycles: [f64; 3],
    /// Share of samples in each band, nearest first.
    pub bands: Vec<BandShare>,
    /// Number of samples.
    pub samples: usize,
}

/// One band of distances.
#[derive(Clone, Debug, Serialize)]
pub struct BandShare {
    /// Limits of the band.
    pub band: String,
    /// Share of samples, 0 to 1.
    pub share: f64,
}

/// CPUs of the switch and of the first guests.
///
/// # Errors
/// Fewer than two CPUs.
pub fn default_cpus(cpus: &[usize]) -> Result<(usize, usize)> {
    let placement = plan(cpus, 1);
    placement.switch.zip(placement.guests[0].0).context("a distance needs two CPUs")
}

/// Takes `samples` measurements.
///
/// # Errors
/// A thread cannot be pinned to one of the CPUs.
pub fn run(cpus: (usize, usize), samples: usize) -> Result<Distance> {
    let mut trips = Vec::with_capacity(samples);
    for sample in 0..samples {
        if sample > 0 {
            std::thread::sleep(PAUSE);
        }
        trips.push(distance::round_trip_cycles(cpus.0, cpus.1)?);
    }
    let share = |band: Band| {
        let inside = trips.iter().filter(|cycles| Band::of(**cycles) == Some(band)).count();
        BandShare { band: band.to_string(), share: inside as f64 / samples as f64 }
    };
    let bands = Band::ALL.map(share).into();
    trips.sort_by(f64::total_cmp);
    Ok(Distance {
        cpus,
        round_trip_cycles: [trips[0], trips[samples / 2], trips[samples - 1]],
        bands,
        samples,
    })
}

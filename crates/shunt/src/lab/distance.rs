//! `shunt lab distance`: the round trip of a cache line between two CPUs.

use anyhow::Result;
use clap::Args;
use lab::experiment::distance;

use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{figures, print};

/// Measure the distance of two CPUs: the round trip of a cache line between them.
///
/// The cost of a frame follows it. On a virtual machine it changes over time.
#[derive(Debug, Args)]
#[command(add = Title("distance of two CPUs"))]
#[command(after_help = "\
Examples:
  shunt lab distance                       the CPUs that experiments use, for two seconds
  shunt lab distance --cpus 0,2 --samples 1 --json")]
pub(super) struct Distance {
    /// The two CPUs; by default those of the switch and of the guests.
    #[arg(long, value_name = "A,B", value_parser = two_cpus)]
    cpus: Option<(usize, usize)>,
    /// Number of measurements, one every 20 ms: 1 to 100000.
    #[arg(long, default_value_t = 100, value_name = "N")]
    samples: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses two different CPU numbers, such as `0,1`.
fn two_cpus(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once(',').and_then(|(a, b)| a.parse().ok().zip(b.parse().ok()));
    numbers.filter(|(a, b)| a != b).ok_or_else(|| "expected two different CPUs, such as 0,1".into())
}

impl Distance {
    pub(super) fn run(self) -> Result<()> {
        if !(1..=100_000).contains(&self.samples) {
            return Err(UsageError::out_of_range("--samples", self.samples, 1, 100_000).into());
        }
        let cpus = match self.cpus {
            Some(cpus) => cpus,
            None => distance::default_cpus(host::cpu::allowed())?,
        };
        let distance = distance::run(cpus, self.samples)?;
        if self.json {
            return Ok(print(&format!("{}\n", serde_json::to_string_pretty(&distance)?))?);
        }
        let [least, median, most] = distance.round_trip_cycles;
        let text = format!(
            "CPU {} to CPU {} and back: {least:.0} cycles minimum, {median:.0} median, \
             {most:.0} at most; {} samples\n",
            distance.cpus.0, distance.cpus.1, distance.samples
        );
        let share = |band: &distance::BandShare| {
            [band.band.to_string(), format!("{:.0}", 100.0 * band.share)]
        };
        let bands = distance.bands.iter().map(share).collect();
        Ok(print(&(text + &figures(["CPUs apart", "% of samples"], bands)))?)
    }
}

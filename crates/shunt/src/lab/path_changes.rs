//! `shunt lab path-changes`: path changes while numbered frames flow.

use anyhow::{Result, bail};
use clap::Args;
use lab::experiment::path_changes::{self, PathChangesRun};
use traffic::protocol::numbered::Direction;

use super::common::{program, progress, seed_from_clock};
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{figures, print};

/// Change adapters' paths at random while numbered frames flow, and account for every frame.
///
/// Two guests send to each other; their adapters change among the paths vf, vmq and synthetic, with
/// one request to the daemon for each change. Exit code 1 if a frame was lost, duplicated,
/// reordered or corrupted.
#[derive(Debug, Args)]
#[command(add = Title("account of frames over path changes"))]
#[command(after_help = "\
Examples:
  shunt lab path-changes --count 1000
  shunt lab path-changes --count 10000 --seed 7 --json")]
pub(super) struct PathChanges {
    /// Number of changes, 1 to 1000000.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    count: u64,
    /// Seed of the random numbers; by default from the clock.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl PathChanges {
    pub(super) fn run(self) -> Result<()> {
        let count = self.count;
        if !(1..=1_000_000).contains(&count) {
            return Err(UsageError::out_of_range("--count", count, 1, 1_000_000).into());
        }
        let seed = self.seed.unwrap_or_else(seed_from_clock);
        eprintln!("seed {seed}");
        let run = PathChangesRun { count, seed };
        let told = path_changes::run(&program()?, host::cpu::allowed(), run, |done| {
            progress("change", done, count);
        })?;
        print(&if self.json { serde_json::to_string_pretty(&told)? + "\n" } else { text(&told) })?;
        if !told.passed() {
            bail!("failed with seed {seed}; see the figures");
        }
        Ok(())
    }
}

/// Result as text.
fn text(told: &path_changes::PathChanges) -> String {
    let [least, median, most] = told.change_ms;
    let mut text = format!(
        "{} changes in {:.1} s beside {} frames ({:.2} Mpps)\n\
         lost {}, duplicated {}, reordered {}, corrupted {}\n\
         longest gap {:.0} us; longest time off CPU {:.0} us\n\
         duration of a change: {least:.2} ms minimum, {median:.2} median, {most:.2} maximum\n\n",
        told.changes,
        told.seconds,
        told.frames,
        told.mpps,
        told.lost,
        told.duplicated,
        told.reordered,
        told.corrupted,
        told.gap_us_max,
        told.absence_us_max
    );
    let by_path = told.changes_by_path.iter();
    let by_path = by_path.map(|(path, changes)| [path.to_string(), changes.to_string()]);
    text += &figures(["path", "changes"], by_path.collect());
    let direction = |(name, way): (&str, &Direction)| {
        let [sent, received, stalls] =
            [way.sent, way.received, way.stalls].map(|count| count.to_string());
        let [longest, rare] = [way.gap_us_max, way.gap_us_p999].map(|us| format!("{us:.0}"));
        [name.to_owned(), sent, received, stalls, longest, rare]
    };
    let header = ["direction", "sent", "received", "stalls", "longest gap us", "p99.9 gap us"];
    let directions = ["there", "back"].into_iter().zip(&told.directions).map(direction);
    text + "\n" + &figures(header, directions.collect())
}

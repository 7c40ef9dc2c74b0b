//! `shunt lab hostile`: honest guests beside a hostile one.

use anyhow::{Result, bail};
use clap::Args;
use lab::experiment::hostile::{self, HostileRun};

use super::common::{program, progress, seed_from_clock};
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{figures, print};

/// Attack a daemon from a hostile guest, while honest ones account for every frame.
///
/// Exit code 1 if an honest guest lost a frame or received a wrong one, or the daemon ended.
#[derive(Debug, Args)]
#[command(add = Title("hostile guest beside honest ones"))]
#[command(after_help = "\
Examples:
  shunt lab hostile --bursts 20000 --seed 7
  shunt lab hostile --json")]
pub(super) struct Hostile {
    /// Batches of up to 64 mutated descriptors.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    bursts: u64,
    /// Seed of the random numbers; by default from the clock.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Hostile {
    pub(super) fn run(self) -> Result<()> {
        let bursts = self.bursts;
        if !(1..=1_000_000_000).contains(&bursts) {
            return Err(UsageError::out_of_range("--bursts", bursts, 1, 1_000_000_000).into());
        }
        let seed = self.seed.unwrap_or_else(seed_from_clock);
        eprintln!("seed {seed}");
        let run = HostileRun { bursts, seed };
        let hostile = hostile::run(&program()?, host::cpu::allowed(), run, |done| {
            progress("burst", done, bursts);
        })?;
        let text =
            if self.json { serde_json::to_string_pretty(&hostile)? + "\n" } else { text(&hostile) };
        print(&text)?;
        match (hostile.passed(), hostile.failure) {
            (true, _) => Ok(()),
            (false, Some(failure)) => bail!("failed with seed {seed}: {failure}"),
            (false, None) => bail!("failed with seed {seed}; see the figures"),
        }
    }
}

/// Result as text.
fn text(hostile: &hostile::Hostile) -> String {
    let (attack, honest) = (&hostile.attack, &hostile.honest);
    let mut text = format!(
        "{} bursts and {} mutations of the connection in {:.1} s; \
         {} rings and {} connections restarted\n",
        attack.bursts,
        attack.control_mutations,
        hostile.seconds,
        attack.restarts,
        attack.reconnects
    );
    text += &format!(
        "honest guests: {} frames sent, {} lost, {} corrupted, {} spoofed, {} on a wrong VLAN; \
         longest gap {:.1} ms, longest time off CPU {:.1} ms\n",
        honest.sent,
        honest.lost,
        honest.corrupted,
        honest.spoofed,
        honest.misplaced,
        honest.longest_gap_ms,
        honest.longest_absence_ms
    );
    text += &format!(
        "daemon: {}, {:.1} -> {:.1} MiB of its own, {} -> {} open files\n",
        if hostile.daemon_alive { "alive" } else { "DEAD" },
        hostile.daemon_own_mib_before,
        hostile.daemon_own_mib_after,
        hostile.daemon_fds_before,
        hostile.daemon_fds_after
    );
    for (title, counts) in [
        ("rings stopped", &hostile.faults),
        ("frames dropped", &hostile.drops),
        ("mutations", &attack.mutations),
    ] {
        let rows = counts.iter().map(|(name, count)| [name.to_string(), count.to_string()]);
        text += &("\n".to_owned() + &figures([title, "count"], rows.collect()));
    }
    text
}

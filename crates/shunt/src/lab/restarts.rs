//! `shunt lab upgrade` and `shunt lab kill`: daemon restarts while numbered frames flow.

use anyhow::{Result, bail};
use clap::Args;
use lab::experiment::restarts::{
    self, MIRRORS_MAX, RestartKind, RestartResult, RestartRun, Spread,
};
use report::RingKind;

use super::common::{program, progress};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{figures, print};

/// Options of both commands.
#[derive(Debug, Args)]
struct Common {
    /// Number of restarts, 1 to 100000.
    #[arg(long, default_value_t = 100, value_name = "N")]
    count: u64,
    /// Frames a second that each guest sends; 0 for unlimited.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    rate: u32,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split", add = complete::ring())]
    ring: RingKind,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Hot-restart the daemon repeatedly while numbered frames flow, and account for each frame.
///
/// Two guests send to each other. Exit code 1 if a frame was lost, duplicated, reordered or
/// corrupted, a buffer was not returned exactly once, or a gap exceeded the limit.
#[derive(Debug, Args)]
#[command(add = Title("account of frames over hot restarts"))]
#[command(after_help = "\
Examples:
  shunt lab upgrade --count 100
  shunt lab upgrade --count 100 --ring packed --json
  shunt lab upgrade --count 100 --mirrors 4 --json
  shunt lab upgrade --count 100 --gap-max 50")]
pub(super) struct Upgrade {
    #[command(flatten)]
    common: Common,
    /// Longest allowed gap between two arrivals, in milliseconds; without it, any. A busy machine
    /// has gaps of its own.
    #[arg(long, value_name = "MS")]
    gap_max: Option<f64>,
    /// VFs whose frames are mirrored to files, 0 to 16: those of the guests first. The files are in
    /// a temporary directory, up to 1 GiB each.
    #[arg(long, default_value_t = 0, value_name = "N")]
    mirrors: usize,
}

/// Kill the daemon repeatedly while numbered frames flow, restart it, and account for each frame.
///
/// Two guests send to each other, and reattach with their rings unchanged. Exit code 1 if a frame
/// was lost, reordered or corrupted, more than a burst in each direction was duplicated after a
/// kill, or a buffer was not returned exactly once.
#[derive(Debug, Args)]
#[command(add = Title("account of frames over kills of the daemon"))]
#[command(after_help = "\
Examples:
  shunt lab kill --count 100
  shunt lab kill --count 100 --ring packed --json")]
pub(super) struct Kill {
    #[command(flatten)]
    common: Common,
    /// No inflight records: split rings do not need them.
    #[arg(long)]
    no_inflight: bool,
}

impl Upgrade {
    pub(super) fn run(self) -> Result<()> {
        let mirrors = self.mirrors;
        if mirrors > MIRRORS_MAX {
            return Err(UsageError::out_of_range("--mirrors", mirrors, 0, MIRRORS_MAX).into());
        }
        self.common.run(RestartKind::Upgrade, false, mirrors, self.gap_max)
    }
}

impl Kill {
    pub(super) fn run(self) -> Result<()> {
        let ring = self.common.ring;
        if self.no_inflight && ring != RingKind::Split {
            let message = format!("needs --ring split, and the ring is {ring}");
            return Err(UsageError::option(
                "--no-inflight",
                (),
                &message,
                "leave one of the two out",
            )
            .into());
        }
        self.common.run(RestartKind::Kill, !self.no_inflight, 0, None)
    }
}

impl Common {
    fn run(
        self,
        how: RestartKind,
        inflight: bool,
        mirrors: usize,
        gap_max_ms: Option<f64>,
    ) -> Result<()> {
        let Common { count, rate, ring, json } = self;
        if !(1..=100_000).contains(&count) {
            return Err(UsageError::out_of_range("--count", count, 1, 100_000).into());
        }
        let run = RestartRun { how, count, rate_pps: rate, ring, inflight, mirrors, gap_max_ms };
        let told = restarts::run(&program()?, host::cpu::allowed(), run, |done| {
            progress("take-over", done, count);
        })?;
        print(&if json { serde_json::to_string_pretty(&told)? + "\n" } else { text(&told) })?;
        if !told.passed() {
            bail!("failed; see the figures");
        }
        Ok(())
    }
}

/// Result as text.
fn text(told: &RestartResult) -> String {
    let (what, silent) = match told.how {
        RestartKind::Upgrade => ("upgrades", "not serving"),
        RestartKind::Kill => ("kills", "kill to ready"),
    };
    let ring = told.ring;
    let records = if told.inflight { ", with inflight records" } else { "" };
    let mirrors = match told.mirrors {
        0 => String::new(),
        n => format!(", with {n} mirrors to files"),
    };
    let mut text = format!(
        "{} {what} in {:.1} s beside {} frames, on {ring} rings{records}{mirrors}\n\
         lost {}, duplicated {} ({} at once at most), reordered {}, corrupted {}\n\
         used entries repeated {}, out of order {}; sent buffers never returned {}\n\n",
        told.count,
        told.seconds,
        told.frames,
        told.lost,
        told.duplicated,
        told.duplicated_at_once_max,
        told.reordered,
        told.corrupted,
        told.used_repeated,
        told.used_out_of_order,
        told.used_missing
    );
    let row = |name: &str, Spread { p50, p90, p99, max }: Spread| {
        let [p50, p90, p99, max] = [p50, p90, p99, max].map(|ms| format!("{ms:.2}"));
        [name.to_owned(), p50, p90, p99, max]
    };
    let mut rows = vec![
        row("gap", told.gap_ms),
        row("without a CPU", told.absence_ms),
        row(silent, told.silent_ms),
    ];
    if told.how == RestartKind::Kill {
        rows.push(row("reattached", told.reattach_ms));
    }
    text += &figures(["milliseconds", "p50", "p90", "p99", "most"], rows);
    text
}

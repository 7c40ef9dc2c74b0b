//! `shunt lab soak`: random actions beside honest guests, and the daemon's resources over time.

use anyhow::{Result, bail};
use clap::Args;
use lab::experiment::soak::account::{
    Cause, FDS_TOLERANCE, FILES_TOLERANCE, OWN_MIB_TOLERANCE, Point,
};
use lab::experiment::soak::plan::Kind;
use lab::experiment::soak::{self, STEPS, SoakRun};
use report::RingKind;

use super::common::{program, progress, seed_from_clock};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{figures, print};

/// Longest run: a week.
const SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Make random changes, restarts, kills and attacks for a long time, and account for every frame.
///
/// Two guests send numbered frames to each other. Four times a second an action follows from the
/// seed: a path change, other settings, rules, a mirror, a link that is down, an adapter that comes
/// and goes, hostile guests, a TCP copy over taps, a hot restart, or a kill of the daemon. Exit
/// code 1 if a frame was lost, duplicated, reordered or corrupted without a reason that the action
/// gives, or if the daemon has more memory, open files, threads or files at the end than at a
/// twelfth of the run, or after half time. From half time on there is no restart.
///
/// Taps need root, or a user namespace: otherwise there are no copies, and the result says so.
#[derive(Debug, Args)]
#[command(add = Title("account of frames and resources over random actions"))]
#[command(after_help = "\
Examples:
  shunt lab soak --seed 7
  shunt lab soak --minutes 60 --json
  shunt lab soak --without kill,upgrade          one process, for slow leaks")]
pub(super) struct Soak {
    /// Seconds of the run, 6 to 604800; longer if actions take longer than a quarter of a second.
    #[arg(long, default_value_t = 60, value_name = "S")]
    seconds: u64,
    /// Minutes of the run, instead of seconds.
    #[arg(long, value_name = "M", conflicts_with = "seconds")]
    minutes: Option<u64>,
    /// Seed of the actions; by default from the clock.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Rings of the honest guests: split, packed or packed-in-order.
    #[arg(long, default_value = "split", add = complete::ring())]
    ring: RingKind,
    /// Kinds of actions to leave out: path, settings, rules, mirror, link, adapter, hostile, tap,
    /// upgrade, kill.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KINDS",
        add = complete::words(Kind::ALL.map(Kind::as_str))
    )]
    without: Vec<Kind>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Soak {
    pub(super) fn run(self) -> Result<()> {
        let (option, given, scale) = match self.minutes {
            Some(minutes) => ("--minutes", minutes, 60),
            None => ("--seconds", self.seconds, 1),
        };
        let (least, most) = (6_u64.div_ceil(scale), SECONDS_MAX / scale);
        if !(least..=most).contains(&given) {
            return Err(UsageError::out_of_range(option, given, least, most).into());
        }
        // The second half has no restarts.
        let mut late = Kind::ALL.iter().filter(|kind| !kind.is_restart());
        if late.all(|kind| self.without.contains(kind)) {
            let remedy = "keep at least one kind beside upgrade and kill";
            return Err(UsageError::option("--without", (), "leaves no action", remedy).into());
        }
        let (seconds, seed) = (given * scale, self.seed.unwrap_or_else(seed_from_clock));
        let ring = self.ring;
        let mut repeat = format!("shunt lab soak --seconds {seconds} --seed {seed} --ring {ring}");
        if !self.without.is_empty() {
            let kinds: Vec<&str> = self.without.iter().map(|kind| kind.as_str()).collect();
            repeat += &format!(" --without {}", kinds.join(","));
        }
        eprintln!("seed {seed}; repeat with: {repeat}");
        let run = SoakRun { seconds, seed, ring: self.ring, without: self.without };
        let told = soak::run(&program()?, host::cpu::allowed(), &run, |done| {
            progress("action", done as u64, seconds * STEPS);
        })?;
        let text =
            if self.json { serde_json::to_string_pretty(&told)? + "\n" } else { text(&told) };
        print(&text)?;
        match told.problems.as_slice() {
            [] => Ok(()),
            [first, ..] => bail!("failed with seed {seed}: {first}"),
        }
    }
}

/// Result as text.
fn text(told: &soak::Soak) -> String {
    let point = |point: &Point| {
        let (frames, latency, size) = (&point.frames, &point.latency, &point.size);
        let us = |us: f64| format!("{us:.0}");
        [
            us(point.seconds),
            point.actions.to_string(),
            frames.sent.to_string(),
            frames.received.to_string(),
            frames.lost.to_string(),
            us(latency.p50_us),
            us(latency.p99_us),
            us(latency.max_us),
            format!("{:.1}", size.rss_mib),
            format!("{:.1}", size.own_mib),
            size.fds.to_string(),
            size.threads.to_string(),
            point.files.to_string(),
        ]
    };
    let header = [
        "seconds",
        "actions",
        "sent",
        "received",
        "lost",
        "p50 us",
        "p99 us",
        "max us",
        "RSS MiB",
        "own MiB",
        "open files",
        "threads",
        "files",
    ];
    let mut text = figures(header, told.points.iter().map(point).collect()) + "\n";
    let cause = |(kind, cause): (&String, &Cause)| {
        let lost = cause.lost.iter().map(|(reason, count)| format!("{count} {reason}"));
        let lost = lost.collect::<Vec<_>>().join(", ");
        [
            kind.clone(),
            cause.actions.to_string(),
            if lost.is_empty() { "-".to_owned() } else { lost },
            cause.lost_unexplained.to_string(),
            cause.duplicated.to_string(),
            format!("{:.1}", cause.gap_ms_max),
            format!("{:.1}", cause.absence_ms_max),
        ]
    };
    let header =
        ["action", "number", "lost by reason", "other lost", "duplicated", "gap ms", "off CPU ms"];
    text += &figures(header, told.causes.iter().map(cause).collect());
    if let Some(why) = &told.no_taps {
        text += &format!("\nno copies over taps: {why}\n");
    }
    text += "\n";
    match told.problems.as_slice() {
        [] => {
            text += &format!(
                "no unexplained loss, and no leak: threads as before, open files within \
                 {FDS_TOLERANCE}, memory within {OWN_MIB_TOLERANCE} MiB, files within \
                 {FILES_TOLERANCE}\n"
            );
        }
        problems => text.extend(problems.iter().map(|problem| format!("{problem}\n"))),
    }
    text
}

//! `shunt lab idle`: idle CPU and wake-up latency.

use anyhow::Result;
use clap::Args;
use lab::experiment::idle::{self, IdleSpec};
use report::Align;
use traffic::protocol::probe::WakeTimes;

use super::common::program;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{of_stdout, print};

/// Measure idle CPU with silent guests, and the wake-up latency of the first frame.
///
/// A lane without frames polls, polls and yields its CPU, or sleeps, by its settings poll_us and
/// sleep: each is measured.
#[derive(Debug, Args)]
#[command(add = Title("idle CPU and wake-up latency with silent guests"))]
#[command(after_help = "\
Example:
  shunt lab idle --guests 64 --json
  shunt lab idle --cpu-latency 0          without deep sleep states of CPUs")]
pub(super) struct Idle {
    /// Attached guests: 2 to 255.
    #[arg(long, default_value_t = 64, value_name = "N")]
    guests: usize,
    /// Seconds of the measured silence.
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Frames to send, each after 5 to 20 ms of silence.
    #[arg(long, default_value_t = 500, value_name = "N")]
    frames: u64,
    /// Limit the wake-up latency of all CPUs, in microseconds, 0 to 1000000.
    ///
    /// The daemon sets the limit for the whole machine during the run (lanes.cpu_latency_us of its
    /// configuration), so it applies to the thread that only sleeps, too. Usually needs root.
    #[arg(long, value_name = "US")]
    cpu_latency: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Idle {
    pub(super) fn run(self) -> Result<()> {
        let Idle { guests, seconds, frames, cpu_latency: cpu_latency_us, json } = self;
        let spec = IdleSpec { guests, seconds, frames, cpu_latency_us };
        spec.check().map_err(UsageError)?;
        let idle = idle::run(&program()?, host::cpu::allowed(), spec)?;
        if json {
            return Ok(print(&format!("{}\n", serde_json::to_string_pretty(&idle)?))?);
        }
        Ok(print(&text(&idle))?)
    }
}

fn text(idle: &idle::Idle) -> String {
    const COLUMNS: [&str; 9] =
        ["lane", "CPU", "p50 us", "p99 us", "most us", "slept", "other p50", "p99", "most"];
    let columns =
        COLUMNS.map(|name| (name, if name == "lane" { Align::Left } else { Align::Right }));
    let rows = idle.policies.iter().map(|cost| {
        let times =
            |times: WakeTimes| [times.p50, times.p99, times.max].map(|us| format!("{us:.1}"));
        let policy = [cost.policy.to_owned(), format!("{:.1} %", 100.0 * cost.cpu_share)];
        let slept = [cost.sleeps.to_string()];
        [&policy[..], &times(cost.wake_us), &slept, &times(cost.floor_us)].concat()
    });
    let samples = idle.policies.iter().map(|cost| cost.samples).min().unwrap_or(0);
    let limit = match idle.cpu_latency_us {
        Some(us) => format!("limited to {us} us during the run"),
        None => "not limited (--cpu-latency 0 sets a limit)".into(),
    };
    format!(
        "{}\n\
         CPU: of one core, the daemon's with {} silent guests\n\
         us: from the first frame after a silence of 5 to 20 ms to its arrival, {samples} times\n\
         other: until another thread on the lane's CPU wakes, which only sleeps\n\
         poll: poll_us = 1000000, sleep = false (polls for 1 s, then yields); yield: sleep = false; \
         sleep: the defaults\n\
         wake-up latency of the CPUs: {limit}\n",
        of_stdout().table(&columns, rows.collect()),
        idle.guests,
    )
}

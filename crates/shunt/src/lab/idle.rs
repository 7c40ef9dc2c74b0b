//! `shunt lab idle`: idle CPU and wake-up latency.

use anyhow::Result;
use clap::Args;
use lab::experiment::idle::{self, IdleSpec};

use super::common::program;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::print;

/// Measure idle CPU with silent guests, and the wake-up latency of the first frame.
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
        let percent = idle.cpu_share * 100.0;
        let (wake, floor) = (idle.wake_us, idle.floor_us);
        let held = match idle.cpu_latency_us {
            Some(us) => format!("limited to {us} us during the run"),
            None => "not limited (--cpu-latency 0 sets a limit)".into(),
        };
        let text = format!(
            "{guests} silent guests: the daemon uses {percent:.2} % of a core\n\
             first frame after a silence: {:.1} us in the median, {:.1} us at the 99th percentile, \
             {:.1} us at most ({} frames, the lane slept {} times)\n\
             a thread that only sleeps, on the same CPU: {:.1}, {:.1} and {:.1} us\n\
             wake-up latency of the CPUs: {held}\n",
            wake.p50,
            wake.p99,
            wake.max,
            idle.samples,
            idle.sleeps,
            floor.p50,
            floor.p99,
            floor.max
        );
        Ok(print(&text)?)
    }
}

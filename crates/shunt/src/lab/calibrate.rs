//! `shunt lab calibrate`: error of the lab's latency figures.

use anyhow::Result;
use clap::Args;
use lab::experiment::calibrate::{
    self, CalibrateSettings, Calibration, DelayMeasured, Quantiles, Verdict,
};
use lab::measure::delay::Distribution;

use super::common::{check_seconds, program, progress};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{figures, print};

/// Maximum frames a second.
const RATE_MAX: f64 = 1_000_000.0;

/// Measure known delays: the error of the lab's latency figures.
///
/// A device returns each frame after a delay drawn from a known distribution. The generator of
/// `shunt lab throughput` measures the latency; the table compares both. The exit code is non-zero
/// on errors only: noise is no error.
#[derive(Debug, Args)]
#[command(add = Title("error of latency figures, from known delays"))]
#[command(after_help = "\
Examples:
  shunt lab calibrate                                  four distributions, nine trials each
  shunt lab calibrate --rate 200000 --seconds 10
  shunt lab calibrate --delay constant:20 --delay two-valued:30,500,0.02 --json")]
pub(super) struct Calibrate {
    /// Frames a second: 1000 to 1000000.
    #[arg(long, default_value_t = 50_000.0, value_name = "FPS")]
    rate: f64,
    /// Trials of each distribution; the medians of their quantiles count: 1 to 100.
    #[arg(long, default_value_t = 9, value_name = "N")]
    trials: usize,
    /// Seconds of each trial.
    #[arg(long, default_value_t = 0.5, value_name = "S")]
    seconds: f64,
    /// Distribution of delays in us: constant:US, uniform:MIN,MAX, exponential:MEAN or
    /// two-valued:SHORT,LONG,SHARE (share of long ones); repeatable. By default one of each kind.
    #[arg(long, value_name = "DIST",
        add = complete::words(["constant:", "uniform:", "exponential:", "two-valued:"]))]
    delay: Vec<Distribution>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Calibrate {
    pub(super) fn run(self) -> Result<()> {
        check_seconds(self.seconds)?;
        if !(1..=100).contains(&self.trials) {
            return Err(UsageError::out_of_range("--trials", self.trials, 1, 100).into());
        }
        if !(1_000.0..=RATE_MAX).contains(&self.rate) {
            return Err(UsageError::out_of_range("--rate", self.rate, 1000, RATE_MAX).into());
        }
        let mut delays = self.delay;
        if delays.is_empty() {
            delays.extend(Distribution::USUAL);
        }
        let all = delays.len();
        let settings = CalibrateSettings {
            rate_fps: self.rate,
            trials: self.trials,
            seconds: self.seconds,
            delays,
        };
        let found = calibrate::run(&program()?, host::cpu::allowed(), &settings, |done| {
            progress("distribution", done, all);
        })?;
        let text = match self.json {
            true => serde_json::to_string_pretty(&found)? + "\n",
            false => text(&found),
        };
        Ok(print(&text)?)
    }
}

/// Result as text.
fn text(found: &Calibration) -> String {
    let cpu = |cpu: Option<usize>| cpu.map_or("any CPU".into(), |cpu| format!("CPU {cpu}"));
    let mut text = format!(
        "{} frames/s of {} B, {} trials of {} s each; device on {}, generator on {}\n",
        found.rate_fps,
        found.frame_bytes,
        found.trials,
        found.seconds,
        cpu(found.device_cpu),
        cpu(found.generator_cpu)
    );
    for delay in &found.delays {
        text += &distribution(delay);
    }
    text
}

fn distribution(delay: &DelayMeasured) -> String {
    let [injected, held, told, unpaused, pickup, late, sent_late] = [
        delay.injected,
        delay.held,
        delay.told,
        delay.told_unpaused,
        delay.pickup,
        delay.device_lateness,
        delay.generator_lateness,
    ]
    .map(|times| Quantiles::of_latency(&times));
    let rows = [
        ("theory, us", delay.theory_us),
        ("injected (drawn), us", injected),
        ("actual delay, us", held),
        ("told by the generator, us", told),
        ("told without pauses, us", unpaused),
        ("error without pauses, us", delay.error_us),
        ("error, %", delay.error_percent),
        ("from sending to the device, us", pickup),
        ("lateness of the device's release, us", late),
        ("lateness of the generator, us", sent_late),
    ];
    let row = |(title, Quantiles { p50, p90, p99, p999 }): (&str, Quantiles)| {
        let [p50, p90, p99, p999] = [p50, p90, p99, p999].map(|us| format!("{us:.2}"));
        [title.to_owned(), p50, p90, p99, p999]
    };
    let name = delay.distribution.to_string();
    let header = [&*name, "p50", "p90", "p99", "p99.9"];
    let mut text = "\n".to_owned() + &figures(header, rows.map(row).to_vec());
    let verdict = |Verdict { p50, p99 }| {
        let [p50, p99] = [p50, p99].map(|within| if within { "yes" } else { "NO" });
        format!("p50 {p50}, p99 {p99}")
    };
    let (all, unpaused) = (delay.told.frames, delay.told_unpaused.frames);
    let pauses = &delay.pauses;
    text += &format!(
        "  pauses of the generator: {}, {:.2} % of the time, longest {:.0} us; {:.2} % of the \
         frames met one of it or of the device\n",
        pauses.count,
        pauses.share * 100.0,
        pauses.longest_us,
        (all - unpaused) as f64 / all.max(1) as f64 * 100.0
    );
    text += &format!(
        "  within 5 % or 1 us of the injected: {}; with pauses: {}{}\n",
        verdict(delay.within),
        verdict(delay.within_all),
        if delay.generator_ok { "" } else { "; NO RESULT: the generator missed its rate" }
    );
    text += &format!(
        "  frames: {} sent, {} lost, {} duplicated, {} reordered (by the device: {})\n",
        delay.sent, delay.lost, delay.duplicated, delay.reordered, delay.reordered_by_device
    );
    text
}

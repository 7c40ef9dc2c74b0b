//! Error of the lab's latency figures: its generator measures a device with known delays.
//!
//! The generator is that of [`throughput`](super::throughput), in a process of its own on the same
//! CPU. The device ([`DelayDevice`]) is a thread of this process on the switch's CPU. For each
//! distribution the measured quantiles are compared with those of the drawn delays. Trials are
//! repeated (RFC 2544, section 26.2), and the median of each quantile counts.
//!
//! A host that takes the CPUs away for more than 1 % of the time affects every trial. So a second
//! latency excludes frames that met a pause of the generator's or the device's CPU. A pause does
//! not depend on a frame's delay, so these quantiles are those of the drawn delays.

use std::path::Path;

use anyhow::{Context, Result};
use report::RingKind;
use serde::Serialize;
use traffic::{
    AdapterBackend, GuestSpec, HostedGuest, IN_FLIGHT, Latency, PacedResult, PausesResult, Role,
};

use super::forwarding::{OUTSIDE, WARMUP_S};
use super::throughput::of_trials;
use crate::bench::delay::{DelayControl, DelayDevice, DelayResult};
use crate::bench::{GuestProcess, Placement, interrupt, mac_text, plan};
use crate::measure::delay::Distribution;

/// Largest error of a quantile, relative to the injected one.
const ERROR_SHARE_MAX: f64 = 0.05;
/// Error that is always allowed, in microseconds.
const ERROR_US_MAX: f64 = 1.0;
/// Frames that a p99 needs: ten beyond it.
const FRAMES_MIN: u64 = 1000;
/// Minimum share of frames without a pause: excluding the others causes at most an error of their
/// share.
const SHARE_MIN: f64 = 0.9;
/// Bytes of a frame, with FCS.
const FRAME_BYTES: u32 = 64;
/// Wait for held frames, in seconds: longer than the delays, and than a busy machine delays the
/// device.
const QUIET_S: f64 = 0.3;
/// Seed of the first trial: each run draws the same delays.
const SEED: u64 = 1;

/// Settings of a calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrateSettings {
    /// Frames a second.
    pub rate_fps: f64,
    /// Trials of each distribution, each with a generator and a device of its own.
    pub trials: usize,
    /// Seconds of each trial.
    pub seconds: f64,
    /// Distributions to measure.
    pub delays: Vec<Distribution>,
}

/// Result, printed by `shunt lab calibrate --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// Frames a second.
    pub rate_fps: f64,
    /// Trials of each distribution; quantiles are the medians of theirs.
    pub trials: usize,
    /// Seconds of each trial.
    pub seconds: f64,
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// CPU of the device, if pinned.
    pub device_cpu: Option<usize>,
    /// CPU of the generator, if pinned.
    pub generator_cpu: Option<usize>,
    /// Each distribution.
    pub delays: Vec<DelayMeasured>,
}

/// One distribution: injected and measured. All times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct DelayMeasured {
    /// Distribution, as on the command line.
    pub distribution: String,
    /// Its theoretical quantiles.
    pub theory_us: Quantiles,
    /// Delays that the device drew.
    pub injected: Latency,
    /// Actual delays of the device: from the generator's stamp until it published the frame.
    pub held: Latency,
    /// Latency measured by the generator, of all frames.
    pub told: Latency,
    /// Latency measured by the generator, of frames that met no pause of a CPU.
    pub told_unpaused: Latency,
    /// Pauses of the generator.
    pub pauses: PausesResult,
    /// Measured without pauses, minus injected.
    pub error_us: Quantiles,
    /// This error, in percent of the injected.
    pub error_percent: Quantiles,
    /// Measured without pauses against injected: p50 and p99 within 5 % or 1 us.
    pub within: Verdict,
    /// Measured, all frames, against injected: the same limits.
    pub within_all: Verdict,
    /// Time from the generator's stamp until the device took the frame: not part of the latency.
    pub pickup: Latency,
    /// Lateness of the device's release: its own bias.
    pub device_lateness: Latency,
    /// Lateness of the generator's sending: not part of the latency.
    pub generator_lateness: Latency,
    /// `false` if the generator missed its rate; the figures are then invalid.
    pub generator_ok: bool,
    /// Frames sent.
    pub sent: u64,
    /// Frames received, without duplicates.
    pub received: u64,
    /// Frames that did not come back.
    pub lost: u64,
    /// Frames received a second time.
    pub duplicated: u64,
    /// Frames received after a later one, counted by the generator.
    pub reordered: u64,
    /// Frames returned after a later one, counted by the device.
    pub reordered_by_device: u64,
}

/// Quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

impl Quantiles {
    fn of(quantile: impl Fn(f64) -> f64) -> Quantiles {
        let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(quantile);
        Quantiles { p50, p90, p99, p999 }
    }

    /// Quantiles of measured times, in microseconds.
    pub fn of_latency(times: &Latency) -> Quantiles {
        let Latency { p50_us: p50, p90_us: p90, p99_us: p99, p999_us: p999, .. } = *times;
        Quantiles { p50, p90, p99, p999 }
    }

    fn zip(self, other: Quantiles, each: impl Fn(f64, f64) -> f64) -> Quantiles {
        Quantiles {
            p50: each(self.p50, other.p50),
            p90: each(self.p90, other.p90),
            p99: each(self.p99, other.p99),
            p999: each(self.p999, other.p999),
        }
    }
}

/// Quantiles within the allowed error; `false` with fewer than [`FRAMES_MIN`] frames, or less than
/// [`SHARE_MIN`] of the returned ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Median.
    pub p50: bool,
    /// 99th percentile.
    pub p99: bool,
}

impl Verdict {
    /// Compares; `all` is the number of returned frames.
    fn of(told: &Latency, known: &Latency, all: u64) -> Verdict {
        let enough = told.frames as f64 >= SHARE_MIN * all as f64;
        let measured = told.frames.min(known.frames) >= FRAMES_MIN && enough;
        let within = |told: f64, known: f64| {
            measured && (told - known).abs() <= f64::max(ERROR_US_MAX, ERROR_SHARE_MAX * known)
        };
        Verdict { p50: within(told.p50_us, known.p50_us), p99: within(told.p99_us, known.p99_us) }
    }
}

/// Measures each distribution, and passes each result to `done`; `program` is the shunt binary.
///
/// # Errors
/// The device or the generator does not run. Noise is no error.
pub fn run(
    program: &Path,
    cpus: &[usize],
    settings: &CalibrateSettings,
    mut done: impl FnMut(usize),
) -> Result<Calibration> {
    let placement = plan(cpus, 1);
    let mut delays = Vec::new();
    for distribution in &settings.delays {
        let (mut told, mut device) = (Vec::new(), Vec::new());
        for number in 0..settings.trials {
            interrupt::check()?;
            let one = trial(program, &placement, settings, *distribution, SEED + number as u64)?;
            told.push(one.0);
            device.push(one.1);
        }
        let (told, _, generator_ok) = of_trials(&told);
        let device = DelayResult::of_trials(&device);
        delays.push(compare(*distribution, &told, &device, generator_ok));
        done(delays.len());
    }
    Ok(Calibration {
        rate_fps: settings.rate_fps,
        seconds: settings.seconds,
        frame_bytes: FRAME_BYTES,
        trials: settings.trials,
        device_cpu: placement.switch,
        generator_cpu: generator_cpu(&placement),
        delays,
    })
}

fn generator_cpu(placement: &Placement) -> Option<usize> {
    placement.generator.or(placement.guests[0].0)
}

/// Runs one trial; returns the results of generator and device.
fn trial(
    program: &Path,
    placement: &Placement,
    settings: &CalibrateSettings,
    distribution: Distribution,
    seed: u64,
) -> Result<(PacedResult, DelayResult)> {
    let dir = tempfile::tempdir().context("cannot make a directory for a socket")?;
    let socket = dir.path().join("device");
    let (source, destination) = (OUTSIDE.to_string(), mac_text(0, 0).to_string());
    let role = Role::Pace {
        flows: vec![(source, destination)],
        in_flight: IN_FLIGHT,
        load_fps: settings.rate_fps,
        burst: None,
    };
    let spec = GuestSpec {
        cpu: generator_cpu(placement),
        warmup_s: WARMUP_S,
        seconds: settings.seconds,
        quiet_s: QUIET_S,
        frame_bytes: FRAME_BYTES,
        huge_pages: false,
        ring: RingKind::Split,
        guests: vec![HostedGuest { place: AdapterBackend::Socket(socket.clone()), role }],
    };
    let device = DelayDevice::listen(&socket, distribution, seed)?;
    let control = DelayControl::default();
    std::thread::scope(|scope| {
        let device = scope.spawn(|| device.serve(placement.switch, &control));
        let told = generate(program, &spec, &control);
        control.stop();
        let device = device.join().expect("the device's thread does not panic");
        Ok((told?, device?))
    })
}

/// Runs the generator until no frame moves.
fn generate(program: &Path, spec: &GuestSpec, control: &DelayControl) -> Result<PacedResult> {
    let mut process = GuestProcess::start(program, spec)?;
    process.go()?;
    process.begin()?;
    control.begin();
    process.end()?;
    process.result()?.paced.context("no process reported the generator")
}

fn compare(
    distribution: Distribution,
    told: &PacedResult,
    device: &DelayResult,
    generator_ok: bool,
) -> DelayMeasured {
    let unpaused = told.latency_unpaused;
    let [known, measured] = [&device.drawn, &unpaused].map(Quantiles::of_latency);
    let error_us = measured.zip(known, |told, known| told - known);
    DelayMeasured {
        distribution: distribution.to_string(),
        theory_us: Quantiles::of(|share| distribution.quantile_us(share)),
        injected: device.drawn,
        held: device.held,
        told: told.latency,
        told_unpaused: unpaused,
        pauses: told.pauses,
        error_us,
        error_percent: error_us.zip(known, |error, known| error / known.max(1e-3) * 100.0),
        within: Verdict::of(&unpaused, &device.drawn, told.latency.frames),
        within_all: Verdict::of(&told.latency, &device.drawn, told.latency.frames),
        pickup: device.pickup,
        device_lateness: device.lateness,
        generator_lateness: told.lateness,
        generator_ok,
        sent: told.sent,
        received: told.received,
        lost: told.sent.saturating_sub(told.received),
        duplicated: told.duplicated,
        reordered: told.reordered,
        reordered_by_device: device.reordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(p50_us: f64, p99_us: f64) -> Latency {
        Latency { frames: 1000, p50_us, p99_us, p90_us: p50_us, p999_us: p99_us, max_us: p99_us }
    }

    #[test]
    fn a_quantile_is_within_5_percent_or_1_us() {
        let known = latency(10.0, 200.0);
        for (p50, p99, verdict) in [
            (11.0, 210.0, (true, true)),
            (11.1, 190.0, (false, true)),
            (9.0, 189.9, (true, false)),
            (8.9, 210.1, (false, false)),
        ] {
            let Verdict { p50, p99 } = Verdict::of(&latency(p50, p99), &known, 1100);
            assert_eq!((p50, p99), verdict);
        }
        let none = Latency::default();
        let too_few = Verdict { p50: false, p99: false };
        assert_eq!(Verdict::of(&none, &none, 0), too_few);
        assert_eq!(Verdict::of(&known, &known, 1200), too_few, "most of them, and not enough");
    }

    #[test]
    fn errors_are_those_of_what_was_told_against_what_was_drawn() {
        let told = PacedResult {
            sent: 10,
            received: 9,
            reordered: 3,
            latency: latency(102.0, 220.0),
            latency_unpaused: latency(101.0, 209.0),
            ..PacedResult::default()
        };
        let device =
            DelayResult { drawn: latency(100.0, 200.0), reordered: 3, ..DelayResult::default() };
        let measured = compare(Distribution::Constant { us: 100.0 }, &told, &device, true);
        let Quantiles { p50, p99, .. } = measured.error_percent;
        assert!((p50 - 1.0).abs() < 1e-9 && (p99 - 4.5).abs() < 1e-9, "{p50} {p99}");
        assert_eq!(measured.within, Verdict { p50: true, p99: true });
        assert_eq!(measured.within_all, Verdict { p50: true, p99: false });
        assert_eq!((measured.lost, measured.reordered, measured.reordered_by_device), (1, 3, 3));
        assert_eq!(measured.theory_us.p999, 100.0);
    }
}

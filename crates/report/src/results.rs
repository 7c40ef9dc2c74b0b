//! Results of a run as data; their JSON is the lab's output format.
//!
//! Limits: every number is finite and not negative ([`Point::check`]); an unknown value is `None`,
//! in JSON `null`, never 0.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::copy::FileCopy;
pub use super::names::{
    Bottleneck, CopySetup, GeneratorLoad, ParseNameError, PathKind, Pattern, RingKind,
    SocketWorkload,
};
pub use super::pinned::Pinned;
pub use super::receive::Receive;
use super::stages::Stages;
use super::time;
pub use super::transfer::Transfer;
use crate::experiment::Experiment;

/// Size of the frame check sequence, in bytes. Frame sizes include it, Gbps do not: it is never in
/// memory.
pub const FCS_BYTES: u32 = 4;

/// CPU by layer, over the measured time. A polling thread uses a whole core at any load; `*_share`
/// are the shares with work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// Share (0 to 1) of the switch's polling cycles that found frames, mean of its lanes.
    pub switch_busy_share: f64,
    /// Cores the switch spent in user space.
    pub switch_user_cores: f64,
    /// Cores the switch spent in the kernel.
    pub switch_system_cores: f64,
    /// Cores all guests together spent in user space.
    pub guests_user_cores: f64,
    /// Cores all guests together spent in the kernel.
    pub guests_system_cores: f64,
    /// Share (0 to 1) of the generator's polling cycles that moved frames.
    pub generator_share: f64,
    /// Cores the generator spent in user space.
    #[serde(default)]
    pub generator_user_cores: f64,
    /// Cores the generator spent in the kernel.
    #[serde(default)]
    pub generator_system_cores: f64,
}

impl Cpu {
    /// Cores the switch spent, user space and kernel.
    pub fn switch_cores(&self) -> f64 {
        self.switch_user_cores + self.switch_system_cores
    }

    /// Cores all guests together spent, user space and kernel.
    pub fn guests_cores(&self) -> f64 {
        self.guests_user_cores + self.guests_system_cores
    }

    /// Cores the generator spent, user space and kernel.
    pub fn generator_cores(&self) -> f64 {
        self.generator_user_cores + self.generator_system_cores
    }
}

/// Rates of one guest of a point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestRates {
    /// Number of the guest, from 0; in a chain, its position.
    pub guest: u32,
    /// Million frames per second received.
    pub rx_mpps: f64,
    /// Million frames per second sent.
    pub tx_mpps: f64,
}

/// One measured point; its JSON is the output of `shunt lab run --json`. Rx and Tx are seen from
/// the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Traffic pattern.
    pub pattern: Pattern,
    /// Measured path.
    pub path: PathKind,
    /// Number of guests.
    pub vms: u32,
    /// Frame size with FCS, as papers count it: 64 is 60 bytes in memory.
    pub frame_bytes: u32,
    /// Measured time without warm-up, in seconds.
    pub seconds: f64,
    /// Load of the generator.
    #[serde(default)]
    pub load: GeneratorLoad,
    /// Rings of the guests; older results without it used split rings.
    #[serde(default)]
    pub ring: RingKind,
    /// Million frames a second, summed over the guests' transmit side.
    pub mpps: f64,
    /// Gigabits a second, summed over the guests' transmit side, without FCS ([`gbps`]).
    pub gbps: f64,
    /// Million frames a second, summed over the guests' receive side.
    pub rx_mpps: f64,
    /// Million frames a second that returned to the generator.
    pub returned_mpps: f64,
    /// Million frames a second that the generator sent.
    pub offered_mpps: f64,
    /// Frames sent by the generator, warm-up included, that had not returned when traffic stopped.
    pub lost_frames: u64,
    /// Busy time-stamp cycles of the switch's lanes per delivered frame; in schema 1 per polled
    /// frame, dropped ones included. `None` without frames, or if the path's switch cycles cannot
    /// be measured.
    pub switch_cycles_per_frame: Option<f64>,
    /// Million frames per second of the generator into an instant sink, by its self-test in this
    /// run.
    pub generator_limit_mpps: f64,
    /// Bottleneck of the point.
    pub bottleneck: Bottleneck,
    /// CPU by layer.
    pub cpu: Cpu,
    /// Rates of each guest.
    pub guests: Vec<GuestRates>,
    /// Frames the switch dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// CPUs of the threads.
    pub pinned: Pinned,
    /// Mean burst: frames per non-empty poll of the switch; `None` without any.
    pub burst_mean: Option<f64>,
    /// Time-stamp cycles of a cache line's round trip between the switch's CPU and the guests',
    /// mean of before and after the measurement; 0 if the CPUs moved meanwhile. `None` with one
    /// CPU, or in older results.
    #[serde(default)]
    pub round_trip_cycles: Option<f64>,
    /// Share (0 to 1) of the CPUs' time that other processes or other virtual machines took, the
    /// larger of both. `None` in older results.
    #[serde(default)]
    pub others_share: Option<f64>,
    /// The switch's cycles by stage. `None` where `switch_cycles_per_frame` is, and in older
    /// results.
    #[serde(default)]
    pub stages: Option<Stages>,
}

/// Share of the CPUs' time used by others from which a measurement counts as disturbed.
pub const OTHERS_MUCH: f64 = 0.05;

/// Invalid number in a point: a bug of the program.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "{pattern} {path}, frame_bytes {frame_bytes}, vms {vms}: {field} is {value}, an impossible \
         measurement; please report this bug"
)]
pub struct PointError {
    /// The point's pattern.
    pub pattern: Pattern,
    /// The point's path.
    pub path: PathKind,
    /// The point's number of guests.
    pub vms: u32,
    /// The point's frame size.
    pub frame_bytes: u32,
    /// The field, as in JSON.
    pub field: &'static str,
    /// Its value.
    pub value: f64,
}

/// Gbit/s of `mpps` million frames a second of `frame_bytes` (with FCS), without the FCS.
pub fn gbps(mpps: f64, frame_bytes: u32) -> f64 {
    mpps * f64::from(frame_bytes.saturating_sub(FCS_BYTES)) * 8.0 / 1000.0
}

impl Point {
    /// `true` if the generator was the bottleneck, so that the rates are lower bounds.
    pub fn is_lower_bound(&self) -> bool {
        self.bottleneck == Bottleneck::Generator
    }

    /// `true` if a closed loop lost frames: fewer frames circulated than stated, so the point is
    /// not valid.
    pub fn lost_in_closed_loop(&self) -> bool {
        let dropped = self.lost_frames > 0 || self.drops.values().any(|frames| *frames > 0);
        self.load == GeneratorLoad::Closed && dropped
    }

    /// `true` if the point can be compared with another machine's: no unexpected loss, the CPUs did
    /// not move, and others did not use them.
    pub fn is_steady(&self) -> bool {
        let moved = self.round_trip_cycles.is_some_and(|cycles| cycles <= 0.0);
        !self.lost_in_closed_loop() && !moved && !self.is_disturbed()
    }

    /// `true` if others used the CPUs for [`OTHERS_MUCH`] of the time or more.
    pub fn is_disturbed(&self) -> bool {
        self.others_share.is_some_and(|share| share >= OTHERS_MUCH)
    }

    /// Checks that every number is valid.
    ///
    /// # Errors
    /// The first field that is not finite or negative, `seconds` or `vms` of 0, or a frame of FCS
    /// only.
    pub fn check(&self) -> Result<(), PointError> {
        let sizes = [("vms", self.vms, 1), ("frame_bytes", self.frame_bytes, FCS_BYTES + 1)];
        let bad_size = sizes.into_iter().find(|&(_, value, least)| value < least);
        let bad_size = bad_size.map(|(field, value, _)| (field, f64::from(value)));
        let bad_time = (self.seconds <= 0.0).then_some(("seconds", self.seconds));
        let mut numbers = self.numbers().into_iter();
        let bad_number = || numbers.find(|(_, value)| !value.is_finite() || *value < 0.0);
        match bad_size.or(bad_time).or_else(bad_number) {
            None => Ok(()),
            Some((field, value)) => {
                let &Point { pattern, path, vms, frame_bytes, .. } = self;
                Err(PointError { pattern, path, vms, frame_bytes, field, value })
            }
        }
    }

    /// Every fractional number with its name in JSON; `None` is left out.
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("seconds", self.seconds),
            ("mpps", self.mpps),
            ("gbps", self.gbps),
            ("rx_mpps", self.rx_mpps),
            ("returned_mpps", self.returned_mpps),
            ("offered_mpps", self.offered_mpps),
            ("generator_limit_mpps", self.generator_limit_mpps),
            ("cpu.switch_busy_share", self.cpu.switch_busy_share),
            ("cpu.switch_user_cores", self.cpu.switch_user_cores),
            ("cpu.switch_system_cores", self.cpu.switch_system_cores),
            ("cpu.guests_user_cores", self.cpu.guests_user_cores),
            ("cpu.guests_system_cores", self.cpu.guests_system_cores),
            ("cpu.generator_share", self.cpu.generator_share),
            ("cpu.generator_user_cores", self.cpu.generator_user_cores),
            ("cpu.generator_system_cores", self.cpu.generator_system_cores),
        ];
        all.extend(self.switch_cycles_per_frame.map(|value| ("switch_cycles_per_frame", value)));
        all.extend(self.burst_mean.map(|value| ("burst_mean", value)));
        all.extend(self.others_share.map(|value| ("others_share", value)));
        all.extend(self.round_trip_cycles.map(|value| ("round_trip_cycles", value)));
        let stages = self.stages.iter().flat_map(Stages::cycles);
        all.extend(stages.map(|value| ("stages", value)));
        all.extend(self.guests.iter().map(|guest| ("guests.rx_mpps", guest.rx_mpps)));
        all.extend(self.guests.iter().map(|guest| ("guests.tx_mpps", guest.tx_mpps)));
        all
    }
}

/// Start time of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The same in UTC, e.g. `2026-03-01T09:30:00Z`.
    pub utc: String,
}

impl Started {
    /// Current time.
    pub fn now() -> Started {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Started::at(since.map_or(0, |time| time.as_secs()))
    }

    /// The moment `unix_s` seconds after the start of 1970.
    pub fn at(unix_s: u64) -> Started {
        Started { unix_s, utc: time::utc_text(unix_s) }
    }
}

/// Version of [`Results`] written by this program.
pub const SCHEMA: u32 = 2;

/// Version of results without a version field.
fn first_schema() -> u32 {
    1
}

impl Results {
    /// `true` if there are measurements other than points.
    pub(super) fn has_others(&self) -> bool {
        !(self.transfers.is_empty() && self.receives.is_empty() && self.copies.is_empty())
    }
}

/// All measurements of one run, with everything needed to repeat it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// Version of this format; 1 if absent, currently [`SCHEMA`].
    #[serde(default = "first_schema")]
    pub schema: u32,
    /// Version of the program.
    pub version: String,
    /// The exact command line.
    pub command: String,
    /// Start time.
    pub started: Started,
    /// Facts of the machine, as an object of names and values; names end in their units.
    pub machine: serde_json::Value,
    /// The experiment, with the settings of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Experiment>,
    /// Number of measured steps of the experiment, in its order.
    #[serde(default)]
    pub steps_done: usize,
    /// Reason why the run ended before its last step, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// Points, in the order of measurement.
    pub points: Vec<Point>,
    /// Measurements over guests' sockets, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transfer>,
    /// Received frames with a queue for each guest and without, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receives: Vec<Receive>,
    /// File copies, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<FileCopy>,
    /// Remarks for the reader, one sentence each.
    pub notes: Vec<String>,
}

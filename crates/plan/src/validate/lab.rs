//! Points from a run of `shunt lab` with the software NIC as the card: rates on all paths, and lane
//! cycles.

use report::statistics::bands::are_near;
use report::{GeneratorLoad, Results};

use super::{Hypothesis, Measured, Off, Point, ValidateError, hypothesis};
use crate::fit::{Observation, Parameter, SwitchObserved};
use crate::frames::FrameMix;
use crate::machine::{Figure, Host, Machine, Nic};
use crate::predict::{Pattern, PlannedPath, Scenario};
use crate::units::{Cycles, FrameRate};

/// Start values of the search: round magnitudes, so that results do not depend on an earlier fit.
const START: [(Parameter, f64); 11] = [
    (Parameter::SoftRing, 20.0),
    (Parameter::SoftWire, 20.0),
    (Parameter::SoftLookup, 40.0),
    (Parameter::SwitchRing, 20.0),
    (Parameter::SwitchWire, 20.0),
    (Parameter::SwitchLookup, 40.0),
    (Parameter::LaneByte, 0.05),
    (Parameter::KernelFromGuest, 5000.0),
    (Parameter::KernelWire, 500.0),
    (Parameter::GuestCycles, 100.0),
    (Parameter::GeneratorCycles, 20.0),
];

/// Valid clock rates of a time-stamp counter, in MHz.
const CLOCKS_MHZ: std::ops::RangeInclusive<f64> = 100.0..=20_000.0;

/// Lane cycles to start with another ring: some work, and cache lines that travel to the guest's
/// CPU and back. From fits to all points of runs at a CPU distance of 140 and 1020 cycles (360 and
/// 1490 cycles). Points of a single distance cannot separate it from the lookup cost.
const BEGIN_CYCLES: f64 = 180.0;
const BEGIN_ROUND_TRIPS: f64 = 1.28;

const OUT_OF_CACHE: &str =
    "the buffers of many guests exceed the core's cache, which slows copies down";
const FULLER: &str =
    "guests slower than the lane let frames queue up: bursts are longer than the model's";

const ONE_RUN: &str = "single runs: the difference is within the variation from run to run";

const HYPOTHESES: [Hypothesis; 14] = [
    hypothesis(Pattern::EastWest, PlannedPath::Vf, 1518, Off::TooFast, OUT_OF_CACHE),
    hypothesis(Pattern::EastWest, PlannedPath::Synthetic, 1518, Off::TooFast, OUT_OF_CACHE),
    hypothesis(Pattern::NorthSouth, PlannedPath::Vf, 1518, Off::TooFast, OUT_OF_CACHE),
    hypothesis(Pattern::NorthSouth, PlannedPath::Synthetic, 1518, Off::TooFast, OUT_OF_CACHE),
    hypothesis(Pattern::NorthSouth, PlannedPath::Vf, 0, Off::TooSlow, FULLER),
    hypothesis(Pattern::NorthSouth, PlannedPath::Synthetic, 0, Off::TooSlow, FULLER),
    hypothesis(Pattern::NorthSouth, PlannedPath::Vf, 0, Off::TooFast, ONE_RUN),
    hypothesis(Pattern::NorthSouth, PlannedPath::Synthetic, 0, Off::TooFast, ONE_RUN),
    hypothesis(Pattern::EastWest, PlannedPath::Vf, 0, Off::TooFast, ONE_RUN),
    hypothesis(Pattern::EastWest, PlannedPath::Synthetic, 0, Off::TooFast, ONE_RUN),
    hypothesis(Pattern::NorthSouth, PlannedPath::Kernel, 0, Off::TooFast, ONE_RUN),
    hypothesis(Pattern::NorthSouth, PlannedPath::Kernel, 0, Off::TooSlow, ONE_RUN),
    hypothesis(Pattern::EastWest, PlannedPath::Kernel, 0, Off::TooFast, ONE_RUN),
    hypothesis(Pattern::EastWest, PlannedPath::Kernel, 0, Off::TooSlow, ONE_RUN),
];

impl Measured {
    /// Reads the points of a lab run.
    ///
    /// # Errors
    /// No points, invalid frame sizes, or an invalid profile.
    pub fn lab(results: &Results) -> Result<Self, ValidateError> {
        let mut machine = Machine { nic: Nic::named("ideal")?, host: Host::named("shunt")? };
        for (parameter, value) in START {
            parameter.set(&mut machine, value);
        }
        let mhz = results.machine["tsc_mhz"].as_f64().filter(|mhz| CLOCKS_MHZ.contains(mhz));
        let mhz = mhz.ok_or(ValidateError::Clock)?;
        let host = &mut machine.host;
        host.ghz = Figure::new(mhz / 1000.0, "the machine of the results");
        host.name = "lab".to_owned();
        let model = results.machine["cpu_model"].as_str().unwrap_or("an unknown processor");
        host.title = format!("{model} at {:.1} GHz, as shunt lab measured it", mhz / 1000.0);
        let distance = distance(results);
        if let Some(cycles) = distance {
            let begun = BEGIN_CYCLES + BEGIN_ROUND_TRIPS * cycles;
            let source = format!("CPUs {cycles:.0} cycles apart in shunt lab");
            let soft = machine.host.soft_nic.as_mut();
            for costs in soft.into_iter().chain([&mut machine.host.switch]) {
                costs.receiver = Figure::new(begun, &source);
            }
        }
        let is_there = |point: &&report::Point| match (point.round_trip_cycles, distance) {
            (Some(its), Some(all)) => are_near(its, all),
            _ => true,
        };
        // From schema 2 on, results give the cost of a delivered frame, which differs under
        // overload.
        let is_usable =
            |point: &&report::Point| results.schema == 1 || point.load == GeneratorLoad::Closed;
        let mut points = Vec::new();
        for point in results.points.iter().filter(is_there).filter(is_usable) {
            let report::Point { pattern, path, vms, frame_bytes, mpps, pinned, .. } = point;
            let frames = FrameMix::of(*frame_bytes).map_err(ValidateError::Frames)?;
            for (figure, cpus) in [
                (&mut machine.host.switch_cores, &pinned.switch),
                (&mut machine.host.guest_cores, &pinned.guests),
            ] {
                *figure = Figure::new((cpus.len().max(1)) as f64, "CPUs that the lab pinned");
            }
            let scenario = Scenario {
                pattern: *pattern,
                path: (*path).into(),
                frames,
                guests: *vms,
                cores_each: 1.0,
            };
            let switch = switch(point, f64::from(machine.host.switch.burst));
            let observation = Observation { scenario, rate: FrameRate::mpps(*mpps), switch };
            points.push(Point { frame_bytes: *frame_bytes, observation });
        }
        if points.is_empty() {
            return Err(ValidateError::NoPoints);
        }
        let source = format!("fitted to shunt lab's points of {}", results.started.utc);
        Ok(Self {
            machine,
            parameters: &Parameter::LAB,
            source,
            left_out: results.points.len() - points.len(),
            points,
            hypotheses: &HYPOTHESES,
        })
    }
}

/// CPU distance of the majority of points, in cycles.
fn distance(results: &Results) -> Option<f64> {
    let mut all: Vec<_> =
        results.points.iter().filter_map(|point| point.round_trip_cycles).collect();
    all.retain(|cycles| *cycles > 0.0);
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Lane cost of frames. Results report the mean over all frames taken, dropped ones included, and
/// the mean burst.
fn switch(point: &report::Point, burst: f64) -> Option<SwitchObserved> {
    let report::Point { mpps, offered_mpps, returned_mpps, .. } = *point;
    let (mean, bursts) = (point.switch_cycles_per_frame?, point.burst_mean?);
    if mpps <= 0.0 || bursts <= 0.0 {
        return None;
    }
    let taken = offered_mpps + mpps;
    // The generator sends whole bursts; the rest are the guests'.
    let by_guests = taken / bursts - offered_mpps / burst;
    Some(SwitchObserved {
        cycles: Cycles(mean * taken / mpps),
        dropped: (offered_mpps - returned_mpps).max(0.0) / mpps,
        receivers: (burst * by_guests / mpps).clamp(1.0, f64::from(point.vms)),
    })
}

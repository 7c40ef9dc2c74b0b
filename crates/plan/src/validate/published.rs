//! The 180 points of nfv-2017 on paths `vf` and `vhost`, of 1 to 8 guests.
//!
//! `virtio` is left out: the paper's polling guests reached only 0.01 Mpps through it, which no
//! cost explains.

use model::state::Problems;
use report::published;

use super::{Hypothesis, Measured, Off, Point, hypothesis};
use crate::fit::{Observation, Parameter};
use crate::frames::FrameMix;
use crate::machine::{Host, Machine, Nic};
use crate::predict::{Pattern, PlannedPath, Scenario};
use crate::units::FrameRate;

/// Source of figures from this fit.
const SOURCE: &str = "fitted to nfv-2017's 180 points: shunt plan validate";

const FRAMES: [u32; 6] = [64, 128, 256, 512, 1024, 1518];
const GUESTS_MAX: u32 = 8;

/// Start values of the search: round magnitudes, so that results do not depend on an earlier fit.
const START: [(Parameter, f64); 11] = [
    (Parameter::LinkShare, 0.8),
    (Parameter::WireMpps, 30.0),
    (Parameter::BetweenMpps, 20.0),
    (Parameter::QueueNs, 20.0),
    (Parameter::QueueNsPerByte, 0.2),
    (Parameter::GuestCycles, 100.0),
    (Parameter::SwitchFromGuest, 200.0),
    (Parameter::SwitchToGuest, 100.0),
    (Parameter::SwitchByte, 0.2),
    (Parameter::SwitchReceiver, 200.0),
    (Parameter::WireQueueGbps, 35.0),
];

const NEIGHBOURS: &str = "single run: the paper's rates with one guest more or less are higher, so a thread shared its core";
const RINGS: &str = "rates fall with each guest by more than the cost of another ring: many rings exceed the core's cache";

const HYPOTHESES: [Hypothesis; 9] = [
    hypothesis(
        Pattern::EastWest,
        PlannedPath::Vf,
        64,
        Off::TooFast,
        "a write of 60 bytes is a partial cache line: the host reads before it writes, which longer frames avoid",
    ),
    hypothesis(
        Pattern::EastWest,
        PlannedPath::Vf,
        128,
        Off::TooSlow,
        "at the card's maximum of 39 million frames a second; the slower 64 B points pull the fit down",
    ),
    hypothesis(
        Pattern::EastWest,
        PlannedPath::Vf,
        256,
        Off::TooFast,
        "the fitted share of PCIe is too large for this size: it has more descriptors a second than 512 B",
    ),
    hypothesis(
        Pattern::EastWest,
        PlannedPath::Vf,
        512,
        Off::TooFast,
        "two requests of 256 bytes for each frame: too few reads in flight to fill the link",
    ),
    hypothesis(
        Pattern::NorthSouth,
        PlannedPath::Vf,
        128,
        Off::TooSlow,
        "the share of PCIe, fitted to traffic between functions, is too small for traffic with the wire",
    ),
    hypothesis(
        Pattern::EastWest,
        PlannedPath::Synthetic,
        1518,
        Off::TooFast,
        "the buffers of many guests exceed the cache, which slows copies down: 423 ns a hop with 2 guests, 451 with 8",
    ),
    hypothesis(Pattern::NorthSouth, PlannedPath::Synthetic, 64, Off::TooFast, RINGS),
    hypothesis(Pattern::NorthSouth, PlannedPath::Synthetic, 128, Off::TooFast, RINGS),
    hypothesis(Pattern::NorthSouth, PlannedPath::Synthetic, 0, Off::TooFast, NEIGHBOURS),
];

/// Machine of the paper.
///
/// # Errors
/// Its profiles are invalid.
pub fn testbed() -> Result<Machine, Problems> {
    Ok(Machine { nic: Nic::named("xl710")?, host: Host::named("nfv-2017")? })
}

impl Measured {
    /// Points of nfv-2017.
    ///
    /// # Errors
    /// The profiles of its machine are invalid.
    pub fn published() -> Result<Self, Problems> {
        let mut machine = testbed()?;
        for (parameter, value) in START {
            parameter.set(&mut machine, value);
        }
        Ok(Self {
            machine,
            parameters: &Parameter::CARD,
            source: SOURCE.to_owned(),
            points: points(),
            left_out: 0,
            hypotheses: &HYPOTHESES,
        })
    }
}

fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for pattern in [Pattern::NorthSouth, Pattern::EastWest] {
        for path in [PlannedPath::Vf, PlannedPath::Synthetic] {
            for frame_bytes in FRAMES {
                for guests in 1..=GUESTS_MAX {
                    let measured =
                        published::forwarding(pattern, path.measured(), frame_bytes, guests);
                    let (Some(measured), Ok(frames)) = (measured, FrameMix::of(frame_bytes)) else {
                        continue;
                    };
                    let scenario = Scenario { pattern, path, frames, guests, cores_each: 1.0 };
                    let rate = FrameRate::mpps(measured.mpps);
                    let observation = Observation { scenario, rate, switch: None };
                    points.push(Point { frame_bytes, observation });
                }
            }
        }
    }
    points
}

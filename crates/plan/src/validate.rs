//! How well the model tells what was measured: fitted to the points of few guests, it predicts those of many.
//!
//! Points are nfv-2017's, or those of a run of the lab. Of the paper's, those of paths `vf` and `vhost`: 180, of 1 to 8 guests. `virtio`
//! is left out, for the paper's polling guests got next to nothing through it (0.01 Mpps), which no cost explains.

use lab::report::{self, Results, published};
use serde::Serialize;

use crate::fit::{Estimate, Fit, FitError, Observation, Parameter, fit};
use crate::frames::Frames;
use crate::limit::Limit;
use crate::machine::{Figure, Host, Machine, Nic, ProfileError};
use crate::predict::{PathKind, Pattern, Scenario, predict};
use crate::units::FrameRate;

/// Where figures that come of this fit are from.
pub const SOURCE: &str = "fitted to nfv-2017's 180 points: shunt plan validate";

/// Beyond this a point counts as not explained, in percent.
const UNEXPLAINED: f64 = 8.0;
const FRAMES: [u32; 6] = [64, 128, 256, 512, 1024, 1518];
const GUESTS_MAX: u32 = 8;

/// What the search begins with: magnitudes that anybody would guess, so that no result leans on an earlier one.
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

/// What may be the cause where the model is off.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Hypothesis {
    pattern: Pattern,
    path: PathKind,
    /// 0: of all sizes.
    frame_bytes: u32,
    text: &'static str,
}

impl Hypothesis {
    fn is_of(&self, pattern: Pattern, path: PathKind, frame_bytes: u32) -> bool {
        (self.pattern, self.path) == (pattern, path) && [0, frame_bytes].contains(&self.frame_bytes)
    }
}

const fn hypothesis(
    pattern: Pattern,
    path: PathKind,
    frame_bytes: u32,
    text: &'static str,
) -> Hypothesis {
    Hypothesis { pattern, path, frame_bytes, text }
}

const HYPOTHESES: [Hypothesis; 7] = [
    hypothesis(
        Pattern::EastWest,
        PathKind::Vf,
        64,
        "a write of 60 bytes fills no cache line: the host reads before it writes, and longer frames pass faster",
    ),
    hypothesis(
        Pattern::EastWest,
        PathKind::Vf,
        128,
        "no loss against the card's 39 million frames a second; the fit is held down by the slower 64 B points",
    ),
    hypothesis(
        Pattern::EastWest,
        PathKind::Vf,
        256,
        "the share of PCIe that is fitted to all sizes is too large here: more descriptors a second than at 512 B",
    ),
    hypothesis(
        Pattern::EastWest,
        PathKind::Vf,
        512,
        "two requests of 256 bytes for each frame: fewer reads are in flight than the link has room for",
    ),
    hypothesis(
        Pattern::NorthSouth,
        PathKind::Vf,
        128,
        "the share of PCIe that is fitted to frames between functions is too small for those of the wire",
    ),
    hypothesis(
        Pattern::EastWest,
        PathKind::Vhost,
        1518,
        "the buffers of many guests together leave the cache, and copies get slower: 423 ns a hop with 2 guests, 451 with 8",
    ),
    hypothesis(
        Pattern::NorthSouth,
        PathKind::Vhost,
        0,
        "one run each: the paper's neighbours with one guest more are faster again, so a thread shared its core",
    ),
];

/// One point beside its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The pattern.
    pub pattern: Pattern,
    /// The path.
    pub path: PathKind,
    /// Bytes of a frame, FCS counted.
    pub frame_bytes: u32,
    /// Guests.
    pub guests: u32,
    /// What was measured, in million frames a second.
    pub measured_mpps: f64,
    /// What the model says.
    pub predicted_mpps: f64,
    /// `predicted / measured - 1`, in percent.
    pub error_pct: f64,
    /// What binds it by the model.
    pub binding_limit: Limit,
    /// Whether the fit has seen it.
    pub fitted: bool,
    /// What may be the cause where it is far off.
    pub hypothesis: Option<&'static str>,
}

impl Compared {
    /// Whether the model is so far off that it does not explain the point.
    pub fn is_unexplained(&self) -> bool {
        self.error_pct.abs() > UNEXPLAINED
    }
}

/// Errors of some points, in percent without sign.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// How many points.
    pub points: usize,
    /// Their median.
    pub median_error_pct: f64,
    /// The largest.
    pub worst_error_pct: f64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validation {
    /// Points that the fit had not seen; of all points where it has seen all.
    #[serde(flatten)]
    pub predicted: Errors,
    /// Guests of the points that the fit has seen, at most.
    pub fit_guests: u32,
    /// Guests of all points, at most.
    pub guests_max: u32,
    /// Points that it has seen.
    pub fitted: Errors,
    /// All points.
    pub all: Errors,
    /// The parameters.
    pub parameters: Vec<Estimate>,
    /// Each point.
    pub list: Vec<Compared>,
}

/// Why nothing could be validated.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// No such part of the points.
    #[error(
        "--fit-guests {0}: the points are of 1 to {1} guests, and the fit takes those of at least 2"
    )]
    Guests(u32, u32),
    /// Results of the lab without points of the software NIC.
    #[error("the results have no points of path vf: run shunt lab")]
    NoPoints,
    /// The profiles of the paper's machine.
    #[error("the paper's machine cannot be read")]
    Profile(#[from] ProfileError),
    /// The fit.
    #[error("the fit failed")]
    Fit(#[from] FitError),
}

/// The paper's machine.
///
/// # Errors
/// Its profiles are not well formed.
pub fn testbed() -> Result<Machine, ProfileError> {
    Ok(Machine { nic: Nic::named("xl710")?, host: Host::named("nfv-2017")? })
}

/// What the model is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    machine: Machine,
    parameters: Vec<Parameter>,
    source: String,
    points: Vec<Point>,
    hypotheses: &'static [Hypothesis],
}

#[derive(Debug, Clone, PartialEq)]
struct Point {
    frame_bytes: u32,
    observation: Observation,
}

impl Measured {
    /// What nfv-2017 published.
    ///
    /// # Errors
    /// Its machine's profiles are not well formed.
    pub fn published() -> Result<Self, ProfileError> {
        let mut machine = testbed()?;
        for (parameter, value) in START {
            if let Some(figure) = parameter.of(&mut machine) {
                *figure = Figure::new(value, "where the fit begins");
            }
        }
        let (parameters, source) = (Parameter::CARD.to_vec(), SOURCE.to_owned());
        Ok(Self {
            machine,
            parameters,
            source,
            points: published_points(),
            hypotheses: &HYPOTHESES,
        })
    }

    /// What the lab measured on path `vf`, where this project's software NIC is the card.
    ///
    /// # Errors
    /// There are no such points, or the profile is not well formed.
    pub fn lab(results: &Results) -> Result<Self, ValidateError> {
        let mut machine = Machine { nic: Nic::named("ideal")?, host: Host::named("shunt")? };
        let mhz = results.machine["tsc_mhz"].as_f64().or(results.machine["cpu_mhz"].as_f64());
        if let Some(mhz) = mhz {
            machine.host.ghz = Figure::new(mhz / 1000.0, "the machine of the results");
        }
        let mut points = Vec::new();
        for point in results.points.iter().filter(|point| point.path == PathKind::Vf) {
            let report::Point { pattern, path, vms, frame_bytes, mpps, pinned, .. } = point;
            let Ok(frames) = Frames::of(*frame_bytes) else { continue };
            for (figure, cpus) in [
                (&mut machine.host.switch_cores, &pinned.switch),
                (&mut machine.host.guest_cores, &pinned.guests),
            ] {
                *figure = Figure::new((cpus.len().max(1)) as f64, "CPUs that the lab pinned");
            }
            let scenario =
                Scenario { pattern: *pattern, path: *path, frames, guests: *vms, cores_each: 1.0 };
            let observation = Observation { scenario, rate: FrameRate::mpps(*mpps) };
            points.push(Point { frame_bytes: *frame_bytes, observation });
        }
        if points.is_empty() {
            return Err(ValidateError::NoPoints);
        }
        let source = format!("fitted to shunt lab's points of {}", results.started.utc);
        Ok(Self { machine, parameters: Parameter::SOFT.to_vec(), source, points, hypotheses: &[] })
    }

    /// Fits the model to the points of at most `fit_guests` guests and predicts all.
    ///
    /// # Errors
    /// [`ValidateError`].
    pub fn validate(&self, fit_guests: u32) -> Result<(Validation, Machine), ValidateError> {
        let guests = |point: &Point| point.observation.scenario.guests;
        let guests_max = self.points.iter().map(guests).max().unwrap_or(0);
        if !(2..=guests_max).contains(&fit_guests) {
            return Err(ValidateError::Guests(fit_guests, guests_max));
        }
        let seen: Vec<_> = self
            .points
            .iter()
            .filter(|point| guests(point) <= fit_guests)
            .map(|point| point.observation.clone())
            .collect();
        let Fit { machine, estimates } = fit(&self.machine, &self.parameters, &seen, &self.source)?;
        let list = self.points.iter().map(|point| self.compare(&machine, point, fit_guests));
        let list = list.collect::<Result<Vec<_>, _>>()?;
        let all = errors(list.iter());
        let fitted = errors(list.iter().filter(|one| one.fitted));
        let predicted = match fit_guests == guests_max {
            true => all,
            false => errors(list.iter().filter(|one| !one.fitted)),
        };
        let validation = Validation {
            predicted,
            fit_guests,
            guests_max,
            fitted,
            all,
            parameters: estimates,
            list,
        };
        Ok((validation, machine))
    }

    fn compare(
        &self,
        machine: &Machine,
        point: &Point,
        fit_guests: u32,
    ) -> Result<Compared, ValidateError> {
        let Observation { scenario, rate } = &point.observation;
        let said = predict(machine, scenario).map_err(FitError::from)?;
        let error_pct = (said.rate / *rate - 1.0) * 100.0;
        let &Scenario { pattern, path, guests, .. } = scenario;
        let frame_bytes = point.frame_bytes;
        let hypothesis = self.hypotheses.iter().find(|of| of.is_of(pattern, path, frame_bytes));
        Ok(Compared {
            pattern,
            path,
            frame_bytes,
            guests,
            measured_mpps: rate.as_mpps(),
            predicted_mpps: said.rate.as_mpps(),
            error_pct,
            binding_limit: said.binding,
            fitted: guests <= fit_guests,
            hypothesis: hypothesis.filter(|_| error_pct.abs() > UNEXPLAINED).map(|of| of.text),
        })
    }
}

/// All points but those of virtio.
fn published_points() -> Vec<Point> {
    let mut points = Vec::new();
    for pattern in [Pattern::NorthSouth, Pattern::EastWest] {
        for path in [PathKind::Vf, PathKind::Vhost] {
            for frame_bytes in FRAMES {
                for guests in 1..=GUESTS_MAX {
                    let measured = published::forwarding(pattern, path, frame_bytes, guests);
                    let (Some(measured), Ok(frames)) = (measured, Frames::of(frame_bytes)) else {
                        continue;
                    };
                    let scenario = Scenario { pattern, path, frames, guests, cores_each: 1.0 };
                    let rate = FrameRate::mpps(measured.mpps);
                    points.push(Point { frame_bytes, observation: Observation { scenario, rate } });
                }
            }
        }
    }
    points
}

fn errors<'a>(of: impl Iterator<Item = &'a Compared>) -> Errors {
    let mut all: Vec<f64> = of.map(|one| one.error_pct.abs()).collect();
    all.sort_by(f64::total_cmp);
    let middle = all.len() / 2;
    let median = match all.len() {
        0 => 0.0,
        even if even % 2 == 0 => (all[middle - 1] + all[middle]) / 2.0,
        _ => all[middle],
    };
    Errors {
        points: all.len(),
        median_error_pct: median,
        worst_error_pct: all.last().copied().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validated(fit_guests: u32) -> Validation {
        Measured::published().unwrap().validate(fit_guests).unwrap().0
    }

    /// What the profiles say is what the fit says, so that nobody has to believe either.
    #[test]
    fn the_profiles_hold_what_the_fit_to_all_points_finds() {
        let mut machine = testbed().unwrap();
        for Estimate { parameter, value, interval } in validated(GUESTS_MAX).parameters {
            let figure = parameter.of(&mut machine).unwrap();
            let off = (figure.value / value - 1.0).abs();
            assert!(
                off < 0.001,
                "{parameter:?} is {} in the profile, and {value} by the fit",
                figure.value
            );
            assert_eq!(figure.source, SOURCE);
            assert!(interval.is_some(), "no point depends on {parameter:?}");
        }
    }

    #[test]
    fn points_of_few_guests_predict_those_of_many() {
        let validation = validated(4);
        let Errors { points, median_error_pct, worst_error_pct } = validation.predicted;
        assert_eq!((points, validation.list.len()), (96, 180));
        assert!(median_error_pct <= 5.0 && worst_error_pct <= 25.0, "{:?}", validation.predicted);
        assert!(validation.all.median_error_pct <= 6.0, "{:?}", validation.all);
        let silent = validation
            .list
            .iter()
            .find(|one| one.error_pct.abs() > UNEXPLAINED && one.hypothesis.is_none());
        assert_eq!(silent, None);
    }
}

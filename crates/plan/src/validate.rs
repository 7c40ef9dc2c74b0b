//! How well the model tells what was published: fitted to part of nfv-2017's points, it predicts the others.
//!
//! The points are those of paths `vf` and `vhost`: 180, of 1 to 8 guests. `virtio` is left out, for the paper's polling guests got
//! next to nothing through it (0.01 Mpps), which no cost explains.

use lab::report::published;
use serde::Serialize;

use crate::fit::{Estimate, Fit, FitError, Observation, Parameter, fit};
use crate::frames::Frames;
use crate::limit::Limit;
use crate::machine::{Host, Machine, Nic, ProfileError};
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

/// What we think of points that the model does not explain.
const HYPOTHESES: [(Pattern, PathKind, u32, &str); 7] = [
    (
        Pattern::EastWest,
        PathKind::Vf,
        64,
        "a write of 60 bytes fills no cache line: the host reads before it writes, and longer frames pass faster",
    ),
    (
        Pattern::EastWest,
        PathKind::Vf,
        128,
        "no loss against the card's 39 million frames a second; the fit is held down by the slower 64 B points",
    ),
    (
        Pattern::EastWest,
        PathKind::Vf,
        256,
        "the share of PCIe that is fitted to all sizes is too large here: more descriptors a second than at 512 B",
    ),
    (
        Pattern::EastWest,
        PathKind::Vf,
        512,
        "two requests of 256 bytes for each frame: fewer reads are in flight than the link has room for",
    ),
    (
        Pattern::NorthSouth,
        PathKind::Vf,
        128,
        "the share of PCIe that is fitted to frames between functions is too small for those of the wire",
    ),
    (
        Pattern::EastWest,
        PathKind::Vhost,
        1518,
        "the buffers of many guests together leave the cache, and copies get slower: 423 ns a hop with 2 guests, 451 with 8",
    ),
    (
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
        "--fit-guests {0}: the points are of 1 to {GUESTS_MAX} guests, and the fit takes those of at least 2"
    )]
    Guests(u32),
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

/// Fits the model to the points of at most `fit_guests` guests and predicts all.
///
/// # Errors
/// [`ValidateError`].
pub fn validate(fit_guests: u32) -> Result<Validation, ValidateError> {
    if !(2..=GUESTS_MAX).contains(&fit_guests) {
        return Err(ValidateError::Guests(fit_guests));
    }
    let points = published_points();
    let seen: Vec<_> = points.iter().filter(|(_, guests, _)| *guests <= fit_guests).collect();
    let seen: Vec<_> = seen.into_iter().map(|(_, _, point)| point.clone()).collect();
    let Fit { machine, estimates } = fit(&unfitted()?, &Parameter::CARD, &seen, SOURCE)?;
    let mut list = Vec::new();
    for (frame_bytes, guests, point) in points {
        let said = predict(&machine, &point.scenario).map_err(FitError::from)?;
        let error_pct = (said.rate / point.rate - 1.0) * 100.0;
        let Scenario { pattern, path, .. } = point.scenario;
        list.push(Compared {
            pattern,
            path,
            frame_bytes,
            guests,
            measured_mpps: point.rate.as_mpps(),
            predicted_mpps: said.rate.as_mpps(),
            error_pct,
            binding_limit: said.binding,
            fitted: guests <= fit_guests,
            hypothesis: hypothesis(pattern, path, frame_bytes)
                .filter(|_| error_pct.abs() > UNEXPLAINED),
        });
    }
    let all = errors(list.iter());
    let fitted = errors(list.iter().filter(|one| one.fitted));
    let predicted = match fit_guests {
        GUESTS_MAX => all,
        _ => errors(list.iter().filter(|one| !one.fitted)),
    };
    Ok(Validation { predicted, fit_guests, fitted, all, parameters: estimates, list })
}

/// The paper's machine before any fit.
fn unfitted() -> Result<Machine, ProfileError> {
    let mut machine = testbed()?;
    for (parameter, value) in START {
        *parameter.of(&mut machine) = crate::machine::Figure::new(value, "where the fit begins");
    }
    Ok(machine)
}

/// All points but those of virtio, as frame size, guests, and what was measured.
fn published_points() -> Vec<(u32, u32, Observation)> {
    let mut points = Vec::new();
    for pattern in [Pattern::NorthSouth, Pattern::EastWest] {
        for path in [PathKind::Vf, PathKind::Vhost] {
            for bytes in FRAMES {
                for guests in 1..=GUESTS_MAX {
                    let measured = published::forwarding(pattern, path, bytes, guests);
                    let (Some(measured), Ok(frames)) = (measured, Frames::of(bytes)) else {
                        continue;
                    };
                    let scenario = Scenario { pattern, path, frames, guests, cores_each: 1.0 };
                    let rate = FrameRate::mpps(measured.mpps);
                    points.push((bytes, guests, Observation { scenario, rate }));
                }
            }
        }
    }
    points
}

fn hypothesis(pattern: Pattern, path: PathKind, bytes: u32) -> Option<&'static str> {
    let is_its = |of: &&(Pattern, PathKind, u32, &str)| {
        (of.0, of.1) == (pattern, path) && [0, bytes].contains(&of.2)
    };
    HYPOTHESES.iter().find(is_its).map(|(.., text)| *text)
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

    /// What the profiles say is what the fit says, so that nobody has to believe either.
    #[test]
    fn the_profiles_hold_what_the_fit_to_all_points_finds() {
        let mut machine = testbed().unwrap();
        for Estimate { parameter, value, interval } in validate(GUESTS_MAX).unwrap().parameters {
            let figure = parameter.of(&mut machine);
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
        let validation = validate(4).unwrap();
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

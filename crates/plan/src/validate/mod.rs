//! Validation: fits the model to points of few guests, then predicts those of many.
//!
//! Points come from nfv-2017's publication, or from a run of the lab.

mod lab;
mod published;

use model::state::Problems;
pub use published::testbed;
use serde::Serialize;

use crate::fit::{Estimate, Fit, FitError, Observation, Parameter, fit};
use crate::limit::Limit;
use crate::machine::Machine;
use crate::predict::{Pattern, PlannedPath, Scenario, predict};

/// Error above which a point counts as unexplained, in percent.
const UNEXPLAINED: f64 = 8.0;

/// Possible cause of a deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Hypothesis {
    pattern: Pattern,
    path: PlannedPath,
    /// 0 matches all sizes.
    frame_bytes: u32,
    /// Direction of the deviation.
    off: Off,
    text: &'static str,
}

/// Direction of a prediction's error.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Off {
    TooFast,
    TooSlow,
}

impl Hypothesis {
    fn is_of(&self, scenario: &Scenario, frame_bytes: u32, error_pct: f64) -> bool {
        let off = if error_pct > 0.0 { Off::TooFast } else { Off::TooSlow };
        (self.pattern, self.path, self.off) == (scenario.pattern, scenario.path, off)
            && [0, frame_bytes].contains(&self.frame_bytes)
    }
}

const fn hypothesis(
    pattern: Pattern,
    path: PlannedPath,
    frame_bytes: u32,
    off: Off,
    text: &'static str,
) -> Hypothesis {
    Hypothesis { pattern, path, frame_bytes, off, text }
}

/// One point with its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointComparison {
    /// The pattern.
    pub pattern: Pattern,
    /// The path.
    pub path: PlannedPath,
    /// Bytes of a frame, FCS counted.
    pub frame_bytes: u32,
    /// Guests.
    pub guests: u32,
    /// Measured rate, in million frames per second.
    pub measured_mpps: f64,
    /// Predicted rate, in million frames per second.
    pub predicted_mpps: f64,
    /// `predicted / measured - 1`, in percent.
    pub error_pct: f64,
    /// Predicted bottleneck.
    pub binding_limit: Limit,
    /// The point was part of the fit.
    pub fitted: bool,
    /// Possible cause of a large error.
    pub hypothesis: Option<&'static str>,
}

impl PointComparison {
    /// The error is too large to count as explained.
    pub fn is_unexplained(&self) -> bool {
        self.error_pct.abs() > UNEXPLAINED
    }
}

/// Absolute errors of a set of points, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Number of points.
    pub points: usize,
    /// Median.
    pub median_error_pct: f64,
    /// Maximum.
    pub worst_error_pct: f64,
}

/// Result of a validation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validation {
    /// Errors of points outside the fit; of all points if the fit used all.
    #[serde(flatten)]
    pub predicted: Errors,
    /// Maximum number of guests in the fit's points.
    pub fit_guests: u32,
    /// Maximum number of guests of any point.
    pub guests_max: u32,
    /// Points left out because their CPU distance differs from the majority's.
    pub left_out: usize,
    /// Errors of points in the fit.
    pub fitted: Errors,
    /// Errors of all points.
    pub all: Errors,
    /// Errors of `predicted`, by path.
    pub paths: Vec<(PlannedPath, Errors)>,
    /// Fitted parameters.
    pub parameters: Vec<Estimate>,
    /// All points.
    pub list: Vec<PointComparison>,
}

/// Reason why a validation failed.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// Number of guests out of range.
    #[error("--fit-guests {0}: allowed are 2 to {1}")]
    Guests(u32, u32),
    /// Invalid frame sizes of a point.
    #[error("a point of the results: {0}")]
    Frames(Problems),
    /// Lab results without a valid clock rate.
    #[error(
        "machine.tsc_mhz of the results is missing or outside 100 to 20000; cycles cannot be converted"
    )]
    Clock,
    /// Lab results without points.
    #[error("the results have no points: run shunt lab")]
    NoPoints,
    /// Invalid profiles of the paper's machine.
    #[error("cannot read the profiles of the paper's machine")]
    Profile(#[from] Problems),
    /// Failed fit.
    #[error("the fit failed")]
    Fit(#[from] FitError),
}

/// Measured points to validate the model with.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    machine: Machine,
    parameters: &'static [Parameter],
    source: String,
    points: Vec<Point>,
    left_out: usize,
    hypotheses: &'static [Hypothesis],
}

#[derive(Debug, Clone, PartialEq)]
struct Point {
    frame_bytes: u32,
    observation: Observation,
}

impl Measured {
    /// Fits the model to the points of at most `fit_guests` guests and predicts all points.
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
        let Fit { machine, estimates } = fit(&self.machine, self.parameters, &seen, &self.source)?;
        let list = self.points.iter().map(|point| self.compare(&machine, point, fit_guests));
        let list = list.collect::<Result<Vec<_>, _>>()?;
        let all = errors(list.iter());
        let fitted = errors(list.iter().filter(|one| one.fitted));
        let is_asked = |one: &&PointComparison| fit_guests == guests_max || !one.fitted;
        let predicted = errors(list.iter().filter(is_asked));
        let of = |path| errors(list.iter().filter(is_asked).filter(|one| one.path == path));
        let paths = PlannedPath::ALL.map(|path| (path, of(path)));
        let validation = Validation {
            predicted,
            fit_guests,
            guests_max,
            left_out: self.left_out,
            fitted,
            all,
            paths: paths.into_iter().filter(|(_, errors)| errors.points > 0).collect(),
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
    ) -> Result<PointComparison, ValidateError> {
        let Observation { scenario, rate, .. } = &point.observation;
        let said = predict(machine, scenario).map_err(FitError::from)?;
        let error_pct = (said.rate / *rate - 1.0) * 100.0;
        let &Scenario { pattern, path, guests, .. } = scenario;
        let frame_bytes = point.frame_bytes;
        let is_of = |of: &&Hypothesis| of.is_of(scenario, frame_bytes, error_pct);
        let hypothesis = self.hypotheses.iter().find(is_of);
        Ok(PointComparison {
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

fn errors<'a>(of: impl Iterator<Item = &'a PointComparison>) -> Errors {
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
    use crate::machine::{Host, Nic};

    /// A run of `shunt lab` on an otherwise idle machine.
    const LAB: &str = include_str!("../../measured/shunt-lab.json");

    fn measured() -> [(Measured, Machine); 2] {
        let results = ::report::json::read(LAB).unwrap();
        let machine =
            Machine { nic: Nic::named("ideal").unwrap(), host: Host::named("shunt").unwrap() };
        [
            (Measured::published().unwrap(), testbed().unwrap()),
            (Measured::lab(&results).unwrap(), machine),
        ]
    }

    /// The committed profiles match the result of the fit.
    #[test]
    fn the_profiles_hold_what_the_fit_to_all_points_finds() {
        for (measured, mut machine) in measured() {
            for Estimate { parameter, value, interval } in
                measured.validate(8).unwrap().0.parameters
            {
                let figure = parameter.figures(&mut machine).remove(0);
                let off = (figure.value / value - 1.0).abs();
                assert!(
                    off < 0.001,
                    "{parameter:?} is {} in the profile, and {value} by the fit",
                    figure.value
                );
                assert_eq!(
                    figure.source.starts_with("fitted to"),
                    interval.is_some(),
                    "{figure:?}"
                );
            }
        }
    }

    fn has_a_hypothesis_for_all(validation: &Validation) {
        let silent = |one: &&PointComparison| one.is_unexplained() && one.hypothesis.is_none();
        assert_eq!(validation.list.iter().find(silent), None);
    }

    #[test]
    fn points_of_few_guests_predict_those_of_many() {
        let [(measured, _), _] = measured();
        let validation = measured.validate(4).unwrap().0;
        let Errors { points, median_error_pct, worst_error_pct } = validation.predicted;
        assert_eq!((points, validation.list.len()), (96, 180));
        assert!(median_error_pct <= 5.0 && worst_error_pct <= 25.0, "{:?}", validation.predicted);
        assert!(validation.all.median_error_pct <= 6.0, "{:?}", validation.all);
        has_a_hypothesis_for_all(&validation);
    }

    #[test]
    fn one_and_two_guests_of_the_lab_predict_four_and_eight() {
        let [_, (measured, _)] = measured();
        let validation = measured.validate(2).unwrap().0;
        assert_eq!((validation.predicted.points, validation.left_out), (36, 0));
        assert!(validation.predicted.median_error_pct <= 15.0, "{:?}", validation.predicted);
        for (path, errors) in &validation.paths {
            assert!(errors.median_error_pct <= 15.0, "{path}: {errors:?}");
        }
        has_a_hypothesis_for_all(&validation);
    }

    /// A hypervisor may move virtual CPUs; points measured at another CPU distance are not
    /// compared.
    #[test]
    fn points_of_another_distance_are_left_out() {
        let mut results = ::report::json::read(LAB).unwrap();
        for point in results.points.iter_mut().step_by(10) {
            point.round_trip_cycles = Some(1000.0);
            point.mpps /= 3.0;
        }
        let validation = Measured::lab(&results).unwrap().validate(2).unwrap().0;
        assert_eq!(validation.left_out, 7);
        assert!(validation.predicted.median_error_pct <= 15.0, "{:?}", validation.predicted);
    }
}

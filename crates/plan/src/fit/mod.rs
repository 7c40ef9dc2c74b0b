//! Calibration: fits the parameters of the model to measurements.
//!
//! # Model
//! Levenberg-Marquardt least squares over `ln(predicted / measured)` of rates, and of switch cycles
//! if they were measured, so that points count by their ratio. A parameter is searched by its
//! logarithm and so stays above 0. Outliers weigh less: after each round a residual `r` gets the
//! weight `1 / sqrt(1 + (r / 0.03)^2)` (pseudo-Huber), until nothing moves. Intervals are 95 %
//! confidence intervals, from the curvature at the minimum (`s^2 (J'J)^-1`). A parameter on which
//! no point depends has none.
//!
//! # Sources
//! Moré, "The Levenberg-Marquardt algorithm: implementation and theory", 1978, by the crate
//! `levenberg-marquardt`; Holland and Welsch, "Robust regression using iteratively reweighted
//! least-squares", 1977.

mod parameter;

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use model::state::Problems;
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
pub use parameter::Parameter;
use serde::Serialize;

use crate::machine::Machine;
use crate::predict::{Scenario, predict, switch_cycles};
use crate::units::{Cycles, FrameRate};

/// Residual above which a point's influence grows only linearly: about 3 %.
const FAR: f64 = 0.03;
/// Maximum number of reweighting rounds.
const ROUNDS: usize = 30;
/// Lower bound of a parameter, as a share of its start value.
const LEAST: f64 = 1e-4;
/// Step of a parameter's logarithm for numerical derivatives.
const STEP: f64 = 1e-4;
/// Standard deviations of a 95 % interval.
const WIDTH: f64 = 1.96;

/// A measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Scenario of the measurement.
    pub scenario: Scenario,
    /// Frames that guests sent, summed over guests.
    pub rate: FrameRate,
    /// Cost to the switch, if it was measured.
    pub switch: Option<SwitchObserved>,
}

/// Measured cost of frames to the switch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwitchObserved {
    /// Cycles for each frame that guests sent.
    pub cycles: Cycles,
    /// Dropped frames for each frame that came from the wire.
    pub dropped: f64,
    /// Guests among which a burst from the wire was split.
    pub receivers: f64,
}

/// A fitted parameter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The parameter.
    pub parameter: Parameter,
    /// Its value.
    pub value: f64,
    /// 95 % confidence interval; `None` if no point depends on the parameter.
    pub interval: Option<(f64, f64)>,
}

/// Result of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Machine with the fitted parameters.
    pub machine: Machine,
    /// Fitted parameters.
    pub estimates: Vec<Estimate>,
}

/// Reason why a fit failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FitError {
    /// Fewer points than parameters.
    #[error(
        "{points} points are too few to fit {parameters} parameters; measure at least {parameters}"
    )]
    Few {
        /// Number of points.
        points: usize,
        /// Number of parameters.
        parameters: usize,
    },
    /// A point is no valid scenario.
    #[error("invalid measured point")]
    Scenario(#[from] Problems),
    /// The machine lacks a figure.
    #[error("the machine has no figure {0:?}")]
    Parameter(Parameter),
    /// A point has a rate or cycles of 0 or less.
    #[error("point {0}: rate and cycles allowed is above 0")]
    Rate(usize),
}

/// Fits `parameters` of `machine` to measurements, starting from the machine's figures.
///
/// # Errors
/// Too few points, or invalid points.
pub fn fit(
    machine: &Machine,
    parameters: &[Parameter],
    points: &[Observation],
    source: &str,
) -> Result<Fit, FitError> {
    if points.len() < parameters.len() {
        return Err(FitError::Few { points: points.len(), parameters: parameters.len() });
    }
    for (at, point) in points.iter().enumerate() {
        predict(machine, &point.scenario)?;
        let cycles = point.switch.map_or(1.0, |switch| switch.cycles.0);
        if ![point.rate.0, cycles].iter().all(|it| it.is_finite() && *it > 0.0) {
            return Err(FitError::Rate(at));
        }
    }
    let mut start = machine.clone();
    let mut values = Vec::new();
    for parameter in parameters {
        let figures = parameter.figures(&mut start);
        values.push(figures.first().ok_or(FitError::Parameter(*parameter))?.value.ln());
    }
    let least = values.iter().map(|log| log.exp() * LEAST).collect();
    let logs = DVector::from_vec(values);
    let told = points.len() + points.iter().filter(|point| point.switch.is_some()).count();
    let weights = DVector::from_element(told, 1.0);
    let mut search = Search { machine, parameters, points, logs, least, weights };
    for _ in 0..ROUNDS {
        let before = search.logs.clone();
        search = LevenbergMarquardt::new().minimize(search).0;
        let residuals = search.raw_residuals();
        search.weights = residuals.map(|r| 1.0 / (1.0 + (r / FAR).powi(2)).sqrt());
        if (&search.logs - before).amax() < 1e-7 {
            break;
        }
    }
    let spread = search.spread();
    let mut machine = search.machine();
    let mut estimates = Vec::new();
    for (at, parameter) in parameters.iter().enumerate() {
        let figures = parameter.figures(&mut machine);
        let value = figures.first().ok_or(FitError::Parameter(*parameter))?.value;
        let interval = spread[at].map(|width| (value * (-width).exp(), value * width.exp()));
        for (figure, (low, high)) in figures.into_iter().zip(interval.into_iter().cycle()) {
            figure.source = format!("{source}; 95 % interval {low:.4} to {high:.4}");
        }
        estimates.push(Estimate { parameter: *parameter, value, interval });
    }
    Ok(Fit { machine, estimates })
}

struct Search<'a> {
    machine: &'a Machine,
    parameters: &'a [Parameter],
    points: &'a [Observation],
    logs: DVector<f64>,
    /// Lower bound of each parameter.
    least: Vec<f64>,
    weights: DVector<f64>,
}

impl Search<'_> {
    fn machine(&self) -> Machine {
        self.machine_at(&self.logs)
    }

    fn machine_at(&self, logs: &DVector<f64>) -> Machine {
        let mut machine = self.machine.clone();
        for ((parameter, log), least) in self.parameters.iter().zip(logs).zip(&self.least) {
            parameter.set(&mut machine, log.exp().max(*least));
        }
        // The search must not exceed the link's rate.
        machine.nic.link_share.value = machine.nic.link_share.value.min(1.0);
        machine
    }

    fn residuals_at(&self, logs: &DVector<f64>) -> DVector<f64> {
        let machine = self.machine_at(logs);
        let rates = self.points.iter().map(|point| match predict(&machine, &point.scenario) {
            Ok(predicted) => (predicted.rate / point.rate).ln(),
            Err(_) => 0.0, // every scenario was predicted before the search began
        });
        let cycles = self.points.iter().filter_map(|point| {
            let SwitchObserved { cycles, dropped, receivers } = point.switch?;
            let said = switch_cycles(&machine, &point.scenario, receivers, dropped);
            Some((said / cycles).ln())
        });
        DVector::from_vec(rates.chain(cycles).collect())
    }

    fn raw_residuals(&self) -> DVector<f64> {
        self.residuals_at(&self.logs)
    }

    fn slopes(&self) -> DMatrix<f64> {
        let columns: Vec<_> = (0..self.parameters.len())
            .map(|at| {
                let moved = |by: f64| {
                    let mut logs = self.logs.clone();
                    logs[at] += by;
                    self.residuals_at(&logs)
                };
                (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
            })
            .collect();
        DMatrix::from_columns(&columns)
    }

    /// Half width of each parameter's interval, in logarithms.
    fn spread(&self) -> Vec<Option<f64>> {
        let roots = self.weights.map(f64::sqrt);
        let slopes = DMatrix::from_diagonal(&roots) * self.slopes();
        let residuals = self.raw_residuals().component_mul(&roots);
        let moving: Vec<_> =
            (0..slopes.ncols()).filter(|&at| slopes.column(at).amax() > 1e-9).collect();
        let free = residuals.len().saturating_sub(moving.len()).max(1) as f64;
        let variance = residuals.norm_squared() / free;
        let moved = slopes.select_columns(&moving);
        let curvature = moved.transpose() * &moved;
        let mut spread = vec![None; slopes.ncols()];
        if let Some(inverse) = curvature.try_inverse() {
            for (place, &at) in moving.iter().enumerate() {
                spread[at] = Some(WIDTH * (variance * inverse[(place, place)]).max(0.0).sqrt());
            }
        }
        spread
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Search<'_> {
    type ParameterStorage = Owned<f64, Dyn>;
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;

    fn set_params(&mut self, logs: &DVector<f64>) {
        self.logs.copy_from(logs);
    }

    fn params(&self) -> DVector<f64> {
        self.logs.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        Some(self.raw_residuals().component_mul(&self.weights.map(f64::sqrt)))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        Some(DMatrix::from_diagonal(&self.weights.map(f64::sqrt)) * self.slopes())
    }
}

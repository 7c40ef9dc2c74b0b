//! Calibration: the parameters with which the model comes nearest to what was measured.
//!
//! # Model
//! Least squares over `ln(predicted / measured)`, so that each point counts by its ratio, by Levenberg and Marquardt's method. A
//! parameter is searched by its logarithm and so stays above 0. Points far off pull less: after each round a point's weight is
//! `1 / sqrt(1 + (r / 0.03)^2)` of its residual `r` (pseudo-Huber), until nothing moves.
//! Intervals are of 95 %, from the curvature at the minimum (`s^2 (J'J)^-1`); a parameter on which no point depends has none, and
//! keeps the value it began with.
//!
//! # Sources
//! Moré, "The Levenberg-Marquardt algorithm: implementation and theory", 1978, by the crate `levenberg-marquardt`; Holland and
//! Welsch, "Robust regression using iteratively reweighted least-squares", 1977.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use serde::Serialize;

use crate::machine::{Figure, Machine};
use crate::predict::{Scenario, ScenarioError, predict};
use crate::units::FrameRate;

/// The residual from which a point pulls no more than linearly: some 3 %.
const FAR: f64 = 0.03;
/// Rounds of weights.
const ROUNDS: usize = 30;
/// The step of a parameter's logarithm by which slopes are found.
const STEP: f64 = 1e-4;
/// Standard deviations of an interval of 95 %.
const WIDTH: f64 = 1.96;

/// A figure of a machine that can be fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the field of that name")]
pub enum Parameter {
    LinkShare,
    WireMpps,
    BetweenMpps,
    BetweenGbps,
    QueueNs,
    QueueNsPerByte,
    GuestCycles,
    GuestCyclesPerByte,
    SwitchWire,
    SwitchFromGuest,
    SwitchToGuest,
    SwitchByte,
    SwitchReceiver,
    WireQueueGbps,
    SoftFromGuest,
    SoftWire,
    SoftByte,
    SoftReceiver,
    GeneratorCycles,
}

impl Parameter {
    /// What a forwarding experiment on a card and a switch can tell. Not what the wire's port costs the switch, for it adds to what
    /// either end of a guest's costs, and only sums are seen.
    pub const CARD: [Self; 11] = [
        Self::LinkShare,
        Self::WireMpps,
        Self::BetweenMpps,
        Self::QueueNs,
        Self::QueueNsPerByte,
        Self::GuestCycles,
        Self::SwitchFromGuest,
        Self::SwitchToGuest,
        Self::SwitchByte,
        Self::SwitchReceiver,
        Self::WireQueueGbps,
    ];

    /// What the lab's experiment can tell of path `vf`, which is a software NIC there.
    pub const SOFT: [Self; 7] = [
        Self::SoftFromGuest,
        Self::SoftWire,
        Self::SoftByte,
        Self::SoftReceiver,
        Self::GuestCycles,
        Self::GuestCyclesPerByte,
        Self::GeneratorCycles,
    ];

    /// Its figure; none where the machine has nothing of the kind.
    pub fn of(self, machine: &mut Machine) -> Option<&mut Figure> {
        let Machine { nic, host } = machine;
        let soft = host.soft_nic.as_mut();
        Some(match self {
            Self::LinkShare => &mut nic.link_share,
            Self::WireMpps => &mut nic.wire.mpps,
            Self::BetweenMpps => &mut nic.between.mpps,
            Self::BetweenGbps => &mut nic.between.gbps,
            Self::QueueNs => &mut nic.queue_ns,
            Self::QueueNsPerByte => &mut nic.queue_ns_per_byte,
            Self::GuestCycles => &mut host.guest_cycles,
            Self::GuestCyclesPerByte => &mut host.guest_cycles_per_byte,
            Self::SwitchWire => &mut host.switch.wire,
            Self::SwitchFromGuest => &mut host.switch.from_guest,
            Self::SwitchToGuest => &mut host.switch.to_guest,
            Self::SwitchByte => &mut host.switch.byte,
            Self::SwitchReceiver => &mut host.switch.receiver,
            Self::WireQueueGbps => &mut host.wire_queue_gbps,
            Self::SoftFromGuest => &mut soft?.from_guest,
            Self::SoftWire => &mut soft?.wire,
            Self::SoftByte => &mut soft?.byte,
            Self::SoftReceiver => &mut soft?.receiver,
            Self::GeneratorCycles => host.generator_cycles.as_mut()?,
        })
    }
}

/// A measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What was measured.
    pub scenario: Scenario,
    /// Frames that guests sent, summed over guests.
    pub rate: FrameRate,
}

/// A fitted parameter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Which.
    pub parameter: Parameter,
    /// Its value.
    pub value: f64,
    /// The interval that has it with 95 %; none if no point depends on it.
    pub interval: Option<(f64, f64)>,
}

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The machine with the parameters set.
    pub machine: Machine,
    /// The parameters.
    pub estimates: Vec<Estimate>,
}

/// Why nothing could be fitted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FitError {
    /// Too few points.
    #[error("{points} points for {parameters} parameters: at least as many points are needed")]
    Few {
        /// Points that there are.
        points: usize,
        /// Parameters to be found.
        parameters: usize,
    },
    /// A point that the model has no scenario for.
    #[error("a measured point cannot be")]
    Scenario(#[from] ScenarioError),
    /// A figure that the machine has not.
    #[error("the machine has no {0:?}")]
    Parameter(Parameter),
    /// A point without a rate.
    #[error("point {0} has no rate above 0")]
    Rate(usize),
}

/// Fits `parameters` of `machine`, whose figures are where the search begins, to what was measured.
///
/// # Errors
/// Too few points, or points that cannot be.
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
        if !(point.rate.0.is_finite() && point.rate.0 > 0.0) {
            return Err(FitError::Rate(at));
        }
    }
    let mut start = machine.clone();
    let mut values = Vec::new();
    for parameter in parameters {
        let figure = parameter.of(&mut start).ok_or(FitError::Parameter(*parameter))?;
        values.push(figure.value.ln());
    }
    let logs = DVector::from_vec(values);
    let weights = DVector::from_element(points.len(), 1.0);
    let mut search = Search { machine, parameters, points, logs, weights };
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
        let figure = parameter.of(&mut machine).ok_or(FitError::Parameter(*parameter))?;
        let value = figure.value;
        let interval = spread[at].map(|width| (value * (-width).exp(), value * width.exp()));
        if interval.is_some() {
            figure.source = source.to_owned();
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
    weights: DVector<f64>,
}

impl Search<'_> {
    fn machine(&self) -> Machine {
        self.machine_at(&self.logs)
    }

    fn machine_at(&self, logs: &DVector<f64>) -> Machine {
        let mut machine = self.machine.clone();
        for (parameter, log) in self.parameters.iter().zip(logs) {
            if let Some(figure) = parameter.of(&mut machine) {
                figure.value = log.exp();
            }
        }
        // A link cannot give more than it has, wherever the search goes.
        machine.nic.link_share.value = machine.nic.link_share.value.min(1.0);
        machine
    }

    fn residuals_at(&self, logs: &DVector<f64>) -> DVector<f64> {
        let machine = self.machine_at(logs);
        let residual = |point: &Observation| match predict(&machine, &point.scenario) {
            Ok(predicted) => (predicted.rate / point.rate).ln(),
            Err(_) => 0.0, // every scenario was predicted before the search began
        };
        DVector::from_iterator(self.points.len(), self.points.iter().map(residual))
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

    /// Half the width of each parameter's interval, in logarithms.
    fn spread(&self) -> Vec<Option<f64>> {
        let roots = self.weights.map(f64::sqrt);
        let slopes = DMatrix::from_diagonal(&roots) * self.slopes();
        let residuals = self.raw_residuals().component_mul(&roots);
        let moving: Vec<_> =
            (0..slopes.ncols()).filter(|&at| slopes.column(at).amax() > 1e-9).collect();
        let free = self.points.len().saturating_sub(moving.len()).max(1) as f64;
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

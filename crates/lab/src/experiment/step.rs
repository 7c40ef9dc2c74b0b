//! A step of an experiment, and its result.

use std::fmt;
use std::path::Path;

use anyhow::Result;

use report::experiment::Experiment;
use report::{FileCopy, Point, Receive, Results, Transfer};

/// Machine of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The shunt binary.
    pub program: &'a Path,
    /// Allowed CPUs.
    pub cpus: &'a [usize],
}

/// Result of a step.
#[derive(Debug)]
pub enum StepResult {
    /// A point of forwarding.
    Point(Point),
    /// One traffic on all its paths.
    Transfers(Vec<Transfer>),
    /// One frame size, received on both paths.
    Receive(Receive),
    /// One file, copied in every setup.
    Copies(Vec<FileCopy>),
}

impl StepResult {
    /// Adds it to the results of a run.
    pub fn add_to(self, results: &mut Results) {
        match self {
            StepResult::Point(point) => results.points.push(point),
            StepResult::Transfers(transfers) => results.transfers.extend(transfers),
            StepResult::Receive(receive) => results.receives.push(receive),
            StepResult::Copies(copies) => results.copies.extend(copies),
        }
    }
}

/// A table of an experiment file, as the steps that measure it.
pub(super) trait Steps {
    /// Every combination of its lists in the order of measurement, for the experiment of this name.
    fn steps(&self, experiment: &str) -> Vec<Step>;
}

/// Steps of an experiment, in the order of measurement.
pub fn steps(experiment: &Experiment) -> Vec<Step> {
    fn of<S: Steps>(experiment: &Experiment, tables: &[S]) -> Vec<Step> {
        tables.iter().flat_map(|table| table.steps(&experiment.name)).collect()
    }
    let mut all = of(experiment, &experiment.forward);
    all.extend(of(experiment, &experiment.transfer));
    all.extend(of(experiment, &experiment.receive));
    all.extend(of(experiment, &experiment.copy));
    all
}

type Measure = Box<dyn Fn(&Machine<'_>) -> Result<StepResult>>;

/// Unit of measurement: a run may end and be resumed between two steps.
pub struct Step {
    title: String,
    measure: Measure,
}

impl Step {
    /// A step with this title and measurement.
    pub fn new(
        title: String,
        measure: impl Fn(&Machine<'_>) -> Result<StepResult> + 'static,
    ) -> Step {
        Step { title, measure: Box::new(measure) }
    }

    /// Short description of the step.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Measures the step.
    ///
    /// # Errors
    /// Those of the load.
    pub fn measure(&self, machine: &Machine<'_>) -> Result<StepResult> {
        (self.measure)(machine)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("title", &self.title).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use report::PathKind;
    use report::experiment::{SHIPPED, SettingOverride};

    use super::*;

    fn shipped(name: &str, changes: &[SettingOverride]) -> Experiment {
        Experiment::parse(Experiment::shipped(name).unwrap(), changes).unwrap()
    }

    #[test]
    fn every_shipped_experiment_has_steps() {
        for (name, _) in SHIPPED {
            assert!(!steps(&shipped(name, &[])).is_empty(), "{name}");
        }
    }

    #[test]
    fn only_paths_that_the_machine_has_make_steps() {
        assert_eq!(steps(&shipped("quick", &[]).on_paths(&[PathKind::Vf])).len(), 15 * 2);
        assert!(steps(&shipped("ntttcp", &[]).on_paths(&[])).is_empty());
        let changes = [SettingOverride { key: "seconds", value: 0.5.into() }];
        assert_eq!(steps(&shipped("ntttcp", &changes)).len(), steps(&shipped("ntttcp", &[])).len());
    }
}

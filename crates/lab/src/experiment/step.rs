//! A step of an experiment, and what it finds.

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::report::{FileCopy, Point, Receive, Results, Transfer};

/// Where an experiment runs.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Shunt itself.
    pub program: &'a Path,
    /// CPUs that may be used.
    pub cpus: &'a [usize],
}

/// What a step found.
#[derive(Debug)]
pub enum Found {
    /// A point of forwarding.
    Point(Point),
    /// One traffic on all its paths.
    Transfers(Vec<Transfer>),
    /// One frame size, received on both paths.
    Receive(Receive),
    /// One file, copied in every setup.
    Copies(Vec<FileCopy>),
}

impl Found {
    /// Adds it to the results of a run.
    pub fn add_to(self, results: &mut Results) {
        match self {
            Found::Point(point) => results.points.push(point),
            Found::Transfers(transfers) => results.transfers.extend(transfers),
            Found::Receive(receive) => results.receives.push(receive),
            Found::Copies(copies) => results.copies.extend(copies),
        }
    }
}

/// A table of an experiment's file: every combination of its lists is measured.
pub trait Sweep {
    /// Says what is wrong with it, if anything is.
    ///
    /// # Errors
    /// One sentence that names the setting, the value and what is allowed.
    fn check(&self) -> Result<(), String>;

    /// What is measured, in the order of measurement, for the experiment of this name.
    fn steps(&self, experiment: &str) -> Vec<Step>;
}

type Measure = Box<dyn Fn(&Machine<'_>) -> Result<Found>>;

/// What is measured between two points in time at which a run may end and be resumed.
pub struct Step {
    title: String,
    measure: Measure,
}

impl Step {
    /// A step that measures so.
    pub fn new(title: String, measure: impl Fn(&Machine<'_>) -> Result<Found> + 'static) -> Step {
        Step { title, measure: Box::new(measure) }
    }

    /// What is measured, in a few words.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Measures it.
    ///
    /// # Errors
    /// Those of the load.
    pub fn measure(&self, machine: &Machine<'_>) -> Result<Found> {
        (self.measure)(machine)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("title", &self.title).finish_non_exhaustive()
    }
}

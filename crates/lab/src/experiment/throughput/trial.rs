//! One trial with a paced generator.

use std::path::Path;

use anyhow::{Context, Result};
use traffic::{PacedResult, Role};

use crate::bench::Placement;
use crate::experiment::forwarding::{self, PointSpec, SwitchProgram};

/// One trial with the generator that `role` makes from flows.
pub(super) fn paced_trial(
    program: &Path,
    spec: &PointSpec,
    placement: &Placement,
    role: impl Fn(Vec<(String, String)>) -> Role,
) -> Result<PacedResult> {
    let role = |flows, _| role(flows);
    let measured = forwarding::trial(SwitchProgram::shunt(program), spec, placement, role)?;
    let paced = measured.results.iter().find_map(|result| result.paced);
    paced.context("no process reported the generator")
}

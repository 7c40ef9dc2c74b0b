//! Report of a migration.

use std::time::Instant;

use model::state::PathInForce;
use serde::{Deserialize, Serialize};

use super::plan::MigrationPlan;

/// Result of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationOutcome {
    /// The guest is at the target.
    Moved,
    /// The guest is at the source as before.
    RolledBack,
    /// The guest's location is unknown; the report says what to check.
    Unclear,
}

/// A completed or undone step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// Name of the step.
    pub step: String,
    /// Result of the step.
    pub text: String,
    /// Duration, in milliseconds.
    pub ms: u64,
}

impl MigrationReport {
    /// Adds each step that it is called with, and calls `on_step`.
    pub(super) fn recording(
        &mut self,
        on_step: &mut dyn FnMut(&StepReport),
    ) -> impl FnMut(&StepReport) {
        |done| {
            on_step(done);
            self.steps.push(done.clone());
        }
    }
}

impl StepReport {
    /// A step that ends now.
    pub(crate) fn new(step: &str, text: impl Into<String>, begun: Instant) -> StepReport {
        let ms = begun.elapsed().as_millis() as u64;
        StepReport { step: step.to_owned(), text: text.into(), ms }
    }
}

/// Path of an adapter from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// Time since the migration began, in milliseconds.
    pub at_ms: u64,
    /// Name of the adapter.
    pub adapter: String,
    /// Host of the guest: `source` or `target`.
    pub host: String,
    /// Path of its frames: `vf` also for another primary, `none` while the guest is stopped.
    pub path: PathInForce,
}

/// Report of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationReport {
    /// Id of the migration, known to both daemons.
    pub id: String,
    /// The plan.
    pub plan: MigrationPlan,
    /// Result.
    pub outcome: MigrationOutcome,
    /// Cause, if the guest did not move or something is left to do.
    pub error: Option<String>,
    /// Steps, in order.
    pub steps: Vec<StepReport>,
    /// Paths of the adapters, in order of time, as `shunt migrate` has seen them.
    pub time_line: Vec<PathChange>,
    /// Guest downtime as QEMU reports it, in milliseconds.
    pub downtime_ms: Option<u64>,
    /// Part of the downtime spent on moving the addresses, in milliseconds.
    pub switch_ms: Option<u64>,
    /// Total time as QEMU reports it, in milliseconds.
    pub total_ms: Option<u64>,
    /// Bytes sent by QEMU.
    pub ram_bytes: Option<u64>,
    /// Frames kept at the source and transferred to the target.
    pub carried: u64,
    /// Frames dropped because a daemon's buffer was full.
    pub lost: u64,
}

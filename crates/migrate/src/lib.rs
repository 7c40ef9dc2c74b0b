//! Migration of a running guest from one host to another.
//!
//! # Model
//! `shunt migrate` is a client of two daemons ([`daemon::DaemonClient`]) and of two QEMUs
//! ([`Qemu`]). It runs a list of steps. Each can be undone until the guest runs at the target:
//! 1. **inspect**: both daemons and versions, the paths available at the target, and obstacles,
//!    such as enabled VFs. With an obstacle nothing is changed.
//! 2. **prepare**: the target creates each adapter and reserves its VF, or says why there is none.
//!    The adapter's addresses are not active there.
//! 3. **connect** to the target's QEMU, which waits for the guest.
//! 4. **unplug** the primary of a failover pair at the source, if the frames go there.
//! 5. **leave**: from now on the source keeps frames while rings do not run.
//! 6. **migrate**: QEMU copies memory, stops the guest and waits (`pre-switchover`).
//! 7. **switch**: the target activates and announces the addresses and keeps frames; the source
//!    deactivates them and hands over the frames it kept. QEMU continues.
//! 8. **verify**: the guest's rings run at the target.
//! 9. **finish**: the adapters are ordinary ones at the target and removed at the source. A primary
//!    named for the target is plugged.
//!
//! # Failures
//! Until the guest runs at the target, all steps are undone in reverse order. The target's adapters
//! are removed, and frames kept there return to the source. The source activates and announces its
//! addresses again, and its guest continues.
//!
//! If the guest may be at the target, nothing is undone: two running copies would be worse than one
//! unreachable guest. The report says what to do.
//!
//! If `shunt migrate` is killed, both daemons decide by themselves, see
//! [`Manager::tick`](api::Manager::tick). A guest in `pre-switchover` stays stopped, because QEMU
//! waits without a timeout. [`abort`] and [`finish`] end such a migration.
//!
//! Beside it, [`failover`] moves a guest between two devices of one host; `pairs` uses it.

mod daemon;
mod error;
pub mod failover;
mod frames;
mod guest_info;
mod guest_vfs;
mod id;
mod migration;
mod obstacles;
mod pairs;
mod plan;
mod printable;
mod qemu;
mod recovery;
mod report;
mod rollback;
mod spec;
#[cfg(test)]
mod tests;

use std::time::Instant;

use model::state::Problems;

pub use error::MigrateError;
pub use guest_info::GuestInfo;
use migration::{Migration, MigrationState};
pub use plan::{MigrationPlan, PlannedAdapter};
use qemu::Qemu;
pub use recovery::{RecoveryReport, RecoverySpec, abort, finish};
pub use report::{MigrationOutcome, MigrationReport, PathChange, StepReport};
pub use spec::{MigrationSpec, interrupted_by_signals};

/// Plans a migration and lists obstacles, without changes.
///
/// # Errors
/// A daemon or QEMU does not answer, or a named adapter does not exist.
pub fn plan(spec: &MigrationSpec) -> Result<MigrationPlan, MigrateError> {
    let id = id::unique(&spec.vm);
    let (source, target) = daemon::both(&spec.source, &spec.target, &id, spec.hold_s());
    let mut qemu = Qemu::connect(&spec.source_qmp)?;
    Ok(plan::inspect(spec, &source, &target, &mut qemu)?.0)
}

/// Migrates a guest; calls `on_step` after each step.
///
/// # Errors
/// As [`plan`], or an obstacle exists: nothing was changed. Later failures are in the report.
pub fn run(
    spec: &MigrationSpec,
    on_step: &mut dyn FnMut(&StepReport),
) -> Result<MigrationReport, MigrateError> {
    let id = id::unique(&spec.vm);
    let (source, target) = daemon::both(&spec.source, &spec.target, &id, spec.hold_s());
    let begun = Instant::now();
    let mut qemu = Qemu::connect(&spec.source_qmp)?;
    let (plan, requests) = plan::inspect(spec, &source, &target, &mut qemu)?;
    if !plan.obstacles.is_empty() {
        let mut problems = Problems::default();
        plan.obstacles.into_iter().for_each(|obstacle| problems.push(obstacle));
        return Err(MigrateError::Refused(problems));
    }
    let report = MigrationReport {
        time_line: Vec::new(),
        id: id.clone(),
        plan,
        outcome: MigrationOutcome::Moved,
        error: None,
        steps: Vec::new(),
        downtime_ms: None,
        switch_ms: None,
        total_ms: None,
        ram_bytes: None,
        carried: 0,
        lost: 0,
    };
    let mut migration = Migration {
        spec,
        source,
        target,
        qemu,
        target_qemu: None,
        starter: None,
        state: MigrationState::default(),
        report,
        on_step,
        renewed: Instant::now(),
        begun,
    };
    for PlannedAdapter { name, from, .. } in migration.report.plan.adapters.clone() {
        migration.note_path(&name, "source", from);
    }
    let [here, there] = &migration.report.plan.versions;
    let text = format!("shunt {here} -> {there}, {}", migration.report.plan.to_string().trim_end());
    migration.done("inspect", text, begun);
    if let (Some(agent), false) = (&spec.guest_agent, migration.report.plan.guest.vfs.is_empty()) {
        let begun = Instant::now();
        guest_vfs::disable(agent, &mut migration.qemu)?;
        migration.state.vfs_disabled = true;
        migration.done("functions", "the guest has disabled its VFs for the migration", begun);
    }
    if let Err(failed) = migration.go(&requests) {
        migration.report.error = Some(failed.to_string());
        migration.roll_back();
    }
    (migration.report.carried, migration.report.lost) =
        (migration.state.frames.frames, migration.state.frames.lost);
    Ok(migration.report)
}

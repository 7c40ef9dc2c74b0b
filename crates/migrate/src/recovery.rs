//! Aborts or finishes a migration by hand: its `shunt migrate` was killed, or could not tell how it
//! ended.
//!
//! QEMU says where the guest is: after `shunt migrate` was killed it waits in `pre-switchover`
//! without a timeout. Both daemons list the adapters that are part of the migration. A QMP socket
//! serves one client, so a running `shunt migrate` locks others out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use api::Client;
use host::qmp::QmpError;
use model::state::{MovePhase, MoveStep, Problem, Remedy, State};
use serde::{Deserialize, Serialize};

use super::daemon::{DaemonClient, HOLD_S, both};
use super::error::MigrateError;
use super::frames::{self, TransferredFrames};
use super::guest_vfs;
use super::id::is_of;
use super::obstacles::wrong_guest;
use super::pairs::without_primary;
use super::qemu::{self, GuestLocation, Qemu};
use super::report::StepReport;
use super::rollback::{resume, wait_for_location};

/// A migration to abort or to finish.
#[derive(Debug)]
pub struct RecoverySpec {
    /// The guest's name, or the migration's id.
    pub name: String,
    /// The source daemon.
    pub source: Client,
    /// The target daemon.
    pub target: Client,
    /// QMP socket of the source's QEMU.
    pub source_qmp: PathBuf,
    /// QMP socket of the target's QEMU; only [`abort`] with `go_back` needs it.
    pub target_qmp: Option<PathBuf>,
    /// For [`abort`]: abort even if the guest may have run at the target, and end it there.
    pub go_back: bool,
    /// Guest agent at the guest's final location, to re-enable the VFs disabled for the migration.
    pub guest_agent: Option<PathBuf>,
    /// For [`finish`]: leave the source's QEMU running, with its guest stopped.
    pub keep_source: bool,
}

/// Result of [`abort`] or [`finish`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// The migration's id, if a daemon still knew it.
    pub id: Option<String>,
    /// Steps, in order.
    pub steps: Vec<StepReport>,
    /// Steps that failed; `None` on success.
    pub error: Option<String>,
    /// Frames kept at the source and transferred to the target.
    pub carried: u64,
}

/// State of a migration as found.
struct FoundMigration {
    id: Option<String>,
    /// Its adapters at the source, with their phases.
    at_source: Vec<(String, MovePhase)>,
    /// Its adapters at the target; `None` if the target does not answer.
    at_target: Option<Vec<(String, MovePhase)>>,
    /// The source's QEMU, unless it has exited, and its migration status.
    qemu: Option<(Qemu, String)>,
    guest: GuestLocation,
    /// No migration is left to cancel in QEMU.
    is_over: bool,
}

/// Aborts a migration: the guest stays at the source.
///
/// # Errors
/// The guest may be at the target, `shunt migrate` is still running, or several migrations match.
/// Nothing was changed.
pub fn abort(
    ending: &RecoverySpec,
    on_step: &mut dyn FnMut(&StepReport),
) -> Result<RecoveryReport, MigrateError> {
    let begun = Instant::now();
    let found = find(ending)?;
    if found.guest != GuestLocation::Source {
        end_target_qemu(ending, &found)?;
    }
    let id = found.id.clone().unwrap_or_default();
    let (source, target) = both(&ending.source, &ending.target, &id, HOLD_S);
    let names = |all: &[(String, MovePhase)]| all.iter().map(|(name, _)| name.clone()).collect();
    let leaving: Vec<String> = names(&found.at_source);
    // A target that does not answer may have any of them.
    let prepared = found.at_target.as_deref().map_or(leaving.clone(), names);
    let (mut troubles, mut alone) = (Vec::new(), Vec::new());
    frames::take_back(&source, &target, &prepared, &leaving, &mut troubles);
    let status = found.qemu.map(|(mut qemu, _)| {
        let resumed = match found.is_over && !ending.go_back {
            true => qemu.restore().map_err(|error| MigrateError::from(error).to_string()),
            false => resume(&mut qemu),
        };
        troubles.extend(resumed.err());
        alone = without_primary(&ending.source, &ending.source_qmp, &leaving, &mut qemu);
        qemu.status().unwrap_or_else(|_| "silent".to_owned())
    });
    let status =
        status.map_or("there is no QEMU".into(), |status| format!("the guest is {status}"));
    let text = format!(
        "{status} at the source; {}{}",
        adapters_text(&leaving, &prepared),
        standby_text(&alone)
    );
    Ok(ended(found.id, begun, ("abort", text), troubles, on_step))
}

/// Finishes a migration: the guest stays at the target.
///
/// # Errors
/// The guest is not known to be at the target, `shunt migrate` is still running, or no such
/// migration exists. Nothing was changed.
pub fn finish(
    ending: &RecoverySpec,
    on_step: &mut dyn FnMut(&StepReport),
) -> Result<RecoveryReport, MigrateError> {
    let begun = Instant::now();
    let found = find(ending)?;
    let Some(id) = found.id.clone() else {
        let message = "has no migration that one of the daemons knows";
        let remedy = "name a guest or a migration; without one, there is nothing to finish";
        let problem = Problem::new("", (), message, remedy);
        return Err(problem.of(format!("guest {}", ending.name)).into());
    };
    let Some(at_target) = &found.at_target else {
        return Err(MigrateError::new("the target daemon does not answer; start it first"));
    };
    let (source, target) = both(&ending.source, &ending.target, &id, HOLD_S);
    let names: Vec<String> = found.at_source.iter().map(|(name, _)| name.clone()).collect();
    check_guest_at_target(&found, &target)?;
    let mut carried = TransferredFrames::default();
    let mut troubles = Vec::new();
    for (name, phase) in at_target {
        let mut take = || {
            if *phase == MovePhase::Arriving {
                target.step(name, MoveStep::TakeOver)?;
            }
            if found.at_source.iter().any(|(one, _)| one == name) {
                carried.transfer(&source, &target, name)?;
            }
            target.step(name, MoveStep::Finish).map(drop)
        };
        troubles.extend(take().err().map(|failed| failed.to_string()));
    }
    let mut alone = Vec::new();
    if let Some((mut qemu, _)) = found.qemu {
        alone = without_primary(&ending.source, &ending.source_qmp, &names, &mut qemu);
        if !ending.keep_source && qemu.quit().is_err() {
            troubles.push("the source's QEMU is still there; end it".to_owned());
        }
    }
    for (name, phase) in &found.at_source {
        let leave = || {
            // Removing an adapter that the target does not have would lose it.
            target.status(name)?;
            if *phase == MovePhase::Leaving {
                source.step(name, MoveStep::HandOver)?;
            }
            source.step(name, MoveStep::Finish).map(drop)
        };
        troubles.extend(leave().err().map(|failed| failed.to_string()));
    }
    troubles.extend(restore_vfs(ending));
    let text = format!(
        "the guest is at the target, {} frames carried over; gone from the source: {}{}",
        carried.frames,
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") },
        standby_text(&alone)
    );
    let done = ended(found.id, begun, ("finish", text), troubles, on_step);
    Ok(RecoveryReport { carried: carried.frames, ..done })
}

fn ended(
    id: Option<String>,
    begun: Instant,
    (step, text): (&str, String),
    troubles: Vec<String>,
    on_step: &mut dyn FnMut(&StepReport),
) -> RecoveryReport {
    let done = StepReport { step: step.to_owned(), text, ms: begun.elapsed().as_millis() as u64 };
    on_step(&done);
    let error = (!troubles.is_empty()).then(|| troubles.join("; "));
    RecoveryReport { id, steps: vec![done], error, carried: 0 }
}

/// Re-enables the guest's VFs, if its agent was named.
fn restore_vfs(ending: &RecoverySpec) -> Option<String> {
    let agent = ending.guest_agent.as_deref()?;
    guest_vfs::restore(agent).err().map(|failed| failed.to_string())
}

/// Adapters without a primary, and how they get one.
fn standby_text(alone: &[String]) -> String {
    let tell = |name: &String| format!("; {name} is on its standby: shunt vm attach {name}");
    alone.iter().map(tell).collect()
}

fn adapters_text(leaving: &[String], prepared: &[String]) -> String {
    let all: BTreeSet<&str> = leaving.iter().chain(prepared).map(String::as_str).collect();
    match all.is_empty() {
        true => "no daemon had an adapter of the migration any more".to_owned(),
        false => format!("taken back: {}", Vec::from_iter(all).join(", ")),
    }
}

/// Queries both daemons and the source's QEMU.
fn find(ending: &RecoverySpec) -> Result<FoundMigration, MigrateError> {
    let (source, target) = both(&ending.source, &ending.target, "", HOLD_S);
    let (here, there) = (source.state()?, target.state().ok());
    let states = [Some(&here), there.as_ref()];
    let moving = states.into_iter().flatten().flat_map(|state| &state.adapters);
    let ids = moving.filter_map(|adapter| Some(adapter.moving.as_ref()?.id.clone()));
    let ids: BTreeSet<String> =
        ids.filter(|id| *id == ending.name || is_of(id, &ending.name)).collect();
    if ids.len() > 1 {
        let ids = Vec::from_iter(ids).join(", ");
        let message = format!("has several migrations: {ids}");
        let problem = Problem::new("", (), message, Remedy::choose("name one of them", ids));
        return Err(problem.of(format!("guest {}", ending.name)).into());
    }
    let id = ids.into_iter().next();
    let of = |state: &State| -> Vec<(String, MovePhase)> {
        let mine = |one: &model::state::Adapter| {
            let moving = one.moving.as_ref().filter(|moving| Some(&moving.id) == id.as_ref())?;
            Some((one.name.clone(), moving.phase))
        };
        state.adapters.iter().filter_map(mine).collect()
    };
    let mut found = FoundMigration {
        at_source: of(&here),
        at_target: there.as_ref().map(of),
        qemu: None,
        guest: GuestLocation::Unknown,
        is_over: true,
        id,
    };
    match Qemu::connect(&ending.source_qmp) {
        Ok(qemu) => locate_guest(ending, &mut found, qemu)?,
        Err(error) if error.is_absence() => {}
        Err(error @ QmpError::Late { .. }) => {
            let error = MigrateError::from(error);
            return Err(MigrateError::new(format!(
                "{error}; if `shunt migrate` is still running, interrupt it instead"
            )));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(found)
}

/// Locates the guest from the state of the source's QEMU.
fn locate_guest(
    ending: &RecoverySpec,
    found: &mut FoundMigration,
    mut qemu: Qemu,
) -> Result<(), MigrateError> {
    let name = qemu.name()?;
    let is_its = name == ending.name || is_of(&ending.name, &name);
    if found.id.as_ref() != Some(&ending.name) && !name.is_empty() && !is_its {
        return Err(wrong_guest(&ending.source_qmp, &name, &ending.name).into());
    }
    let progress = wait_for_location(&mut qemu)?;
    let status = qemu.status()?;
    found.guest = match (status.as_str(), progress.guest()) {
        ("running", _) => GuestLocation::Source,
        // The completed migration may be the one that brought the guest to this host.
        (status, GuestLocation::Target) if status != "postmigrate" => GuestLocation::Unknown,
        (_, guest) => guest,
    };
    found.is_over = progress.is_over();
    found.qemu = Some((qemu, progress.status));
    Ok(())
}

/// Migration status of the source's QEMU, for an error text.
fn qemu_status(found: &FoundMigration) -> String {
    match &found.qemu {
        Some((_, migration)) => format!("the migration is {migration} at the source's QEMU"),
        None => "the source's QEMU has ended".to_owned(),
    }
}

/// Ends the target's QEMU if `go_back` allows it; after that the guest is certainly not there.
fn end_target_qemu(ending: &RecoverySpec, found: &FoundMigration) -> Result<(), MigrateError> {
    let qemu_status = qemu_status(found);
    if !ending.go_back {
        let message = format!("is not safe: {qemu_status}, and the guest may be at the target");
        let remedy = "finish the migration with --finish. Only to give the guest up there: --go-back with --to-qmp ends it at the \
             target, and resumes it at the source from where it stopped. Its disks are damaged if it wrote to them since";
        return Err(Problem::new("--abort", (), message, remedy).into());
    }
    let Some(path) = &ending.target_qmp else {
        let message = "is missing: --go-back ends the guest at the target";
        return Err(Problem::new("--to-qmp", (), message, "give it").into());
    };
    qemu::end(path)
}

/// Checks that the guest is at the target: QEMU says so, or the source's QEMU has exited and the
/// guest's rings run at the target.
fn check_guest_at_target(
    found: &FoundMigration,
    target: &DaemonClient<'_>,
) -> Result<(), MigrateError> {
    let qemu_status = qemu_status(found);
    let refused = |why: &str, remedy: &str| {
        let message = format!("is not safe: {qemu_status}{why}");
        Err(Problem::new("--finish", (), message, remedy).into())
    };
    match (found.guest, &found.qemu) {
        (GuestLocation::Target, _) => Ok(()),
        (GuestLocation::Source, _) => {
            refused(": the guest is at the source", "end the migration with --abort")
        }
        (GuestLocation::Unknown, Some(_)) => refused(
            ", so the guest's location is unknown",
            "check if it runs at the target, then end the source's QEMU",
        ),
        (GuestLocation::Unknown, None) => {
            // Adapters that a daemon still lists as migrating. The others are finished, so their
            // rings have run.
            let waiting = found.at_target.iter().flatten();
            let mut silent = waiting
                .filter(|(name, _)| target.status(name).map_or(true, |status| !status.connected));
            match silent.next() {
                None => Ok(()),
                Some((name, _)) => refused(
                    &format!(", and the rings of {name} do not run at the target either"),
                    "start the guest there first, or give the migration up with --abort --go-back",
                ),
            }
        }
    }
}

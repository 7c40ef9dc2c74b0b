//! Undoes a failed migration, if the guest is certainly at the source.

use std::time::{Duration, Instant};

use host::qmp::QmpError;
use model::state::PathInForce;
use rustix::process::{Pid, Signal, kill_process_group};

use super::error::MigrateError;
use super::migration::{Migration, MigrationState};
use super::qemu::{GuestLocation, MigrationProgress, POLL, Qemu};
use super::report::MigrationOutcome;
use super::{frames, guest_vfs};

/// Time for QEMU to cancel a migration, or to say where the guest is.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });

impl Migration<'_> {
    /// Undoes the completed steps in reverse order.
    pub(super) fn roll_back(&mut self) {
        let begun = Instant::now();
        let mut troubles = Vec::new();
        if self.state.switched_over.is_some() {
            if let Err(why) = self.check_guest_at_source() {
                self.report.outcome = MigrationOutcome::Unclear;
                let id = &self.report.id;
                let text = format!(
                    "{why}. Nothing is undone, and the adapters stay at both daemons. If the guest runs at the target, finish \
                     with `shunt migrate {id} --finish`; if not, abort with `shunt migrate {id} --abort`"
                );
                return self.done("undo", text, begun);
            }
            troubles.extend(self.end_target_qemu());
        }
        self.report.outcome = MigrationOutcome::RolledBack;
        let MigrationState { prepared, leaving, .. } = &self.state;
        frames::take_back(&self.source, &self.target, prepared, leaving, &mut troubles);
        if self.state.started {
            troubles.extend(resume(&mut self.qemu).err());
        }
        self.note_return();
        troubles.extend(self.end_start_command());
        troubles.extend(self.restore_primaries());
        if let (true, Some(agent)) = (self.state.vfs_disabled, &self.spec.guest_agent) {
            troubles.extend(guest_vfs::restore(agent).err().map(|failed| failed.to_string()));
        }
        let text = match troubles.is_empty() {
            true => "the guest continues at the source".to_owned(),
            false => format!("the guest stays at the source, but: {}", troubles.join("; ")),
        };
        self.done("undo", text, begun);
    }

    /// Notes the paths of a guest that was stopped, and runs at the source again.
    fn note_return(&mut self) {
        for name in self.names() {
            let mut last =
                self.report.time_line.iter().rev().filter(|change| change.adapter == name);
            let stopped = last.next().is_some_and(|change| change.path == PathInForce::None);
            if let (true, Some(before)) = (stopped, last.next().map(|change| change.path)) {
                self.note_path(&name, "source", before);
            }
        }
    }

    /// Checks that the guest has not run at the target; the error says why it may have. A guest
    /// that has run there must not resume at the source, which knows nothing of what it wrote and
    /// sent since.
    fn check_guest_at_source(&mut self) -> Result<(), String> {
        if self.state.completed {
            return Err("the guest has run at the target, and does not return".to_owned());
        }
        match wait_for_location(&mut self.qemu) {
            Ok(progress) if progress.guest() == GuestLocation::Source => Ok(()),
            Ok(progress) => Err(format!(
                "QEMU's migration is {}, and the guest may be at the target",
                progress.status
            )),
            Err(error) => Err(format!(
                "the source's QEMU does not answer ({}), and the guest may be at the target",
                MigrateError::from(error)
            )),
        }
    }

    /// Ends the target's QEMU. It exits by itself when the migration fails; quitting it makes sure.
    fn end_target_qemu(&mut self) -> Option<String> {
        let mut qemu = self.target_qemu.take()?;
        match qemu.quit() {
            Ok(()) | Err(QmpError::Closed(_)) => None,
            Err(error) => {
                let error = MigrateError::from(error);
                Some(format!("the target's QEMU does not exit ({error}): check that it is gone"))
            }
        }
    }

    /// Terminates the start command.
    fn end_start_command(&mut self) -> Option<String> {
        let mut child = self.starter.take()?;
        let trouble = self.end_target_qemu();
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if begun.elapsed() > CANCEL_TIMEOUT {
                return Some(
                    "the start command does not exit: check that its QEMU is gone".to_owned(),
                );
            }
            // The group holds only what the command started.
            let _ = kill_process_group(Pid::from_child(&child), Signal::TERM);
            std::thread::sleep(POLL);
        }
        trouble
    }
}

/// Waits until the guest's location is known or the timeout passes; returns the progress.
pub(super) fn wait_for_location(qemu: &mut Qemu) -> Result<MigrationProgress, QmpError> {
    let begun = Instant::now();
    loop {
        let progress = qemu.progress(POLL)?;
        if progress.guest() != GuestLocation::Unknown || begun.elapsed() > CANCEL_TIMEOUT {
            return Ok(progress);
        }
    }
}

/// Cancels the migration at the source's QEMU, resumes its guest and restores QEMU's settings.
pub(super) fn resume(qemu: &mut Qemu) -> Result<(), String> {
    let begun = Instant::now();
    let told = |error: QmpError| MigrateError::from(error).to_string();
    // Fails for a migration that has already ended, and that is fine.
    let _ = qemu.cancel();
    loop {
        let status = qemu.status().map_err(told)?;
        let progress = qemu.progress(POLL).map_err(told)?;
        match (status.as_str(), progress.is_over()) {
            ("running", true) => return qemu.restore().map_err(told),
            ("paused" | "postmigrate" | "finish-migrate", true) => {
                let _ = qemu.cont(); // checked in the next round
            }
            _ => {}
        }
        if begun.elapsed() > CANCEL_TIMEOUT {
            let after = CANCEL_TIMEOUT.as_secs();
            return Err(format!("its QEMU is still {status} after {after} s; see its monitor"));
        }
    }
}

//! What is done when a move fails: as if it had never begun, where that is certain to be right.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Outcome;
use super::mover::{Mover, POLL};
use super::vmm::Vmm;
use crate::state::MoveStep;

/// How long QEMU may take to give a migration up.
const CANCEL: Duration = Duration::from_secs(15);

impl Mover<'_> {
    /// Undoes what was done, backwards.
    pub(super) fn roll_back(&mut self) {
        let begun = Instant::now();
        let may_be_there = self.stage.completed || self.stage.released;
        if may_be_there && let Err(why) = self.certainly_not_at_the_target() {
            self.report.outcome = Outcome::Unclear;
            let id = &self.report.id;
            let text = format!(
                "{why}. The adapters are left at both daemons: finish or abort the move {id}"
            );
            return self.done("undo", text, begun);
        }
        self.report.outcome = Outcome::RolledBack;
        let mut troubles = Vec::new();
        self.take_back(&mut troubles);
        if self.stage.begun {
            troubles.extend(self.resume().err());
        }
        let text = match troubles.is_empty() {
            true => "the guest runs on at the source".to_owned(),
            false => format!("the guest stays at the source, but: {}", troubles.join("; ")),
        };
        self.done("undo", text, begun);
    }

    /// The target's adapters go, and the source has its addresses again.
    fn take_back(&mut self, troubles: &mut Vec<String>) {
        let mut came = BTreeMap::new();
        for name in std::mem::take(&mut self.stage.prepared).iter().rev() {
            match self.target.step(name, MoveStep::Abort) {
                Ok(status) => {
                    // What was carried over the source has as well.
                    let brought = status.frames.len().min(status.brought as usize);
                    came.insert(name.clone(), status.frames[brought..].to_vec());
                }
                // One that was refused was never made.
                Err(failed) if failed.is_mistake => {}
                Err(failed) => {
                    troubles.push(format!("{failed} (it gives the adapter up by itself)"))
                }
            }
        }
        for name in std::mem::take(&mut self.stage.leaving).iter().rev() {
            if let Some(frames) = came.remove(name) {
                let told = self.source.frames(name, 0, &frames);
                troubles.extend(told.err().map(|one| one.to_string()));
            }
            let undone = self.source.step(name, MoveStep::Abort);
            troubles.extend(undone.err().map(|failed| failed.to_string()));
        }
    }

    /// Has the source's QEMU give the migration up, and its guest run.
    fn resume(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        // A migration that has ended by itself cannot be cancelled, and need not.
        let _ = self.vmm.cancel();
        loop {
            let status = self.vmm.status().map_err(|error| error.to_string())?;
            let progress = self.vmm.progress(POLL).map_err(|error| error.to_string())?;
            let over = ["cancelled", "failed", "completed", "none", ""];
            match (status.as_str(), over.contains(&progress.status.as_str())) {
                ("running", true) => return Ok(()),
                ("paused" | "postmigrate" | "finish-migrate", true) => {
                    let _ = self.vmm.go_on(); // looked at once more
                }
                _ => {}
            }
            if begun.elapsed() > CANCEL {
                return Err(format!(
                    "its QEMU says {status} after {} s; see its monitor",
                    CANCEL.as_secs()
                ));
            }
        }
    }

    /// Says why the guest may be at the target, and so must not run at the source again.
    fn certainly_not_at_the_target(&mut self) -> Result<(), String> {
        let is_over = |status: &str| matches!(status, "failed" | "cancelled");
        if !self.stage.completed {
            // By its return path QEMU at the source knows whether the target has taken the guest.
            let progress = self.vmm.progress(POLL).map_err(|error| {
                format!("the source's QEMU does not answer ({error}), and the guest may be at the target")
            })?;
            if is_over(&progress.status) {
                return Ok(());
            }
        }
        let disks = &self.report.plan.guest.disks;
        if !disks.is_empty() {
            let disks = disks.join(", ");
            return Err(format!(
                "the guest may have written to its disks ({disks}) at the target, and is not run at the source again"
            ));
        }
        // Without disks it may be run again from where it stopped, if it certainly runs nowhere else.
        let known = match self.target_vmm.take() {
            Some(vmm) => Some(vmm),
            None => Vmm::connect(&self.spec.target_qmp).ok(),
        };
        let Some(mut vmm) = known else { return Ok(()) };
        if vmm.stop().is_err() && Vmm::connect(&self.spec.target_qmp).is_ok() {
            return Err(
                "the target's QEMU cannot be stopped, and the guest may run there".to_owned()
            );
        }
        let _ = vmm.quit(); // one that is gone has what is wanted of it
        Ok(())
    }
}

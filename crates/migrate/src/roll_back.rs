//! What is done when a move fails: as if it had never begun, where that is certain to be right.

use std::time::{Duration, Instant};

use host::qmp::QmpError;
use rustix::process::{Pid, Signal, kill_process_group};

use super::carry;
use super::mover::{Mover, POLL, Stage};
use super::vmm::{Progress, Vmm, Whereabouts};
use super::{Failed, Outcome, functions};

/// How long QEMU may take to give a migration up, or to say where the guest is.
const CANCEL: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });

impl Mover<'_> {
    /// Undoes what was done, backwards.
    pub(super) fn roll_back(&mut self) {
        let begun = Instant::now();
        let mut troubles = Vec::new();
        if self.stage.released.is_some() {
            if let Err(why) = self.certainly_at_the_source() {
                self.report.outcome = Outcome::Unclear;
                let id = &self.report.id;
                let text = format!(
                    "{why}. Nothing is undone, and the adapters are left at both daemons. Where the guest runs at the \
                     target, `shunt migrate {id} --finish` ends the move, and else `shunt migrate {id} --abort`"
                );
                return self.done("undo", text, begun);
            }
            troubles.extend(self.end_the_targets());
        }
        self.report.outcome = Outcome::RolledBack;
        let Stage { prepared, leaving, .. } = &self.stage;
        carry::back(&self.source, &self.target, prepared, leaving, &mut troubles);
        if self.stage.begun {
            troubles.extend(resume(&mut self.vmm).err());
        }
        troubles.extend(self.end_the_started());
        if let (true, Some(agent)) = (self.stage.without_vfs, &self.spec.guest_agent) {
            troubles.extend(functions::give(agent).err().map(|failed| failed.to_string()));
        }
        let text = match troubles.is_empty() {
            true => "the guest runs on at the source".to_owned(),
            false => format!("the guest stays at the source, but: {}", troubles.join("; ")),
        };
        self.done("undo", text, begun);
    }

    /// Says why the guest may be at the target, and so must not run at the source again. Once it
    /// has run there it does not come back: what it wrote and sent since is known to others, and
    /// the guest at the source knows nothing of it.
    fn certainly_at_the_source(&mut self) -> Result<(), String> {
        if self.stage.completed {
            return Err("the guest has gone on at the target, and does not come back".to_owned());
        }
        match settled(&mut self.vmm) {
            Ok(progress) if progress.guest() == Whereabouts::Source => Ok(()),
            Ok(progress) => Err(format!(
                "QEMU's migration is {}, and the guest may be at the target",
                progress.status
            )),
            Err(error) => Err(format!(
                "the source's QEMU does not answer ({}), and the guest may be at the target",
                Failed::from(error)
            )),
        }
    }

    /// QEMU has its guest back. Its other half ends by itself; told to, it ends for sure.
    fn end_the_targets(&mut self) -> Option<String> {
        let mut vmm = self.target_vmm.take()?;
        match vmm.quit() {
            Ok(()) | Err(QmpError::Closed(_)) => None,
            Err(error) => {
                let error = Failed::from(error);
                Some(format!("the target's QEMU does not end ({error}): see that it is gone"))
            }
        }
    }

    /// What was started for the move has nothing to wait for any more.
    fn end_the_started(&mut self) -> Option<String> {
        let mut child = self.starter.take()?;
        let trouble = self.end_the_targets();
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if begun.elapsed() > CANCEL {
                return Some(
                    "the start command does not end: see that its QEMU is gone".to_owned(),
                );
            }
            // Its group has nobody else; whoever left it is not ours any more.
            let _ = kill_process_group(Pid::from_child(&child), Signal::TERM);
            std::thread::sleep(POLL);
        }
        trouble
    }
}

/// How the migration stands when it is known where the guest is, or after a while.
pub(super) fn settled(vmm: &mut Vmm) -> Result<Progress, QmpError> {
    let begun = Instant::now();
    loop {
        let progress = vmm.progress(POLL)?;
        if progress.guest() != Whereabouts::Open || begun.elapsed() > CANCEL {
            return Ok(progress);
        }
    }
}

/// Has the source's QEMU give the migration up, its guest run, and forget what it was told for the
/// move.
pub(super) fn resume(vmm: &mut Vmm) -> Result<(), String> {
    let begun = Instant::now();
    let told = |error: QmpError| Failed::from(error).to_string();
    // A migration that has ended by itself cannot be cancelled, and need not.
    let _ = vmm.cancel();
    loop {
        let status = vmm.status().map_err(told)?;
        let progress = vmm.progress(POLL).map_err(told)?;
        match (status.as_str(), progress.is_over()) {
            ("running", true) => return vmm.restore().map_err(told),
            ("paused" | "postmigrate" | "finish-migrate", true) => {
                let _ = vmm.go_on(); // looked at once more
            }
            _ => {}
        }
        if begun.elapsed() > CANCEL {
            let after = CANCEL.as_secs();
            return Err(format!("its QEMU says {status} after {after} s; see its monitor"));
        }
    }
}

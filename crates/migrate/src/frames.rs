//! Frames kept for a guest, and their transfer between the two daemons.
//!
//! The source retains what it handed over until the migration is over, and the target received what
//! it received. So any step that fails can be repeated: no frame is lost or duplicated.

use std::collections::BTreeMap;

use model::state::MoveStep;

use super::daemon::DaemonClient;
use super::error::MigrateError;

/// Frames transferred in one migration.
#[derive(Debug, Default)]
pub(super) struct TransferredFrames {
    /// Frames of each adapter that the target has received from the source.
    received: BTreeMap<String, u64>,
    /// Lost frames last reported by each daemon, by adapter.
    lost_reported: BTreeMap<(&'static str, String), u64>,
    /// Frames transferred to the target.
    pub(super) frames: u64,
    /// Frames dropped because a daemon's buffer was full.
    pub(super) lost: u64,
}

impl TransferredFrames {
    /// Transfers the frames kept at the source, which has handed the addresses over, to the target.
    ///
    /// # Errors
    /// A daemon does not answer, or rejects the request. A repeated call resumes where it stopped.
    pub(super) fn transfer(
        &mut self,
        source: &DaemonClient<'_>,
        target: &DaemonClient<'_>,
        name: &str,
    ) -> Result<(), MigrateError> {
        let from = self.received.get(name).copied().unwrap_or_default();
        let handed = source.hand_over(name, from)?;
        self.note_lost(source.name, name, handed.lost);
        target.frames(name, from, &handed.frames)?;
        let count = handed.frames.len() as u64;
        self.received.insert(name.to_owned(), from + count);
        self.frames += count;
        Ok(())
    }

    /// Counts lost frames. A daemon reports the total since the migration began, so only the
    /// difference is added; a restarted daemon counts from 0 again.
    pub(super) fn note_lost(&mut self, at: &'static str, name: &str, total: u64) {
        let before = self.lost_reported.insert((at, name.to_owned()), total).unwrap_or_default();
        self.lost += total.checked_sub(before).unwrap_or(total);
    }
}

/// Removes the target's adapters and gives the source its addresses back, with all frames kept at
/// either side. `prepared` and `leaving` are in the order of the steps; failures are appended to
/// `troubles`.
pub(super) fn take_back(
    source: &DaemonClient<'_>,
    target: &DaemonClient<'_>,
    prepared: &[String],
    leaving: &[String],
    troubles: &mut Vec<String>,
) {
    let mut came = BTreeMap::new();
    for name in prepared.iter().rev() {
        match target.step(name, MoveStep::Abort) {
            Ok(status) => {
                // The source still has the frames that were transferred.
                let brought = status.frames.len().min(status.brought as usize);
                came.insert(name, status.frames[brought..].to_vec());
            }
            // A rejected adapter was never created.
            Err(MigrateError::Refused(_)) => {}
            Err(failed) => troubles.push(format!(
                "{failed} (it removes the adapter by itself, unless that had arrived: then abort the migration there)"
            )),
        }
    }
    for name in leaving.iter().rev() {
        if let Some(frames) = came.remove(name) {
            let told = source.frames(name, 0, &frames);
            troubles.extend(told.err().map(|one| one.to_string()));
        }
        let undone = source.step(name, MoveStep::Abort);
        troubles.extend(undone.err().map(|failed| failed.to_string()));
    }
}

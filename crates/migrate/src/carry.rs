//! Frames that wait for a guest, and their way from one daemon to the other and back.
//!
//! Nobody has them alone: the source has what it handed over until the move is over, and the target
//! knows by numbers what it was brought. So whatever fails in between can be done again, and
//! nothing is lost or comes twice.

use std::collections::BTreeMap;

use model::state::MoveStep;

use super::Failed;
use super::site::Site;

/// What was carried over in a move.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// How many frames of each adapter the target has from the source.
    numbers: BTreeMap<String, u64>,
    /// How many frames each daemon has told to be lost, by adapter.
    told_lost: BTreeMap<(&'static str, String), u64>,
    /// Frames that went to the target.
    pub(super) frames: u64,
    /// Frames that were dropped, for there was no room to keep them.
    pub(super) lost: u64,
}

impl Carried {
    /// Takes what waits at the source to the target; the source has the addresses no more.
    ///
    /// # Errors
    /// A daemon does not answer, or refuses. The same again goes on where it was.
    pub(super) fn over(
        &mut self,
        source: &Site<'_>,
        target: &Site<'_>,
        name: &str,
    ) -> Result<(), Failed> {
        let from = self.numbers.get(name).copied().unwrap_or_default();
        let handed = source.hand_over(name, from)?;
        self.note_lost(source.name, name, handed.lost);
        target.frames(name, from, &handed.frames)?;
        let count = handed.frames.len() as u64;
        self.numbers.insert(name.to_owned(), from + count);
        self.frames += count;
        Ok(())
    }

    /// Counts what a daemon says to be lost. It says how many since the move began, so that is not
    /// counted twice; one that was started anew begins at 0 again.
    pub(super) fn note_lost(&mut self, at: &'static str, name: &str, total: u64) {
        let before = self.told_lost.insert((at, name.to_owned()), total).unwrap_or_default();
        self.lost += total.checked_sub(before).unwrap_or(total);
    }
}

/// The target's adapters go, and the source has its addresses again, with all that waited at
/// either. `prepared` and `leaving` are in the order in which they were; what goes wrong is told in
/// `troubles`.
pub(super) fn back(
    source: &Site<'_>,
    target: &Site<'_>,
    prepared: &[String],
    leaving: &[String],
    troubles: &mut Vec<String>,
) {
    let mut came = BTreeMap::new();
    for name in prepared.iter().rev() {
        match target.step(name, MoveStep::Abort) {
            Ok(status) => {
                // What was carried over the source has as well.
                let brought = status.frames.len().min(status.brought as usize);
                came.insert(name, status.frames[brought..].to_vec());
            }
            // One that was refused was never made.
            Err(failed) if failed.is_mistake => {}
            Err(failed) => troubles.push(format!(
                "{failed} (it gives the adapter up by itself, unless that had arrived: then abort the move there)"
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

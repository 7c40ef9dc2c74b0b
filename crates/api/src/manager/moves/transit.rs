//! Frames in transit between the daemons, carried by the client that migrates the guest.
//!
//! A lost response neither loses nor duplicates frames: the source keeps sent frames until the
//! migration is over, and the target recognises frames by number. This memory ends with the
//! process.

use std::time::Instant;

use model::state::MovePhase;
use port::parked::FRAMES_MAX;

use super::super::Manager;
use super::given_up::EndFailure;
use super::{StepResult, impossible};
use crate::error::ApiError;

/// A daemon's memory of an adapter's migration, beyond the state.
#[derive(Debug)]
pub(in crate::manager) struct Transit {
    /// ID of the migration.
    pub(super) id: String,
    /// Time when it is given up, or forgotten if it is over.
    pub(super) until: Instant,
    /// Reason for a failed attempt to end it.
    pub(super) end_failure: Option<EndFailure>,
    /// Frames sent in responses: of `hand-over` at the source, of `abort` at the target.
    handed: Vec<Vec<u8>>,
    /// Number of leading `handed` frames that were delivered here.
    brought: usize,
    /// Number of frames delivered here.
    taken: u64,
}

impl Transit {
    /// A step arrived: restarts the timer.
    pub(super) fn heard(&mut self, until: Instant) {
        (self.until, self.end_failure) = (until, None);
    }

    /// `true` if more frames may be sent. Others stay in the data plane, which has a limit too.
    fn has_room(&self) -> bool {
        self.handed.len() < FRAMES_MAX
    }
}

impl Manager {
    /// The memory of this migration; a new one is given up at `until`.
    pub(super) fn transit(&mut self, name: &str, id: &str, until: Instant) -> &mut Transit {
        let new = || Transit {
            id: id.to_owned(),
            until,
            end_failure: None,
            handed: Vec::new(),
            brought: 0,
            taken: 0,
        };
        let transit = self.transits.entry(name.to_owned()).or_insert_with(new);
        if transit.id != id {
            *transit = new();
        }
        transit
    }

    /// Time until an adapter's migration is given up, in milliseconds.
    pub(super) fn expires_in_ms(&self, name: &str) -> Option<u64> {
        let left = self.transits.get(name)?.until.saturating_duration_since(Instant::now());
        Some(left.as_millis() as u64)
    }

    /// `true` if this migration of an adapter is in memory.
    pub(super) fn remembers(&self, name: &str, id: &str) -> bool {
        self.transits.get(name).is_some_and(|transit| transit.id == id)
    }

    /// Forgets migrations that are over.
    pub(super) fn forget(&mut self, now: Instant) {
        let state = &self.store.record().state;
        self.transits.retain(|name, transit| {
            let moving = state.adapter(name).and_then(|adapter| adapter.moving.as_ref());
            moving.map_or(transit.until > now, |moving| moving.id == transit.id)
        });
    }

    /// Takes an adapter's parked frames out of the data plane, and returns those from number
    /// `from`. They stay in memory, so a client can repeat a request whose response was lost.
    pub(super) fn hand_out(&mut self, name: &str, from: u64) -> StepResult {
        if let Some(transit) = self.transits.get_mut(name).filter(|one| one.has_room()) {
            let taken = self.plane.take_parked(name);
            if transit.handed.is_empty() {
                transit.brought = taken.brought;
            }
            transit.handed.extend(taken.frames);
        }
        self.handed(name, from)
    }

    /// Frames already sent, from number `from`.
    pub(super) fn handed(&self, name: &str, from: u64) -> StepResult {
        let Some(transit) = self.transits.get(name) else { return StepResult::default() };
        let known = usize::try_from(from).unwrap_or(usize::MAX).min(transit.handed.len());
        StepResult {
            from: known as u64,
            brought: transit.brought.saturating_sub(known) as u64,
            frames: transit.handed[known..].to_vec(),
            ..StepResult::default()
        }
    }

    /// Returns sent frames to the data plane: the guest stays here after all.
    pub(super) fn give_back(&mut self, name: &str) {
        let Some(transit) = self.transits.get_mut(name) else { return };
        let frames = std::mem::take(&mut transit.handed);
        if !frames.is_empty() {
            self.plane.put_parked(name, frames);
        }
    }

    /// Takes frames from the other host, the first with number `from`. Skips frames delivered
    /// before.
    pub(super) fn take_in(
        &mut self,
        name: &str,
        phase: MovePhase,
        from: Option<u64>,
        mut frames: Vec<Vec<u8>>,
    ) -> Result<(), ApiError> {
        if !phase.is_coming() {
            // Frames parked here are older than those that return, requested or not.
            self.hand_out(name, 0);
            self.give_back(name);
        }
        let Some(transit) = self.transits.get_mut(name) else { return Ok(()) };
        let next = transit.taken;
        let from = from.unwrap_or(next);
        let Some(known) = next.checked_sub(from) else {
            let error = format!("frames {next} to {} are missing", from - 1);
            return Err(impossible("from", &from.to_string(), error, "send those first"));
        };
        frames.drain(..frames.len().min(usize::try_from(known).unwrap_or(usize::MAX)));
        transit.taken += frames.len() as u64;
        self.plane.put_parked(name, frames);
        Ok(())
    }
}

//! Frames on their way from one daemon to the other, by way of a mover.
//!
//! Nothing is lost or doubled with an answer that does not arrive: the source keeps what it has
//! answered until the move is over, and the target knows by numbers what it has. What is remembered
//! here ends with the process.

use std::time::Instant;

use model::state::Phase;
use port::kept::FRAMES_MAX;

use super::super::fault::Fault;
use super::super::manager::Manager;
use super::given_up::Trouble;
use super::{Done, impossible};

/// What a daemon remembers of an adapter's move beyond the state.
#[derive(Debug)]
pub(in super::super) struct Transit {
    /// Which move.
    pub(super) id: String,
    /// When it counts as given up, or is forgotten if it is over.
    pub(super) until: Instant,
    /// What kept it from being ended.
    pub(super) trouble: Option<Trouble>,
    /// Frames that were answered with: at the source to `hand-over`, at the target to `abort`.
    handed: Vec<Vec<u8>>,
    /// How many of those, the first ones, had been brought here.
    brought: usize,
    /// How many frames were brought here.
    taken: u64,
}

impl Transit {
    /// Its mover lives.
    pub(super) fn heard(&mut self, until: Instant) {
        (self.until, self.trouble) = (until, None);
    }

    /// Whether more may be handed out: what waits beyond that stays in the data plane, which has a
    /// limit as well.
    fn has_room(&self) -> bool {
        self.handed.len() < FRAMES_MAX
    }
}

impl Manager {
    /// What is remembered of this move; if it is nothing, it counts as given up at `until`.
    pub(super) fn transit(&mut self, name: &str, id: &str, until: Instant) -> &mut Transit {
        let new = || Transit {
            id: id.to_owned(),
            until,
            trouble: None,
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

    /// In how many milliseconds an adapter's move counts as given up.
    pub(super) fn expires_in_ms(&self, name: &str) -> Option<u64> {
        let left = self.transits.get(name)?.until.saturating_duration_since(Instant::now());
        Some(left.as_millis() as u64)
    }

    /// Whether this move of an adapter is remembered.
    pub(super) fn remembers(&self, name: &str, id: &str) -> bool {
        self.transits.get(name).is_some_and(|transit| transit.id == id)
    }

    /// Forgets moves that are over.
    pub(super) fn forget(&mut self, now: Instant) {
        let state = &self.store.record().state;
        self.transits.retain(|name, transit| {
            let moving = state.adapter(name).and_then(|adapter| adapter.moving.as_ref());
            moving.map_or(transit.until > now, |moving| moving.id == transit.id)
        });
    }

    /// Takes what is kept for an adapter out of the data plane, and answers with frame number
    /// `from` and those after it. They are remembered, so whoever did not hear the answer asks
    /// again.
    pub(super) fn hand_out(&mut self, name: &str, from: u64) -> Done {
        if let Some(transit) = self.transits.get_mut(name).filter(|one| one.has_room()) {
            let taken = self.plane.take_kept(name);
            if transit.handed.is_empty() {
                transit.brought = taken.brought;
            }
            transit.handed.extend(taken.frames);
        }
        self.handed(name, from)
    }

    /// What was handed out, from frame number `from` on.
    pub(super) fn handed(&self, name: &str, from: u64) -> Done {
        let Some(transit) = self.transits.get(name) else { return Done::default() };
        let known = usize::try_from(from).unwrap_or(usize::MAX).min(transit.handed.len());
        Done {
            from: known as u64,
            brought: transit.brought.saturating_sub(known) as u64,
            frames: transit.handed[known..].to_vec(),
            ..Done::default()
        }
    }

    /// Gives frames that were handed out back to the data plane: the guest is here after all.
    pub(super) fn give_back(&mut self, name: &str) {
        let Some(transit) = self.transits.get_mut(name) else { return };
        let frames = std::mem::take(&mut transit.handed);
        if !frames.is_empty() {
            self.plane.put_kept(name, frames);
        }
    }

    /// Takes frames that were kept elsewhere, of which the first has the number `from`. What was
    /// brought before is not taken again.
    pub(super) fn take_in(
        &mut self,
        name: &str,
        phase: Phase,
        from: Option<u64>,
        mut frames: Vec<Vec<u8>>,
    ) -> Result<(), Fault> {
        if !phase.is_coming() {
            // What waited here is older than what comes back from elsewhere, whether it was asked
            // for or not.
            self.hand_out(name, 0);
            self.give_back(name);
        }
        let Some(transit) = self.transits.get_mut(name) else { return Ok(()) };
        let next = transit.taken;
        let from = from.unwrap_or(next);
        let Some(known) = next.checked_sub(from) else {
            let error = format!("frames {next} to {} have not come", from - 1);
            return Err(impossible("from", &from.to_string(), error, "send those first"));
        };
        frames.drain(..frames.len().min(usize::try_from(known).unwrap_or(usize::MAX)));
        transit.taken += frames.len() as u64;
        self.plane.put_kept(name, frames);
        Ok(())
    }
}

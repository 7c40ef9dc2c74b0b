//! Migrations that were given up: no step arrived for too long.
//!
//! Clear cases are ended: a leaving adapter stays, an arriving one is removed, and one whose guest
//! runs here becomes ordinary. In other cases the guest's host is unknown: the document records
//! this ([`Moving::given_up`]), and the adapter loses its VF or queue.

use std::time::{Duration, Instant};

use model::state::{MovePhase, Moving};

use super::super::Manager;
use super::runs_here;
use crate::error::ApiError;
use crate::events::EventKind;

/// Least and most delay between two attempts to end a migration.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// Reason for a failed attempt to end a migration.
#[derive(Debug)]
pub(super) struct EndFailure {
    text: String,
    pause: Duration,
    again: Instant,
}

/// Outcome of an abandoned migration's adapter.
#[derive(Clone, Copy)]
enum AbandonedMove {
    /// It becomes an ordinary adapter.
    Ordinary,
    /// It is removed.
    Removed,
    /// It waits for the operator: the guest's host is unknown.
    Unclear,
}

fn end(moving: &Moving, expired: bool, connected: bool) -> Option<(AbandonedMove, String)> {
    let id = &moving.id;
    let (end, text) = match (moving.phase, expired, connected) {
        (MovePhase::Left, _, true) => (AbandonedMove::Ordinary, "its guest runs here".into()),
        (MovePhase::Leaving, true, _) => {
            let text = format!(
                "the migration was abandoned and the adapter stays here; if its guest is paused, `shunt migrate {id} --abort` resumes it"
            );
            (AbandonedMove::Ordinary, text)
        }
        (MovePhase::Arriving | MovePhase::Arrived, true, true) => {
            (AbandonedMove::Ordinary, "the migration was abandoned; the guest is here".into())
        }
        (MovePhase::Arriving, true, false) => {
            (AbandonedMove::Removed, "its guest did not arrive; the adapter was removed".into())
        }
        (MovePhase::Left | MovePhase::Arrived, true, false) if !moving.given_up => {
            let text = format!(
                "the migration was abandoned, and the guest does not run here: end it with `shunt migrate {id} --finish` or `--abort`; until then it has no VF or queue"
            );
            (AbandonedMove::Unclear, text)
        }
        _ => return None,
    };
    Some((end, text))
}

impl Manager {
    /// Ends migrations that were given up.
    pub fn tick(&mut self, now: Instant) {
        if self.is_replaced() {
            return; // another daemon has the state
        }
        self.forget(now);
        let adapters = self.state().adapters.iter();
        let moving = adapters.filter_map(|one| Some((one.name.clone(), one.moving.clone()?)));
        let moving: Vec<_> = moving.collect();
        if moving.is_empty() {
            return;
        }
        let actual = self.actual();
        for (name, moving) in moving {
            let hold = Duration::from_secs(moving.hold_s.into());
            // A migration unknown to this process began before it.
            let transit = self.transit(&name, &moving.id, now + hold);
            if transit.end_failure.as_ref().is_some_and(|end_failure| now < end_failure.again) {
                continue;
            }
            let expired = transit.until <= now;
            let connected = runs_here(&actual, &name);
            if let Some((how, text)) = end(&moving, expired, connected) {
                let done = self.end_move(&name, moving, how);
                self.tell_end(&name, done, text, now);
            }
        }
    }

    fn end_move(&mut self, name: &str, moving: Moving, how: AbandonedMove) -> Result<(), ApiError> {
        match how {
            AbandonedMove::Ordinary => {
                self.give_back(name);
                self.set_move(name, None, None)?;
            }
            AbandonedMove::Removed => self.remove(name, None)?,
            AbandonedMove::Unclear => {
                return self.set_move(name, Some(Moving { given_up: true, ..moving }), None);
            }
        }
        self.transits.remove(name);
        Ok(())
    }

    /// Reports the result. A repeated failure is reported once.
    fn tell_end(&mut self, name: &str, done: Result<(), ApiError>, text: String, now: Instant) {
        let text = match (done, self.transits.get_mut(name)) {
            (Ok(()), Some(transit)) => {
                transit.end_failure = None;
                text
            }
            (_, None) => text,
            (Err(error), Some(transit)) => {
                let text = format!("its migration cannot be ended: {error}");
                let before = transit.end_failure.take();
                let pause = before.as_ref().map_or(PAUSE[0], |one| (one.pause * 2).min(PAUSE[1]));
                let is_known = before.is_some_and(|before| before.text == text);
                transit.end_failure =
                    Some(EndFailure { text: text.clone(), pause, again: now + pause });
                if is_known {
                    return;
                }
                text
            }
        };
        tracing::warn!("adapter {name}: {text}");
        self.note(EventKind::Move, format!("adapter {name}"), text);
    }
}

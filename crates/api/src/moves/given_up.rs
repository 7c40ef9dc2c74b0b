//! Moves of which nobody has heard for too long.
//!
//! What is certain is ended: who was to leave stays, who was to come and has not goes, and who is
//! here is here. Of others it is not known where the guest is: a document that says so
//! ([`Moving::given_up`]) is all that they get, so nothing is held for them any more.

use std::time::{Duration, Instant};

use model::state::{Moving, Phase};

use super::super::events::EventKind;
use super::super::fault::Fault;
use super::super::manager::Manager;
use super::runs_here;

/// The least and the most between two tries to end a move.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// What kept a move from being ended.
#[derive(Debug)]
pub(super) struct Trouble {
    text: String,
    pause: Duration,
    again: Instant,
}

/// What becomes of a move that was given up.
#[derive(Clone, Copy)]
enum End {
    /// An adapter like others.
    Ordinary,
    /// None any more.
    Removed,
    /// One that waits for somebody to say where its guest is.
    Unclear,
}

fn end(moving: &Moving, expired: bool, connected: bool) -> Option<(End, String)> {
    let id = &moving.id;
    let (end, text) = match (moving.phase, expired, connected) {
        (Phase::Left, _, true) => (End::Ordinary, "its guest runs here after all".into()),
        (Phase::Leaving, true, _) => {
            let text = format!(
                "its mover is gone: it stays here; if its guest stands still, `shunt migrate {id} --abort` lets it run"
            );
            (End::Ordinary, text)
        }
        (Phase::Arriving | Phase::Arrived, true, true) => {
            (End::Ordinary, "its mover is gone, its guest is here".into())
        }
        (Phase::Arriving, true, false) => {
            (End::Removed, "its guest did not come: it is removed".into())
        }
        (Phase::Left | Phase::Arrived, true, false) if !moving.given_up => {
            let text = format!(
                "its mover is gone, and its guest does not run here: end the move by `shunt migrate {id} --finish` or `--abort`; until then nothing is held for it"
            );
            (End::Unclear, text)
        }
        _ => return None,
    };
    Some((end, text))
}

impl Manager {
    /// Ends moves that were given up.
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
            // One that this process has not heard of was begun before it.
            let transit = self.transit(&name, &moving.id, now + hold);
            if transit.trouble.as_ref().is_some_and(|trouble| now < trouble.again) {
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

    fn end_move(&mut self, name: &str, moving: Moving, how: End) -> Result<(), Fault> {
        match how {
            End::Ordinary => {
                self.give_back(name);
                self.set_move(name, None, None)?;
            }
            End::Removed => self.remove(name, None)?,
            End::Unclear => {
                return self.set_move(name, Some(Moving { given_up: true, ..moving }), None);
            }
        }
        self.transits.remove(name);
        Ok(())
    }

    /// Tells what came of it; the same trouble once, though it is tried again.
    fn tell_end(&mut self, name: &str, done: Result<(), Fault>, text: String, now: Instant) {
        let text = match (done, self.transits.get_mut(name)) {
            (Ok(()), Some(transit)) => {
                transit.trouble = None;
                text
            }
            (_, None) => text,
            (Err(fault), Some(transit)) => {
                let text = format!("its move cannot be ended: {fault}");
                let before = transit.trouble.take();
                let pause = before.as_ref().map_or(PAUSE[0], |one| (one.pause * 2).min(PAUSE[1]));
                let is_known = before.is_some_and(|before| before.text == text);
                transit.trouble = Some(Trouble { text: text.clone(), pause, again: now + pause });
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

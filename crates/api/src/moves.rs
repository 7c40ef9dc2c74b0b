//! Moves of guests from one host to another, as one of the two daemons sees them.
//!
//! # Model
//! A move is a field of the adapter ([`Moving`]), and each step is one change of the state: it is
//! stored as every change is, so a daemon that dies in between has done it or not. Steps say which
//! move they are of, and are refused in a phase where they make no sense; the same step again is
//! none, and answers as it did before ([`transit`]).
//!
//! # When the mover is gone
//! After `hold_s` without a step the move is given up ([`Manager::tick`]). Where the guest's rings
//! run, the adapter is one like others. Where they do not, one that was to arrive goes, one that
//! was to leave stays; one that has left or arrived stays so, with nothing held for it, until its
//! rings run or somebody finishes or aborts the move. The time is that of this process and no part
//! of the state: a daemon that starts grants each move another `hold_s`.

mod arrival;
mod document;
mod frames;
mod given_up;
mod status;
mod transit;

use std::time::{Duration, Instant};

use serde_json::Value;

use frames::whole;
pub use status::MoveStatus;
use status::gone;
pub(super) use transit::Transit;

use super::events::EventKind;
use super::fault::Fault;
use super::manager::Manager;
use crate::hex::to_hex;
use model::state::{Actual, MoveRequest, MoveStep, Moving, Phase, Problem, Problems, State};

/// What a step found and did, beyond the state.
#[derive(Default)]
struct Done {
    announced: u64,
    from: u64,
    brought: u64,
    frames: Vec<Vec<u8>>,
}

impl Manager {
    /// Does a step of a move. `expected` is the generation that the client knows, if it says.
    ///
    /// # Errors
    /// The step makes no sense now, is of another move, or leads to a state that is refused;
    /// nothing has changed then.
    pub fn move_step(
        &mut self,
        name: &str,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<MoveStatus, Fault> {
        self.expect(expected)?;
        arrival::check_fields(&request)?;
        let (step, id) = (request.step, request.id.clone());
        let moving = self.state().adapter(name).map(|adapter| adapter.moving.clone());
        match &moving {
            Some(Some(moving)) if moving.id != id => {
                let error = format!("{name} is being moved by {}", moving.id);
                return Err(impossible("id", &id, error, "wait for that, or abort it by its id"));
            }
            // It went with the step, whose answer was lost.
            None if step == MoveStep::Abort && self.remembers(name, &id) => {}
            None if step != MoveStep::Arrive => return Err(absent(name)),
            _ => {}
        }
        let phase = moving.flatten().map(|moving| moving.phase);
        self.forget(Instant::now());
        let done = self.step(name, phase, request, expected)?;
        let mut status = match self.move_status(name) {
            Ok(status) => status,
            // It went with the step.
            Err(_) => gone(name),
        };
        (status.announced, status.from, status.brought) = (done.announced, done.from, done.brought);
        status.frames = done.frames.iter().map(|frame| to_hex(frame)).collect();
        Ok(status)
    }

    fn step(
        &mut self,
        name: &str,
        phase: Option<Phase>,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<Done, Fault> {
        use MoveStep as Is;
        use Phase::{Arrived, Arriving, Leaving, Left};
        let moving = |phase: Phase| Moving {
            id: request.id.clone(),
            phase,
            hold_s: request.hold_s,
            given_up: false,
        };
        let (asked, text) = (request.step, format!("{} (move {})", request.step, request.id));
        let id = request.id.clone();
        let until = Instant::now() + Duration::from_secs(request.hold_s.into());
        let mut done = Done::default();
        if phase.is_some() {
            self.transit(name, &id, until).heard(until);
        }
        match (asked, phase) {
            (Is::Leave, None | Some(Leaving)) => {
                self.set_move(name, Some(moving(Leaving)), expected)?;
                self.transit(name, &id, until);
            }
            (Is::Arrive, Some(Arriving)) => {
                self.must_be_the_same(name, &request)?;
                self.set_move(name, Some(moving(Arriving)), expected)?;
            }
            (Is::Arrive, None) if self.state().adapter(name).is_none() => {
                let moving = moving(Arriving);
                let (to, _) = self.arrival(name, request, moving)?;
                self.bring(&to, expected)?;
                self.transits.remove(name); // of a move before
                self.transit(name, &id, until);
            }
            (Is::TakeOver, Some(Arriving)) => {
                self.set_move(name, Some(moving(Arrived)), expected)?;
                done.announced = self.plane.announce(name) as u64;
            }
            (Is::HandOver, Some(Leaving)) => {
                self.must_stand_still(name)?;
                self.set_move(name, Some(moving(Left)), expected)?;
                done = self.hand_out(name, request.from.unwrap_or_default());
            }
            (Is::TakeOver, Some(phase @ Arrived))
            | (Is::HandOver, Some(phase @ Left))
            | (Is::Renew | Is::Frames, Some(phase)) => {
                done = self.go_on(name, &request, moving(phase), expected)?;
            }
            (Is::Finish, Some(Arrived)) => self.set_move(name, None, expected)?,
            (Is::Finish, Some(Left)) => self.remove(name, expected)?,
            (Is::Abort, phase) => done = self.abort(name, phase, moving(Arriving), expected)?,
            (step, phase) => {
                let now = phase.map_or("not being moved".to_owned(), |phase| phase.to_string());
                let error = format!("makes no sense while {name} is {now}");
                return Err(impossible("step", &step.to_string(), error, "see docs/api.md"));
            }
        }
        if asked == Is::Finish {
            self.transits.remove(name);
        }
        if asked != Is::Renew {
            self.note(EventKind::Move, format!("adapter {name}"), text);
        }
        Ok(done)
    }

    /// Brings an adapter back to what it was before its move; `arriving` is the phase before the
    /// last.
    fn abort(
        &mut self,
        name: &str,
        phase: Option<Phase>,
        arriving: Moving,
        expected: Option<u64>,
    ) -> Result<Done, Fault> {
        match phase {
            None if self.remembers(name, &arriving.id) => Ok(self.handed(name, 0)),
            None => Ok(Done::default()), // it is over
            Some(Phase::Leaving | Phase::Left) => {
                // Before anything new comes.
                self.give_back(name);
                self.set_move(name, None, expected)?;
                self.transits.remove(name);
                let left = phase == Some(Phase::Left);
                let announced = if left { self.plane.announce(name) as u64 } else { 0 };
                Ok(Done { announced, ..Done::default() })
            }
            Some(Phase::Arriving) => {
                let done = self.hand_out(name, 0);
                self.remove(name, expected)?;
                Ok(done)
            }
            Some(Phase::Arrived) => {
                // First its addresses go, so that nothing comes after what is taken.
                self.set_move(name, Some(arriving), expected)?;
                let done = self.hand_out(name, 0);
                self.remove(name, None)?;
                Ok(done)
            }
        }
    }

    /// A step within a phase, `moving`. One that was given up goes on; any other does without a
    /// change of the state.
    fn go_on(
        &mut self,
        name: &str,
        request: &MoveRequest,
        moving: Moving,
        expected: Option<u64>,
    ) -> Result<Done, Fault> {
        let now = self.state().adapter(name).and_then(|adapter| adapter.moving.as_ref());
        let (given_up, phase) = (now.is_some_and(|moving| moving.given_up), moving.phase);
        if given_up {
            self.set_move(name, Some(moving), expected)?;
        }
        match request.step {
            MoveStep::HandOver => return Ok(self.hand_out(name, request.from.unwrap_or_default())),
            MoveStep::Frames => {
                self.take_in(name, phase, request.from, whole(&request.frames)?)?;
            }
            _ => {}
        }
        Ok(Done::default())
    }

    fn must_stand_still(&mut self, name: &str) -> Result<(), Fault> {
        if runs_here(&self.actual(), name) {
            let error = format!("the guest of {name} runs here");
            return Err(impossible("step", "hand-over", error, "stop it first"));
        }
        Ok(())
    }

    /// Removes an adapter, and all that the switch has for it.
    fn remove(&mut self, name: &str, expected: Option<u64>) -> Result<(), Fault> {
        let to = without(self.state(), name);
        self.bring(&to, expected).map(drop)
    }

    fn set_move(
        &mut self,
        name: &str,
        moving: Option<Moving>,
        expected: Option<u64>,
    ) -> Result<(), Fault> {
        let mut to = self.state().clone();
        let adapter = to.adapters.iter_mut().find(|adapter| adapter.name == name);
        adapter.ok_or_else(|| absent(name))?.moving = moving;
        self.bring(&to, expected).map(drop)
    }
}

/// Whether the rings of an adapter's guest run here.
fn runs_here(actual: &Actual, name: &str) -> bool {
    actual.adapters.iter().any(|adapter| adapter.name == name && adapter.connected)
}

/// The state without an adapter and all that the switch has for it.
fn without(state: &State, name: &str) -> State {
    let mut to = state.clone();
    to.adapters.retain(|adapter| adapter.name != name);
    for switch in &mut to.switches {
        switch.ports.retain(|port| port.adapter != name);
        switch.statics.retain(|entry| entry.port != name);
    }
    to
}

fn absent(name: &str) -> Fault {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    Fault::NotFound(format!("adapter \"{shown}\""))
}

fn impossible(field: &str, value: &str, error: String, allowed: &str) -> Fault {
    Fault::Impossible(Problems::from(Problem::new(field, value, error, allowed)))
}

fn wrong(field: &str, value: impl Into<Value>, error: &str, allowed: &str) -> Fault {
    Fault::Wrong(Problem::new(field, value, error, allowed).into())
}

//! Migration of guests between hosts, from the view of one of the two daemons. The API calls it a
//! move.
//!
//! # Model
//! A migration is a field of the adapter ([`Moving`]). Each step is one change of the state and is
//! stored like every change, so after a crash a step is done or not. A step names its migration and
//! is rejected in a wrong phase. A repeated step changes nothing and has the same response
//! ([`transit`]).
//!
//! # Abandoned migrations
//! After `hold_s` without a step a migration is given up ([`Manager::tick`]). If the guest's rings
//! run here, the adapter becomes an ordinary one. If they do not, an arriving adapter is removed
//! and a leaving one stays. One that has left or arrived keeps its phase without its VF or queue,
//! until its rings run or the migration is finished or aborted. The timer belongs to this process,
//! not to the state: after a restart each migration gets another `hold_s`.

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

use super::Manager;
use crate::error::ApiError;
use crate::events::EventKind;
use crate::hex::to_hex;
use model::state::{Actual, MovePhase, MoveRequest, MoveStep, Moving, Problem, Problems, State};

/// Result of a step, beyond the state.
#[derive(Default)]
struct StepResult {
    announced: u64,
    from: u64,
    brought: u64,
    frames: Vec<Vec<u8>>,
}

impl Manager {
    /// Does a step of a migration. `expected` is the generation that the client knows.
    ///
    /// # Errors
    /// The phase does not allow the step, the adapter has another migration, or the new state is
    /// rejected. Nothing has changed then.
    pub fn move_step(
        &mut self,
        name: &str,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<MoveStatus, ApiError> {
        self.expect(expected)?;
        arrival::check_fields(&request)?;
        let (step, id) = (request.step, request.id.clone());
        let moving = self.state().adapter(name).map(|adapter| adapter.moving.clone());
        match &moving {
            Some(Some(moving)) if moving.id != id => {
                let error = format!("{name} is migrating ({})", moving.id);
                return Err(impossible("id", &id, error, "wait for that, or abort it by its id"));
            }
            // The step removed it, and its response was lost.
            None if step == MoveStep::Abort && self.remembers(name, &id) => {}
            None if step != MoveStep::Arrive => return Err(absent(name)),
            _ => {}
        }
        let phase = moving.flatten().map(|moving| moving.phase);
        self.forget(Instant::now());
        let done = self.step(name, phase, request, expected)?;
        let mut status = match self.move_status(name) {
            Ok(status) => status,
            // The step removed it.
            Err(_) => gone(name),
        };
        (status.announced, status.from, status.brought) = (done.announced, done.from, done.brought);
        status.frames = done.frames.iter().map(|frame| to_hex(frame)).collect();
        Ok(status)
    }

    fn step(
        &mut self,
        name: &str,
        phase: Option<MovePhase>,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<StepResult, ApiError> {
        use MovePhase::{Arrived, Arriving, Leaving, Left};
        use MoveStep as Is;
        let moving = |phase: MovePhase| Moving {
            id: request.id.clone(),
            phase,
            hold_s: request.hold_s,
            given_up: false,
        };
        let (asked, text) = (request.step, format!("{} (move {})", request.step, request.id));
        let id = request.id.clone();
        let until = Instant::now() + Duration::from_secs(request.hold_s.into());
        let mut done = StepResult::default();
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
                let now = phase.map_or("not migrating".to_owned(), |phase| phase.to_string());
                let error = format!("is not possible while {name} is {now}");
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

    /// Restores an adapter as before its migration; `arriving` is the phase before the last.
    fn abort(
        &mut self,
        name: &str,
        phase: Option<MovePhase>,
        arriving: Moving,
        expected: Option<u64>,
    ) -> Result<StepResult, ApiError> {
        match phase {
            None if self.remembers(name, &arriving.id) => Ok(self.handed(name, 0)),
            None => Ok(StepResult::default()), // it is over
            Some(MovePhase::Leaving | MovePhase::Left) => {
                // Before new frames arrive.
                self.give_back(name);
                self.set_move(name, None, expected)?;
                self.transits.remove(name);
                let left = phase == Some(MovePhase::Left);
                let announced = if left { self.plane.announce(name) as u64 } else { 0 };
                Ok(StepResult { announced, ..StepResult::default() })
            }
            Some(MovePhase::Arriving) => {
                let done = self.hand_out(name, 0);
                self.remove(name, expected)?;
                Ok(done)
            }
            Some(MovePhase::Arrived) => {
                // Withdraws the addresses first, so no frame arrives after the parked ones are
                // taken.
                self.set_move(name, Some(arriving), expected)?;
                let done = self.hand_out(name, 0);
                self.remove(name, None)?;
                Ok(done)
            }
        }
    }

    /// Does a step within the phase `moving`. Resumes a migration that was given up; otherwise the
    /// state does not change.
    fn go_on(
        &mut self,
        name: &str,
        request: &MoveRequest,
        moving: Moving,
        expected: Option<u64>,
    ) -> Result<StepResult, ApiError> {
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
        Ok(StepResult::default())
    }

    fn must_stand_still(&mut self, name: &str) -> Result<(), ApiError> {
        if runs_here(&self.actual(), name) {
            let error = format!("the guest of {name} runs here");
            return Err(impossible("step", "hand-over", error, "stop it first"));
        }
        Ok(())
    }

    /// Removes an adapter and its entries on the switch.
    fn remove(&mut self, name: &str, expected: Option<u64>) -> Result<(), ApiError> {
        let to = without(self.state(), name);
        self.bring(&to, expected).map(drop)
    }

    fn set_move(
        &mut self,
        name: &str,
        moving: Option<Moving>,
        expected: Option<u64>,
    ) -> Result<(), ApiError> {
        let mut to = self.state().clone();
        let adapter = to.adapters.iter_mut().find(|adapter| adapter.name == name);
        adapter.ok_or_else(|| absent(name))?.moving = moving;
        self.bring(&to, expected).map(drop)
    }
}

/// `true` if the rings of an adapter's guest run here.
fn runs_here(actual: &Actual, name: &str) -> bool {
    actual.adapters.iter().any(|adapter| adapter.name == name && adapter.connected)
}

/// The state without an adapter and its entries on the switch.
fn without(state: &State, name: &str) -> State {
    let mut to = state.clone();
    to.adapters.retain(|adapter| adapter.name != name);
    for switch in &mut to.switches {
        switch.ports.retain(|port| port.adapter != name);
        switch.statics.retain(|entry| entry.port != name);
    }
    to
}

fn absent(name: &str) -> ApiError {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    ApiError::absent(&format!("adapter {shown}"), "see shunt adapter list")
}

fn impossible(field: &str, value: &str, error: String, allowed: &str) -> ApiError {
    ApiError::Impossible(Problems::from(Problem::new(field, value, error, allowed)))
}

fn wrong(field: &str, value: impl Into<Value>, error: &str, allowed: &str) -> ApiError {
    ApiError::Wrong(Problem::new(field, value, error, allowed).into())
}

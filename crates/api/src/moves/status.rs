//! How a move stands, for whoever asks.

use model::state::{Facts, PathInForce, Phase, Reason, VERSION, allocate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::fault::Fault;
use super::super::manager::Manager;
use super::absent;

/// How a move stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveStatus {
    /// The version of the document's form.
    pub version: u32,
    /// The adapter.
    pub adapter: String,
    /// The move; none once it is over.
    pub id: Option<String>,
    /// How far it is.
    pub phase: Option<Phase>,
    /// In how many milliseconds it counts as given up, if nothing is heard of it.
    pub expires_in_ms: Option<u64>,
    /// Whether it does: nothing is held for it.
    #[serde(default)]
    pub given_up: bool,
    /// The path that the adapter has, or has once its guest is here.
    pub path: PathInForce,
    /// The VF that it holds.
    pub vf: Option<u16>,
    /// The queue that it holds.
    pub queue: Option<u16>,
    /// Why it has not the wanted path; `Supported` if it has.
    pub reason: Reason,
    /// Whether its guest runs here.
    pub connected: bool,
    /// Frames that wait for it here.
    pub kept: u64,
    /// Frames that were dropped, for there was no room to keep them.
    pub lost: u64,
    /// Frames that its guest has received here, while it moves.
    pub received: u64,
    /// Frames that its guest has sent here, while it moves.
    pub sent: u64,
    /// How many ports were told that its addresses are here, by this step.
    pub announced: u64,
    /// After `hand-over`: the number of the first of `frames`, counted from 0 in all that were
    /// handed over in this move.
    #[serde(default)]
    pub from: u64,
    /// After `abort` at the target: how many of `frames`, the first ones, had been brought by the
    /// step `frames`. The source still has them.
    #[serde(default)]
    pub brought: u64,
    /// After `hand-over`, and after `abort` at the target: the frames that were kept for it, each
    /// as hexadecimal digits.
    pub frames: Vec<String>,
}

impl Manager {
    /// How the move of an adapter stands.
    ///
    /// # Errors
    /// There is no such adapter.
    pub fn move_status(&mut self, name: &str) -> Result<MoveStatus, Fault> {
        let mut state = self.state().clone();
        let at = state.adapters.iter().position(|adapter| adapter.name == name);
        let at = at.ok_or_else(|| absent(name))?;
        let moving = state.adapters[at].moving.clone();
        // What it gets once it is here: the same question with another phase.
        if let Some(moving) = state.adapters[at].moving.as_mut() {
            moving.phase = Phase::Arrived;
        }
        let actual = self.actual();
        let given = allocate(&state, &Facts::of(&actual)).swap_remove(at);
        let in_force = actual.adapters.iter().find(|adapter| adapter.name == name);
        let kept = self.plane.kept(name);
        Ok(MoveStatus {
            id: moving.as_ref().map(|moving| moving.id.clone()),
            phase: moving.as_ref().map(|moving| moving.phase),
            expires_in_ms: moving.as_ref().and_then(|_| self.expires_in_ms(name)),
            given_up: moving.is_some_and(|moving| moving.given_up),
            path: given.path,
            vf: given.vf,
            queue: given.queue,
            reason: given.reason,
            connected: in_force.is_some_and(|adapter| adapter.connected),
            kept: kept.frames,
            lost: kept.lost,
            received: kept.received,
            sent: kept.sent,
            ..gone(name)
        })
    }
}

/// Of an adapter that is not there.
pub(super) fn gone(name: &str) -> MoveStatus {
    MoveStatus {
        version: VERSION,
        adapter: name.to_owned(),
        id: None,
        phase: None,
        expires_in_ms: None,
        given_up: false,
        path: PathInForce::None,
        vf: None,
        queue: None,
        reason: Reason::Supported,
        connected: false,
        kept: 0,
        lost: 0,
        received: 0,
        sent: 0,
        announced: 0,
        from: 0,
        brought: 0,
        frames: Vec::new(),
    }
}

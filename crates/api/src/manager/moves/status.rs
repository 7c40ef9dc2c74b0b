//! Status of a migration.

use model::state::{Facts, MovePhase, PathInForce, Reason, VERSION, allocate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::Manager;
use super::absent;
use crate::error::ApiError;

/// Status of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveStatus {
    /// The version of the document's form.
    pub version: u32,
    /// The adapter.
    pub adapter: String,
    /// The migration; null once it is over.
    pub id: Option<String>,
    /// Phase.
    pub phase: Option<MovePhase>,
    /// Time until the migration is given up without a further step, in milliseconds.
    pub expires_in_ms: Option<u64>,
    /// `true` once it is given up: the adapter has no VF or queue reserved.
    #[serde(default)]
    pub given_up: bool,
    /// Path of the adapter, now or once its guest is here.
    pub path: PathInForce,
    /// VF of the adapter.
    pub vf: Option<u16>,
    /// Queue of the adapter.
    pub queue: Option<u16>,
    /// Reason for another path than the wanted one; else `Supported`.
    pub reason: Reason,
    /// `true` if the guest runs here.
    pub connected: bool,
    /// Frames that wait for the guest here.
    pub kept: u64,
    /// Frames dropped for lack of room.
    pub lost: u64,
    /// Frames that the guest has received here during the migration.
    pub received: u64,
    /// Frames that the guest has sent here during the migration.
    pub sent: u64,
    /// Number of ports to which this step announced the adapter's addresses.
    pub announced: u64,
    /// After `hand-over`: number of the first of `frames`, counted from 0 over all frames handed
    /// over in this migration.
    #[serde(default)]
    pub from: u64,
    /// After `abort` at the target: number of leading `frames` that step `frames` had delivered.
    /// The source still has them.
    #[serde(default)]
    pub brought: u64,
    /// After `hand-over`, and after `abort` at the target: the parked frames, as hexadecimal
    /// digits.
    pub frames: Vec<String>,
}

impl Manager {
    /// Status of an adapter's migration.
    ///
    /// # Errors
    /// The adapter does not exist.
    pub fn move_status(&mut self, name: &str) -> Result<MoveStatus, ApiError> {
        let mut state = self.state().clone();
        let at = state.adapters.iter().position(|adapter| adapter.name == name);
        let at = at.ok_or_else(|| absent(name))?;
        let moving = state.adapters[at].moving.clone();
        // Its allocation once the guest is here: the same query with another phase.
        if let Some(moving) = state.adapters[at].moving.as_mut() {
            moving.phase = MovePhase::Arrived;
        }
        let actual = self.actual();
        let given = allocate(&state, &Facts::of(&actual)).swap_remove(at);
        let in_force = actual.adapters.iter().find(|adapter| adapter.name == name);
        let kept = self.plane.parked(name);
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

/// Status without the adapter.
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

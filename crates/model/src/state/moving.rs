//! Migration of an adapter's guest between hosts. In the document and the API it is called a move.
//!
//! Model: two daemons have the adapter at the same time. Its addresses are at one of them; briefly,
//! while the target has taken them over and the source has not handed over yet, at both. The source
//! goes from [`MovePhase::Leaving`] to [`MovePhase::Left`], the target from [`MovePhase::Arriving`]
//! to [`MovePhase::Arrived`]. The second phase of each begins while the guest is paused. The phase
//! is part of the desired state, so it survives a restart. In each phase the adapter keeps its VF
//! or queue until the migration is given up. Then one that has left has none, and one that has
//! arrived gets one by its weight.
//!
//! While the adapter's rings do not run, frames to it are parked, up to a limit, in `Leaving` and
//! `Arrived`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Migration of an adapter's guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Moving {
    /// ID of the migration; steps with another ID are rejected.
    #[schema(value_type = String, format = "label")]
    pub id: String,
    /// Phase.
    pub phase: MovePhase,
    /// Time without a step until the migration is given up, in seconds; restarts with the daemon.
    #[serde(default = "hold_s")]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub hold_s: u32,
    /// `true` once it is given up and the guest's host is unknown: no VF or queue is reserved any
    /// more.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schema(default = false)]
    pub given_up: bool,
}

pub(super) fn hold_s() -> u32 {
    60
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Phase of a migration, from the view of one of the two daemons.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MovePhase {
    /// The guest is here and will leave.
    Leaving,
    /// The guest is no longer here.
    Left,
    /// The guest will come.
    Arriving,
    /// Its addresses are here, and it may run here.
    Arrived,
}

impl MovePhase {
    /// `true` if the guest's addresses are on the other host.
    pub fn is_elsewhere(self) -> bool {
        matches!(self, MovePhase::Left | MovePhase::Arriving)
    }

    /// `true` at the target of the migration.
    pub fn is_coming(self) -> bool {
        matches!(self, MovePhase::Arriving | MovePhase::Arrived)
    }
}

impl std::fmt::Display for MovePhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MovePhase::Leaving => "leaving",
            MovePhase::Left => "left",
            MovePhase::Arriving => "arriving",
            MovePhase::Arrived => "arrived",
        })
    }
}

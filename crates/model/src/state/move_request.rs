//! Requests for steps of a migration.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::VERSION;
use super::adapter::Adapter;
use super::moving::hold_s;
use super::switch::{StaticEntry, SwitchPort};

/// Request for a step of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// Version of the document format.
    #[serde(default = "version")]
    #[schema(minimum = 1, maximum = 1, default = 1)]
    pub version: u32,
    /// ID of the migration, unique.
    #[schema(value_type = String, format = "label")]
    pub id: String,
    /// The step.
    pub step: MoveStep,
    /// Time without a step until the migration is given up, in seconds.
    #[serde(default = "hold_s")]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub hold_s: u32,
    /// For `arrive`: the adapter, with its socket on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    /// For `arrive`: the settings of its switch port, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<SwitchPort>,
    /// For `arrive`: its static addresses on the switch.
    #[serde(default, rename = "static", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 4096)]
    pub statics: Vec<StaticEntry>,
    /// For `frames`: number of the first frame, counted from 0 over all frames of this migration,
    /// to detect duplicates; left out: all are new. For `hand-over`: number of the first wanted
    /// frame, 0 for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub from: Option<u64>,
    /// For `frames`: whole frames that were parked at the source, as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8192)]
    pub frames: Vec<String>,
}

fn version() -> u32 {
    VERSION
}

/// Step of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MoveStep {
    /// Source: the guest will leave. Parks frames for it once its rings stop.
    Leave,
    /// Target: create the adapter, and reserve its path.
    Arrive,
    /// Target: take over the adapter's addresses, and announce them.
    TakeOver,
    /// Source: withdraw the addresses. The response has the parked frames.
    HandOver,
    /// Target: deliver frames parked at the source.
    Frames,
    /// Both: extend the time until the migration is given up.
    Renew,
    /// Target: the adapter becomes an ordinary one. Source: remove it.
    Finish,
    /// Source: the adapter becomes an ordinary one. Target: remove it.
    Abort,
}

impl std::fmt::Display for MoveStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MoveStep::Leave => "leave",
            MoveStep::Arrive => "arrive",
            MoveStep::TakeOver => "take-over",
            MoveStep::HandOver => "hand-over",
            MoveStep::Frames => "frames",
            MoveStep::Renew => "renew",
            MoveStep::Finish => "finish",
            MoveStep::Abort => "abort",
        })
    }
}

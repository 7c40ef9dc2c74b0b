//! An adapter whose guest moves from one host to another.
//!
//! Model: two daemons have the adapter at the same time, and its addresses are at one of them, but
//! for a moment in which they are at the target already and at the source still. The one that the
//! guest leaves goes from [`Phase::Leaving`] to [`Phase::Left`], the other from [`Phase::Arriving`]
//! to [`Phase::Arrived`]; the second phase of each begins while the guest stands still. The phase
//! is part of the desired state, so it survives a daemon as everything does. In each phase the
//! adapter keeps the VF or queue that it has, unless the move was given up: one that has left holds
//! none then, and one that has arrived what its weight is worth.
//!
//! What the phases mean for frames to the adapter while its rings do not run: they are kept, up to
//! a limit, in `Leaving` and `Arrived`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::VERSION;
use super::adapter::Adapter;
use super::switch::{StaticEntry, SwitchPort};

/// That an adapter's guest moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Moving {
    /// Which move: nobody else's steps are taken.
    #[schema(value_type = String, format = "label")]
    pub id: String,
    /// How far it is.
    pub phase: Phase,
    /// After so many seconds without a step it counts as given up; a daemon that starts grants as
    /// many anew.
    #[serde(default = "hold_s")]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub hold_s: u32,
    /// Whether it does, and nobody has said where the guest is: nothing is held for it any more.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schema(default = false)]
    pub given_up: bool,
}

/// How far a move is, as one of its two daemons sees it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The guest is here, and is to go.
    Leaving,
    /// It is not here any more.
    Left,
    /// It is to come.
    Arriving,
    /// Its addresses are here, and it may run here.
    Arrived,
}

impl Phase {
    /// Whether the guest's addresses are on the other host.
    pub fn is_elsewhere(self) -> bool {
        matches!(self, Phase::Left | Phase::Arriving)
    }

    /// Whether this daemon is the one that the guest comes to.
    pub fn is_coming(self) -> bool {
        matches!(self, Phase::Arriving | Phase::Arrived)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Leaving => "leaving",
            Phase::Left => "left",
            Phase::Arriving => "arriving",
            Phase::Arrived => "arrived",
        })
    }
}

/// A step of a move, as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The version of the document's form.
    #[serde(default = "version")]
    #[schema(minimum = 1, maximum = 1, default = 1)]
    pub version: u32,
    /// Which move; a name that nobody else uses.
    #[schema(value_type = String, format = "label")]
    pub id: String,
    /// What is to be done.
    pub step: Step,
    /// After so many seconds without a step the move counts as given up.
    #[serde(default = "hold_s")]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    pub hold_s: u32,
    /// For `arrive`: the adapter, with its socket on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    /// For `arrive`: the settings of its switch port, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<SwitchPort>,
    /// For `arrive`: the static addresses that the switch has for it.
    #[serde(default, rename = "static", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 4096)]
    pub statics: Vec<StaticEntry>,
    /// For `frames`: the number of the first of them, counted from 0 in all that are brought for
    /// this move, so that what is brought again is known; without it all are new. For `hand-over`:
    /// the first that is wanted, 0 for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub from: Option<u64>,
    /// For `frames`: whole frames that were kept for it elsewhere, each as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8192)]
    pub frames: Vec<String>,
}

fn version() -> u32 {
    VERSION
}

fn hold_s() -> u32 {
    60
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = MoveStep)]
pub enum Step {
    /// At the source: the guest is to go. Frames for it are kept once its rings stop.
    Leave,
    /// At the target: make the adapter, give it a path, and hold that.
    Arrive,
    /// At the target: the adapter's addresses are here from now on, and announced.
    TakeOver,
    /// At the source: they are not here any more. Answers with the frames that were kept.
    HandOver,
    /// At the target: frames that the source had kept.
    Frames,
    /// At either: it is not given up, wait longer.
    Renew,
    /// At the target the adapter is one like others; at the source it goes.
    Finish,
    /// At the source the adapter is one like others; at the target it goes.
    Abort,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Leave => "leave",
            Step::Arrive => "arrive",
            Step::TakeOver => "take-over",
            Step::HandOver => "hand-over",
            Step::Frames => "frames",
            Step::Renew => "renew",
            Step::Finish => "finish",
            Step::Abort => "abort",
        })
    }
}

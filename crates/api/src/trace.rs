//! Traces of frames, as the API shows them.

use engine::drops::ReasonEntry;
use engine::trace as traced;
use engine::trace::Arrival;
use model::state::Problem;
use port::VlanEdit;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ApiError;
use crate::hex::{from_hex, to_hex};

/// Maximum number of frames of a request.
pub const FRAMES_MAX: usize = 64;
/// Maximum number of bytes of all frames of a request: the longest frame that IP can express, with
/// two tags. An answer repeats a flooded frame for each receiver.
pub const BYTES_MAX: usize = 65_535 + 22;

/// Request for the traces of frames that enter at a port. Each frame is traced by itself: none is
/// learned from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Port of the sender: an adapter or tunnel, `uplink`, `pf` or `vf0`, or with its NIC as in
    /// `/v1/stats`, such as `nic0/vf0`.
    pub port: String,
    /// Frames, 1 to 64 with at most 65557 bytes together, in hexadecimal digits: from the
    /// destination address, without FCS.
    #[schema(min_items = 1, max_items = 64)]
    pub frames: Vec<String>,
}

/// Traces of frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceAnswer {
    /// Name of the port in `/v1/stats`.
    pub port: String,
    /// Traces, in the order of the frames.
    pub frames: Vec<FrameTrace>,
}

/// Stages that a frame would take now, and its result. Nothing is learned, charged or counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameTrace {
    /// Bytes of the frame.
    pub bytes: usize,
    /// Stages in their order.
    pub stages: Vec<TraceStage>,
    /// Deliveries, in their order.
    pub deliveries: Vec<TraceDelivery>,
    /// Drops, at the sender and at receivers.
    pub drops: Vec<TraceDrop>,
    /// Counters of `/v1/stats` that would move.
    pub counters: Vec<TraceCounter>,
    /// Limited rates of the sender.
    pub limits: Vec<TraceLimit>,
}

/// Stage of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceStage {
    /// `ring`, `nic`, `switch` or `representor`.
    pub stage: String,
    /// Port at which the frame enters the stage.
    pub from: String,
    /// Rules up to the one that drops the frame, or all.
    pub steps: Vec<TraceStep>,
}

/// Rule of a stage, and its result for the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceStep {
    /// Name of the rule.
    pub rule: String,
    /// Its result.
    pub result: TraceResult,
    /// Drop reason, if the rule drops the frame.
    pub reason: Option<String>,
    /// Setting, table entry or part of the frame that led to the result.
    pub detail: String,
}

/// Result of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceResult {
    /// The frame passes.
    Passed,
    /// The rule is off, or does not concern the frame.
    Off,
    /// The frame is dropped.
    Dropped,
}

/// Delivery of a frame to a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceDelivery {
    /// The port, as in `/v1/stats`.
    pub port: String,
    /// Path on which the port gets it: `vf`, `vmq` or `synthetic`; `uplink`, `pf`, `representor`;
    /// `mirror` for a port that only receives copies.
    pub path: String,
    /// `true` if the frame waits in the daemon: the guest migrates, or is in quarantine.
    pub waits: bool,
    /// Edit of its tags: `none`, `pop`, or `push` or `retag` with the four bytes of the tag.
    pub edit: String,
    /// Bytes after the edit.
    pub bytes: usize,
    /// The frame after the edit, in hexadecimal digits.
    pub frame: String,
}

/// Drop of a frame, or of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceDrop {
    /// Port that counts it.
    pub port: String,
    /// Its counter in `drops` of `/v1/stats`.
    pub counter: String,
    /// Frames.
    pub frames: u64,
    /// Name of the reason.
    pub reason: String,
    /// Meaning of the reason.
    pub meaning: String,
    /// Likely cause.
    pub cause: String,
    /// Remedy.
    pub remedy: String,
}

/// Counter that would move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceCounter {
    /// Its port.
    pub port: String,
    /// Its name in `/v1/stats`.
    pub counter: String,
    /// Amount.
    pub by: u64,
}

/// Limited rate. A trace shows it, and spends nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceLimit {
    /// The setting.
    pub setting: String,
    /// Its value, in the unit of its name.
    pub value: u32,
}

/// Reason for which frames cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// No port has this name.
    #[error("no such port")]
    NoPort {
        /// Names of all ports.
        known: Vec<String>,
    },
    /// Several NICs have a port of this name.
    #[error("ambiguous port")]
    Ambiguous {
        /// Their names with the NICs.
        known: Vec<String>,
    },
    /// The kernel has no memory left.
    #[error("no memory for the frame; free some memory")]
    Memory(#[from] traced::MapError),
}

impl TraceRequest {
    /// Bytes of the frames.
    ///
    /// # Errors
    /// The number of frames or a frame's length is out of range, or a frame is no hexadecimal text.
    pub(crate) fn bytes(&self) -> Result<Vec<Vec<u8>>, ApiError> {
        let wrong = |field: String, value: String, message: &str, remedy: &str| {
            ApiError::Wrong(Problem::new(field, value, message, remedy).into())
        };
        let count = self.frames.len();
        if !(1..=FRAMES_MAX).contains(&count) {
            let message = "frames are out of range";
            let remedy = format!("send 1 to {FRAMES_MAX}");
            return Err(wrong("frames".into(), count.to_string(), message, &remedy));
        }
        let frame = |(n, text): (usize, &String)| {
            let shown: String = text.chars().take(40).collect();
            let field = format!("frames[{n}]");
            let Some(bytes) = from_hex(text) else {
                let remedy = "write two hexadecimal digits a byte";
                return Err(wrong(field, shown, "is no hexadecimal text", remedy));
            };
            match bytes.len() {
                0 => Err(wrong(field, shown, "is empty", "write at least the addresses")),
                _ => Ok(bytes),
            }
        };
        let frames: Vec<Vec<u8>> =
            self.frames.iter().enumerate().map(frame).collect::<Result<_, _>>()?;
        let bytes: usize = frames.iter().map(Vec::len).sum();
        if bytes > BYTES_MAX {
            let remedy = format!("send at most {BYTES_MAX} bytes, in several requests");
            return Err(wrong("frames".into(), bytes.to_string(), "bytes are too many", &remedy));
        }
        Ok(frames)
    }
}

impl TraceError {
    /// As an error of the API, about a port of this name.
    pub(crate) fn of(self, port: &str) -> ApiError {
        let name = format!("port {port}");
        match self {
            TraceError::NoPort { known } => {
                let remedy = match known.is_empty() {
                    true => "create an adapter first".to_owned(),
                    false => format!("choose one of {}", known.join(", ")),
                };
                ApiError::absent(&name, &remedy)
            }
            TraceError::Ambiguous { known } => {
                let remedy = format!("choose one of {}", known.join(", "));
                let problem = Problem::new("port", port, "is a port of several NICs", remedy);
                ApiError::Wrong(problem.into())
            }
            TraceError::Memory(error) => ApiError::NoMemory(error),
        }
    }
}

impl From<traced::FrameTrace> for FrameTrace {
    fn from(of: traced::FrameTrace) -> FrameTrace {
        let traced::FrameTrace { bytes, stages, deliveries, drops, counters, limits } = of;
        let counter = |it: traced::TraceCounter| {
            let counter = it.name.replacen("_drop_", "_", 1);
            TraceCounter { port: it.port, counter, by: it.by }
        };
        let limit =
            |(setting, value): (&str, u32)| TraceLimit { setting: setting.to_owned(), value };
        FrameTrace {
            bytes,
            stages: stages.into_iter().map(TraceStage::from).collect(),
            deliveries: deliveries.into_iter().map(TraceDelivery::from).collect(),
            drops: drops.into_iter().map(TraceDrop::from).collect(),
            counters: counters.into_iter().map(counter).collect(),
            limits: limits.into_iter().map(limit).collect(),
        }
    }
}

impl From<traced::TraceStage> for TraceStage {
    fn from(of: traced::TraceStage) -> TraceStage {
        let step = |step: traced::TraceStep| {
            let (result, reason) = match step.result {
                traced::TraceResult::Passed => (TraceResult::Passed, None),
                traced::TraceResult::Off => (TraceResult::Off, None),
                traced::TraceResult::Dropped(reason) => {
                    (TraceResult::Dropped, Some(reason.name.to_owned()))
                }
            };
            TraceStep { rule: step.rule.to_owned(), result, reason, detail: step.detail }
        };
        let steps = of.steps.into_iter().map(step).collect();
        TraceStage { stage: of.stage.to_owned(), from: of.from, steps }
    }
}

impl From<traced::TraceDelivery> for TraceDelivery {
    fn from(of: traced::TraceDelivery) -> TraceDelivery {
        let traced::TraceDelivery { port, path, arrival, edit, frame } = of;
        let edit = match edit {
            VlanEdit::None => "none".to_owned(),
            VlanEdit::Pop => "pop".to_owned(),
            VlanEdit::Push(tag) => format!("push {}", to_hex(&tag)),
            VlanEdit::Retag(tag) => format!("retag {}", to_hex(&tag)),
        };
        TraceDelivery {
            port,
            path: path.to_owned(),
            waits: arrival == Arrival::Waits,
            edit,
            bytes: frame.len(),
            frame: to_hex(&frame),
        }
    }
}

impl From<traced::TraceDrop> for TraceDrop {
    fn from(of: traced::TraceDrop) -> TraceDrop {
        let ReasonEntry { name, meaning, cause, remedy, .. } = of.reason;
        TraceDrop {
            port: of.port,
            counter: of.counter.to_owned(),
            frames: of.frames,
            reason: (*name).to_owned(),
            meaning: (*meaning).to_owned(),
            cause: (*cause).to_owned(),
            remedy: (*remedy).to_owned(),
        }
    }
}

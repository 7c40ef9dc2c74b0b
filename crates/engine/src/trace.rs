//! Traces: the stages that a frame would take from a port, and its result.
//!
//! # Model
//! A trace runs [`forward()`](crate::forward), the code of the lanes, on one frame. It does so
//! between [shadow ports](shadow) in place of the real ones: by the tables in force, a copy of what
//! the switch has learned, and counters of their own. So a trace learns nothing, spends nothing and
//! counts nothing, and a lane does no work for it. The result is what the shadow ports recorded:
//! deliveries byte for byte, and the counters that moved.
//!
//! The [stages](stages) are explained afterwards, from the headers and verdicts that the run left
//! in its scratch memory ([`bridge::Explanation`]).
//!
//! # Limits
//! A trace is of a frame without offloads, from the first queue pair. Buffers of receivers, and
//! what a device or tunnel does with a frame, are not traced. The storm limit of a function is
//! assumed to have room, as its lane keeps it. One trace runs at a time in a process.

mod shadow;
mod stages;

use std::sync::Arc;

use host::stall::BurstMarker;
use port::trace::{TracedDelivery, TracedFrame};
use port::{FrameRules, VlanEdit};

use crate::drops::{DROPS, ReasonEntry};
use crate::forward::forward;
use crate::lane::clock;
use crate::lane::queue_list::TxRing;
use crate::lane::sender::Sender;
use crate::lane::stage_clock::StageClock;
use crate::port::{Port, counter};
use crate::slow::scratch::Scratch;
use crate::snapshot::{ForwardingSnapshot, PortPath};
use crate::soft_nic::{LaneSnapshot, SoftNic};
use shadow::Shadows;
use stages::Stages;

pub use crate::port::Arrival;
pub use guestmem::MapError;

/// Trace of a frame.
#[derive(Debug)]
pub struct FrameTrace {
    /// Bytes of the frame.
    pub bytes: usize,
    /// Stages in their order: the sender's ring, then NIC and switch.
    pub stages: Vec<TraceStage>,
    /// Deliveries, in their order.
    pub deliveries: Vec<TraceDelivery>,
    /// Drops, at the sender and at receivers.
    pub drops: Vec<TraceDrop>,
    /// Counters that would move.
    pub counters: Vec<TraceCounter>,
    /// Rates of the sender that are limited, by the names of the settings.
    pub limits: Vec<(&'static str, u32)>,
}

/// Stage of a frame.
#[derive(Clone, Debug)]
pub struct TraceStage {
    /// `ring`, `nic`, `switch` or `representor`.
    pub stage: &'static str,
    /// Port at which the frame enters the stage.
    pub from: String,
    /// Rules up to the one that drops the frame, or all.
    pub steps: Vec<TraceStep>,
}

/// A rule of a stage, and its result for the frame.
#[derive(Clone, Debug)]
pub struct TraceStep {
    /// Name of the rule.
    pub rule: &'static str,
    /// Its result.
    pub result: TraceResult,
    /// Setting, table entry or part of the frame that led to the result.
    pub detail: String,
}

/// Result of a rule.
#[derive(Clone, Copy, Debug)]
pub enum TraceResult {
    /// The frame passes.
    Passed,
    /// The rule is off, or does not concern the frame.
    Off,
    /// The frame is dropped.
    Dropped(&'static ReasonEntry),
}

/// Delivery to a port.
#[derive(Clone, Debug)]
pub struct TraceDelivery {
    /// Label of the port.
    pub port: String,
    /// Path on which the port gets it: `vf`, `vmq` or `synthetic`; `uplink`, `pf`, `representor`;
    /// `mirror` for a port that only receives copies.
    pub path: &'static str,
    /// Result for the frame there.
    pub arrival: Arrival,
    /// Edit of its tags, all stages together.
    pub edit: VlanEdit,
    /// The frame after the edit.
    pub frame: Vec<u8>,
}

/// Drop of the frame, or of a copy.
#[derive(Clone, Debug)]
pub struct TraceDrop {
    /// Label of the port that counts it.
    pub port: String,
    /// Name of the counter in `/v1/stats`.
    pub counter: &'static str,
    /// Reason.
    pub reason: &'static ReasonEntry,
    /// Frames.
    pub frames: u64,
}

/// Counter that would move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCounter {
    /// Label of the port.
    pub port: String,
    /// Name in the counter file.
    pub name: String,
    /// Amount.
    pub by: u64,
}

impl SoftNic {
    /// Traces a frame that enters at a port of this NIC. Allocates, and takes the sender's lock for
    /// a moment: not for the data path.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn trace(self: &Arc<Self>, from: &Arc<Port>, frame: &[u8]) -> Result<FrameTrace, MapError> {
        let now_ns = clock::now_ns();
        let mut shadows = Shadows::begin();
        let snapshot = Arc::new(self.snapshot().shadow(&mut |port| shadows.of(port)));
        let port = shadows.of(from);
        let (ring, pair) = (from.frame_rules(), 0);
        let mut transmit = TracedFrame::new(frame, ring.unwrap_or(FrameRules::LARGEST))?;
        let mut stages = Stages::begin(&snapshot, &port, frame, now_ns);
        let mut sender = Sender::new();
        sender.limit_storms(snapshot.storm_limit(&port), now_ns);
        sender.now_ns = now_ns;
        let mut scratch = Scratch::new();
        let mut lane_snapshot = LaneSnapshot::new(Arc::new(snapshot.clone().into()));
        let tx_ring = TxRing { nic: self.clone(), port: port.clone(), pair };
        let marker = BurstMarker::default(); // this thread has no watchdog
        let clock = StageClock::off();
        let polled = forward(
            &tx_ring,
            &mut lane_snapshot,
            &mut transmit,
            &mut sender,
            &mut scratch,
            &marker,
            &clock,
        );
        stages.ring(ring, &polled);
        if polled.malformed() == 0 {
            stages.bridges(&scratch);
        }
        let deliveries = shadows.deliveries();
        let deliveries = deliveries.into_iter().map(|(real, delivered)| {
            let TracedDelivery { port: number, edit, frame } = delivered;
            let path = path_of(&snapshot, shadows.shadow(number), &scratch);
            let (port, arrival) = (real.label.clone(), real.arrival());
            TraceDelivery { port, path, arrival, edit, frame }
        });
        let deliveries = deliveries.collect();
        let (counters, drops) = counted(&shadows);
        let limits = limits_of(&snapshot, &port);
        let stages = stages.end(&drops);
        Ok(FrameTrace { bytes: frame.len(), stages, deliveries, drops, counters, limits })
    }
}

/// Path on which a port gets a frame.
fn path_of(snapshot: &ForwardingSnapshot, port: &Port, scratch: &Scratch) -> &'static str {
    let verdict = scratch.nic.verdicts.first().and_then(|verdict| verdict.as_port());
    let by_queue = verdict.is_some_and(|to| to.queue_index().is_some());
    snapshot.path(port, by_queue).map_or("mirror", PortPath::name)
}

/// Counters of the shadow ports that moved, and the drops among them.
fn counted(shadows: &Shadows) -> (Vec<TraceCounter>, Vec<TraceDrop>) {
    let schema = counter::schema();
    let (mut counters, mut drops) = (Vec::new(), Vec::new());
    for port in shadows.all() {
        for (index, name) in schema.iter().enumerate() {
            let by = port.block(0).get(index);
            if by == 0 || index == counter::ATTACHED {
                continue;
            }
            let dropped = DROPS.iter().find_map(|reason| {
                let of_reason = reason.counters.iter().find(|(_, at)| *at == index)?;
                Some((reason, of_reason.0))
            });
            if let Some((reason, counter)) = dropped {
                let port = port.label.clone();
                drops.push(TraceDrop { port, counter, reason, frames: by });
            }
            counters.push(TraceCounter { port: port.label.clone(), name: name.clone(), by });
        }
    }
    (counters, drops)
}

/// Limited rates of a sender.
fn limits_of(snapshot: &ForwardingSnapshot, port: &Port) -> Vec<(&'static str, u32)> {
    let share = snapshot.share(port);
    let all = [
        ("max_tx_mbps", share.max_mbit),
        ("min_tx_mbps", share.min_mbit),
        ("storm_limit_pps", snapshot.storm_limit(port)),
    ];
    all.into_iter().filter(|(_, rate)| *rate > 0).collect()
}

//! Measured slots, and frames drained after them.

use report::Stages;
use serde::Serialize;

use super::switch::SwitchType;

/// Minimum pairs of a reported band: with fewer, no 99 % interval is bounded.
pub const PAIRS_MIN: usize = 8;
/// Maximum share of a CPU taken by other processes in a slot that counts. Smaller shares are in the
/// figures: they add to the busy cycles of all switches alike.
pub const DISTURBED: f64 = 0.10;

/// One slot of one switch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slot {
    /// The switch.
    pub switch: SwitchType,
    /// Round, from 0.
    pub round: usize,
    /// Pass within the round, from 0; even: forward, odd: backward.
    pub pass: usize,
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Distance of both CPUs before and after, cycles.
    pub distances: [f64; 2],
    /// Busy cycles for each delivered frame.
    pub cycles_per_frame: f64,
    /// Part of them spent in the kernel on the guest's CPU; 0 with vhost-user ports.
    pub kernel_cycles_per_frame: f64,
    /// Mframes/s received by the guest.
    pub mpps: f64,
    /// Busy share of the polling thread, or kernel share of the guest's CPU.
    pub busy_share: f64,
    /// Largest share of the time in which the polling thread or the guest waited for a CPU.
    pub disturbance: f64,
    /// Cycles for each delivered frame by stage; Shunt only.
    pub stages: Option<Stages>,
}

/// Frames of a switch that were drained from the rings at the end of a size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Drain {
    /// The switch.
    pub switch: SwitchType,
    /// Round, from 0.
    pub round: usize,
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Drained frames.
    pub frames: u64,
    /// Frames that were in flight.
    pub expected: u64,
}

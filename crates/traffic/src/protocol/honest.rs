//! Honest guests: task and result.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Task: honest guests. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HonestSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Socket and address of origin and mirror.
    pub guests: [(PathBuf, String); 2],
    /// Socket of the uplink.
    pub uplink: PathBuf,
    /// Addresses of other guests on the honest guests' VLAN.
    pub near: Vec<String>,
    /// Addresses on the other VLAN, and its VLAN ID.
    pub far: (Vec<String>, u16),
    /// File of the shared turn counter.
    pub pace: PathBuf,
    /// Frames in flight, 1 to 256.
    pub in_flight: u64,
}

/// Account of the frames.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HonestResult {
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Frames that the origin sent.
    pub sent: u64,
    /// Frames that came back, intact and in order.
    pub received: u64,
    /// Frames that never came back.
    pub lost: u64,
    /// Frames with a changed byte, length or number.
    pub corrupted: u64,
    /// Frames of others with a forged source address.
    pub spoofed: u64,
    /// Frames on a wrong VLAN, or without its tag at the uplink.
    pub misplaced: u64,
    /// Valid frames of others that origin or mirror received.
    pub foreign: u64,
    /// Frames that the witness saw.
    pub witnessed: u64,
    /// Longest time between two arrivals at the origin, in milliseconds.
    pub longest_gap_ms: f64,
    /// Longest time between two turns of this process, in milliseconds: it had no CPU, so no frame
    /// could arrive.
    pub longest_absence_ms: f64,
}

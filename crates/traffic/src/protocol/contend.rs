//! Contending guests: task and result.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::lane_counts::LaneCounts;

/// Task: contending guests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContendSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Run directory of the daemon, which holds its counters.
    pub run_dir: PathBuf,
    /// Seconds before the first slice.
    pub warmup_s: f64,
    /// Uncounted seconds of each slice.
    pub settle_s: f64,
    /// Counted seconds of each slice.
    pub slice_s: f64,
    /// The guests.
    pub guests: Vec<Contender>,
    /// Slices, in order.
    pub slices: Vec<Phase>,
}

/// One guest. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contender {
    /// Vhost-user socket of the daemon.
    pub socket: PathBuf,
    /// MAC address of the guest.
    pub mac: String,
    /// MAC address of the destination.
    pub peer: String,
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Reason why its frames are dear.
    pub burden: Burden,
}

/// Reason why a guest's frames are dear for the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Burden {
    /// Nothing.
    #[default]
    None,
    /// Each is in 256 pieces, in an indirect table.
    Pieces,
    /// Each is a broadcast.
    Flood,
    /// The guest wants an interrupt after each burst, and 256 epoll instances watch for it.
    Interrupt,
}

/// Exceptions of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Guests that take no frame.
    pub deaf: Vec<usize>,
    /// Guests that send no frame.
    pub mute: Vec<usize>,
}

/// Result of a contention run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContendResult {
    /// Highest rate of one generator into an instant sink, Mframes/s: the lowest over the frame
    /// sizes.
    pub generator_limit_mpps: f64,
    /// Slices, in the order of the specification.
    pub slices: Vec<Slice>,
}

/// Counts of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Seconds.
    pub seconds: f64,
    /// Share of the seconds in which no frame moved for more than 200 us: this process or the lane
    /// had no CPU, so the load was not full.
    pub still_share: f64,
    /// Frames that the switch took from each guest.
    pub sent: Vec<u64>,
    /// Frames that each guest received.
    pub received: Vec<u64>,
    /// Cycles of lanes for what each guest sent, likewise with the interval before.
    pub cycles: Vec<u64>,
    /// Lane counters, which include the uncounted interval before the slice.
    pub lanes: LaneCounts,
}

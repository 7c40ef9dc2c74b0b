//! Two guests that exchange numbered frames: task and result.

use std::path::PathBuf;

use report::RingKind;
use serde::{Deserialize, Serialize};

/// Task: two guests. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NumberedSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Socket and address of each guest.
    pub guests: [(PathBuf, String); 2],
    /// Frames a second in each direction; 0: limited by the window only.
    #[serde(default)]
    pub rate_pps: u32,
    /// Rings of both adapters.
    #[serde(default)]
    pub ring: RingKind,
    /// The daemon keeps inflight records, which the next daemon reads.
    #[serde(default)]
    pub inflight: bool,
    /// Guests reattach to the next daemon, with their rings unchanged.
    #[serde(default)]
    pub reattach: bool,
    /// File of a turn counter for other guests on their VLAN, if any.
    #[serde(default)]
    pub pace: Option<PathBuf>,
}

/// Account of the frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NumberedResult {
    /// Seconds from the start to the last frame.
    pub seconds: f64,
    /// From the first guest to the second, and back.
    pub directions: [Direction; 2],
    /// Longest time between two turns of this process, in microseconds: it had no CPU, so no frame
    /// could arrive.
    pub absence_us_max: f64,
    /// Used entries that repeat another or name no posted buffer, on any ring.
    #[serde(default)]
    pub used_repeated: u64,
    /// Buffers returned before others that were posted earlier.
    #[serde(default)]
    pub used_out_of_order: u64,
    /// Transmit buffers that were not returned.
    #[serde(default)]
    pub used_missing: u64,
}

/// A span of the traffic, up to a `mark` of the parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Both directions, since the start.
    pub directions: [Direction; 2],
    /// Times from sending to receiving in nanoseconds, and the number of frames of each.
    pub latencies_ns: Vec<(u64, u64)>,
    /// Longest time between two arrivals in one direction, in microseconds.
    pub gap_us: f64,
    /// Longest time without a CPU, in microseconds.
    pub absence_us: f64,
    /// Frames that arrived again.
    pub duplicated: u64,
    /// Longest time from a listening daemon to started rings, in microseconds; 0 if no guest
    /// reattached.
    pub reattach_us: f64,
}

/// Frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Frames sent.
    pub sent: u64,
    /// Numbers that arrived.
    pub received: u64,
    /// Numbers that never arrived.
    pub lost: u64,
    /// Frames whose number had arrived before.
    pub duplicated: u64,
    /// Frames that arrived after a higher number.
    pub reordered: u64,
    /// Frames of the peer with changed bytes.
    pub corrupted: u64,
    /// Frames of other senders, such as address announcements.
    pub foreign: u64,
    /// Number of windows given up.
    pub stalls: u64,
    /// Longest time between two arrivals, in microseconds.
    pub gap_us_max: f64,
    /// 99.9th percentile of these gaps, in microseconds.
    pub gap_us_p999: f64,
}

impl Direction {
    /// Both directions: the sums, and of times the longer one.
    pub fn of_both(directions: &[Direction; 2]) -> Direction {
        let sum = |what: fn(&Direction) -> u64| directions.iter().map(what).sum();
        let most = |what: fn(&Direction) -> f64| directions.iter().map(what).fold(0.0, f64::max);
        Direction {
            sent: sum(|way| way.sent),
            received: sum(|way| way.received),
            lost: sum(|way| way.lost),
            duplicated: sum(|way| way.duplicated),
            reordered: sum(|way| way.reordered),
            corrupted: sum(|way| way.corrupted),
            foreign: sum(|way| way.foreign),
            stalls: sum(|way| way.stalls),
            gap_us_max: most(|way| way.gap_us_max),
            gap_us_p999: most(|way| way.gap_us_p999),
        }
    }
}

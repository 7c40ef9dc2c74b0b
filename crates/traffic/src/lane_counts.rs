//! Counters of a daemon's lanes.

use anyhow::{Context, Result};
use api::stats::Stats;
use serde::{Deserialize, Serialize};

/// Counters summed over the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// Frames.
    pub frames: u64,
    /// Bursts.
    pub bursts: u64,
    /// Bursts that left more frames in the ring.
    pub backlog_bursts: u64,
    /// Time-stamp cycles of rounds that found frames.
    pub busy_cycles: u64,
    /// Time-stamp cycles of rounds without frames.
    pub idle_cycles: u64,
}

impl LaneCounts {
    /// Reads the counters from `stats`.
    ///
    /// # Errors
    /// If a counter is missing.
    pub fn of(stats: &Stats) -> Result<LaneCounts> {
        let sum = |name: &str| {
            let values = stats.lanes.iter().map(|lane| lane.values.get(name).copied());
            values.sum::<Option<u64>>().with_context(|| format!("no lane counter {name}"))
        };
        Ok(LaneCounts {
            frames: sum("frames")?,
            bursts: sum("bursts")?,
            backlog_bursts: sum("backlog_bursts")?,
            busy_cycles: sum("busy_cycles")?,
            idle_cycles: sum("idle_cycles")?,
        })
    }

    /// Difference to an earlier reading.
    pub fn since(&self, before: &LaneCounts) -> LaneCounts {
        LaneCounts {
            frames: self.frames - before.frames,
            bursts: self.bursts - before.bursts,
            backlog_bursts: self.backlog_bursts - before.backlog_bursts,
            busy_cycles: self.busy_cycles - before.busy_cycles,
            idle_cycles: self.idle_cycles - before.idle_cycles,
        }
    }

    /// Sum of two readings.
    pub fn and(&self, other: &LaneCounts) -> LaneCounts {
        LaneCounts {
            frames: self.frames + other.frames,
            bursts: self.bursts + other.bursts,
            backlog_bursts: self.backlog_bursts + other.backlog_bursts,
            busy_cycles: self.busy_cycles + other.busy_cycles,
            idle_cycles: self.idle_cycles + other.idle_cycles,
        }
    }
}

//! Sweep of received frames.

use model::state::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Sweep, check_numbers, check_published, check_times};
use crate::receive::PublishedThroughput;

/// Frames received on both paths, for each of these sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiveSweep {
    /// Guests: 1 to 8.
    pub guests: Vec<usize>,
    /// Frame sizes with FCS, bytes: 64 to 1518.
    pub frame_bytes: Vec<u32>,
    /// Measurements of each, the paths alternating; results are medians.
    pub rounds: usize,
    /// Seconds before each measurement.
    pub warmup_s: f64,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Published values of the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedThroughput>,
}

impl Sweep for ReceiveSweep {
    fn check(&self) -> Result<(), Problems> {
        check_numbers("guests", &self.guests, [1, 8])?;
        check_numbers("frame_bytes", &self.frame_bytes, [64, 1518])?;
        let published = self.published.iter();
        check_published(published.flat_map(|it| [it.without_gbps, it.with_gbps]))?;
        check_times(self.rounds, &[("warmup_s", self.warmup_s), ("seconds", self.seconds)])
    }
}

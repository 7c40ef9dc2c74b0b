//! Sweep of TCP and UDP between guests' kernels.

use std::collections::BTreeMap;

use model::state::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Sweep, check_list, check_numbers, check_published, check_times};
use crate::{PathKind, Pattern, SocketWorkload};

/// Socket traffic at every combination of these settings, the paths alternating.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferSweep {
    /// Kind of traffic.
    pub workload: SocketWorkload,
    /// Far end: north-south, the external machine; east-west, a second guest.
    pub patterns: Vec<Pattern>,
    /// Paths, in the order of measurement.
    pub paths: Vec<PathKind>,
    /// Connections, or sockets: 1 to 64.
    pub streams: Vec<u32>,
    /// Bytes of a write, or of a datagram.
    pub send_bytes: Vec<u32>,
    /// KiB of socket buffers; 0: the kernel's default.
    pub buffer_kib: Vec<u32>,
    /// Measurements of each, the paths alternating; results are medians.
    pub rounds: usize,
    /// Seconds of each measurement, without warm-up and cool-down.
    pub seconds: f64,
    /// Published values of the paper, by path: Gbit/s, or for requests the 99th percentile in us.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<PathKind, f64>,
}

impl Sweep for TransferSweep {
    fn check(&self) -> Result<(), Problems> {
        check_list("patterns", &self.patterns)?;
        check_list("paths", &self.paths)?;
        check_numbers("streams", &self.streams, [1, 64])?;
        let most = if self.workload == SocketWorkload::TcpStream { 1 << 20 } else { 1472 };
        check_numbers("send_bytes", &self.send_bytes, [16, most])?;
        check_numbers("buffer_kib", &self.buffer_kib, [0, 64 << 10])?;
        check_published(self.published.values().copied())?;
        check_times(self.rounds, &[("seconds", self.seconds)])
    }
}

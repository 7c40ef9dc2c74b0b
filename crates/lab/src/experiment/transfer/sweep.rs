//! Transfers, as a file asks for them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Settings, Traffic, run};
use crate::experiment::file::{check_list, check_numbers, check_published, check_times};
use crate::experiment::step::{self, Found, Step};
use crate::report::{PathKind, Pattern, Transfer, Workload};

/// Traffic over guests' sockets at every combination of these, on all paths in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Kind of traffic.
    pub workload: Workload,
    /// What the far end is: north-south, the external machine; east-west, a second guest.
    pub patterns: Vec<Pattern>,
    /// Paths in turn.
    pub paths: Vec<PathKind>,
    /// Connections, or sockets: 1 to 64.
    pub streams: Vec<u32>,
    /// Bytes of a write, or of a datagram.
    pub send_bytes: Vec<u32>,
    /// KiB of socket buffers; 0: as the kernel gives.
    pub buffer_kib: Vec<u32>,
    /// How often each is measured, paths in turn; medians count.
    pub rounds: usize,
    /// Seconds of each measurement, without warm-up and cool-down.
    pub seconds: f64,
    /// What the paper published, by path: Gbit/s, or of requests the 99th percentile in us.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<PathKind, f64>,
}

impl step::Sweep for Sweep {
    fn check(&self) -> Result<(), String> {
        check_list("patterns", &self.patterns)?;
        check_list("paths", &self.paths)?;
        check_numbers("streams", &self.streams, [1, 64])?;
        let most = if self.workload == Workload::TcpStream { 1 << 20 } else { 1472 };
        check_numbers("send_bytes", &self.send_bytes, [16, most])?;
        check_numbers("buffer_kib", &self.buffer_kib, [0, 64 << 10])?;
        check_published(self.published.values().copied())?;
        check_times(self.rounds, &[("seconds", self.seconds)])
    }

    fn steps(&self, experiment: &str) -> Vec<Step> {
        if self.paths.is_empty() {
            return Vec::new();
        }
        let step = |(pattern, traffic): (Pattern, Traffic)| {
            let Traffic { workload, streams, send_bytes, .. } = traffic;
            let title = format!("{pattern} {workload}, {streams} x {send_bytes} B");
            let (sweep, experiment) = (self.clone(), experiment.to_owned());
            Step::new(title, move |machine| {
                let settings = Settings {
                    program: machine.program.to_owned(),
                    cpus: machine.cpus.to_vec(),
                    paths: sweep.paths.clone(),
                    pattern,
                    rounds: sweep.rounds,
                    seconds: sweep.seconds,
                };
                let published = |transfer: Transfer| Transfer {
                    published: sweep.published.get(&transfer.path).copied(),
                    ..transfer
                };
                let transfers = run(&settings, &experiment, traffic)?;
                Ok(Found::Transfers(transfers.into_iter().map(published).collect()))
            })
        };
        self.traffics().into_iter().map(step).collect()
    }
}

impl Sweep {
    /// Each traffic with the pattern in which it is measured.
    fn traffics(&self) -> Vec<(Pattern, Traffic)> {
        let mut traffics = Vec::new();
        for &pattern in &self.patterns {
            for &kib in &self.buffer_kib {
                for &streams in &self.streams {
                    for &send_bytes in &self.send_bytes {
                        let (workload, buffer_kib) = (self.workload, (kib > 0).then_some(kib));
                        let traffic = Traffic { workload, streams, send_bytes, buffer_kib };
                        traffics.push((pattern, traffic));
                    }
                }
            }
        }
        traffics
    }
}

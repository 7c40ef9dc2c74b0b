//! nfv-2017's TCP experiment: four netperf streams from one guest, by the size of each write.

use anyhow::Result;

use super::transfer::{self, Settings, Traffic};
use crate::report::{Experiment, Transfer, Workload};

/// The paper's sizes of a write.
pub const SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1518, 65536];
/// Its streams.
const STREAMS: u32 = 4;

/// What is measured, by rising size.
pub fn traffics() -> Vec<Traffic> {
    let one = |send_bytes| Traffic {
        workload: Workload::TcpStream,
        streams: STREAMS,
        send_bytes,
        buffer_kib: None,
    };
    SIZES.map(one).to_vec()
}

/// Measures it.
///
/// # Errors
/// As [`transfer::run`].
pub fn run(settings: &Settings, done: impl FnMut(usize, usize)) -> Result<Vec<Transfer>> {
    transfer::run(settings, Experiment::Netperf, &traffics(), done)
}

//! vmware-2014's experiment: TCP in bulk with NTttcp's settings, one stream and four.
//!
//! Writes of 64 KiB, with the socket buffers that the kernel gives and with 1024 KiB, warm-up and
//! cool-down left out. Its paper found one stream of default buffers at half of the wire: an operating
//! system whose default does not grow. Linux's does, up to `net.ipv4.tcp_rmem` and `tcp_wmem`.

use anyhow::Result;

use super::transfer::{self, Settings, Traffic};
use crate::report::{Experiment, Transfer, Workload};

/// Bytes of each write.
const WRITE: u32 = 64 << 10;
/// KiB of the large buffers.
const LARGE_KIB: u32 = 1024;

/// What is measured: default buffers first.
pub fn traffics() -> Vec<Traffic> {
    let one = |buffer_kib, streams| Traffic {
        workload: Workload::TcpStream,
        streams,
        send_bytes: WRITE,
        buffer_kib,
    };
    [None, Some(LARGE_KIB)].into_iter().flat_map(|kib| [1, 4].map(|n| one(kib, n))).collect()
}

/// Measures it.
///
/// # Errors
/// As [`transfer::run`].
pub fn run(settings: &Settings, done: impl FnMut(usize, usize)) -> Result<Vec<Transfer>> {
    transfer::run(settings, Experiment::Ntttcp, &traffics(), done)
}

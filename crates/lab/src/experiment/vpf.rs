//! virtual-pf-2023's experiment: UDP from a container in a guest to an external machine and back.
//!
//! In bulk both ways, as fast as the sender's kernel takes datagrams, and one request at a time. A sender
//! of UDP is not told what is lost: what counts is what arrives. The paper's path without offload
//! includes a firewall and address translation; ours, virtio, is a plain bridge.

use anyhow::Result;

use super::transfer::{self, Settings, Traffic};
use crate::report::{Experiment, Transfer, Workload};

/// Payload of a datagram in bulk: the most that an MTU of 1500 takes.
const BULK: u32 = 1472;
/// Payload of a request and of its answer.
const REQUEST: u32 = 64;
/// KiB of the sockets' buffers in bulk: the default would lose what comes while the reader waits for
/// its CPU.
const BUFFER_KIB: u32 = 1024;

/// What is measured.
pub fn traffics() -> Vec<Traffic> {
    let one =
        |workload, send_bytes, buffer_kib| Traffic { workload, streams: 1, send_bytes, buffer_kib };
    vec![
        one(Workload::UdpTransmit, BULK, Some(BUFFER_KIB)),
        one(Workload::UdpReceive, BULK, Some(BUFFER_KIB)),
        one(Workload::UdpRequest, REQUEST, None),
    ]
}

/// Measures it.
///
/// # Errors
/// As [`transfer::run`].
pub fn run(settings: &Settings, done: impl FnMut(usize, usize)) -> Result<Vec<Transfer>> {
    transfer::run(settings, Experiment::Vpf, &traffics(), done)
}

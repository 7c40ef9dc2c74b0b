//! A guest that returns frames: task, commands and answers.

use std::path::PathBuf;

use report::RingKind;
use serde::{Deserialize, Serialize};

/// Settings of the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReflectSpec {
    /// CPU to run on.
    pub cpu: usize,
    /// Socket of each port.
    pub sockets: [PathBuf; 2],
    /// Address of each port, such as `02:00:00:00:00:01`.
    pub macs: [String; 2],
    /// Rings.
    pub ring: RingKind,
    /// Ask for mergeable receive buffers.
    pub mergeable: bool,
}

/// A command.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Command {
    /// Count frames.
    Count,
    /// Send new frames from each port, and return all received ones.
    Inject {
        /// Frame size with FCS, bytes.
        frame_bytes: u32,
        /// Frames of each port.
        frames: u32,
    },
    /// Receive all frames without returning them.
    Drain,
}

/// Answer to a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reflected {
    /// Frames that both ports have received since the start.
    pub received: u64,
    /// Seconds since the start.
    pub seconds: f64,
    /// Frames received by the last [`Command::Drain`].
    pub drained: u64,
    /// Negotiated virtio features of each port.
    pub features: [u64; 2],
}

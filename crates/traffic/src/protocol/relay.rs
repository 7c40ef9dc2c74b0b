//! A relay between two taps: task.

use serde::{Deserialize, Serialize};

/// Task: a relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RelaySpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Process whose namespace gets an `eth0`.
    pub guest: u32,
    /// Interface name of the tap on the bridge.
    pub name: String,
    /// Bridge in this process's namespace.
    pub bridge: String,
}

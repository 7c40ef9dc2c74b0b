//! Hostile guests: task and result.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A VF to attach to. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostileVf {
    /// Vhost-user socket of the daemon.
    pub socket: PathBuf,
    /// MAC address of the VF.
    pub mac: String,
}

/// Task: hostile guests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostileSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Bursts to send.
    pub bursts: u64,
    /// VFs of [`FAR_PAIRS`](crate::hostile::FAR_PAIRS) queue pairs, on another VLAN than the honest
    /// guests.
    pub far: [HostileVf; 2],
    /// A VF on the same VLAN as `far`.
    pub courier: HostileVf,
    /// A VF on the honest guests' VLAN.
    pub near: HostileVf,
    /// Addresses of the honest guests.
    pub honest: Vec<String>,
    /// File of the honest guests' turn counter.
    pub pace: PathBuf,
}

/// Account of the hostile guests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostileResult {
    /// Bursts sent.
    pub bursts: u64,
    /// Bursts that the daemon neither consumed nor stopped in time.
    pub unanswered: u64,
    /// Mutations of the connection.
    pub control_mutations: u64,
    /// Restarted rings.
    pub restarts: u64,
    /// Reconnections, after either side closed.
    pub reconnects: u64,
    /// Number of mutations by kind.
    pub mutations: BTreeMap<String, u64>,
}

//! What a daemon has counted, read from its counter file: the daemon does nothing for it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use engine::counters::{Reader, Snapshot};
use serde::Serialize;

/// All counters of a daemon at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Ports in the order of the configuration.
    pub ports: Vec<PortStats>,
    /// Lanes by number.
    pub lanes: Vec<LaneStats>,
}

/// Counters of a port; Rx and Tx are the guest's.
#[derive(Clone, Debug, Serialize)]
pub struct PortStats {
    /// `NIC/function`.
    pub name: String,
    /// Rings that a guest has attached.
    pub rings_attached: u64,
    /// Frames that the guest sent, dropped ones included.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that the guest received.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Interrupts sent to the guest, for either ring.
    pub notifies: u64,
    /// Frames dropped by reason; only reasons that happened. `tx_` ones came from this guest,
    /// `rx_` ones were for it.
    pub drops: BTreeMap<String, u64>,
    /// Rings that the guest broke, by rule; only what happened.
    pub faults: BTreeMap<String, u64>,
}

/// Counters of a lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneStats {
    /// Its number.
    pub lane: String,
    /// All its counters by name; `busy_cycles` are time-stamp cycles of rounds that found frames.
    #[serde(flatten)]
    pub values: BTreeMap<String, u64>,
}

/// Reads the counters of the daemon whose run directory is `run_dir`.
///
/// # Errors
/// If there is no counter file, or it is something else.
pub fn read(run_dir: &Path) -> Result<Stats> {
    let reader = Reader::open(&crate::daemon::counters_path(run_dir)).with_context(|| {
        format!("is a daemon with run_dir {} running? see `shunt up --help`", run_dir.display())
    })?;
    Ok(of(reader.read()))
}

/// Sorts what a counter file holds into ports and lanes.
pub fn of(snapshots: Vec<Snapshot>) -> Stats {
    let (ports, lanes) = snapshots.into_iter().partition::<Vec<_>, _>(|block| block.kind == "port");
    let lane = |block: Snapshot| LaneStats { lane: block.label, values: named(block.values) };
    Stats {
        ports: ports.into_iter().map(port).collect(),
        lanes: lanes.into_iter().map(lane).collect(),
    }
}

fn named(mut values: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    values.remove("-"); // padding
    values
}

fn port(block: Snapshot) -> PortStats {
    let values = block.values;
    let get = |name: &str| values.get(name).copied().unwrap_or(0);
    let of_kind = |kind: &str| {
        let wanted = values.iter().filter(|(name, value)| **value > 0 && name.contains(kind));
        wanted.map(|(name, value)| (name.replace(kind, "_"), *value)).collect()
    };
    PortStats {
        rings_attached: get("rings_attached"),
        tx_frames: get("tx_frames"),
        tx_bytes: get("tx_bytes"),
        rx_frames: get("rx_frames"),
        rx_bytes: get("rx_bytes"),
        notifies: get("tx_notifies") + get("rx_notifies"),
        drops: of_kind("_drop_"),
        faults: of_kind("_fault_"),
        name: block.label,
    }
}

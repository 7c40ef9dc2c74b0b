//! Counters of a daemon, read from its counter file without any work for the daemon.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
pub use engine::CounterSnapshot;
use engine::counters::{CountersError, Reader};
pub use engine::drops::{DROPS, FAULTS, ReasonEntry};
pub use engine::limits::LIMITS;
use model::state::Problems;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::run_dir::no_daemon;

/// All counters of a daemon at one moment.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Stats {
    /// Ports in the order of the configuration.
    pub ports: Vec<PortStats>,
    /// Lanes by number.
    pub lanes: Vec<LaneStats>,
    /// Log lines dropped because the log was not read or could not be written.
    pub log_lines_dropped: u64,
    /// System calls that the daemon's sandbox refused: none, unless the daemon has been taken over
    /// or has a bug.
    pub forbidden_calls: u64,
    /// Parts of the daemon's sandbox that are in force: `capabilities`, `system-calls`, `files`.
    pub sandbox: Vec<String>,
    /// Limits on resources that guests use.
    pub limits: Vec<LimitStats>,
    /// Rules of switch ports, in order. Only from the API: the counter file has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleStats>,
    /// Rules of NICs in switchdev mode, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offloads: Vec<OffloadStats>,
}

/// Counters of a NIC's rule in switchdev mode. They continue while the rule stays, whatever the
/// changes of other rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OffloadStats {
    /// The NIC.
    pub nic: String,
    /// Number in the NIC's `rule`; in `/v1/stats` from 1, as `shunt nic rules` shows it.
    pub rule: usize,
    /// Frames that matched this rule first.
    pub frames: u64,
    /// Bytes of these frames, as sent.
    pub bytes: u64,
}

/// Matches of a switch port's rule, whatever its action. They continue while the port has the rule,
/// whatever the changes of other rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleStats {
    /// The switch.
    pub switch: String,
    /// Adapter whose port has the rule, or `uplink`.
    pub port: String,
    /// Number in the port's `acl`; in `/v1/stats` from 1, as `shunt switch acl` shows it.
    pub rule: usize,
    /// Matching frames.
    pub frames: u64,
}

/// Counters of a port; Rx and Tx are the guest's.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct PortStats {
    /// `NIC/function`.
    pub name: String,
    /// Rings that a guest has attached.
    pub rings_attached: u64,
    /// Frames that the guest sent, dropped ones included.
    pub tx_frames: u64,
    /// Bytes of these frames.
    pub tx_bytes: u64,
    /// Cycles of lanes for these frames.
    pub tx_cycles: u64,
    /// Bursts of these frames that lanes took from the rings.
    pub tx_bursts: u64,
    /// Of these bursts: those that left frames waiting in their ring.
    pub tx_backlog_bursts: u64,
    /// Frames that the guest received.
    pub rx_frames: u64,
    /// Bytes of these frames.
    pub rx_bytes: u64,
    /// Of the frames sent: copies that went to the uplink.
    pub tx_uplink_frames: u64,
    /// Bytes of these frames.
    pub tx_uplink_bytes: u64,
    /// Of the frames received: those from the uplink.
    pub rx_uplink_frames: u64,
    /// Bytes of these frames.
    pub rx_uplink_bytes: u64,
    /// Interrupts sent to the guest, for both rings.
    pub notifies: u64,
    /// Dropped frames by reason, without zeros. `tx_`: sent by this guest; `rx_`: sent to it.
    pub drops: BTreeMap<String, u64>,
    /// Rings stopped because of a guest's fault, by fault, without zeros.
    pub faults: BTreeMap<String, u64>,
    /// Times the port moved off the lanes because its guest's memory blocked a lane.
    pub quarantines: u64,
    /// Times its interrupts moved off the lanes because they took too long.
    pub notifies_moved: u64,
}

/// Use of a limited resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LimitStats {
    /// Name.
    pub name: String,
    /// Amount in use; of a limit for each session: by the session with the most.
    pub used: u64,
    /// The limit.
    pub allowed: u64,
    /// Times that it was met.
    pub refused: u64,
}

/// Counters of a lane.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LaneStats {
    /// Number.
    pub lane: String,
    /// Counters by name; `busy_cycles` are time-stamp counter cycles of visits that found frames.
    #[serde(flatten)]
    pub values: BTreeMap<String, u64>,
}

impl LaneStats {
    /// A counter; 0 if the daemon does not have it.
    pub fn value(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }
}

/// Reads the counters of the daemon with run directory `run_dir`.
///
/// # Errors
/// The counter file is missing, or is something else.
pub fn read(run_dir: &Path) -> Result<Stats> {
    Ok(of(open(run_dir)?.read()))
}

/// As [`read`], but a port of several queue pairs is one port for each, such as `nic0/web#0`.
///
/// # Errors
/// The same.
pub fn read_queues(run_dir: &Path) -> Result<Stats> {
    Ok(of(by_queue(open(run_dir)?.read_each())))
}

/// Numbers the blocks of ports that have several.
fn by_queue(mut blocks: Vec<CounterSnapshot>) -> Vec<CounterSnapshot> {
    let are_one_port = |one: &CounterSnapshot, other: &CounterSnapshot| {
        one.kind == "port" && (&one.kind, &one.label) == (&other.kind, &other.label)
    };
    for queues in blocks.chunk_by_mut(are_one_port).filter(|queues| queues.len() > 1) {
        for (number, queue) in queues.iter_mut().enumerate() {
            queue.label = format!("{}#{number}", queue.label);
        }
    }
    blocks
}

/// Name of a port, of which one queue pair may be meant as [`read_queues`] names it.
pub fn without_queue(name: &str) -> &str {
    name.split_once('#').map_or(name, |(port, _)| port)
}

/// Opens the counter file.
fn open(run_dir: &Path) -> Result<Reader> {
    Reader::open(&crate::run_dir::counters_path(run_dir)).map_err(|error| match &error {
        CountersError::Open { source, .. } if source.kind() == ErrorKind::NotFound => {
            Problems::from(no_daemon(run_dir, error)).into()
        }
        _ => anyhow::Error::new(error),
    })
}

/// `true` if a daemon with this run directory runs. Otherwise [`read`] returns the last counters of
/// a killed one; a daemon that exits removes its counters.
///
/// # Errors
/// The lock cannot be read.
pub fn is_running(run_dir: &Path) -> Result<bool> {
    crate::run_dir::is_claimed(run_dir)
}

/// Sorts the blocks of a counter file.
pub fn of(snapshots: Vec<CounterSnapshot>) -> Stats {
    let mut stats = Stats::default();
    for block in snapshots {
        match block.kind.as_str() {
            "port" => stats.ports.push(port(block)),
            "lane" => {
                let values = named(block.values);
                stats.lanes.push(LaneStats { lane: block.label, values });
            }
            "limit" => {
                let value = |name| block.values.get(name).copied().unwrap_or(0);
                let [used, allowed, refused] = ["used", "allowed", "refused"].map(value);
                stats.limits.push(LimitStats { name: block.label, used, allowed, refused });
            }
            "daemon" => {
                let value = |name| block.values.get(name).copied().unwrap_or(0);
                stats.log_lines_dropped = value("log_lines_dropped");
                stats.forbidden_calls = value("forbidden_calls");
                let parts = host::sandbox::PARTS.iter().enumerate();
                let is_in_force = |(bit, _): &(usize, _)| value("sandbox") & 1 << bit != 0;
                let parts = parts.filter(is_in_force).map(|(_, part)| (*part).to_owned());
                stats.sandbox = parts.collect();
            }
            _ => {} // of a daemon that counts more than this program knows
        }
    }
    stats
}

fn named(mut values: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    values.remove("-"); // padding
    values
}

fn port(block: CounterSnapshot) -> PortStats {
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
        tx_cycles: get("tx_cycles"),
        tx_bursts: get("tx_bursts"),
        tx_backlog_bursts: get("tx_backlog_bursts"),
        rx_frames: get("rx_frames"),
        rx_bytes: get("rx_bytes"),
        tx_uplink_frames: get("tx_uplink_frames"),
        tx_uplink_bytes: get("tx_uplink_bytes"),
        rx_uplink_frames: get("rx_uplink_frames"),
        rx_uplink_bytes: get("rx_uplink_bytes"),
        notifies: get("tx_notifies") + get("rx_notifies"),
        drops: of_kind("_drop_"),
        faults: of_kind("_fault_"),
        quarantines: get("quarantines"),
        notifies_moved: get("notifies_moved"),
        name: block.label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: &str, label: &str, values: &[(&str, u64)]) -> CounterSnapshot {
        let values = values.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        CounterSnapshot { kind: kind.into(), label: label.into(), values }
    }

    #[test]
    fn ports_and_lanes_are_sorted_out_in_their_order() {
        let stats = of(vec![
            block("port", "n/vf1", &[]),
            block("lane", "0", &[("rounds", 3), ("-", 9)]),
            block("port", "n/vf0", &[]),
            block("lane", "1", &[]),
            block(
                "daemon",
                "daemon",
                &[("log_lines_dropped", 7), ("forbidden_calls", 2), ("sandbox", 5)],
            ),
            block("limit", "threads", &[("used", 9), ("allowed", 100), ("refused", 3)]),
            block("moon", "beam", &[]),
        ]);
        let threads = LimitStats { name: "threads".into(), used: 9, allowed: 100, refused: 3 };
        assert_eq!(stats.limits, [threads]);
        assert_eq!((stats.log_lines_dropped, stats.forbidden_calls), (7, 2));
        assert_eq!(stats.sandbox, ["capabilities", "files"]);
        let ports: Vec<_> = stats.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(ports, ["n/vf1", "n/vf0"]);
        let lanes: Vec<_> = stats.lanes.iter().map(|lane| lane.lane.as_str()).collect();
        assert_eq!(lanes, ["0", "1"]);
        assert!(stats.lanes[0].values.iter().eq([(&"rounds".to_string(), &3)]), "no padding");
    }

    #[test]
    fn queue_pairs_of_a_port_are_numbered() {
        let all = [("port", "n/a"), ("port", "n/a"), ("port", "n/b"), ("lane", "0"), ("lane", "0")];
        let all = by_queue(all.map(|(kind, label)| block(kind, label, &[])).to_vec());
        let labels: Vec<_> = all.iter().map(|block| &*block.label).collect();
        assert_eq!(labels, ["n/a#0", "n/a#1", "n/b", "0", "0"]);
        assert_eq!(["n/a#1", "n/b"].map(without_queue), ["n/a", "n/b"]);
    }

    #[test]
    fn a_ports_counters_have_their_places() {
        let values = [
            ("-", 77),
            ("rings_attached", 2),
            ("tx_frames", 10),
            ("tx_bytes", 600),
            ("tx_cycles", 300),
            ("tx_bursts", 4),
            ("tx_backlog_bursts", 1),
            ("tx_notifies", 3),
            ("tx_drop_spoofed_mac", 1),
            ("tx_drop_hairpin", 0),
            ("tx_fault_index_jump", 1),
            ("rx_frames", 20),
            ("rx_bytes", 1200),
            ("tx_uplink_frames", 8),
            ("tx_uplink_bytes", 480),
            ("rx_uplink_frames", 9),
            ("rx_uplink_bytes", 540),
            ("rx_notifies", 4),
            ("rx_drop_no_buffer", 5),
            ("rx_fault_index_jump", 0),
            ("rx_fault_bad_index", 2),
            ("quarantines", 1),
        ];
        let stats = of(vec![block("port", "n/vf0", &values)]);
        let json = serde_json::to_value(&stats.ports[0]).unwrap();
        let expected = serde_json::json!({
            "name": "n/vf0",
            "rings_attached": 2,
            "tx_frames": 10,
            "tx_bytes": 600,
            "tx_cycles": 300,
            "tx_bursts": 4,
            "tx_backlog_bursts": 1,
            "rx_frames": 20,
            "rx_bytes": 1200,
            "tx_uplink_frames": 8,
            "tx_uplink_bytes": 480,
            "rx_uplink_frames": 9,
            "rx_uplink_bytes": 540,
            "notifies": 7,
            "drops": {"tx_spoofed_mac": 1, "rx_no_buffer": 5},
            "faults": {"tx_index_jump": 1, "rx_bad_index": 2},
            "quarantines": 1,
            "notifies_moved": 0,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn every_drop_reason_and_ring_fault_is_shown_under_the_name_that_is_explained() {
        for (kind, reasons) in [("drop", &DROPS[..]), ("fault", &FAULTS)] {
            for counter in reasons.iter().flat_map(ReasonEntry::counters) {
                let in_file = counter.replacen('_', &format!("_{kind}_"), 1);
                let stats = of(vec![block("port", "n/vf0", &[(&in_file, 1)])]);
                let PortStats { drops, faults, .. } = &stats.ports[0];
                let shown = if kind == "drop" { drops } else { faults };
                assert!(shown.iter().eq([(&counter.to_owned(), &1)]), "{counter}: {stats:?}");
                assert_eq!(drops.len() + faults.len(), 1, "{counter}");
            }
        }
    }

    #[test]
    fn counters_of_another_version_are_zero() {
        let stats = of(vec![block("port", "n/vf0", &[("rx_moonbeams", 1)])]);
        let port = &stats.ports[0];
        assert_eq!((port.rx_frames, port.notifies, port.rings_attached), (0, 0, 0));
        assert!(port.drops.is_empty() && port.faults.is_empty());
    }

    #[test]
    fn a_lane_shows_its_counters_beside_its_number() {
        let stats = of(vec![block("lane", "3", &[("rounds", 5), ("sleeps", 1)])]);
        let json = serde_json::to_value(&stats.lanes[0]).unwrap();
        assert_eq!(json, serde_json::json!({"lane": "3", "rounds": 5, "sleeps": 1}));
    }

    #[test]
    fn without_a_daemon_the_error_says_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(dir.path().to_str().unwrap()) && error.contains("start it"));
        std::fs::write(crate::run_dir::counters_path(dir.path()), "something else").unwrap();
        let error = format!("{:#}", read(dir.path()).unwrap_err());
        assert!(error.contains("is not a counter file of shunt"), "{error}");
    }
}

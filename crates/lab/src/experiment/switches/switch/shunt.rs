//! Shunt: two VFs of a soft NIC, classified by MAC, spoof check on; or two adapters on its switch.

use std::path::{Path, PathBuf};

use anyhow::Result;
use model::state::PathInForce;
use serde_json::{Value, json};

use super::super::launch::{LaunchSpec, MACS, Start, SwitchCounters, SwitchKind, SwitchProcess};
use super::super::{BURSTS_MAX, rules};
use crate::bench::{Bench, SwitchedBench};
use crate::measure::stages::StageCounts;

pub(super) static VFS: SwitchKind = SwitchKind {
    name: "shunt",
    about: "the daemon, two VFs",
    start: Start::Sockets(|spec, sockets| start(spec, sockets, Ports::Vfs)),
    ..KIND
};

pub(super) static VFS_BESIDE_SWITCH: SwitchKind = SwitchKind {
    name: "shunt-beside-switch",
    about: "the daemon, two VFs of a NIC that has a switch, too",
    start: Start::Sockets(|spec, sockets| start(spec, sockets, Ports::VfsBesideSwitch)),
    ..KIND
};

pub(super) static SWITCH: SwitchKind = SwitchKind {
    name: "shunt-switch",
    about: "the daemon, two adapters on the path synthetic, learning",
    start: Start::Sockets(|spec, sockets| start(spec, sockets, Ports::Switch)),
    ..KIND
};

pub(super) static RULES: SwitchKind = SwitchKind {
    name: "shunt-rules",
    about: "the daemon, two adapters on the path synthetic, learning, a VLAN and 100 rules",
    start: Start::Sockets(|spec, sockets| start(spec, sockets, Ports::Rules)),
    ..KIND
};

/// Common to all.
const KIND: SwitchKind = SwitchKind {
    name: "",
    about: "",
    cycles: None,
    bursts_max: BURSTS_MAX,
    hugepages: 0,
    is_installed: || true,
    start: Start::Sockets(|spec, sockets| start(spec, sockets, Ports::Vfs)),
};

/// Ports of the guest.
#[derive(Clone, Copy, PartialEq)]
enum Ports {
    Vfs,
    VfsBesideSwitch,
    Switch,
    Rules,
}

impl Ports {
    /// Path of both adapters; `None` for VFs.
    fn path(self) -> Option<PathInForce> {
        match self {
            Ports::Vfs => None,
            Ports::VfsBesideSwitch => Some(PathInForce::Vf),
            Ports::Switch | Ports::Rules => Some(PathInForce::Synthetic),
        }
    }
}

fn start(
    spec: &LaunchSpec<'_>,
    sockets: &[PathBuf; 2],
    ports: Ports,
) -> Result<Box<dyn SwitchProcess>> {
    let cpu = spec.switch_cpu;
    let config = |run_dir: &Path| configuration(run_dir, sockets, cpu, ports);
    let Some(path) = ports.path() else {
        return Ok(Box::new(Bench::with_config(spec.program, config)?));
    };
    Ok(Box::new(SwitchedBench::with_config(spec.program, &[path; 2], config)?.bench))
}

/// Configuration of a daemon between two sockets on which guests listen.
fn configuration(
    run_dir: &Path,
    sockets: &[PathBuf; 2],
    cpu: usize,
    ports: Ports,
) -> Result<String> {
    let attachment = |i: usize| {
        json!({
            "socket": sockets[i],
            "mode": "client",
            "in_order": true,
            "mergeable": true,
            "packed": true,
        })
    };
    let mut nic = json!({ "name": "nic0", "kind": "soft" });
    let mut all = json!({ "run_dir": run_dir, "lanes": { "cpus": [cpu] } });
    if ports.path().is_none() {
        let vf = |i: usize| json!({ "mac": MACS[i].to_string(), "attachment": attachment(i) });
        nic["vf"] = json!([vf(0), vf(1)]);
    }
    if let Some(path) = ports.path() {
        let is_vf = path == PathInForce::Vf;
        nic["total_vfs"] = json!(if is_vf { 2 } else { 0 });
        let mut switch = json!({ "name": "sw0", "nic": "nic0", "iov": is_vf });
        let adapter = |i: usize| {
            let mut adapter = json!({
                "name": format!("g{i}"),
                "switch": "sw0",
                "mac": MACS[i].to_string(),
                "path": path,
                "iov_weight": 100,
                "attachment": attachment(i),
            });
            if ports == Ports::Rules {
                adapter["vlan"] = json!({ "id": rules::VLAN });
            }
            adapter
        };
        if ports == Ports::Rules {
            let port = |i: usize| json!({ "adapter": format!("g{i}"), "acl": rules::acl() });
            switch["port"] = json!([port(0), port(1)]);
        }
        all["switch"] = Value::from(vec![switch]);
        all["adapter"] = json!([adapter(0), adapter(1)]);
    }
    all["nic"] = json!([nic]);
    Ok(toml::to_string(&all)?)
}

impl SwitchProcess for Bench {
    fn pids(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    fn counted(&mut self) -> Result<SwitchCounters> {
        let stats = self.stats()?;
        let lanes = stats.lanes.iter();
        let sum = |name| lanes.clone().filter_map(|lane| lane.values.get(name)).sum();
        Ok(SwitchCounters {
            frames: sum("frames"),
            busy_cycles: sum("busy_cycles"),
            kernel_cycles: 0,
            stages: StageCounts::read(&stats),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_has_two_ports() {
        let sockets = ["/run/a.sock", "/run/b.sock"].map(PathBuf::from);
        for (ports, rules) in [
            (Ports::Vfs, 0),
            (Ports::VfsBesideSwitch, 0),
            (Ports::Switch, 0),
            (Ports::Rules, 2 * rules::acl().len()),
        ] {
            let text = configuration(Path::new("/run/lab"), &sockets, 3, ports).unwrap();
            assert!(text.contains("cpus = [3]"), "{text}");
            assert_eq!(text.matches("mode = \"client\"").count(), 2, "{text}");
            assert_eq!(text.matches("action = \"deny\"").count(), rules, "{text}");
        }
    }
}

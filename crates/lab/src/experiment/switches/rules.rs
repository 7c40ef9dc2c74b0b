//! The same work for two switches: a VLAN, and a hundred rules of which none matches a frame.
//!
//! Both learn addresses, forward by them within the VLAN, and check each flow against every rule.
//! Shunt also knows both addresses beforehand and refuses all others (spoof check).

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::super::switching;
use super::side::MACS;
use crate::bench::peers::ovs::Flows;

/// VLAN of both ports.
const VLAN: u16 = 7;

/// Configuration of a daemon between two sockets on which guests listen: two VFs, or two adapters
/// on a switch with rules.
pub(super) fn shunt(
    run_dir: &Path,
    sockets: &[&Path; 2],
    cpu: usize,
    ruled: bool,
) -> Result<String> {
    let socket = |i: usize| {
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
    if ruled {
        nic["total_vfs"] = json!(0);
        let port = |i: usize| json!({ "adapter": format!("vf{i}"), "acl": switching::rules() });
        all["switch"] = json!([{ "name": "sw0", "nic": "nic0", "port": [port(0), port(1)] }]);
        let adapter = |i: usize| {
            json!({
                "name": format!("vf{i}"),
                "switch": "sw0",
                "mac": MACS[i].to_string(),
                "path": "synthetic",
                "vlan": { "id": VLAN },
                "attachment": socket(i),
            })
        };
        all["adapter"] = json!([adapter(0), adapter(1)]);
    } else {
        let vf = |i: usize| {
            let mut vf = socket(i);
            vf["mac"] = json!(MACS[i].to_string());
            vf
        };
        nic["vf"] = json!([vf(0), vf(1)]);
    }
    all["nic"] = json!([nic]);
    Ok(toml::to_string(&all)?)
}

/// Flows of Open vSwitch: a static one each way, or the rules.
pub(super) fn flows(ruled: bool) -> Flows {
    if !ruled {
        return Flows::Static;
    }
    let (flows, vlan) = ovs();
    Flows::Rules(flows, vlan)
}

/// The rules as OpenFlow flows, and the VLAN: what no rule denies is switched by addresses.
fn ovs() -> (Vec<String>, u16) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let flow = |(i, rule): (usize, Value)| {
        let udp = rule["protocol"] == json!(17);
        let fields = [
            ("to_ip", if udp { "udp,nw_dst" } else { "ip,nw_dst" }),
            ("to_port", "tcp,tp_dst"),
            ("from_mac", "dl_src"),
            ("from_ip", "ip,nw_src"),
        ];
        let fields = fields.iter().filter(|(name, _)| !rule[*name].is_null());
        let fields = fields.map(|(name, field)| format!("{field}={}", text(&rule[*name])));
        let matched = fields.collect::<Vec<_>>().join(",");
        format!("priority={},{matched},actions=drop", 1000 - i)
    };
    let mut flows: Vec<String> = switching::rules().into_iter().enumerate().map(flow).collect();
    flows.push("priority=1,actions=NORMAL".into());
    (flows, VLAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_switches_have_the_same_rules() {
        let (flows, vlan) = ovs();
        assert_eq!((flows.len(), vlan), (101, VLAN));
        assert_eq!(flows[0], "priority=1000,udp,nw_dst=203.0.113.0/32,actions=drop");
        assert_eq!(flows[1], "priority=999,tcp,tp_dst=1001,actions=drop");
        assert_eq!(flows[2], "priority=998,dl_src=02:5b:ee:00:00:02,actions=drop");
        assert_eq!(flows[3], "priority=997,ip,nw_src=10.3.0.0/16,actions=drop");
    }

    #[test]
    fn the_configuration_has_two_ports() {
        let sockets = [Path::new("/run/a.sock"), Path::new("/run/b.sock")];
        for ruled in [false, true] {
            let text = shunt(Path::new("/run/lab"), &sockets, 3, ruled).unwrap();
            assert!(text.contains("cpus = [3]"), "{text}");
            assert_eq!(text.matches("mode = \"client\"").count(), 2, "{text}");
            assert_eq!(text.matches("action = \"deny\"").count(), if ruled { 200 } else { 0 });
        }
    }
}

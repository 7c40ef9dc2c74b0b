//! The devices of this node, from the daemon's document and its actual state: VFs of its NICs, and
//! ports of its switches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bridge::switch::MAX_PORTS;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity,
    DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use crate::allocation::{BANDWIDTH, Place};
use crate::checkpoint::Claims;
use crate::options::Options;

/// Reason that no pod should get a device: a taint, which keeps those that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taint {
    /// The daemon does not answer.
    DaemonDown,
    /// The NIC has no link, or is gone.
    NicDown,
    /// An adapter of others has the VF.
    InUse,
}

impl Taint {
    /// The taint in a slice.
    pub fn of(self, driver: &str) -> DeviceTaint {
        let name = match self {
            Taint::DaemonDown => "daemon-down",
            Taint::NicDown => "nic-down",
            Taint::InUse => "in-use",
        };
        DeviceTaint {
            key: format!("{driver}/{name}"),
            effect: "NoSchedule".to_owned(),
            ..DeviceTaint::default()
        }
    }
}

/// A node, as the daemon shows it.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `/v1/state`.
    pub document: Value,
    /// `/v1/actual`.
    pub actual: Value,
}

/// All devices, in the order of their names.
pub fn devices(node: &Node, claims: &Claims, options: &Options) -> Vec<Device> {
    let mut devices = Vec::new();
    let nics: BTreeMap<String, Nic> = list(&node.document, "nic")
        .map(|nic| (text(nic, "name").to_owned(), Nic::of(nic, node, options)))
        .collect();
    let claimed: BTreeSet<&str> =
        claims.values().flat_map(|claim| &claim.devices).map(|it| it.device.as_str()).collect();
    for (name, nic) in &nics {
        for index in nic.vfs.clone() {
            let place = Place::Vf(name.clone(), index);
            let mut device = nic.device(&place, options);
            let is_on = |it: &Value| {
                it["nic"] == name.as_str() || nic.switches.iter().any(|sw| it["switch"] == **sw)
            };
            let mut adapters = list(&node.document, "adapter");
            let is_used = adapters.any(|it| it["vf"] == index && is_on(it));
            if is_used && !claimed.contains(device.name.as_str()) {
                device.taints.get_or_insert_default().push(Taint::InUse.of(&options.driver));
            }
            devices.push(device);
        }
        for switch in &nic.switches {
            let mut device = nic.device(&Place::Switch(switch.clone()), options);
            device.allow_multiple_allocations = Some(true);
            // One port is the uplink's.
            let ports = u64::try_from(MAX_PORTS - 1).unwrap_or_default();
            let one = || Quantity("1".to_owned());
            let range = |min, max, step| CapacityRequestPolicyRange { min, max, step };
            let policy = |default, range| CapacityRequestPolicy {
                default: Some(default),
                valid_range: Some(range),
                valid_values: None,
            };
            let capacity = |value, policy| DeviceCapacity { value, request_policy: Some(policy) };
            let mut capacities = BTreeMap::from([(
                "ports".to_owned(),
                capacity(
                    Quantity(ports.to_string()),
                    policy(one(), range(one(), Some(one()), None)),
                ),
            )]);
            if let Some(mbps) = nic.speed_mbps {
                let zero = || Quantity("0".to_owned());
                let step = Some(Quantity("1M".to_owned()));
                let policy = policy(zero(), range(zero(), None, step));
                capacities.insert(BANDWIDTH.to_owned(), capacity(bits_per_s(mbps), policy));
            }
            device.capacity = Some(capacities);
            devices.push(device);
        }
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// Quantity as the API server writes it: with the largest suffix that leaves a whole number.
fn bits_per_s(mbps: u64) -> Quantity {
    let suffixes = [(1_000_000, "T"), (1_000, "G")];
    let suffix = suffixes.into_iter().find(|(factor, _)| mbps > 0 && mbps.is_multiple_of(*factor));
    let (factor, suffix) = suffix.unwrap_or((1, "M"));
    Quantity(format!("{}{suffix}", mbps / factor))
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

/// A NIC, with the names of its switches.
struct Nic {
    name: String,
    kind: String,
    vfs: Vec<u16>,
    switches: Vec<String>,
    /// Address of its PF, of a card.
    address: Option<String>,
    numa_node: Option<i64>,
    speed_mbps: Option<u64>,
    is_down: bool,
}

impl Nic {
    fn of(nic: &Value, node: &Node, options: &Options) -> Nic {
        let name = text(nic, "name").to_owned();
        let switches = list(&node.document, "switch").filter(|it| it["nic"] == name.as_str());
        let state = list(&node.actual["actual"], "nics").find(|it| it["name"] == name.as_str());
        let state = state.unwrap_or(&Value::Null);
        let card = &state["card"];
        let interface = card["interface"].as_str().or_else(|| nic["uplink"]["interface"].as_str());
        let interface = interface.map(|it| options.sysfs.join("class/net").join(it));
        let read = |file: &str| read(&interface.as_ref()?.join(file));
        let address = card["address"].as_str().map(str::to_owned);
        let node_of_pf = address.as_ref().and_then(|address| {
            let device = options.sysfs.join("bus/pci/devices").join(address);
            self::read(&device.join("numa_node"))
        });
        let numa_node = node_of_pf.or_else(|| read("device/numa_node"));
        let is_down = state.is_null()
            || card["present"] == false
            || state["uplink"]["state"].as_str().is_some_and(|it| it != "up")
            || (card.is_object() && read("operstate").as_deref() == Some("down"));
        let own: BTreeSet<u64> = list(nic, "vf").filter_map(|vf| vf["index"].as_u64()).collect();
        let enabled = u16::try_from(nic["num_vfs"].as_u64().unwrap_or_default()).unwrap_or(0);
        let has_vfs = state["support"].as_str().is_none_or(|it| it == "Supported");
        let all = if has_vfs { 0..enabled } else { 0..0 };
        Nic {
            kind: text(nic, "kind").to_owned(),
            // Those of the document are the operator's.
            vfs: all.filter(|index| !own.contains(&u64::from(*index))).collect(),
            switches: switches.map(|it| text(it, "name").to_owned()).collect(),
            address,
            numa_node: numa_node.and_then(|it| it.parse().ok()).filter(|node| *node >= 0),
            speed_mbps: read("speed").and_then(|it| it.parse().ok()).filter(|it| *it > 0),
            is_down,
            name,
        }
    }

    fn device(&self, place: &Place, options: &Options) -> Device {
        let driver = &options.driver;
        let string = |it: &str| DeviceAttribute {
            string: Some(it.to_owned()),
            ..DeviceAttribute::default()
        };
        let int = |it: i64| DeviceAttribute { int: Some(it), ..DeviceAttribute::default() };
        let mut attributes = BTreeMap::new();
        let mut put = |name: &str, value| drop(attributes.insert(name.to_owned(), value));
        put("nic", string(&self.name));
        put("kind", string(&self.kind));
        put("rdma", DeviceAttribute { bool: Some(false), ..DeviceAttribute::default() });
        let resource = match place {
            Place::Switch(switch) => {
                put("path", string("synthetic"));
                put("switch", string(switch));
                switch
            }
            Place::Vf(nic, index) => {
                put("path", string("vf"));
                put("vf", int(i64::from(*index)));
                let address = self.address.as_ref().and_then(|pf| {
                    let pf = options.sysfs.join("bus/pci/devices").join(pf);
                    let vf = fs::canonicalize(pf.join(format!("virtfn{index}"))).ok()?;
                    Some(vf.file_name()?.to_str()?.to_owned())
                });
                if let Some(address) = &address {
                    put("resource.kubernetes.io/pciBusID", string(address));
                }
                let id = address.unwrap_or_else(|| format!("{nic}/vf{index}"));
                put("k8s.cni.cncf.io/deviceID", string(&id));
                nic
            }
        };
        put("k8s.cni.cncf.io/resourceName", string(&format!("{driver}/{resource}")));
        if let Some(node) = self.numa_node {
            put("numaNode", int(node));
        }
        if let Some(mbps) = self.speed_mbps {
            put("speedMbps", int(i64::try_from(mbps).unwrap_or(i64::MAX)));
        }
        if let Some(network) = options.physical_networks.get(&self.name) {
            put("physicalNetwork", string(network));
        }
        Device {
            name: place.device(),
            attributes: Some(attributes),
            taints: self.is_down.then(|| vec![Taint::NicDown.of(driver)]),
            ..Device::default()
        }
    }
}

/// First line of a file.
fn read(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Claim, Device as Allocated};
    use serde_json::json;

    /// A machine with a card of two VFs, and a wire of 25 Gbit/s.
    fn sysfs() -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sysfs.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("bus/pci/devices/0000:01:00.0/numa_node", "1\n");
        write("bus/pci/devices/0000:01:10.0/x", "");
        write("class/net/ens1/speed", "100000\n");
        write("class/net/ens1/operstate", "down\n");
        write("class/net/eth0/speed", "25000\n");
        let pci = sysfs.path().join("bus/pci/devices");
        std::os::unix::fs::symlink("../0000:01:10.0", pci.join("0000:01:00.0/virtfn0")).unwrap();
        sysfs
    }

    fn node() -> Node {
        Node {
            document: json!({
                "nic": [
                    {"name": "nic0", "kind": "soft", "num_vfs": 3, "vf": [{"index": 0}],
                     "uplink": {"kind": "xdp", "interface": "eth0"}},
                    {"name": "card0", "kind": "pci", "num_vfs": 1},
                ],
                "switch": [{"name": "sw0", "nic": "nic0"}],
                "adapter": [{"name": "web", "switch": "sw0", "vf": 1}, {"name": "db", "nic": "nic0"}],
            }),
            actual: json!({"actual": {"nics": [
                {"name": "nic0", "support": "Supported", "uplink": {"state": "up"}},
                {"name": "card0", "support": "Supported",
                 "card": {"address": "0000:01:00.0", "present": true, "interface": "ens1"}},
            ]}}),
        }
    }

    fn taints(device: &Device) -> Vec<&str> {
        device.taints.iter().flatten().map(|taint| taint.key.as_str()).collect()
    }

    #[test]
    fn vfs_and_switches_are_devices() {
        let sysfs = sysfs();
        let mut options = Options::of("node1");
        options.sysfs = sysfs.path().to_owned();
        options.physical_networks = BTreeMap::from([("nic0".to_owned(), "physnet1".to_owned())]);
        let devices = devices(&node(), &Claims::new(), &options);
        let names: Vec<&str> = devices.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["card0-vf0", "nic0-vf1", "nic0-vf2", "sw0-port"]);
        let all = json!(devices);
        let attributes = json!({
            "nic": {"string": "card0"}, "kind": {"string": "pci"}, "path": {"string": "vf"},
            "vf": {"int": 0}, "rdma": {"bool": false}, "numaNode": {"int": 1},
            "speedMbps": {"int": 100_000},
            "resource.kubernetes.io/pciBusID": {"string": "0000:01:10.0"},
            "k8s.cni.cncf.io/deviceID": {"string": "0000:01:10.0"},
            "k8s.cni.cncf.io/resourceName": {"string": "shunt.dev/card0"},
        });
        assert_eq!(all[0]["attributes"], attributes);
        assert_eq!(all[2]["attributes"]["k8s.cni.cncf.io/deviceID"]["string"], "nic0/vf2");
        assert_eq!(all[2]["attributes"]["physicalNetwork"]["string"], "physnet1");
        assert_eq!(all[3]["allowMultipleAllocations"], true);
        assert_eq!(all[3]["capacity"]["ports"]["value"], "511");
        assert_eq!(all[3]["capacity"]["bandwidth"]["value"], "25G");
        let taints: Vec<_> = devices.iter().map(taints).collect();
        let in_use = vec!["shunt.dev/in-use"];
        assert_eq!(taints, [vec!["shunt.dev/nic-down"], in_use, vec![], vec![]]);
    }

    #[test]
    fn a_claim_does_not_taint_its_own_device_and_a_link_taints_all() {
        let device = Allocated {
            request: "net1".to_owned(),
            pool: "node1".to_owned(),
            device: "nic0-vf1".to_owned(),
            share: None,
            adapter: None,
        };
        let claim = Claim {
            uid: "u1".to_owned(),
            namespace: String::new(),
            name: String::new(),
            pod_claim: None,
            pods: vec![],
            devices: vec![device],
        };
        let claims = Claims::from([("u1".to_owned(), claim)]);
        let options = Options { sysfs: "/nowhere".into(), ..Options::of("node1") };
        let mut node = node();
        let found = devices(&node, &claims, &options);
        assert!(found.iter().all(|device| taints(device).is_empty()), "{found:?}");
        assert_eq!(json!(found)[3]["capacity"].get("bandwidth"), None, "no speed is known");
        node.actual["actual"]["nics"][0]["uplink"]["state"] = json!("down");
        node.actual["actual"]["nics"][1]["support"] = json!("NicNoVfs");
        let found = devices(&node, &claims, &options);
        assert_eq!(found.len(), 3, "a card without support has no VFs");
        assert!(found.iter().all(|device| taints(device) == ["shunt.dev/nic-down"]));
    }

    #[test]
    fn quantities_have_the_largest_suffix() {
        for (mbps, text) in [(0, "0M"), (500, "500M"), (25_000, "25G"), (2_500, "2500M")] {
            assert_eq!(bits_per_s(mbps).0, text);
        }
    }
}

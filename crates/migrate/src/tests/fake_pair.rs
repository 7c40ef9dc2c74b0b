//! Devices of a failover pair, as a fake QEMU has them.

use serde_json::{Value, json};

/// The standby `nic`, and the primary.
#[derive(Debug)]
pub(crate) struct FakePair {
    /// MAC address of the standby.
    pub(crate) mac: &'static str,
    /// Id of the primary, and whether the guest uses it.
    pub(crate) primary: Option<(String, bool)>,
    /// Devices that were plugged.
    pub(crate) added: Vec<Value>,
}

impl FakePair {
    pub(crate) fn new(mac: &'static str) -> FakePair {
        FakePair { mac, primary: None, added: Vec::new() }
    }

    /// Answer to a command about devices; `None` for any other.
    pub(crate) fn answer(
        &mut self,
        name: &str,
        arguments: &Value,
    ) -> Option<Result<Value, String>> {
        Some(Ok(match name {
            "qom-list" => {
                let id = self.primary.iter().map(|(id, _)| ("child<e1000e>", id.as_str()));
                let all = [("child<virtio-net-pci>", "nic"), ("child<serial>", "s0")];
                let all = all.into_iter().chain(id).chain([("string", "type")]);
                all.map(|(kind, name)| json!({"name": name, "type": kind})).collect()
            }
            "qom-get" => {
                let path = arguments["path"].as_str().unwrap();
                match (path.rsplit('/').next().unwrap(), arguments["property"].as_str().unwrap()) {
                    ("nic", "mac") => json!(self.mac),
                    ("nic", "failover") => json!(true),
                    ("s0" | "type", _) | (_, "host") => {
                        return Some(Err("no such property".into()));
                    }
                    (_, "failover_pair_id") => json!("nic"),
                    (_, "type") => json!("e1000e"),
                    (_, "netdev") => json!("n1"),
                    _ => json!(""),
                }
            }
            "query-pci" => {
                let device = |(id, used): &(String, bool)| {
                    let address = if *used { 4096 } else { -1 };
                    json!({"qdev_id": id, "regions": [{"bar": 0, "address": address}]})
                };
                let devices: Vec<Value> = self.primary.iter().map(device).collect();
                json!([{"devices": [{"qdev_id": "slot1", "pci_bridge": {"devices": devices}}]}])
            }
            "device_add" => {
                self.added.push(arguments.clone());
                self.primary = Some((arguments["id"].as_str().unwrap().to_owned(), true));
                json!({})
            }
            _ => return None,
        }))
    }
}

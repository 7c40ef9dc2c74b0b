//! The adapter of a container's interface: its name, and its part of the document.
//!
//! Name and MAC address are made of network, container and interface, so that a repeated command
//! finds what the first one made. The labels of the owner say whose it is.

use std::fs;
use std::path::{Path, PathBuf};

use common::{Key, Kind};
use serde_json::{Value, json};

use crate::config::Network;
use crate::environment::{Environment, Place};
use crate::error::{CniError, Code};
use crate::result::Addresses;

/// Longest label of an owner, in bytes.
const LABEL_MAX: usize = 253;

fn key(network: &str, place: &Place<'_>) -> Key {
    Key::of(&[network, place.container, place.interface])
}

/// Name of the adapter.
pub fn name(network: &str, place: &Place<'_>) -> String {
    key(network, place).name("cni")
}

/// Path of the vhost-user socket of an adapter.
fn socket(network: &Network, adapter: &str) -> String {
    format!("{}/{adapter}.sock", network.socket_dir.trim_end_matches('/'))
}

/// A VF: its NIC's name, and its index.
pub type VfOf = (String, u16);

/// The adapter as the document has it; `vf` is the VF of `deviceID`.
///
/// # Errors
/// The network names neither a switch nor a NIC, or an address of the runtime has no prefix.
pub fn document(
    network: &Network,
    environment: &Environment,
    vf: Option<&VfOf>,
    addresses: &Addresses,
) -> Result<Value, CniError> {
    let place = environment.place()?;
    let name = name(&network.name, &place);
    let mut adapter = network.settings.fields();
    let mut put = |field: &str, value: Value| drop(adapter.insert(field.to_owned(), value));
    put("name", json!(name));
    put("owner", owner(network, environment, &place));
    let mac = network.mac().map_or_else(|| key(&network.name, &place).mac(), str::to_owned);
    put("mac", json!(mac));
    put("attachment", attachment(network, environment, &name, addresses)?);
    match (&network.switch, network.nic.as_ref().or(vf.map(|(nic, _)| nic))) {
        (Some(switch), _) => put("switch", json!(switch)),
        (None, Some(nic)) => put("nic", json!(nic)),
        (None, None) => {
            let message = format!("network {} names neither a switch nor a NIC", network.name);
            let remedy =
                "write \"switch\", or \"nic\" for VFs of a card, with a name of the daemon's";
            return Err(CniError::new(Code::Config, message, remedy));
        }
    }
    let needs_vf = vf.is_some() || network.switch.is_none();
    if let Some((_, index)) = vf {
        put("vf", json!(index));
    }
    if needs_vf && network.settings.iov_weight.is_none() {
        put("iov_weight", json!(100));
    }
    Ok(Value::Object(adapter))
}

fn owner(network: &Network, environment: &Environment, place: &Place<'_>) -> Value {
    let cut = |text: &str| text.chars().take(LABEL_MAX).collect::<String>();
    let mut owner = json!({
        "cni": cut(&network.name),
        "container": cut(place.container),
        "interface": cut(place.interface),
    });
    for (label, value) in &environment.pod {
        owner[*label] = json!(cut(value));
    }
    owner
}

fn attachment(
    network: &Network,
    environment: &Environment,
    adapter: &str,
    addresses: &Addresses,
) -> Result<Value, CniError> {
    let mut attachment = match network.kind() {
        Kind::VhostUser => {
            json!({"kind": "vhost-user", "socket": socket(network, adapter)})
        }
        kind => {
            let place = environment.place()?;
            let ips: Vec<&str> = addresses.ips.iter().map(|ip| ip.address.as_str()).collect();
            json!({
                "kind": if kind == Kind::Vf { "vf" } else { "tap" },
                "interface": place.interface, "netns": environment.netns()?, "ip": ips,
                "gateway": addresses.default_gateways(),
            })
        }
    };
    if let Some(mtu) = network.settings.mtu {
        attachment["mtu"] = json!(mtu);
    }
    Ok(attachment)
}

/// `true` for an adapter of a network whose container does not have it any more.
pub fn is_left(adapter: &Value, network: &Network) -> bool {
    let valid = network.valid.as_deref().unwrap_or_default();
    let owner = &adapter["owner"];
    let is_of = |it: &crate::config::Valid| {
        owner["container"] == it.container.as_str() && owner["interface"] == it.interface.as_str()
    };
    owner["cni"] == network.name.as_str() && !valid.iter().any(is_of)
}

/// PF and index of a VF by its PCI address, from the kernel's tree at `sysfs`.
pub fn pf_of(sysfs: &Path, address: &str) -> Option<(String, u16)> {
    let function =
        |path: PathBuf| Some(fs::canonicalize(path).ok()?.file_name()?.to_str()?.to_owned());
    let device = sysfs.join("bus/pci/devices").join(address);
    let pf = fs::canonicalize(device.join("physfn")).ok()?;
    let links = fs::read_dir(&pf).ok()?.filter_map(Result::ok);
    let index = links.filter_map(|link| {
        let index = link.file_name().to_str()?.strip_prefix("virtfn")?.parse().ok()?;
        (function(link.path())? == address).then_some(index)
    });
    Some((function(pf.clone())?, index.min()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn environment() -> Environment {
        Environment::read(|name| {
            let value = match name {
                "CNI_COMMAND" => "ADD",
                "CNI_CONTAINERID" => "c1",
                "CNI_IFNAME" => "net1",
                "CNI_NETNS" => "/run/netns/a",
                "CNI_ARGS" => "K8S_POD_NAME=web-0",
                _ => return None,
            };
            Some(value.to_owned())
        })
        .unwrap()
    }

    fn network(text: &Value) -> Network {
        Network::read(text.to_string().as_bytes()).unwrap()
    }

    /// The adapter, which the daemon's own model takes.
    fn adapter(config: &Value, vf: Option<&VfOf>) -> model::state::Adapter {
        let addresses = Addresses::read(json!({
            "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.96.0.0/12"}],
        }));
        let document = document(&network(config), &environment(), vf, &addresses.unwrap());
        serde_json::from_value(document.unwrap()).unwrap()
    }

    #[test]
    fn keys_become_settings_of_the_adapter() {
        let made = adapter(
            &json!({
                "name": "blue", "switch": "sw0", "vlan": 7, "vlanQoS": 3, "vlanProto": "802.1Q",
                "spoofchk": "off", "trust": "on", "link_state": "enable", "min_tx_rate": 10,
                "max_tx_rate": 20, "mtu": 9000, "path": "synthetic", "iovWeight": 5, "vmqWeight": 6,
            }),
            None,
        );
        let vlan = made.settings.vlan.unwrap();
        assert_eq!((vlan.id, vlan.qos, made.switch.as_deref()), (7, 3, Some("sw0")));
        assert!(!made.settings.spoof_check && made.settings.trust);
        assert_eq!((made.settings.min_tx_mbps, made.settings.max_tx_mbps), (10, 20));
        assert_eq!((made.iov_weight, made.vmq_weight), (5, 6));
        let model::state::Attachment::Tap(tap) = &made.attachment else { panic!("{made:?}") };
        assert_eq!((tap.interface.as_str(), tap.netns.as_deref()), ("net1", Some("/run/netns/a")));
        assert_eq!((tap.mtu, tap.ip.len(), tap.gateway.len()), (9000, 1, 1));
        assert_eq!(made.owner["pod"], "web-0");
        assert_eq!(made.owner["cni"], "blue");
        let again = adapter(&json!({"name": "blue", "switch": "sw0"}), None);
        assert_eq!((&again.name, again.mac), (&made.name, made.mac), "both are stable");
        let other = adapter(&json!({"name": "red", "switch": "sw0"}), None);
        assert!(other.name != made.name && other.mac != made.mac);
    }

    #[test]
    fn a_vf_is_the_one_that_the_runtime_names() {
        let vf = ("card0".to_owned(), 3);
        let made = adapter(&json!({"name": "n", "deviceID": "0000:01:10.6"}), Some(&vf));
        assert_eq!((made.nic.as_deref(), made.vf, made.iov_weight), (Some("card0"), Some(3), 100));
        assert!(made.attachment.is_vf());
        let any = adapter(&json!({"name": "n", "nic": "card0"}), None);
        assert_eq!((any.nic.as_deref(), any.vf, any.iov_weight), (Some("card0"), None, 100));
        let socket =
            adapter(&json!({"name": "n", "switch": "s", "attachment": "vhost-user"}), None);
        assert_eq!(
            socket.attachment.socket().unwrap(),
            format!("/run/shunt/cni/{}.sock", socket.name)
        );
        let none =
            document(&network(&json!({"name": "n"})), &environment(), None, &Addresses::default());
        assert_eq!(none.unwrap_err().code(), Code::Config as u64);
    }

    #[test]
    fn what_no_container_has_is_left() {
        let valid = json!([{"containerID": "c1", "ifname": "net1"}]);
        let network = network(&json!({"name": "n", "cni.dev/valid-attachments": valid}));
        let of = |cni: &str, container: &str, interface: &str| json!({"owner": {"cni": cni, "container": container, "interface": interface}});
        assert!(!is_left(&of("n", "c1", "net1"), &network));
        assert!(is_left(&of("n", "c1", "net2"), &network));
        assert!(is_left(&of("n", "c2", "net1"), &network));
        assert!(!is_left(&of("other", "c2", "net1"), &network), "of another network");
        assert!(!is_left(&json!({"name": "web"}), &network), "an operator's");
    }

    #[test]
    fn a_vf_is_found_by_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let devices = dir.path().join("bus/pci/devices");
        for address in ["0000:01:00.0", "0000:01:10.0", "0000:01:10.2"] {
            fs::create_dir_all(devices.join(address)).unwrap();
        }
        for (index, address) in ["0000:01:10.0", "0000:01:10.2"].iter().enumerate() {
            symlink(devices.join("0000:01:00.0"), devices.join(address).join("physfn")).unwrap();
            symlink(devices.join(address), devices.join(format!("0000:01:00.0/virtfn{index}")))
                .unwrap();
        }
        assert_eq!(pf_of(dir.path(), "0000:01:10.2"), Some(("0000:01:00.0".to_owned(), 1)));
        assert_eq!(pf_of(dir.path(), "0000:01:00.0"), None);
        assert_eq!(pf_of(dir.path(), "0000:09:10.2"), None);
    }
}

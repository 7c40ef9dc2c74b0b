//! Configuration of a network, as a container runtime passes it on standard input.
//!
//! Keys of the SR-IOV CNI plugin have its meaning: `deviceID`, `vlan`, `vlanQoS`, `vlanProto`,
//! `mac`, `spoofchk`, `trust`, `link_state`, `min_tx_rate`, `max_tx_rate`. Unknown keys are
//! ignored, as plugins do: a configuration may have keys for others.

use common::{Kind, Settings};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::error::{CniError, Code};

/// Versions of the specification, the newest last.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Configuration of a network.
#[derive(Clone, Debug, Deserialize)]
pub struct Network {
    /// Version of its format and of results.
    #[serde(rename = "cniVersion", default = "oldest")]
    pub version: String,
    /// Its name.
    pub name: String,
    /// IPAM plugin, without which a container gets only the addresses that the runtime requests.
    #[serde(default)]
    pub ipam: Option<Ipam>,
    /// Result of the plugin before, or of ADD.
    #[serde(default, rename = "prevResult")]
    pub previous: Option<Value>,
    /// Part that the runtime adds for a container.
    #[serde(default, rename = "runtimeConfig")]
    pub runtime: Runtime,
    /// Attachments that still exist, for GC: none if the list is `null`, as Go writes an empty one.
    #[serde(default, rename = "cni.dev/valid-attachments", deserialize_with = "given_list")]
    pub valid: Option<Vec<Valid>>,
    /// Directory of the daemon.
    #[serde(default = "run_dir", rename = "runDir")]
    pub run_dir: String,
    /// Switch of the adapters.
    #[serde(default)]
    pub switch: Option<String>,
    /// NIC of the adapters, instead of a switch: a card.
    #[serde(default)]
    pub nic: Option<String>,
    /// Attachment; by default a tap, or the interface of a VF if `nic` or `deviceID` is given.
    #[serde(default)]
    pub attachment: Option<Kind>,
    /// Directory of vhost-user sockets, which containers mount.
    #[serde(default = "socket_dir", rename = "socketDir")]
    pub socket_dir: String,
    /// A particular VF: its PCI address, or `NIC/vfN` of a soft NIC.
    #[serde(default, rename = "deviceID")]
    device: Option<String>,
    /// Settings of the adapters.
    #[serde(flatten)]
    pub settings: Settings,
}

/// An IPAM plugin.
#[derive(Clone, Debug, Deserialize)]
pub struct Ipam {
    /// Name of its executable.
    #[serde(rename = "type", default)]
    pub plugin: String,
}

/// Configuration by the runtime (CONVENTIONS.md of the specification).
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Runtime {
    /// MAC address.
    #[serde(default)]
    mac: Option<String>,
    /// IP addresses, each with a prefix length.
    #[serde(default)]
    pub ips: Vec<String>,
    /// A particular VF.
    #[serde(default, rename = "deviceID")]
    device: Option<String>,
    /// File for the device's description, for Multus.
    #[serde(default, rename = "CNIDeviceInfoFile")]
    pub device_info: Option<String>,
}

/// An attachment that still exists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Valid {
    /// Container.
    #[serde(rename = "containerID")]
    pub container: String,
    /// Interface.
    #[serde(rename = "ifname")]
    pub interface: String,
}

impl Network {
    /// Reads a configuration.
    ///
    /// # Errors
    /// It is no JSON of a network, or its version is unknown.
    pub fn read(text: &[u8]) -> Result<Network, CniError> {
        let network: Network = serde_json::from_slice(text).map_err(|error| {
            let message = format!("the network's configuration is invalid: {error}");
            CniError::new(Code::Decoding, message, "correct the file that the runtime reads")
        })?;
        if !VERSIONS.contains(&network.version.as_str()) {
            let message = format!("cniVersion {:?} is unknown", network.version);
            let remedy = format!("write one of {}", VERSIONS.join(", "));
            return Err(CniError::new(Code::Version, message, remedy));
        }
        if network.name.is_empty() {
            let message = "the network has no name";
            return Err(CniError::new(Code::Config, message, "write one, such as \"blue\""));
        }
        Ok(network)
    }

    /// The VF that the container must have; the runtime's before the network's.
    pub fn device(&self) -> Option<&str> {
        self.runtime.device.as_deref().or(self.device.as_deref()).filter(|it| !it.is_empty())
    }

    /// The MAC address that it must have.
    pub fn mac(&self) -> Option<&str> {
        self.runtime.mac.as_deref().or(self.settings.mac.as_deref()).filter(|it| !it.is_empty())
    }

    /// Attachment of its containers.
    pub fn kind(&self) -> Kind {
        let is_card = self.nic.is_some() || self.device().is_some_and(|it| !it.contains('/'));
        self.attachment.unwrap_or(if is_card { Kind::Vf } else { Kind::Tap })
    }

    /// IPAM plugin.
    pub fn ipam(&self) -> Option<&str> {
        let ipam = self.ipam.as_ref()?;
        Some(ipam.plugin.as_str()).filter(|plugin| !plugin.is_empty())
    }
}

fn oldest() -> String {
    VERSIONS[0].to_owned()
}

fn given_list<'de, D: Deserializer<'de>>(list: D) -> Result<Option<Vec<Valid>>, D::Error> {
    Option::deserialize(list).map(|list| Some(list.unwrap_or_default()))
}

fn run_dir() -> String {
    "/run/shunt".to_owned()
}

fn socket_dir() -> String {
    "/run/shunt/cni".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &Value) -> Result<Network, CniError> {
        Network::read(text.to_string().as_bytes())
    }

    /// Example of the SR-IOV CNI plugin's documentation, with all its keys.
    #[test]
    fn a_configuration_of_the_sriov_plugin_is_read_unchanged() {
        let network = read(&json!({
            "cniVersion": "0.3.1", "name": "sriov-advanced", "type": "sriov", "vlan": 1000,
            "vlanQoS": 4, "vlanProto": "802.1ad", "min_tx_rate": 100, "max_tx_rate": 200,
            "spoofchk": "off", "trust": "on", "link_state": "enable", "logLevel": "debug",
            "deviceID": "0000:03:02.0", "mac": "CA:FE:C0:FF:EE:00",
            "ipam": {"type": "host-local", "subnet": "10.56.217.0/24"},
        }));
        let network = network.unwrap();
        assert_eq!((network.settings.vlan, network.settings.vlan_qos), (Some(1000), Some(4)));
        assert_eq!(
            (network.settings.spoof_check, network.settings.trust),
            (Some(false), Some(true))
        );
        assert_eq!(
            (network.settings.min_tx_rate, network.settings.max_tx_rate),
            (Some(100), Some(200))
        );
        assert_eq!((network.device(), network.kind()), (Some("0000:03:02.0"), Kind::Vf));
        assert_eq!(
            (network.mac(), network.ipam()),
            (Some("CA:FE:C0:FF:EE:00"), Some("host-local"))
        );
    }

    #[test]
    fn the_runtime_comes_before_the_network() {
        let network = read(&json!({
            "name": "n", "switch": "sw0", "mac": "02:00:00:00:00:01", "deviceID": "nic0/vf1",
            "spoofchk": "", "ipam": {}, "cniVersion": "1.1.0",
            "runtimeConfig": {"mac": "02:00:00:00:00:02", "deviceID": "nic0/vf2"},
        }));
        let network = network.unwrap();
        assert_eq!(
            (network.mac(), network.device()),
            (Some("02:00:00:00:00:02"), Some("nic0/vf2"))
        );
        assert_eq!(
            (network.kind(), network.ipam(), network.settings.spoof_check),
            (Kind::Tap, None, None)
        );
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_number() {
        let code = |text: Value| read(&text).unwrap_err().code();
        assert_eq!(code(json!([])), Code::Decoding as u64);
        assert_eq!(code(json!({"name": "n", "spoofchk": "yes"})), Code::Decoding as u64);
        assert_eq!(code(json!({"name": "n", "cniVersion": "0.2.0"})), Code::Version as u64);
        assert_eq!(code(json!({"name": ""})), Code::Config as u64);
    }
}

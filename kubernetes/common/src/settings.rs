//! Settings of an adapter, as a network or a claim has them. The keys of the SR-IOV CNI plugin have
//! its meaning.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// Attachment of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A tap in its network namespace.
    #[default]
    Tap,
    /// A vhost-user socket, for DPDK.
    VhostUser,
    /// The interface of a VF of a card.
    Vf,
}

/// Settings of an adapter; what is left out has the daemon's default.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Settings {
    /// MTU in bytes.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Wanted path: `vf`, `vmq`, `synthetic` or `auto`.
    #[serde(default)]
    pub path: Option<String>,
    /// Priority for getting a VF.
    #[serde(default, rename = "iovWeight")]
    pub iov_weight: Option<u8>,
    /// Priority for getting a receive queue.
    #[serde(default, rename = "vmqWeight")]
    pub vmq_weight: Option<u8>,
    /// Access VLAN; 0 for none.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Priority of the VLAN tag.
    #[serde(default, rename = "vlanQoS")]
    pub vlan_qos: Option<u8>,
    /// Protocol of the VLAN tag: `802.1q` or `802.1ad`, in any case of letters.
    #[serde(default, rename = "vlanProto")]
    pub vlan_proto: Option<String>,
    /// MAC address; empty for one that is made.
    #[serde(default)]
    pub mac: Option<String>,
    /// Check of source addresses.
    #[serde(default, rename = "spoofchk", deserialize_with = "on_off")]
    pub spoof_check: Option<bool>,
    /// Trust in the container.
    #[serde(default, deserialize_with = "on_off")]
    pub trust: Option<bool>,
    /// Link state: `auto`, `enable` or `disable`.
    #[serde(default)]
    pub link_state: Option<String>,
    /// Guaranteed rate, Mbit/s.
    #[serde(default)]
    pub min_tx_rate: Option<u32>,
    /// Maximum rate, Mbit/s.
    #[serde(default)]
    pub max_tx_rate: Option<u32>,
}

impl Settings {
    /// Fields of the adapter in the document; MAC address and MTU are its maker's to set.
    pub fn fields(&self) -> Map<String, Value> {
        let vlan = self.vlan.filter(|vlan| *vlan != 0).map(|vlan| {
            let mut tag = json!({"id": vlan});
            if let Some(qos) = self.vlan_qos {
                tag["qos"] = json!(qos);
            }
            if let Some(proto) = &self.vlan_proto {
                tag["proto"] = json!(proto.to_ascii_lowercase());
            }
            tag
        });
        let fields = [
            ("vlan", vlan),
            ("path", self.path.as_ref().map(|it| json!(it))),
            ("iov_weight", self.iov_weight.map(|it| json!(it))),
            ("vmq_weight", self.vmq_weight.map(|it| json!(it))),
            ("spoof_check", self.spoof_check.map(|it| json!(it))),
            ("trust", self.trust.map(|it| json!(it))),
            ("link_state", self.link_state.as_ref().map(|it| json!(it))),
            ("min_tx_mbps", self.min_tx_rate.map(|it| json!(it))),
            ("max_tx_mbps", self.max_tx_rate.map(|it| json!(it))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}

/// `on`, `off` or empty, as the SR-IOV CNI plugin writes flags; or a Boolean.
fn on_off<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    match (&value, value.as_str()) {
        (Value::Bool(on), _) => Ok(Some(*on)),
        (Value::Null, _) | (_, Some("")) => Ok(None),
        (_, Some("on")) => Ok(Some(true)),
        (_, Some("off")) => Ok(Some(false)),
        _ => Err(serde::de::Error::custom(format!("{value} is neither \"on\" nor \"off\""))),
    }
}

/// An IP address with the length of its network's prefix, such as `10.0.0.5/24`.
pub fn has_prefix(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    prefix.parse::<u8>().is_ok_and(|prefix| prefix <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_prefix() {
        for (text, is_one) in [
            ("10.0.0.1/24", true),
            ("fd00::1/128", true),
            ("10.0.0.1", false),
            ("10.0.0.1/33", false),
        ] {
            assert_eq!(has_prefix(text), is_one, "{text}");
        }
    }

    #[test]
    fn only_what_is_given_becomes_a_field() {
        let settings = json!({"vlan": 7, "vlanProto": "802.1AD", "trust": "on", "spoofchk": ""});
        let settings: Settings = serde_json::from_value(settings).unwrap();
        let fields = json!({"vlan": {"id": 7, "proto": "802.1ad"}, "trust": true});
        assert_eq!(json!(settings.fields()), fields);
        let untagged: Settings = serde_json::from_value(json!({"vlan": 0})).unwrap();
        assert!(untagged.fields().is_empty());
        serde_json::from_value::<Settings>(json!({"trust": "yes"})).unwrap_err();
    }
}

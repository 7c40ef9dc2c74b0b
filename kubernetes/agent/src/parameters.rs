//! Parameters of a claim: the opaque configuration that its device class and the claim itself have
//! for this driver.
//!
//! A class is the cluster's administrators': it may set everything. A claim is a tenant's: it may
//! set what concerns only its own pod. Ranges are checked by the daemon, as of any document.

use anyhow::{Context, anyhow, bail};
use common::{Kind, Settings, has_prefix};
use k8s_openapi::api::resource::v1::DeviceAllocationConfiguration;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Parameters that claims may set.
const OF_CLAIM: [&str; 7] = ["attachment", "gateways", "interface", "ips", "mac", "mode", "mtu"];
/// Parameters that only classes may set.
const OF_CLASS: [&str; 11] = [
    "iovWeight",
    "link_state",
    "max_tx_rate",
    "min_tx_rate",
    "path",
    "spoofchk",
    "trust",
    "vlan",
    "vlanProto",
    "vlanQoS",
    "vmqWeight",
];
/// Longest name of an interface, in bytes.
const INTERFACE_MAX: usize = 15;

/// Attachment of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Attachment {
    /// One that the agent makes.
    Own(Kind),
    /// One that `shunt-cni` makes, for a NetworkAttachmentDefinition.
    Cni(Cni),
}

/// The word `cni`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cni {
    /// The word.
    Cni,
}

/// The daemon's part in a vhost-user connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The pod connects.
    Server,
    /// The pod makes the socket, as QEMU of KubeVirt does.
    Client,
}

/// Parameters of a device.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Parameters {
    /// Attachment; by default the interface of a card's VF, or else a tap.
    #[serde(default)]
    pub attachment: Option<Attachment>,
    /// The daemon's part, for a vhost-user socket; by default the server.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Name of the interface in the pod, by default that of the request.
    #[serde(default)]
    interface: Option<String>,
    /// Addresses of the interface.
    #[serde(default)]
    pub ips: Vec<String>,
    /// Gateways of default routes.
    #[serde(default)]
    pub gateways: Vec<std::net::IpAddr>,
    /// Settings of the adapter.
    #[serde(flatten)]
    pub settings: Settings,
}

impl Parameters {
    /// Parameters of a request: those of the class, and over them those of the claim.
    ///
    /// # Errors
    /// A parameter is unknown, not the claim's to set, or has an invalid value.
    pub fn read(
        configs: &[DeviceAllocationConfiguration],
        driver: &str,
        request: &str,
    ) -> anyhow::Result<Parameters> {
        let mut all = Map::new();
        for config in configs {
            let Some(opaque) = config.opaque.as_ref().filter(|it| it.driver == driver) else {
                continue;
            };
            let is_for = |named: &String| {
                named == request || request.split('/').next() == Some(named.as_str())
            };
            let requests = config.requests.as_deref().unwrap_or_default();
            if !requests.is_empty() && !requests.iter().any(is_for) {
                continue;
            }
            let is_class = config.source == "FromClass";
            let Value::Object(given) = &opaque.parameters.0 else {
                bail!("the parameters are no JSON object: write them as {{\"mtu\": 9000}}");
            };
            for (name, value) in given {
                check_name(name, is_class)?;
                all.insert(name.clone(), value.clone());
            }
        }
        let parameters = serde_json::from_value(Value::Object(all.clone()));
        let parameters: Parameters = match parameters {
            Ok(parameters) => parameters,
            Err(_) => return Err(first_wrong(&all)),
        };
        parameters.check()?;
        Ok(parameters)
    }

    fn check(&self) -> anyhow::Result<()> {
        if let Some(ip) = self.ips.iter().find(|ip| !has_prefix(ip)) {
            bail!("parameter ips: {ip:?} has no prefix: write it as 10.0.0.5/24");
        }
        let is_socket = matches!(self.attachment, Some(Attachment::Own(Kind::VhostUser)));
        if is_socket && !(self.ips.is_empty() && self.gateways.is_empty()) {
            bail!(
                "parameters ips and gateways: a vhost-user socket has no addresses: remove them, \
                 or use attachment \"tap\""
            );
        }
        if !is_socket && self.mode.is_some() {
            bail!("parameter mode is for attachment \"vhost-user\": remove it, or set attachment");
        }
        Ok(())
    }

    /// Name that interfaces of a request have, without their number.
    pub fn interface_of(&self, request: &str) -> String {
        let request = request.rsplit('/').next().unwrap_or(request);
        self.interface.clone().unwrap_or_else(|| request.to_owned())
    }
}

/// Name of the `index`-th interface that has `name`: `net1`, `net1-1` and so on.
///
/// # Errors
/// It is no name of an interface.
pub fn interface(name: &str, index: usize) -> anyhow::Result<String> {
    let name = if index == 0 { name.to_owned() } else { format!("{name}-{index}") };
    let is_allowed = |it: char| !it.is_whitespace() && !matches!(it, '/' | ':');
    if name.is_empty()
        || name.len() > INTERFACE_MAX
        || [".", "..", "lo"].contains(&name.as_str())
        || !name.chars().all(is_allowed)
    {
        bail!(
            "{name:?} is no name of an interface: set the parameter interface to at most \
             {INTERFACE_MAX} bytes without spaces, / and :"
        );
    }
    Ok(name)
}

fn check_name(name: &str, is_class: bool) -> anyhow::Result<()> {
    if OF_CLAIM.contains(&name) || (is_class && OF_CLASS.contains(&name)) {
        return Ok(());
    }
    let of_claim = OF_CLAIM.join(", ");
    if OF_CLASS.contains(&name) {
        bail!(
            "parameter {name} is set by the claim, and only a DeviceClass may: use a class with \
             it; a claim may set {of_claim}"
        );
    }
    let also = if is_class { format!(", {}", OF_CLASS.join(", ")) } else { String::new() };
    bail!("parameter {name} is unknown; expected one of {of_claim}{also}")
}

/// Error of the first parameter that has an invalid value.
fn first_wrong(all: &Map<String, Value>) -> anyhow::Error {
    let wrong = all.iter().find_map(|(name, value)| {
        let alone = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        let error = serde_json::from_value::<Parameters>(alone).err()?;
        let expected = match name.as_str() {
            "attachment" => "expected \"tap\", \"vf\", \"vhost-user\" or \"cni\"".to_owned(),
            "mode" => "expected \"server\" or \"client\"".to_owned(),
            _ => error.to_string(),
        };
        Some(anyhow!("parameter {name}: {value} is invalid: {expected}"))
    });
    wrong.unwrap_or_else(|| anyhow!("the parameters are invalid"))
}

/// Mbit/s of a capacity in bit/s, which the API server writes as a quantity, such as `10G`.
///
/// # Errors
/// It is no whole quantity.
pub fn mbps(quantity: &str) -> anyhow::Result<u64> {
    let digits = quantity.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let factor: u128 = match &quantity[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => bail!("bandwidth {quantity} is no quantity: write bit/s, such as 500M"),
    };
    let number: u128 = digits.parse().with_context(|| {
        format!("bandwidth {quantity} is no whole number of bit/s: write it as 500M")
    })?;
    Ok(u64::try_from(number.saturating_mul(factor) / 1_000_000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn configs(all: &Value) -> Vec<DeviceAllocationConfiguration> {
        serde_json::from_value(all.clone()).unwrap()
    }

    fn config(source: &str, requests: &Value, parameters: &Value) -> Value {
        json!({
            "source": source, "requests": requests,
            "opaque": {"driver": "shunt.dev", "parameters": parameters},
        })
    }

    fn read(all: &Value, request: &str) -> Result<Parameters, String> {
        let read = Parameters::read(&configs(all), "shunt.dev", request);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn the_claim_comes_over_the_class() {
        let all = json!([
            config("FromClass", &json!(["a"]), &json!({"vlan": 7, "mtu": 9000, "trust": "on"})),
            config("FromClass", &json!(["b"]), &json!({"vlan": 8})),
            config("FromClaim", &json!(null), &json!({"mtu": 1400, "attachment": "vhost-user"})),
            {"source": "FromClaim", "opaque": {"driver": "other.dev", "parameters": {"x": 1}}},
        ]);
        let a = read(&all, "a/first").unwrap();
        assert_eq!(
            (a.settings.vlan, a.settings.mtu, a.settings.trust),
            (Some(7), Some(1400), Some(true))
        );
        assert_eq!(a.attachment, Some(Attachment::Own(Kind::VhostUser)));
        assert_eq!(read(&all, "b").unwrap().settings.vlan, Some(8));
        let cni = json!([config("FromClass", &json!(null), &json!({"attachment": "cni"}))]);
        assert_eq!(read(&cni, "a").unwrap().attachment, Some(Attachment::Cni(Cni::Cni)));
    }

    #[test]
    fn mistakes_say_what_where_and_what_to_do() {
        for (source, parameters, expected) in [
            (
                "FromClaim",
                json!({"vlan": 7}),
                "vlan is set by the claim, and only a DeviceClass may",
            ),
            (
                "FromClaim",
                json!({"vlam": 7}),
                "vlam is unknown; expected one of attachment, gateways",
            ),
            ("FromClass", json!({"vlam": 7}), "mtu, iovWeight, link_state"),
            ("FromClass", json!({"vlan": "7"}), "vlan: \"7\" is invalid"),
            ("FromClass", json!({"attachment": "pipe"}), "expected \"tap\""),
            ("FromClaim", json!({"ips": ["10.0.0.5"]}), "write it as 10.0.0.5/24"),
            ("FromClaim", json!({"gateways": ["x"]}), "gateways: [\"x\"] is invalid"),
            (
                "FromClaim",
                json!({"attachment": "vhost-user", "ips": ["1.2.3.4/8"]}),
                "no addresses",
            ),
            ("FromClaim", json!([]), "no JSON object"),
        ] {
            let error = read(&json!([config(source, &json!(null), &parameters)]), "a").unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn interfaces_have_the_name_of_their_request() {
        let default = Parameters::default();
        assert_eq!(default.interface_of("any/net1"), "net1");
        let named = Parameters { interface: Some("dpdk".to_owned()), ..Parameters::default() };
        assert_eq!(named.interface_of("a-very-long-request"), "dpdk");
        assert_eq!(interface("net1", 0).unwrap(), "net1");
        assert_eq!(interface("net1", 2).unwrap(), "net1-2");
        for name in ["a-very-long-request", "lo", "a b", ""] {
            assert!(interface(name, 0).is_err(), "{name}");
        }
    }

    #[test]
    fn bandwidth_is_a_quantity() {
        for (text, expected) in [("500M", 500), ("10G", 10_000), ("1000000", 1), ("1Gi", 1073)] {
            assert_eq!(mbps(text).unwrap(), expected, "{text}");
        }
        for text in ["", "1.5G", "1X", "-1M"] {
            assert!(mbps(text).is_err(), "{text}");
        }
    }
}

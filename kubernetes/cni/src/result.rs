//! Results of ADD, in each version of the format.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{CniError, Code};

/// Addresses, routes and name servers, as an IPAM plugin gives them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Addresses {
    /// IP addresses.
    #[serde(default)]
    pub ips: Vec<Address>,
    /// Routes.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Name servers, as they are.
    #[serde(default)]
    pub dns: Option<Value>,
}

/// An IP address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Address {
    /// Address with the length of its network's prefix.
    pub address: String,
    /// Gateway of its network.
    #[serde(default)]
    pub gateway: Option<IpAddr>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination, with the length of its prefix.
    pub dst: String,
    /// Gateway; without one, that of an address of its IP version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

impl Route {
    /// `true` for the default route of an IP version.
    pub fn is_default(&self) -> bool {
        matches!(self.dst.as_str(), "0.0.0.0/0" | "::/0")
    }

    fn is_ipv6(&self) -> bool {
        self.dst.contains(':')
    }
}

impl Addresses {
    /// Reads the result of an IPAM plugin.
    ///
    /// # Errors
    /// It is none.
    pub fn read(result: Value) -> Result<Addresses, CniError> {
        serde_json::from_value(result).map_err(|error| {
            let message = format!("the result of the IPAM plugin is invalid: {error}");
            CniError::new(Code::Decoding, message, "use a plugin of this cniVersion")
        })
    }

    /// Addresses that the runtime requests.
    pub fn requested(ips: &[String]) -> Addresses {
        let address = |ip: &String| Address { address: ip.clone(), gateway: None };
        Addresses { ips: ips.iter().map(address).collect(), ..Addresses::default() }
    }

    /// Gateway of a route.
    pub fn gateway(&self, route: &Route) -> Option<IpAddr> {
        let of_network = || {
            let gateways = self.ips.iter().filter_map(|ip| ip.gateway);
            gateways.into_iter().find(|gateway| gateway.is_ipv6() == route.is_ipv6())
        };
        route.gw.or_else(of_network)
    }

    /// Gateways of the default routes.
    pub fn default_gateways(&self) -> Vec<IpAddr> {
        let defaults = self.routes.iter().filter(|route| route.is_default());
        defaults.filter_map(|route| self.gateway(route)).collect()
    }
}

/// The interface that ADD has made.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// MAC address.
    pub mac: String,
    /// MTU in bytes.
    pub mtu: Option<u64>,
    /// Path of its network namespace.
    pub sandbox: String,
    /// Path of its vhost-user socket.
    pub socket: Option<String>,
}

/// The result of ADD: `previous`, and behind it the interface with its addresses.
pub fn result(version: &str, previous: Option<&Value>, made: &Interface, of: &Addresses) -> Value {
    let is_old = ["0.3.0", "0.3.1", "0.4.0"].contains(&version);
    let mut result = previous.cloned().unwrap_or_else(|| json!({}));
    let mut list = |name: &str| result[name].as_array().cloned().unwrap_or_default();
    let [mut interfaces, mut ips, mut routes] = ["interfaces", "ips", "routes"].map(&mut list);
    let mut interface = json!({"name": made.name, "mac": made.mac, "sandbox": made.sandbox});
    if version == "1.1.0" {
        let more = [
            ("mtu", made.mtu.map(Value::from)),
            ("socketPath", made.socket.clone().map(Value::from)),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                interface[name] = value;
            }
        }
    }
    let number = interfaces.len();
    interfaces.push(interface);
    for ip in &of.ips {
        let mut one = json!({"address": ip.address, "interface": number});
        if let Some(gateway) = ip.gateway {
            one["gateway"] = json!(gateway);
        }
        if is_old {
            one["version"] = json!(if ip.address.contains(':') { "6" } else { "4" });
        }
        ips.push(one);
    }
    routes.extend(of.routes.iter().map(|route| json!(route)));
    result["cniVersion"] = json!(version);
    for (name, list) in [("interfaces", interfaces), ("ips", ips), ("routes", routes)] {
        result[name] = Value::Array(list);
    }
    if let Some(dns) = &of.dns {
        result["dns"] = dns.clone();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Interface {
        Interface {
            name: "net1".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            mtu: Some(1500),
            sandbox: "/run/netns/a".to_owned(),
            socket: None,
        }
    }

    fn addresses() -> Addresses {
        Addresses::read(json!({
            "cniVersion": "1.0.0", "dns": {"nameservers": ["10.0.0.53"]},
            "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}, {"address": "fd00::5/64"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.96.0.0/12", "gw": "10.0.0.2"}],
        }))
        .unwrap()
    }

    #[test]
    fn gateways_of_default_routes_are_those_of_the_addresses() {
        let addresses = addresses();
        assert_eq!(addresses.default_gateways(), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        let gateway = addresses.gateway(&addresses.routes[1]);
        assert_eq!(gateway, Some("10.0.0.2".parse().unwrap()));
        let other = Route { dst: "::/0".to_owned(), gw: None };
        assert_eq!(addresses.gateway(&other), None, "no address of its version has one");
    }

    #[test]
    fn a_result_follows_the_version_and_the_plugins_before() {
        let new = result("1.1.0", None, &made(), &addresses());
        assert_eq!(new["interfaces"][0]["mtu"], 1500);
        assert_eq!(
            new["ips"][0],
            json!({"address": "10.0.0.5/24", "interface": 0, "gateway": "10.0.0.1"})
        );
        assert_eq!(new["dns"]["nameservers"][0], "10.0.0.53");
        let old = result("0.4.0", None, &made(), &addresses());
        assert_eq!(
            (&old["ips"][0]["version"], &old["ips"][1]["version"]),
            (&json!("4"), &json!("6"))
        );
        assert_eq!(old["interfaces"][0].get("mtu"), None);
        let before = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0"}], "ips": [{"address": "1.2.3.4/8"}]});
        let chained = result("1.1.0", Some(&before), &made(), &addresses());
        assert_eq!(chained["interfaces"][1]["name"], "net1");
        assert_eq!(
            (chained["ips"].as_array().unwrap().len(), &chained["ips"][1]["interface"]),
            (3, &json!(1))
        );
    }
}

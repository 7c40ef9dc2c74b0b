//! Switches, as the document says them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text::{self, IpPrefix, MacText, PortRange, VlanRange};
use super::yes;

/// What the uplink's port of a switch is called where adapters have their names.
pub const UPLINK: &str = "uplink";

/// The software switch that hangs on a NIC's PF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// No other switch has it.
    #[schema(value_type = String, format = "name")]
    pub name: String,
    /// Whose it is, in words of who made it, such as `pod = "web-0"`; the daemon reads nothing in
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// The NIC it hangs on; no other switch does.
    #[schema(value_type = String, format = "name")]
    pub nic: String,
    /// Whether its adapters may have VFs; fixed when the switch is created.
    #[serde(default)]
    #[schema(default = false)]
    pub iov: bool,
    /// How long an address is remembered after its last frame, in seconds.
    #[serde(default = "ageing_s")]
    #[schema(minimum = 1, maximum = 1_000_000, default = 300)]
    pub ageing_s: u32,
    /// Settings of ports; an adapter without an entry has their defaults.
    #[serde(default, rename = "port")]
    #[schema(max_items = 4097)]
    pub ports: Vec<SwitchPort>,
    /// Addresses that are not learnt and do not age.
    #[serde(default, rename = "static")]
    #[schema(max_items = 1024)]
    pub statics: Vec<StaticEntry>,
    /// Tunnels to switches on other hosts, each a port of this one.
    #[serde(default, rename = "vxlan")]
    #[schema(max_items = 64)]
    pub tunnels: Vec<Vxlan>,
}

fn ageing_s() -> u32 {
    300
}

impl Switch {
    /// The settings of the port of that adapter or tunnel, or of [`UPLINK`], if it has any.
    pub fn port(&self, adapter: &str) -> Option<&SwitchPort> {
        self.ports.iter().find(|port| port.adapter == adapter)
    }

    /// The tunnel of that name.
    pub fn tunnel(&self, name: &str) -> Option<&Vxlan> {
        self.tunnels.iter().find(|tunnel| tunnel.name == name)
    }
}

/// Settings of the port that an adapter, a tunnel or the uplink has on a switch: what only a switch
/// enforces. All else is the adapter's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchPort {
    /// An adapter or a tunnel of the switch, or `uplink`.
    #[schema(value_type = String, format = "label")]
    pub adapter: String,
    /// Of `uplink` only: the VLANs that may be tagged; none for all.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub trunks: Vec<VlanRange>,
    /// Of `uplink` only: the VLAN of frames without a tag; one of `trunks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub native_vlan: Option<u16>,
    /// The most addresses that are learnt at the port; what comes from others passes, and what goes
    /// to them is flooded. Left out: 256 for an adapter, no limit for a tunnel and the uplink. Not
    /// with an adapter's `spoof_check`, when none are learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 8192)]
    pub max_macs: Option<u16>,
    /// Whether the port gets frames for unknown addresses.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub unknown_unicast: bool,
    /// Whether it reaches only ports that are not isolated.
    #[serde(default)]
    #[schema(default = false)]
    pub isolated: bool,
    /// Whether DHCP answers that it sends are dropped.
    #[serde(default)]
    #[schema(default = false)]
    pub dhcp_guard: bool,
    /// Whether router advertisements and redirects that it sends are dropped.
    #[serde(default)]
    #[schema(default = false)]
    pub router_guard: bool,
    /// Rules for what it sends, tried in their order; the first that denies or allows decides.
    /// Without one the frame is allowed.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub acl: Vec<AclRule>,
}

impl SwitchPort {
    /// Whether something of what the port sends is dropped by its rules or guards.
    pub fn filters(&self) -> bool {
        !self.acl.is_empty() || self.dhcp_guard || self.router_guard
    }
}

/// What rules of a port and of a NIC alike ask of a frame. It meets a rule if it meets all
/// conditions that are given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RuleMatch {
    /// The source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_mac: Option<MacText>,
    /// The EtherType after all tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1536, maximum = 65535)]
    pub ethertype: Option<u16>,
    /// The IP source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_ip: Option<IpPrefix>,
    /// The IP destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_ip: Option<IpPrefix>,
    /// The IP protocol: 6 is TCP, 17 is UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 255)]
    pub protocol: Option<u8>,
    /// The source port; needs `protocol` 6, 17 or 132.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_port: Option<PortRange>,
    /// The destination port; needs `protocol` 6, 17 or 132.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_port: Option<PortRange>,
}

/// One rule for frames that a port sends. A frame meets it if it meets all conditions that are
/// given. To filter what an adapter receives, put rules on the ports that send to it, the uplink's
/// included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AclRule {
    /// What becomes of the frame.
    pub action: AclAction,
    /// The destination address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_mac: Option<MacText>,
    /// The VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub vlan: Option<u16>,
    /// What else is asked of the frame.
    #[serde(flatten)]
    pub matches: RuleMatch,
}

/// What becomes of a frame that meets a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AclAction {
    /// It passes; no further rule is tried.
    Allow,
    /// It is dropped and counted.
    Deny,
    /// It is counted, and the next rule is tried.
    Count,
}

/// An address that is always at one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticEntry {
    /// The address.
    pub mac: MacText,
    /// Its VLAN; none for frames without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub vlan: Option<u16>,
    /// An adapter or a tunnel of the switch, or `uplink`.
    #[schema(value_type = String, format = "label")]
    pub port: String,
}

/// A tunnel to switches on other hosts: VXLAN (RFC 7348), with peers that are known beforehand. A
/// VNI is one VLAN of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vxlan {
    /// What its port is called; no adapter and no other tunnel has it.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// The network's number, the same on every host.
    #[schema(minimum = 1, maximum = 16_777_215)]
    pub vni: u32,
    /// The VLAN of the switch that the network is; left out: that of frames without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub vlan: Option<u16>,
    /// The other hosts, all by IPv4 or all by IPv6.
    #[schema(schema_with = peers)]
    pub peers: Vec<IpAddr>,
    /// This host's address towards them; left out: whichever the routes give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "ip-address")]
    pub local: Option<IpAddr>,
    /// The UDP port, here and there.
    #[serde(default = "vxlan_port")]
    #[schema(minimum = 1, maximum = 65535, default = 4789)]
    pub port: u16,
    /// The MTU of the network between the hosts, in bytes; left out: whatever goes out whole.
    /// Adapters have 50 bytes less, 70 by IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 576, maximum = 65535)]
    pub mtu: Option<u16>,
}

fn vxlan_port() -> u16 {
    4789
}

fn peers() -> utoipa::openapi::schema::Array {
    let peers = utoipa::openapi::schema::ArrayBuilder::new().items(text::schema("ip-address"));
    peers
        .max_items(Some(64))
        .description(Some("The other hosts, all by IPv4 or all by IPv6."))
        .build()
}

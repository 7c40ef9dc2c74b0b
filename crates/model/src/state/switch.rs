//! Switches in the document.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::protocol::IpProtocol;
use super::text::{self, IpPrefix, MacText, PortRange, VlanRange};
use super::yes;

/// Name of the uplink's switch port, in place of an adapter's name.
pub const UPLINK: &str = "uplink";

/// The software switch on a NIC's PF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Unique name among switches.
    #[schema(value_type = String, format = "name")]
    pub name: String,
    /// Labels of the owner, such as `pod = "web-0"`; the daemon only reports them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// Its NIC, which has no other switch.
    #[schema(value_type = String, format = "name")]
    pub nic: String,
    /// Allow VFs for its adapters; fixed when the switch is created.
    #[serde(default)]
    #[schema(default = false)]
    pub iov: bool,
    /// Ageing time of learned addresses, in seconds.
    #[serde(default = "ageing_s")]
    #[schema(minimum = 1, maximum = 1_000_000, default = 300)]
    pub ageing_s: u32,
    /// Settings of ports; an adapter without an entry has the defaults.
    #[serde(default, rename = "port")]
    #[schema(max_items = 4097)]
    pub ports: Vec<SwitchPort>,
    /// Static addresses: not learned, and without ageing.
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
    /// Settings of the port of that adapter or tunnel, or of [`UPLINK`], if any.
    pub fn port(&self, adapter: &str) -> Option<&SwitchPort> {
        self.ports.iter().find(|port| port.adapter == adapter)
    }

    /// The tunnel of that name.
    pub fn tunnel(&self, name: &str) -> Option<&Vxlan> {
        self.tunnels.iter().find(|tunnel| tunnel.name == name)
    }
}

/// Settings that only a switch enforces, at the port of an adapter, a tunnel or the uplink. All
/// others belong to the adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SwitchPort {
    /// An adapter or a tunnel of the switch, or `uplink`.
    #[schema(value_type = String, format = "label")]
    pub adapter: String,
    /// `uplink` only: VLANs that may be tagged; empty: all.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub trunks: Vec<VlanRange>,
    /// `uplink` only: VLAN of untagged frames, one of `trunks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub native_vlan: Option<u16>,
    /// Maximum number of learned addresses. Left out: 256 for an adapter, no limit for a tunnel or
    /// the uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 8192)]
    pub max_macs: Option<u16>,
    /// Deliver unknown unicast to the port.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub unknown_unicast: bool,
    /// Forward only to and from ports that are not isolated.
    #[serde(default)]
    #[schema(default = false)]
    pub isolated: bool,
    /// Drop DHCP replies from the port.
    #[serde(default)]
    #[schema(default = false)]
    pub dhcp_guard: bool,
    /// Drop router advertisements and redirects from the port.
    #[serde(default)]
    #[schema(default = false)]
    pub router_guard: bool,
    /// Rules for frames from the port, in order; the first that denies or allows decides. Without a
    /// match the frame is allowed.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub acl: Vec<AclRule>,
}

impl SwitchPort {
    /// `true` if rules or guards may drop frames from the port.
    pub fn filters(&self) -> bool {
        !self.acl.is_empty() || self.dhcp_guard || self.router_guard
    }
}

/// Conditions that rules of ports and of NICs share. A frame matches a rule if it meets all given
/// conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RuleMatch {
    /// Source MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_mac: Option<MacText>,
    /// EtherType after all tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1536, maximum = 65535)]
    pub ethertype: Option<u16>,
    /// IP source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_ip: Option<IpPrefix>,
    /// IP destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_ip: Option<IpPrefix>,
    /// IP protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<IpProtocol>,
    /// Source port; needs `protocol` tcp, udp or sctp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_port: Option<PortRange>,
    /// Destination port; needs `protocol` tcp, udp or sctp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_port: Option<PortRange>,
}

/// A rule for frames from a port. A frame matches if it meets all given conditions. To filter
/// frames to an adapter, put rules on the ports that send to it, including `uplink`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AclRule {
    /// Action for the frame.
    pub action: AclAction,
    /// Destination MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_mac: Option<MacText>,
    /// The VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub vlan: Option<u16>,
    /// Further conditions.
    #[serde(flatten)]
    pub matches: RuleMatch,
}

/// Action for a frame that matches a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AclAction {
    /// Allow; no further rule is tried.
    Allow,
    /// Drop and count.
    Deny,
    /// Count, and try the next rule.
    Count,
}

/// A static address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticEntry {
    /// MAC address.
    pub mac: MacText,
    /// VLAN; left out: untagged frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub vlan: Option<u16>,
    /// An adapter or a tunnel of the switch, or `uplink`.
    #[schema(value_type = String, format = "label")]
    pub port: String,
}

/// A tunnel to switches on other hosts: VXLAN (RFC 7348) with configured peers. One VNI is one VLAN
/// of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vxlan {
    /// Name of its port, unique among adapters and tunnels.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// VXLAN network identifier, the same on every host.
    #[schema(minimum = 1, maximum = 16_777_215)]
    pub vni: u32,
    /// VLAN of the switch for this network; left out: untagged frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub vlan: Option<u16>,
    /// The other hosts, all by IPv4 or all by IPv6.
    #[schema(schema_with = peers)]
    pub peers: Vec<IpAddr>,
    /// Local address; left out: chosen by the routing table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "ip-address")]
    pub local: Option<IpAddr>,
    /// UDP port, local and remote.
    #[serde(default = "vxlan_port")]
    #[schema(minimum = 1, maximum = 65535, default = 4789)]
    pub port: u16,
    /// MTU of the network between the hosts, in bytes; left out: no limit. Adapters have 50 bytes
    /// less, 70 over IPv6.
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

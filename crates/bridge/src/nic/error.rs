//! Errors of a NIC's configuration.

use wire::Mac;

use crate::PortId;
use crate::nic::port::{MAX_QUEUES, MAX_VFS, PortName};
use crate::nic::{MAX_RULES, QOS_MAX, WEIGHT_MAX};

/// Maximum number of MACs of all functions: their table should fit in an L2 cache.
pub const MAX_MACS: usize = 8192;
/// Maximum number of (MAC, VLAN) pairs: a MAC counts once for each VLAN of its trunk, and each
/// [`Filter`](crate::nic::Filter) counts once.
pub const MAX_ADDRESSES: usize = 32768;
/// Maximum number of groups that a function can join.
pub const MAX_GROUPS: usize = 256;

/// A field that holds a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// [`Function::mac`](crate::nic::Function::mac).
    Mac,
    /// [`Function::extra_macs`](crate::nic::Function::extra_macs), by index.
    ExtraMac(usize),
    /// [`Function::guest_macs`](crate::nic::Function::guest_macs), by index.
    GuestMac(usize),
    /// [`NicConfig::switch`](crate::nic::NicConfig::switch), by index.
    Filter(usize),
}

impl std::fmt::Display for Field {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mac => out.write_str("mac"),
            Self::ExtraMac(index) => write!(out, "extra_macs[{index}]"),
            Self::GuestMac(index) => write!(out, "guest_macs[{index}]"),
            Self::Filter(index) => write!(out, "switch[{index}]"),
        }
    }
}

/// Reason for which a [`NicConfig`](crate::nic::NicConfig) is rejected; nothing of it is applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The same MAC twice in one VLAN.
    #[error(
        "{port}: {field}: {mac} is also {other_field} of {other} in {}; \
         within a VLAN each MAC is allowed once",
        vlan_name(*.vid), port = PortName(*.port), other = PortName(*.other))]
    DuplicateMac {
        /// The later function.
        port: PortId,
        /// Field with the address.
        field: Field,
        /// The address.
        mac: Mac,
        /// The VLAN, 0 for untagged.
        vid: u16,
        /// The function that has it already.
        other: PortId,
        /// Its field.
        other_field: Field,
    },
    /// A function's MAC is a group address.
    #[error(
        "{port}: {field}: {mac} is a multicast address; \
         allowed is a unicast one, whose first byte is even", port = PortName(*.port))]
    MulticastMac {
        /// The function.
        port: PortId,
        /// Its field.
        field: Field,
        /// The address.
        mac: Mac,
    },
    /// A function's MAC is zero.
    #[error("{port}: {field}: 00:00:00:00:00:00 is no address; allowed is any other unicast one", port = PortName(*.port))]
    ZeroMac {
        /// The function.
        port: PortId,
        /// Its field.
        field: Field,
    },
    /// More VFs than there are ports.
    #[error("vfs: {vfs} VFs are too many; allowed are up to {MAX_VFS}")]
    TooManyVfs {
        /// Number requested.
        vfs: usize,
    },
    /// More receive queues than there are ports.
    #[error("queues: {queues} queues are too many; allowed are up to {MAX_QUEUES}")]
    TooManyQueues {
        /// Number requested.
        queues: usize,
    },
    /// A PF with settings of its own, and a switch on it.
    #[error("PF: switch: a switch beside settings of the PF; allowed is one of the two")]
    SwitchBesidePf,
    /// More addresses behind the PF than the table takes.
    #[error(
        "PF: switch: {filters} addresses beside {others} pairs of a MAC and a VLAN of functions \
         and queues; allowed are up to {MAX_ADDRESSES} together"
    )]
    TooManyFilters {
        /// Addresses behind the PF.
        filters: usize,
        /// Pairs of all functions and queues.
        others: usize,
    },
    /// An address behind the PF with an invalid VLAN.
    #[error("PF: {field}: VLAN {vid} is out of range; allowed are 0, for untagged, to 4094")]
    FilterVid {
        /// Field with the address.
        field: Field,
        /// The VLAN.
        vid: u16,
    },
    /// Switchdev mode together with a switch, or with a bridge mode other than VEB.
    #[error("switchdev: there is no bridge then; allowed is it without a switch, in the mode veb")]
    SwitchdevBridge,
    /// A setting that has no meaning in switchdev mode.
    #[error(
        "{port}: {field}: means nothing in switchdev mode, where rules and the host say that; allowed is none", port = PortName(*.port))]
    Switchdev {
        /// The function.
        port: PortId,
        /// The setting.
        field: &'static str,
    },
    /// More rules than the table takes.
    #[error("switchdev: {rules} rules are too many; allowed are up to {MAX_RULES}")]
    TooManyRules {
        /// Number requested.
        rules: usize,
    },
    /// An invalid rule.
    #[error("switchdev[{rule}].{field}: {value}; allowed is {allowed}")]
    Rule {
        /// Its number.
        rule: usize,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// Allowed values.
        allowed: String,
    },
    /// More MACs than the table takes.
    #[error(
        "{port}: extra_macs: the NIC has {macs} MACs up to here; \
         allowed are up to {MAX_MACS} of all functions together", port = PortName(*.port))]
    TooManyMacs {
        /// The first function beyond the limit.
        port: PortId,
        /// Number up to and including this function.
        macs: usize,
    },
    /// More pairs of a MAC and a VLAN than the table takes.
    #[error(
        "{port}: trunk: the NIC has {addresses} pairs of a MAC and a VLAN up to here; \
         allowed are up to {MAX_ADDRESSES} of all functions together", port = PortName(*.port))]
    TooManyAddresses {
        /// The first function beyond the limit.
        port: PortId,
        /// Number up to and including this function.
        addresses: usize,
    },
    /// More groups than a function can join.
    #[error("{port}: groups: {groups} are too many; allowed are up to {MAX_GROUPS}", port = PortName(*.port))]
    TooManyGroups {
        /// The function.
        port: PortId,
        /// Number requested.
        groups: usize,
    },
    /// A group to join that is not a multicast address.
    #[error(
        "{port}: groups[{index}]: {mac} is no group address; \
         allowed is a multicast one, whose first byte is odd", port = PortName(*.port))]
    NoGroup {
        /// The function.
        port: PortId,
        /// Index of the group.
        index: usize,
        /// The address.
        mac: Mac,
    },
    /// A priority that does not fit a tag.
    #[error("{port}: qos: {qos} is too large; allowed are 0 to {QOS_MAX}", port = PortName(*.port))]
    Qos {
        /// The function.
        port: PortId,
        /// The priority.
        qos: u8,
    },
    /// A trunk beside an 802.1ad VLAN.
    #[error(
        "{port}: trunk: {vlans} VLANs beside an 802.1ad VLAN, under which the guest's tags are \
         payload; allowed is an empty trunk, or an 802.1Q VLAN", port = PortName(*.port))]
    ServiceTrunk {
        /// The function.
        port: PortId,
        /// Number of VLANs of the trunk.
        vlans: usize,
    },
    /// A setting that requires trust.
    #[error("{port}: {field}: the function is not trusted; allowed with trust = true", port = PortName(*.port))]
    Untrusted {
        /// The function.
        port: PortId,
        /// The setting.
        field: &'static str,
    },
    /// A weight out of range.
    #[error("{port}: weight: {weight} is out of range; allowed are 1 to {WEIGHT_MAX}", port = PortName(*.port))]
    Weight {
        /// The function.
        port: PortId,
        /// The weight.
        weight: u8,
    },
    /// A minimum above the maximum.
    #[error(
        "{port}: min_tx_rate: {min} Mbit/s is above max_tx_rate, {max} Mbit/s; \
         allowed are 0 to {max}", port = PortName(*.port))]
    Rates {
        /// The function.
        port: PortId,
        /// The minimum, in Mbit/s.
        min: u32,
        /// The maximum, in Mbit/s.
        max: u32,
    },
    /// A mirror to a port that cannot be its target.
    #[error(
        "{port}: mirror: frames cannot go to {to}; \
         allowed is the uplink or another function that exists",
        port = PortName(*.port), to = PortName(*.to)
    )]
    MirrorPort {
        /// The function that is mirrored.
        port: PortId,
        /// The target.
        to: PortId,
    },
}

pub(crate) fn vlan_name(vid: u16) -> String {
    if vid == 0 { "the untagged network".into() } else { format!("VLAN {vid}") }
}

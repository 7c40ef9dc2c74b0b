//! PFs, VFs and what their settings are made of, as the document says them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attachment::Attachment;
use super::text::{self, MacText, VlanRange};

/// Settings of one VF, in the words of `ip link set PF vf N`.
///
/// Where an adapter names the VF, these hold while it is there, in the place of the adapter's own; all but the addresses,
/// which stay the adapter's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vf {
    /// Its number, below `total_vfs`; no other of the NIC has it.
    #[schema(minimum = 0, maximum = 254)]
    pub index: u16,
    /// The administrative address, which only a trusted guest may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacText>,
    /// Further addresses that it receives and may send from.
    #[serde(default)]
    #[schema(max_items = 4096)]
    pub macs: Vec<MacText>,
    /// Makes it an access port of that VLAN; beside `trunks`, the VLAN of frames without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// VLANs that the guest may tag for itself.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub trunks: Vec<VlanRange>,
    /// Whether frames from other addresses or VLANs than its own are dropped.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub spoof_check: bool,
    /// Whether the guest may change its address and receive modes.
    #[serde(default)]
    #[schema(default = false)]
    pub trust: bool,
    /// Whether it receives frames of its VLANs to unknown addresses; needs `trust`.
    #[serde(default)]
    #[schema(default = false)]
    pub promiscuous: bool,
    /// What the guest sees of the link.
    #[serde(default)]
    #[schema(default = "auto")]
    pub link_state: LinkState,
    /// What it is assured of, in Mbit/s; 0 for nothing.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub min_tx_mbps: u32,
    /// What it may not exceed, in Mbit/s; 0 for no limit.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub max_tx_mbps: u32,
    /// Its part when all want more than there is, relative to the others'.
    #[serde(default = "tx_weight")]
    #[schema(minimum = 1, maximum = 100, default = 10)]
    pub tx_weight: u8,
    /// Broadcast and multicast frames a second that it may send; 0 for no limit.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000_000, default = 0)]
    pub storm_limit_pps: u32,
    /// Who gets a copy of its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn tx_weight() -> u8 {
    10
}

/// The PF as a guest has it. It is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pf {
    /// How the guest reaches it.
    pub attachment: Attachment,
    /// Its address.
    pub mac: MacText,
    /// Further addresses that it receives and may send from.
    #[serde(default)]
    #[schema(max_items = 4096)]
    pub macs: Vec<MacText>,
    /// Makes it an access port of that VLAN; beside `trunks`, the VLAN of frames without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// VLANs that the guest may tag for itself.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub trunks: Vec<VlanRange>,
    /// Whether frames from other addresses or VLANs than its own are dropped.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub spoof_check: bool,
    /// Whether it receives frames of its VLANs to unknown addresses.
    #[serde(default)]
    #[schema(default = false)]
    pub promiscuous: bool,
    /// What the guest sees of the link.
    #[serde(default)]
    #[schema(default = "auto")]
    pub link_state: LinkState,
    /// What it is assured of, in Mbit/s; 0 for nothing.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub min_tx_mbps: u32,
    /// What it may not exceed, in Mbit/s; 0 for no limit.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub max_tx_mbps: u32,
    /// Its part when all want more than there is, relative to the others'.
    #[serde(default = "tx_weight")]
    #[schema(minimum = 1, maximum = 100, default = 10)]
    pub tx_weight: u8,
    /// Broadcast and multicast frames a second that it may send; 0 for no limit.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000_000, default = 0)]
    pub storm_limit_pps: u32,
    /// Who gets a copy of its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
}

/// An access VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// Its number.
    #[schema(minimum = 1, maximum = 4094)]
    pub id: u16,
    /// The priority (PCP) in the tag.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 7, default = 0)]
    pub qos: u8,
    /// The kind of tag.
    #[serde(default)]
    #[schema(default = "802.1q")]
    pub proto: VlanProto,
}

/// The kind of a VLAN tag.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
pub enum VlanProto {
    /// EtherType 0x8100.
    #[default]
    #[serde(rename = "802.1q")]
    Dot1q,
    /// EtherType 0x88a8.
    #[serde(rename = "802.1ad")]
    Dot1ad,
}

impl std::fmt::Display for VlanProto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            VlanProto::Dot1q => "802.1q",
            VlanProto::Dot1ad => "802.1ad",
        })
    }
}

/// What a guest sees of the link.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// The uplink's.
    #[default]
    Auto,
    /// Up, whatever the uplink's is.
    Enable,
    /// Down; what it sends is dropped.
    Disable,
}

/// Where copies of frames go: to an adapter or to a file, one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// Which frames, seen from the guest.
    pub direction: MirrorDirection,
    /// The adapter that gets the copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = text::label)]
    pub adapter: Option<String>,
    /// The pcapng file that gets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = text::path)]
    pub file: Option<String>,
}

/// Which frames are mirrored, seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MirrorDirection {
    /// Those it receives.
    Rx,
    /// Those it sends.
    Tx,
    /// All.
    Both,
}

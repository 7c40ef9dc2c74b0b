//! NICs, their VFs and adapters, as the document says them.
//!
//! Every field's range and default stand here and nowhere else: `shape` checks documents by the schema that these
//! derives give, the API serves that schema, and a test holds serde's defaults against it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attachment::Attachment;
use super::text::{self, MacText, VlanRange};

/// One SR-IOV NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// No other NIC has it.
    #[schema(schema_with = text::name)]
    pub name: String,
    /// What makes the NIC.
    #[serde(default)]
    #[schema(default = "soft")]
    pub kind: NicKind,
    /// Whose limits and refusals it shows.
    #[serde(default)]
    #[schema(default = "ideal")]
    pub profile: Profile,
    /// How many VFs it can have; fixed when the NIC is created.
    #[schema(minimum = 0, maximum = 255)]
    pub total_vfs: u16,
    /// How many VFs are enabled, at most `total_vfs`. As in Linux it changes from or to 0 only.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 255, default = 0)]
    pub num_vfs: u16,
    /// How many receive queues it has for adapters without a VF.
    #[serde(default = "vmq_queues")]
    #[schema(minimum = 0, maximum = 255, default = 64)]
    pub vmq_queues: u16,
    /// Where frames between its functions go.
    #[serde(default)]
    #[schema(default = "veb")]
    pub bridging: Bridging,
    /// The way to the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Attachment>,
    /// VFs with settings of their own. They are the operator's: adapters get them only by name.
    #[serde(default, rename = "vf")]
    #[schema(max_items = 255)]
    pub vfs: Vec<Vf>,
}

fn vmq_queues() -> u16 {
    64
}

/// What makes a NIC.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NicKind {
    /// The daemon itself.
    #[default]
    Soft,
}

/// The card whose limits and refusals a soft NIC shows; `ideal` refuses nothing.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
pub enum Profile {
    /// None.
    #[default]
    #[serde(rename = "ideal")]
    Ideal,
    /// Intel 82576, as QEMU's igb.
    #[serde(rename = "82576")]
    Intel82576,
    /// Intel X520.
    #[serde(rename = "x520")]
    X520,
    /// Intel XL710.
    #[serde(rename = "xl710")]
    Xl710,
    /// NVIDIA ConnectX-6.
    #[serde(rename = "cx6")]
    ConnectX6,
}

/// Where frames between functions of a NIC go. IEEE 802.1Q.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Bridging {
    /// The NIC delivers them itself.
    #[default]
    Veb,
    /// Over the uplink, whose far end sends them back.
    Vepa,
    /// Nowhere: functions reach the uplink only.
    Isolated,
}

/// Settings of one VF, in the words of `ip link set PF vf N`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vf {
    /// Its number, below `total_vfs`; no other of the NIC has it.
    #[schema(minimum = 0, maximum = 254)]
    pub index: u16,
    /// The administrative address, which only a trusted guest may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacText>,
    /// Makes it an access port of that VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// VLANs that the guest may tag for itself; not beside `vlan`.
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
    /// Who gets a copy of its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
}

pub(super) fn yes() -> bool {
    true
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

/// What the guest of a VF sees of the link.
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

/// A guest's network adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// No other adapter has it.
    #[schema(schema_with = text::label)]
    pub name: String,
    /// How the guest reaches it.
    pub attachment: Attachment,
    /// The NIC it is on, if it is on no switch; then it has no synthetic path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = text::name)]
    pub nic: Option<String>,
    /// The switch it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = text::name)]
    pub switch: Option<String>,
    /// The VF it gets, if not any that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 254)]
    pub vf: Option<u16>,
    /// Its address; no other function of the NIC has it in the same VLAN.
    pub mac: MacText,
    /// Further addresses that it receives and may send from.
    #[serde(default)]
    #[schema(max_items = 4096)]
    pub macs: Vec<MacText>,
    /// Makes it an access port of that VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// What it is assured of, in Mbit/s; 0 for nothing.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub min_tx_mbps: u32,
    /// What it may not exceed, in Mbit/s; 0 for no limit.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub max_tx_mbps: u32,
    /// Its claim to a VF when they are scarce; 0 for none.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 100, default = 0)]
    pub iov_weight: u8,
    /// Its claim to a receive queue when they are scarce; 0 for none.
    #[serde(default = "vmq_weight")]
    #[schema(minimum = 0, maximum = 100, default = 100)]
    pub vmq_weight: u8,
    /// The path it shall have, if its weights and the NIC allow it.
    #[serde(default)]
    #[schema(default = "vf")]
    pub path: WantedPath,
}

fn vmq_weight() -> u8 {
    100
}

/// The path that an adapter shall have. Each falls back to the next: `vf`, `vmq`, `synthetic`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WantedPath {
    /// Whichever suits its traffic.
    Auto,
    /// A VF.
    #[default]
    Vf,
    /// A receive queue of its own.
    Vmq,
    /// The switch.
    Synthetic,
}

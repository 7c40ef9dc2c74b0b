//! Adapters, as the document says them.
//!
//! What an adapter may send and receive is its own, whichever path it has: so its settings are those of a VF, and go with
//! it. What only a switch can enforce is its port's ([`SwitchPort`](super::SwitchPort)).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attachment::Attachment;
use super::function::{LinkState, Mirror, Vlan, tx_weight, yes};
use super::moving::Moving;
use super::text::{self, MacText, VlanRange};

/// What an adapter is called beside its NIC's name, in counters: one that a file's `[[nic.vf]]` made by its VF.
pub(crate) fn short_name<'a>(nic: &str, adapter: &'a str) -> &'a str {
    let short = adapter.strip_prefix(nic).and_then(|rest| rest.strip_prefix('-'));
    short.filter(|rest| rest.starts_with("vf")).unwrap_or(adapter)
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
    /// Broadcast and multicast frames a second that it may send; 0 for no limit. On a switch it may send so many of either
    /// kind, and so many to unknown addresses.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000_000, default = 0)]
    pub storm_limit_pps: u32,
    /// Who gets a copy of its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
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
    /// That its guest is on its way to or from another host. Whoever moves it writes this.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
}

impl Adapter {
    /// Whether its guest is on another host as yet, or from now on: then nothing is connected to it here.
    pub fn is_elsewhere(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.phase.is_elsewhere())
    }

    /// Whether its guest is on the way, and its mover was heard of lately.
    pub fn is_on_the_way(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| !moving.given_up)
    }
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

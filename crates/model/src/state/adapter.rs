//! Adapters, as the document says them.
//!
//! What an adapter may send and receive is its own, whichever path it has: so its settings are
//! those of a VF, and go with it. What only a switch can enforce is its port's
//! ([`SwitchPort`](super::SwitchPort)).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::attachment::Attachment;
use super::function::PortSettings;
use super::moving::Moving;
use super::text::{self, MacText};

/// What an adapter is called beside its NIC's name, in counters: one that a file's `[[nic.vf]]`
/// made by its VF.
pub fn short_name<'a>(nic: &str, adapter: &'a str) -> &'a str {
    let short = adapter.strip_prefix(nic).and_then(|rest| rest.strip_prefix('-'));
    short.filter(|rest| rest.starts_with("vf")).unwrap_or(adapter)
}

/// A guest's network adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Adapter {
    /// No other adapter has it.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// Whose it is, in words of who made it, such as `pod = "web-0"`; the daemon reads nothing in
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// How the guest reaches it.
    pub attachment: Attachment,
    /// The NIC it is on, if it is on no switch; then it has no synthetic path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "name")]
    pub nic: Option<String>,
    /// The switch it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "name")]
    pub switch: Option<String>,
    /// The VF it gets, if not any that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 254)]
    pub vf: Option<u16>,
    /// Its address; no other function of the NIC has it in the same VLAN.
    pub mac: MacText,
    /// What it may send and receive, on each of its paths.
    #[serde(flatten)]
    pub settings: PortSettings,
    /// Priority for getting a VF; 0 for none.
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
    /// Whether its guest is on another host as yet, or from now on: then nothing is connected to it
    /// here.
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

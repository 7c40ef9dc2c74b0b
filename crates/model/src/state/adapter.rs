//! Adapters in the document.
//!
//! The settings of an adapter hold on each of its paths, so they are those of a VF and move with
//! the adapter. Settings that only a switch enforces belong to its port
//! ([`SwitchPort`](super::SwitchPort)).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::attachment::Attachment;
use super::function::PortSettings;
use super::moving::Moving;
use super::text::{self, MacText};

/// Name of an adapter in counters, after its NIC's name: `vfN` for an adapter that a file's
/// `[[nic.vf]]` defines.
pub(super) fn short_name<'a>(nic: &str, adapter: &'a str) -> &'a str {
    let short = adapter.strip_prefix(nic).and_then(|rest| rest.strip_prefix('-'));
    short.filter(|rest| rest.starts_with("vf")).unwrap_or(adapter)
}

/// Name of an adapter's port in counters: `nic0/web`.
pub fn port_of(nic: &str, adapter: &str) -> String {
    format!("{nic}/{}", short_name(nic, adapter))
}

/// A guest's network adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Adapter {
    /// Unique name among adapters.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// Labels of the owner, such as `pod = "web-0"`; the daemon only reports them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// Connection of the guest to the adapter.
    pub attachment: Attachment,
    /// The NIC, for an adapter without a switch; it has no synthetic path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "name")]
    pub nic: Option<String>,
    /// The switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "name")]
    pub switch: Option<String>,
    /// A particular VF, instead of any free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 254)]
    pub vf: Option<u16>,
    /// MAC address, unique on the NIC in each of its VLANs.
    pub mac: MacText,
    /// Settings of its traffic, on each path.
    #[serde(flatten)]
    pub settings: PortSettings,
    /// Priority for getting a VF; 0: none.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 100, default = 0)]
    pub iov_weight: u8,
    /// Priority for getting a receive queue; 0: none.
    #[serde(default = "vmq_weight")]
    #[schema(minimum = 0, maximum = 100, default = 100)]
    pub vmq_weight: u8,
    /// Wanted path, if weights and the NIC allow it.
    #[serde(default)]
    #[schema(default = "vf")]
    pub path: WantedPath,
    /// Migration of its guest to or from another host. Written by the migration's steps.
    #[serde(default, rename = "move", skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
}

impl Adapter {
    /// `true` if its guest is on the other host: nothing is connected to it here.
    pub fn is_elsewhere(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.phase.is_elsewhere())
    }

    /// `true` while its guest migrates and the migration is not given up.
    pub fn is_on_the_way(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| !moving.given_up)
    }
}

fn vmq_weight() -> u8 {
    100
}

/// Wanted path of an adapter. Each falls back to the next: `vf`, `vmq`, `synthetic`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WantedPath {
    /// The best path for its traffic.
    Auto,
    /// A VF.
    #[default]
    Vf,
    /// A receive queue of its own.
    Vmq,
    /// The switch.
    Synthetic,
}

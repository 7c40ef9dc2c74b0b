//! NICs, as the document says them.
//!
//! Every field's range and default stand in this file and its neighbours `function`, `adapter` and
//! `switch`, and nowhere else: `shape` checks documents by the schema that these derives give, the
//! API serves that schema, and a test holds serde's defaults against it.

use crate::profile::Profile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::attachment::Attachment;
use super::function::{Pf, Vf};
use super::switchdev::{NicMode, NicRule, Representor};
use super::text;

/// One SR-IOV NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// No other NIC has it.
    #[schema(value_type = String, format = "name")]
    pub name: String,
    /// Whose it is, in words of who made it, such as `pod = "web-0"`; the daemon reads nothing in
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// What makes the NIC: `soft` is the daemon itself.
    #[serde(default)]
    #[schema(default = "soft")]
    pub kind: NicKind,
    /// The card whose limits and rejections it shows; `ideal` has none.
    #[serde(default)]
    #[schema(value_type = Profile, default = "ideal")]
    pub profile: &'static Profile,
    /// What is between its functions: its own bridge (`legacy`), or the host by way of representors
    /// (`switchdev`).
    #[serde(default)]
    #[schema(default = "legacy")]
    pub mode: NicMode,
    /// How many VFs it can have; fixed when the NIC is created. Left out: as many as its entries
    /// `vf` need.
    #[schema(minimum = 0, maximum = 255, required = false)]
    pub total_vfs: u16,
    /// How many VFs are enabled, at most `total_vfs`. As in Linux it changes from or to 0 only.
    /// Left out: all.
    #[schema(minimum = 0, maximum = 255, required = false)]
    pub num_vfs: u16,
    /// How many receive queues it has for adapters without a VF.
    #[serde(default = "vmq_queues")]
    #[schema(minimum = 0, maximum = 255, default = 64)]
    pub vmq_queues: u16,
    /// Where frames between its functions go: directly (`veb`), out of the uplink, whose other end
    /// sends them back (`vepa`), or nowhere (`isolated`).
    #[serde(default)]
    #[schema(default = "veb")]
    pub bridging: Bridging,
    /// How much of what the profile's card could carry it carries, in thousandths; 0 for no limit.
    /// Not with `ideal`, which has none.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub budget_permille: u32,
    /// The way to the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Attachment>,
    /// The PF, if a guest has it; not where a switch hangs on the NIC, which has it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pf: Option<Pf>,
    /// VFs with settings of their own, or with a guest. They are the operator's: adapters get them
    /// only by name.
    #[serde(default, rename = "vf")]
    #[schema(max_items = 255)]
    pub vfs: Vec<Vf>,
    /// Representors that are not taps of the usual names, in mode `switchdev`.
    #[serde(default, rename = "representor")]
    #[schema(max_items = 257)]
    pub representors: Vec<Representor>,
    /// Rules that lead frames off to other functions before the host has them, in mode `switchdev`.
    #[serde(default, rename = "rule")]
    #[schema(max_items = 4096)]
    pub rules: Vec<NicRule>,
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

//! Switchdev mode in the document: representors and rules.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attachment::Attachment;
use super::function::Vlan;
use super::switch::RuleMatch;
use super::text::{AnyMacText, FunctionName, RuleTarget};

/// Forwarding between a NIC's functions, as in Linux' `devlink dev eswitch`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NicMode {
    /// The NIC's own bridge.
    #[default]
    Legacy,
    /// The host: a pipe connects each function to its representor.
    Switchdev,
}

/// A representor other than the tap with the default name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Representor {
    /// Its function; each has at most one representor.
    pub of: FunctionName,
    /// Attachment on the host.
    pub attachment: Attachment,
}

/// A rule for frames from a function or the uplink. A frame matches if it meets all given
/// conditions. Rules of lower `priority` come first, and those of equal priority in document order;
/// the first match decides. A frame without a match goes to the representor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NicRule {
    /// Function that sends the frames.
    pub from: FunctionName,
    /// Destination.
    pub to: RuleTarget,
    /// Order of evaluation, lowest first.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 65535, default = 0)]
    pub priority: u16,
    /// Destination MAC address, unicast or multicast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_mac: Option<AnyMacText>,
    /// VLAN of the outer tag; 0: untagged or priority-tagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4094)]
    pub vlan: Option<u16>,
    /// Further conditions.
    #[serde(flatten)]
    pub matches: RuleMatch,
    /// Remove the outer tag, if any.
    #[serde(default)]
    #[schema(default = false)]
    pub pop_vlan: bool,
    /// Tag to add, after `pop_vlan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_vlan: Option<Vlan>,
}

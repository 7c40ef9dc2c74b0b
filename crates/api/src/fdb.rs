//! Forwarding database of a switch, as the API shows it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An address that a switch knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct FdbEntry {
    /// The address.
    pub mac: String,
    /// Its VLAN; null for the untagged network.
    pub vlan: Option<u16>,
    /// Adapter or tunnel at the port, or `uplink`.
    pub port: String,
    /// Origin.
    pub kind: FdbKind,
    /// Time since its last frame in seconds, rounded down to a quarter of the ageing time; null for
    /// a static address.
    pub age_s: Option<u32>,
}

/// Origin of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FdbKind {
    /// From a frame; removed after the ageing time.
    Learned,
    /// From the document: an adapter's address, or a static one of the switch.
    Static,
}

//! Virtual PFs in the document: a PF with VFs that a VMM presents to a guest, and the guest's
//! rights.
//!
//! Behind each function of a virtual PF is an adapter, or a device outside this daemon. A virtual
//! PF owns nothing: removing it keeps the adapters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::function::VlanProto;
use super::text::{self, MacPrefix, VlanRange};

/// Most VFs of a virtual PF: a PCI device has eight functions, and the first is the PF.
pub const VPF_VFS_MAX: usize = 7;

/// A PF with VFs that a VMM presents to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vpf {
    /// Unique name among virtual PFs.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// Labels of the owner, such as `pod = "web-0"`; the daemon only reports them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// Device model in the guest.
    #[serde(default)]
    #[schema(default = "virtio")]
    pub model: VpfModel,
    /// Adapter behind the PF. With `igb` all VFs are behind it too.
    #[schema(value_type = String, format = "label")]
    pub pf: String,
    /// VFs in index order; none with `igb`, which has 7.
    #[serde(default, rename = "vf")]
    #[schema(max_items = 7)]
    pub vfs: Vec<VpfVf>,
    /// Rights of the guest, and its channel to the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<VpfControl>,
}

/// Device model of a virtual PF.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum VpfModel {
    /// A virtio-net device with VFs, each on its own network.
    #[default]
    Virtio,
    /// An Intel 82576, whose PF and VFs share one network.
    Igb,
}

/// Device behind a VF of a virtual PF: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VpfVf {
    /// An adapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "label")]
    pub adapter: Option<String>,
    /// A vhost-vdpa device of this host, such as that of a hardware VF. The daemon does not handle
    /// its traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "path")]
    pub vhost_vdpa: Option<String>,
}

/// The guest's channel to the daemon, and its rights. Without lists and limits the guest can only
/// read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VpfControl {
    /// Path of the socket that the VMM connects a serial port to, unique among attachments.
    #[schema(value_type = String, format = "path")]
    pub socket: String,
    /// Settings that the guest may change.
    #[serde(default)]
    #[schema(max_items = 6)]
    pub settings: Vec<GuestSetting>,
    /// VFs that the guest may change; left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 7)]
    pub vfs: Option<Vec<u16>>,
    /// Prefixes of MAC addresses that the guest may set; it may always return to the host's
    /// address.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub mac_prefixes: Vec<MacPrefix>,
    /// VLANs that the guest may set, with any priority; it may always return to the host's VLAN.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub vlans: Vec<VlanRange>,
    /// Tag protocols that the guest may set, besides that of the host's own VLAN, or 802.1Q without
    /// one.
    #[serde(default)]
    #[schema(max_items = 2)]
    pub vlan_protos: Vec<VlanProto>,
    /// Highest `max_tx_mbps` that the guest may set; 0: the adapter's own, or any if that is 0.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub max_tx_mbps: u32,
    /// Highest `min_tx_mbps` that the guest may set.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub min_tx_mbps: u32,
}

/// A setting that a guest may change on its VFs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuestSetting {
    /// MAC address.
    Mac,
    /// VLAN with priority and tag protocol.
    Vlan,
    /// Rates.
    Rate,
    /// Spoof check.
    SpoofCheck,
    /// Trust.
    Trust,
    /// Link state.
    LinkState,
}

impl GuestSetting {
    /// All settings.
    pub const ALL: [GuestSetting; 6] = [
        GuestSetting::Mac,
        GuestSetting::Vlan,
        GuestSetting::Rate,
        GuestSetting::SpoofCheck,
        GuestSetting::Trust,
        GuestSetting::LinkState,
    ];

    /// Name in the document.
    pub fn word(self) -> &'static str {
        match self {
            GuestSetting::Mac => "mac",
            GuestSetting::Vlan => "vlan",
            GuestSetting::Rate => "rate",
            GuestSetting::SpoofCheck => "spoof_check",
            GuestSetting::Trust => "trust",
            GuestSetting::LinkState => "link_state",
        }
    }
}

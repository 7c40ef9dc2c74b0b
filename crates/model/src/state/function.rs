//! PFs, VFs and their settings in the document.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::Vid;

use super::attachment::Attachment;
use super::text::{MacText, VlanRange};

/// Traffic settings of a VF, the PF or an adapter: the only declaration of each setting.
///
/// A VF has the settings of `ip link set PF vf N`; an adapter keeps its own on all its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PortSettings {
    /// Further MAC addresses to receive, and to send from.
    #[schema(max_items = 4096)]
    pub macs: Vec<MacText>,
    /// Access VLAN; with `trunks`, the native VLAN. No two functions of a NIC may have the same
    /// address in the same VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// VLANs that the guest may tag.
    #[schema(max_items = 256)]
    pub trunks: Vec<VlanRange>,
    /// Drop frames of the guest unless source address and VLAN are its own.
    #[schema(default = true)]
    pub spoof_check: bool,
    /// Allow the guest to change its address and receive modes.
    #[schema(default = false)]
    pub trust: bool,
    /// Receive frames of its VLANs to unknown addresses; needs `trust`.
    #[schema(default = false)]
    pub promiscuous: bool,
    /// Link state: `auto` follows the uplink, `enable` is always up, `disable` drops all frames.
    #[schema(default = "auto")]
    pub link_state: LinkState,
    /// Guaranteed transmit rate in Mbit/s; 0: none.
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub min_tx_mbps: u32,
    /// Maximum transmit rate in Mbit/s of frames without FCS, shared equally by its queue pairs; 0:
    /// no limit.
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub max_tx_mbps: u32,
    /// Share of its lane's time under contention, relative to others.
    #[schema(minimum = 1, maximum = 100, default = 10)]
    pub tx_weight: u8,
    /// Maximum broadcast and multicast frames a second, shared equally by its queue pairs; 0: no
    /// limit.
    #[schema(minimum = 0, maximum = 10_000_000, default = 0)]
    pub storm_limit_pps: u32,
    /// Receiver of copies of its frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
}

impl Default for PortSettings {
    fn default() -> PortSettings {
        PortSettings {
            macs: Vec::new(),
            vlan: None,
            trunks: Vec::new(),
            spoof_check: true,
            trust: false,
            promiscuous: false,
            link_state: LinkState::Auto,
            min_tx_mbps: 0,
            max_tx_mbps: 0,
            tx_weight: 10,
            storm_limit_pps: 0,
            mirror: None,
        }
    }
}

impl PortSettings {
    /// VLAN of untagged frames.
    pub fn native(&self) -> Option<Vid> {
        self.vlan.and_then(|vlan| Vid::new(vlan.id).ok())
    }

    /// VLANs that may be tagged, including the native VLAN; none of an access port.
    pub fn tagged(&self) -> impl Iterator<Item = Vid> {
        let native = self.native().filter(|_| !self.trunks.is_empty());
        let all = self.trunks.iter().flat_map(|range| range.first..=range.last);
        all.filter_map(|vlan| Vid::new(vlan).ok()).chain(native)
    }

    /// All its VLANs, 0 for the untagged network.
    pub fn vids(&self) -> BTreeSet<u16> {
        let native = self.native().map_or(0, Vid::get);
        self.tagged().map(Vid::get).chain([native]).collect()
    }
}

/// A VF.
///
/// While an adapter names the VF, the VF's settings replace the adapter's own, except for MAC
/// addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Vf {
    /// Index below `total_vfs`, unique on the NIC. Left out: the position in the list.
    #[schema(minimum = 0, maximum = 254, required = false)]
    pub index: u16,
    /// Administrative MAC address; only a trusted guest may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacText>,
    /// Driver of the VF, on a NIC of kind `pci`: `vfio-pci` for a VM. Left out: the one that it
    /// has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<VfDriver>,
    /// Let the guest read the PF's RSS key and table, on a NIC of kind `pci`. Left out: as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_rss: Option<bool>,
    /// Connection of a guest: gives the VF to an adapter `NIC-vfN` with these settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// Settings of its traffic.
    #[serde(flatten)]
    pub settings: PortSettings,
}

/// Driver of a VF that its guest does not have from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VfDriver {
    /// For a VMM such as QEMU; needs an IOMMU.
    VfioPci,
}

/// The PF, in use by a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pf {
    /// Connection of the guest to the PF.
    pub attachment: Attachment,
    /// MAC address.
    pub mac: MacText,
    /// Settings of its traffic; unlike for a VF, `trust` defaults to true.
    #[serde(flatten)]
    pub settings: PortSettings,
}

/// An access VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// VLAN ID.
    #[schema(minimum = 1, maximum = 4094)]
    pub id: u16,
    /// Priority (PCP) of the tag.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 7, default = 0)]
    pub qos: u8,
    /// Tag protocol.
    #[serde(default)]
    #[schema(default = "802.1q")]
    pub proto: VlanProto,
}

/// Protocol of a VLAN tag.
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

/// Link state for a guest.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// Follows the uplink.
    #[default]
    Auto,
    /// Always up.
    Enable,
    /// Down; its frames are dropped.
    Disable,
}

/// Destination of mirrored frames: an adapter or a file, one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// Frames to mirror, from the guest's view.
    pub direction: MirrorDirection,
    /// Adapter that receives the copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "label")]
    pub adapter: Option<String>,
    /// File for the copies, pcapng.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "capture")]
    pub file: Option<String>,
}

/// Direction of mirrored frames, from the guest's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MirrorDirection {
    /// Received frames.
    Rx,
    /// Sent frames.
    Tx,
    /// Both.
    Both,
}

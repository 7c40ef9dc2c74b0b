//! PFs, VFs and what their settings are made of, as the document says them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::Vid;

use super::attachment::Attachment;
use super::text::{MacText, VlanRange};

/// What a VF, the PF or an adapter may send and receive: each setting is declared here and nowhere
/// else.
///
/// A VF's are those of `ip link set PF vf N`; an adapter takes its own with it over its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PortSettings {
    /// Further addresses that it receives and may send from.
    #[schema(max_items = 4096)]
    pub macs: Vec<MacText>,
    /// Makes it an access port of that VLAN; beside `trunks`, the VLAN of frames without a tag. No
    /// two functions of a NIC have an address in common in one VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// VLANs that the guest may tag for itself.
    #[schema(max_items = 256)]
    pub trunks: Vec<VlanRange>,
    /// Whether frames that its guest sends are dropped unless their source is an address of its
    /// own, and their VLAN one of its own.
    #[schema(default = true)]
    pub spoof_check: bool,
    /// Whether the guest may change its address and receive modes.
    #[schema(default = false)]
    pub trust: bool,
    /// Whether it receives frames of its VLANs to unknown addresses; needs `trust`.
    #[schema(default = false)]
    pub promiscuous: bool,
    /// The link: `auto` is as the uplink's, which is that of its interface, or up where it has
    /// none; `disable`: nothing passes in either direction, and the guest is told that there is no
    /// link if its VMM listens (QEMU does not).
    #[schema(default = "auto")]
    pub link_state: LinkState,
    /// What it may send whatever the others want, in Mbit/s; 0: nothing is kept for it.
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub min_tx_mbps: u32,
    /// What it may send at most, in Mbit/s of frames without FCS; 0: no limit. Each of its queue
    /// pairs has an equal part. Up to a burst of 64 frames more may go at once, which it pays back
    /// by waiting.
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub max_tx_mbps: u32,
    /// Its part of its lane's bytes when all want more than there is, relative to the others'.
    #[schema(minimum = 1, maximum = 100, default = 10)]
    pub tx_weight: u8,
    /// Broadcast and multicast frames a second that it may send; 0: no limit. Each of its queue
    /// pairs has an equal part; a tenth of a second's worth may go at once. On a switch it may send
    /// so many of either kind, and so many to unknown addresses.
    #[schema(minimum = 0, maximum = 10_000_000, default = 0)]
    pub storm_limit_pps: u32,
    /// Who gets a copy of its frames.
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
    /// The VLAN of frames without a tag.
    pub fn native(&self) -> Option<Vid> {
        self.vlan.and_then(|vlan| Vid::new(vlan.id).ok())
    }

    /// The VLANs that may be tagged, that of frames without a tag among them; none of an access
    /// port.
    pub fn tagged(&self) -> impl Iterator<Item = Vid> {
        let native = self.native().filter(|_| !self.trunks.is_empty());
        let all = self.trunks.iter().flat_map(|range| range.first..=range.last);
        all.filter_map(|vlan| Vid::new(vlan).ok()).chain(native)
    }

    /// Every VLAN that it is in, 0 for the untagged network.
    pub fn vids(&self) -> BTreeSet<u16> {
        let native = self.native().map_or(0, Vid::get);
        self.tagged().map(Vid::get).chain([native]).collect()
    }
}

/// One VF.
///
/// Where an adapter names the VF, its settings hold while it is there, in the place of the
/// adapter's own; all but the addresses, which stay the adapter's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Vf {
    /// Its number, below `total_vfs`; no other of the NIC has it. Left out: its place in the list.
    #[schema(minimum = 0, maximum = 254, required = false)]
    pub index: u16,
    /// The administrative address, which only a trusted guest may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacText>,
    /// How a guest reaches it: gives the VF to an adapter `NIC-vfN`, which is made with these
    /// settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// What it may send and receive.
    #[serde(flatten)]
    pub settings: PortSettings,
}

/// The PF as a guest has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pf {
    /// How the guest reaches it.
    pub attachment: Attachment,
    /// Its address.
    pub mac: MacText,
    /// Unlike a VF it is trusted where nothing is said of it.
    #[serde(flatten)]
    pub settings: PortSettings,
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
    #[schema(value_type = String, format = "label")]
    pub adapter: Option<String>,
    /// The pcapng file that gets them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "path")]
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

//! Virtual PFs, as the document says them: a PF with VFs that a VMM shows to a guest, and what the
//! guest may set there.
//!
//! Behind each function of a virtual PF is an adapter, or a device that this daemon has no part in.
//! A virtual PF owns nothing: who removes it keeps the adapters.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::function::VlanProto;
use super::text::{self, MacText, NotOfThatForm, VlanRange};

/// The most VFs that a virtual PF can have: a PCI device has eight functions, and the first is the
/// PF.
pub const VPF_VFS_MAX: usize = 7;

/// A PF with VFs that a VMM shows to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vpf {
    /// No other virtual PF has it.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// Whose it is, in words of who made it, such as `pod = "web-0"`; the daemon reads nothing in
    /// it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// What the guest takes it for.
    #[serde(default)]
    #[schema(default = "virtio")]
    pub model: VpfModel,
    /// The adapter behind the PF itself. With `igb` all VFs are behind it, too.
    #[schema(value_type = String, format = "label")]
    pub pf: String,
    /// The VFs, in the order of their numbers; none with `igb`, which has 7.
    #[serde(default, rename = "vf")]
    #[schema(max_items = 7)]
    pub vfs: Vec<VpfVf>,
    /// What the guest may see and set, and where it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<VpfControl>,
}

/// What a guest takes a virtual PF for.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum VpfModel {
    /// A virtio-net device with VFs, each on a network of its own.
    #[default]
    Virtio,
    /// An Intel 82576, whose PF and VFs share a network.
    Igb,
}

/// What is behind a VF of a virtual PF: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VpfVf {
    /// An adapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "label")]
    pub adapter: Option<String>,
    /// A vhost-vdpa device of this host's, such as that of a hardware VF. What it sends and
    /// receives is not the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "path")]
    pub vhost_vdpa: Option<String>,
}

/// The guest's channel to the daemon, and its rights. Without lists and limits it may only look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VpfControl {
    /// The path of the socket that its VMM connects a serial port to; no attachment has it.
    #[schema(value_type = String, format = "path")]
    pub socket: String,
    /// What it may set.
    #[serde(default)]
    #[schema(max_items = 6)]
    pub settings: Vec<GuestSetting>,
    /// The VFs that it may set; left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 7)]
    pub vfs: Option<Vec<u16>>,
    /// How addresses that it sets begin; it may always go back to the host's.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub mac_prefixes: Vec<MacPrefix>,
    /// VLANs that it may set, with any priority; it may always go back to the host's.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub vlans: Vec<VlanRange>,
    /// Kinds of tag that those may have; that of the host's own VLAN always, and 802.1Q where there
    /// is none.
    #[serde(default)]
    #[schema(max_items = 2)]
    pub vlan_protos: Vec<VlanProto>,
    /// The highest `max_tx_mbps` that it may set; 0 for the adapter's own, and for any if that has
    /// none.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub max_tx_mbps: u32,
    /// The highest `min_tx_mbps` that it may set.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub min_tx_mbps: u32,
}

/// Something that a guest may set of its VFs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuestSetting {
    /// The address.
    Mac,
    /// The VLAN with its priority and kind of tag.
    Vlan,
    /// The rates.
    Rate,
    /// Whether sources are checked.
    SpoofCheck,
    /// Trust.
    Trust,
    /// The link state.
    LinkState,
}

impl GuestSetting {
    /// All of them.
    pub const ALL: [GuestSetting; 6] = [
        GuestSetting::Mac,
        GuestSetting::Vlan,
        GuestSetting::Rate,
        GuestSetting::SpoofCheck,
        GuestSetting::Trust,
        GuestSetting::LinkState,
    ];

    /// Its word in the document.
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

/// The first bytes of MAC addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacPrefix {
    bytes: [u8; 6],
    /// How many of them count, 1 to 6.
    len: u8,
}

impl MacPrefix {
    /// Whether an address begins so.
    pub fn is_of(&self, mac: MacText) -> bool {
        let len = usize::from(self.len);
        self.bytes[..len] == mac.0.0[..len]
    }
}

impl FromStr for MacPrefix {
    type Err = NotOfThatForm;

    fn from_str(text: &str) -> Result<Self, NotOfThatForm> {
        let mut prefix = MacPrefix { bytes: [0; 6], len: 0 };
        for part in text.split(':') {
            let two = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            let byte = u8::from_str_radix(part, 16).ok().filter(|_| two).ok_or(NotOfThatForm)?;
            *prefix.bytes.get_mut(usize::from(prefix.len)).ok_or(NotOfThatForm)? = byte;
            prefix.len += 1;
        }
        if prefix.bytes[0] & 1 == 1 { Err(NotOfThatForm) } else { Ok(prefix) }
    }
}

impl fmt::Display for MacPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.bytes[..usize::from(self.len)].iter().enumerate() {
            write!(f, "{}{byte:02x}", if i > 0 { ":" } else { "" })?;
        }
        Ok(())
    }
}

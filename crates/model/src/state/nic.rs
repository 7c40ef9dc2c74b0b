//! NICs in the document.
//!
//! This file and its neighbours `function`, `adapter` and `switch` are the only place for ranges
//! and defaults. The derives yield the schema: `schema` checks documents with it, the API serves
//! it, and a test compares it with serde's defaults.

use crate::profile::Profile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::attachment::{Attachment, Tap};
use super::function::{Pf, Vf};
use super::switchdev::{NicMode, NicRule, Representor};
use super::text::{self, FunctionName};

/// An SR-IOV NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Unique name among NICs.
    #[schema(value_type = String, format = "name")]
    pub name: String,
    /// Labels of the owner, such as `pod = "web-0"`; the daemon only reports them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = text::owner)]
    pub owner: BTreeMap<String, String>,
    /// Implementation of the NIC: `soft` is the daemon itself, `pci` a card of the machine.
    #[serde(default)]
    #[schema(default = "soft")]
    pub kind: NicKind,
    /// The card's PF, of kind `pci`: its PCI address, or the name of its interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "device")]
    pub device: Option<String>,
    /// Settings of the card's VFs that others change: `report` shows them, `repair` sets them
    /// again. Of kind `pci`.
    #[serde(default, skip_serializing_if = "Drift::is_default")]
    #[schema(default = "report")]
    pub drift: Drift,
    /// Card profile with limits and rejected settings; `ideal` has none.
    #[serde(default)]
    #[schema(value_type = Profile, default = "ideal")]
    pub profile: &'static Profile,
    /// Eswitch mode: forwarding by its own bridge (`legacy`), or the host through representors
    /// (`switchdev`).
    #[serde(default)]
    #[schema(default = "legacy")]
    pub mode: NicMode,
    /// Most VFs; of kind `soft`, fixed at its creation. Left out: as many as `vf` and `num_vfs`
    /// need.
    #[schema(minimum = 0, maximum = 255, required = false)]
    pub total_vfs: u16,
    /// Enabled VFs, at most `total_vfs`. Of kind `soft`, changes only from or to 0. Left out: all.
    #[schema(minimum = 0, maximum = 255, required = false)]
    pub num_vfs: u16,
    /// Receive queues for adapters without a VF.
    #[serde(default = "vmq_queues")]
    #[schema(minimum = 0, maximum = 255, default = 64)]
    pub vmq_queues: u16,
    /// Frames between its functions: direct (`veb`), through the uplink and back (`vepa`), or none
    /// (`isolated`).
    #[serde(default)]
    #[schema(default = "veb")]
    pub bridging: Bridging,
    /// Part of the card profile's capacity, in thousandths; 0: no limit. Not with `ideal`, which
    /// has no limits.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub budget_permille: u32,
    /// Connection to the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Attachment>,
    /// The PF, for a guest; not on a NIC with a switch, which uses the PF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pf: Option<Pf>,
    /// VFs with settings of their own, or with a guest. Adapters get them only by name.
    #[serde(default, rename = "vf")]
    #[schema(max_items = 255)]
    pub vfs: Vec<Vf>,
    /// Representors other than taps with default names, in mode `switchdev`.
    #[serde(default, rename = "representor")]
    #[schema(max_items = 257)]
    pub representors: Vec<Representor>,
    /// Rules that forward frames to other functions before the host sees them, in mode `switchdev`.
    #[serde(default, rename = "rule")]
    #[schema(max_items = 4096)]
    pub rules: Vec<NicRule>,
}

fn vmq_queues() -> u16 {
    64
}

/// Implementation of a NIC.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NicKind {
    /// The daemon itself.
    #[default]
    Soft,
    /// A card of the machine, through its Linux driver. Its uplink and switch are the daemon's.
    Pci,
}

/// Reaction to settings that others change.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Drift {
    /// The difference is reported.
    #[default]
    Report,
    /// The settings of the document are set again.
    Repair,
}

impl Drift {
    fn is_default(&self) -> bool {
        *self == Drift::default()
    }
}

/// Forwarding of frames between functions of a NIC. IEEE 802.1Q.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Bridging {
    /// The NIC forwards directly.
    #[default]
    Veb,
    /// Through the uplink; the adjacent bridge sends them back.
    Vepa,
    /// None: functions reach only the uplink.
    Isolated,
}

impl Nic {
    /// `true` for a card.
    pub fn is_pci(&self) -> bool {
        self.kind == NicKind::Pci
    }

    /// `true` if the daemon forwards in switchdev mode; a card does that itself.
    pub fn is_switchdev(&self) -> bool {
        self.mode == NicMode::Switchdev && !self.is_pci()
    }

    /// Functions with a representor: the uplink if there is one, the PF if a guest has it, and
    /// every enabled VF; none in legacy mode.
    pub fn represented(&self) -> impl Iterator<Item = FunctionName> + use<'_> {
        let uplink = self.uplink.iter().map(|_| FunctionName::Uplink);
        let pf = self.pf.iter().map(|_| FunctionName::Pf);
        let all = uplink.chain(pf).chain((0..self.num_vfs).map(FunctionName::Vf));
        all.filter(|_| self.is_switchdev())
    }

    /// Attachment of each representor, and its index in the document, if any.
    pub fn representors(&self) -> Vec<(FunctionName, Attachment, Option<usize>)> {
        let of = |function: FunctionName| {
            let given = self.representors.iter().position(|it| it.of == function);
            let attachment = match given {
                Some(at) => self.representors[at].attachment.clone(),
                None => Attachment::Tap(Tap::of(self.tap_name(function))),
            };
            (function, attachment, given)
        };
        self.represented().map(of).collect()
    }

    /// Default name of a representor's tap.
    pub fn tap_name(&self, function: FunctionName) -> String {
        self.name.clone() + &function.port_name()
    }
}

/// Address of a PCI function, in the form of sysfs.
pub(super) fn is_pci_address(text: &str) -> bool {
    let form = "0000:00:00.0";
    let matches = |(at, form): (u8, u8)| match form {
        b'0' => at.is_ascii_digit() || (b'a'..=b'f').contains(&at),
        _ => at == form,
    };
    // 32 devices on a bus, 8 functions in a device.
    text.len() == form.len()
        && text.bytes().zip(form.bytes()).all(matches)
        && text.as_bytes()[8] < b'2'
        && text.as_bytes()[11] < b'8'
}

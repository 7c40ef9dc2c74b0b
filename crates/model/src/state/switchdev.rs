//! Switchdev mode in the document: representors and rules.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attachment::{Attachment, Tap};
use super::function::Vlan;
use super::nic::Nic;
use super::switch::RuleMatch;
use super::text::InvalidText;

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

/// A function of a NIC, or its uplink: `uplink`, `pf`, `vf0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionName {
    /// The uplink.
    Uplink,
    /// The PF, in use by a guest.
    Pf,
    /// A VF by index, 0 to 254.
    Vf(u16),
}

impl FunctionName {
    /// Linux name of the representor (`phys_port_name`), such as `pf0vf2`.
    pub fn port_name(self) -> String {
        match self {
            FunctionName::Uplink => "p0".to_owned(),
            FunctionName::Pf => "pf0".to_owned(),
            FunctionName::Vf(index) => format!("pf0vf{index}"),
        }
    }
}

impl FromStr for FunctionName {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        match text {
            "uplink" => Ok(FunctionName::Uplink),
            "pf" => Ok(FunctionName::Pf),
            _ => {
                let number: u16 = text
                    .strip_prefix("vf")
                    .and_then(|number| number.parse().ok())
                    .ok_or(InvalidText)?;
                let name = FunctionName::Vf(number);
                // One form for each function: no leading zeros, no plus sign.
                if number < 255 && name.to_string() == text { Ok(name) } else { Err(InvalidText) }
            }
        }
    }
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionName::Uplink => f.write_str("uplink"),
            FunctionName::Pf => f.write_str("pf"),
            FunctionName::Vf(index) => write!(f, "vf{index}"),
        }
    }
}

/// Destination of a rule: a function, `representor`, or `drop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleTarget {
    /// A function, or the uplink.
    Function(FunctionName),
    /// The representor of the sending function, as if no rule had matched.
    Representor,
    /// Drop.
    Drop,
}

impl FromStr for RuleTarget {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        match text {
            "representor" => Ok(RuleTarget::Representor),
            "drop" => Ok(RuleTarget::Drop),
            function => function.parse().map(RuleTarget::Function),
        }
    }
}

impl fmt::Display for RuleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleTarget::Function(function) => function.fmt(f),
            RuleTarget::Representor => f.write_str("representor"),
            RuleTarget::Drop => f.write_str("drop"),
        }
    }
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

impl Nic {
    /// `true` in switchdev mode.
    pub fn is_switchdev(&self) -> bool {
        self.mode == NicMode::Switchdev
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

/// A MAC address, unicast or multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnyMacText(pub wire::Mac);

impl FromStr for AnyMacText {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        text.parse().map(AnyMacText).map_err(|_| InvalidText)
    }
}

impl fmt::Display for AnyMacText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

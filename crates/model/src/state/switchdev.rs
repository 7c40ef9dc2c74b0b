//! Switchdev mode, as the document says it: representors and rules.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attachment::{Attachment, Tap};
use super::function::Vlan;
use super::model::Nic;
use super::switch::RuleMatch;
use super::text::NotOfThatForm;

/// What a NIC's functions have between them. As of Linux' `devlink dev eswitch`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NicMode {
    /// The NIC's own bridge.
    #[default]
    Legacy,
    /// The host: each function is at the end of a pipe from its representor.
    Switchdev,
}

/// A function of a NIC, or its way to the wire: `uplink`, `pf`, `vf0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FunctionName {
    /// The wire.
    Uplink,
    /// The PF, as a guest has it.
    Pf,
    /// The VF of that number, 0 to 254.
    Vf(u16),
}

impl FunctionName {
    /// What Linux calls the representor (`phys_port_name`), such as `pf0vf2`.
    pub fn port_name(self) -> String {
        match self {
            FunctionName::Uplink => "p0".to_owned(),
            FunctionName::Pf => "pf0".to_owned(),
            FunctionName::Vf(index) => format!("pf0vf{index}"),
        }
    }
}

impl FromStr for FunctionName {
    type Err = NotOfThatForm;

    fn from_str(text: &str) -> Result<Self, NotOfThatForm> {
        match text {
            "uplink" => Ok(FunctionName::Uplink),
            "pf" => Ok(FunctionName::Pf),
            _ => {
                let number: u16 = text
                    .strip_prefix("vf")
                    .and_then(|number| number.parse().ok())
                    .ok_or(NotOfThatForm)?;
                let name = FunctionName::Vf(number);
                // One text for one function: without zeros in front, or a plus.
                if number < 255 && name.to_string() == text { Ok(name) } else { Err(NotOfThatForm) }
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

/// Where a rule sends frames: a function, `representor`, or `drop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleTarget {
    /// To a function, or the wire.
    Function(FunctionName),
    /// To the representor of the function that they come from, as if no rule had matched.
    Representor,
    /// Nowhere.
    Drop,
}

impl FromStr for RuleTarget {
    type Err = NotOfThatForm;

    fn from_str(text: &str) -> Result<Self, NotOfThatForm> {
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

/// A representor that is not the tap of the usual name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Representor {
    /// Of which function; no other of the NIC's is of it.
    pub of: FunctionName,
    /// What the host has of it.
    pub attachment: Attachment,
}

/// A rule for what a function, or the wire, sends. A frame meets it if it meets all conditions that
/// are given. Rules of lower `priority` are tried first, and those of the same in their order; the
/// first that a frame meets decides. A frame that meets none comes out at the representor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NicRule {
    /// Whose frames.
    pub from: FunctionName,
    /// Where they go.
    pub to: RuleTarget,
    /// When it is tried.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 65535, default = 0)]
    pub priority: u16,
    /// The destination address, a group's or a function's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_mac: Option<AnyMacText>,
    /// The VLAN of the outer tag; 0 for none, or a tag that says a priority only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4094)]
    pub vlan: Option<u16>,
    /// What else is asked of the frame.
    #[serde(flatten)]
    pub matches: RuleMatch,
    /// Whether the outer tag is taken off, if there is one.
    #[serde(default)]
    #[schema(default = false)]
    pub pop_vlan: bool,
    /// The tag that is put on, once that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_vlan: Option<Vlan>,
}

impl Nic {
    /// Whether it is in switchdev mode.
    pub fn is_switchdev(&self) -> bool {
        self.mode == NicMode::Switchdev
    }

    /// What has a representor: the wire if there is a way to it, the PF if a guest has it, and
    /// every VF that is enabled; nothing in the usual mode.
    pub fn represented(&self) -> impl Iterator<Item = FunctionName> + use<'_> {
        let uplink = self.uplink.iter().map(|_| FunctionName::Uplink);
        let pf = self.pf.iter().map(|_| FunctionName::Pf);
        let all = uplink.chain(pf).chain((0..self.num_vfs).map(FunctionName::Vf));
        all.filter(|_| self.is_switchdev())
    }

    /// What the host has of each representor, and where the document says so, if it does.
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

    /// What a representor's tap is called, if nothing else is said.
    pub fn tap_name(&self, function: FunctionName) -> String {
        self.name.clone() + &function.port_name()
    }
}

/// A MAC address, of a group or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnyMacText(pub wire::Mac);

impl FromStr for AnyMacText {
    type Err = NotOfThatForm;

    fn from_str(text: &str) -> Result<Self, NotOfThatForm> {
        text.parse().map(AnyMacText).map_err(|_| NotOfThatForm)
    }
}

impl fmt::Display for AnyMacText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! What is refused: one shape of error for every setting.

use std::fmt;

use crate::PortId;

/// Where in a [`SwitchConfig`](crate::switch::SwitchConfig) something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The switch as a whole.
    Switch,
    /// One of its ports.
    Port(PortId),
    /// A static entry, by index.
    Static(usize),
    /// A mirror, by index.
    Mirror(usize),
    /// A rule of an ACL, both by index.
    Rule {
        /// The ACL.
        acl: usize,
        /// The rule.
        rule: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => out.write_str("switch"),
            Self::Port(port) => port.fmt(out),
            Self::Static(index) => write!(out, "statics[{index}]"),
            Self::Mirror(index) => write!(out, "mirrors[{index}]"),
            Self::Rule { acl, rule } => write!(out, "acls[{acl}].rules[{rule}]"),
        }
    }
}

/// Why a [`SwitchConfig`](crate::switch::SwitchConfig) is refused. Nothing of it is applied then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {field}: {value}; allowed is {allowed}")]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// The field.
    pub field: &'static str,
    /// Its value, or what is wrong with it.
    pub value: String,
    /// What it may be.
    pub allowed: String,
}

impl ConfigError {
    pub(crate) fn new(
        place: Place,
        field: &'static str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self { place, field, value: value.to_string(), allowed: allowed.to_string() }
    }
}

/// An error unless a condition holds; its texts are made only if it is needed.
macro_rules! ensure {
    ($holds:expr, $place:expr, $field:expr, $value:expr, $allowed:expr) => {
        if !$holds {
            return Err($crate::switch::ConfigError::new($place, $field, $value, $allowed));
        }
    };
}
pub(crate) use ensure;

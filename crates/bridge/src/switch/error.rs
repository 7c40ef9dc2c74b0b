//! Configuration errors of a switch: one shape for every setting.

use std::fmt;

use crate::PortId;

/// Location of an error in a [`SwitchConfig`](crate::switch::SwitchConfig).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorLocation {
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

impl fmt::Display for ErrorLocation {
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

/// Reason for which a [`SwitchConfig`](crate::switch::SwitchConfig) is rejected; nothing of it is
/// applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {field}: {value}; allowed is {allowed}")]
pub struct ConfigError {
    /// Location of the error.
    pub place: ErrorLocation,
    /// The field.
    pub field: &'static str,
    /// Value, or the problem with it.
    pub value: String,
    /// Allowed values.
    pub allowed: String,
}

impl ConfigError {
    pub(crate) fn new(
        place: ErrorLocation,
        field: &'static str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        Self { place, field, value: value.to_string(), allowed: allowed.to_string() }
    }
}

/// Returns an error unless a condition holds; formats it only then.
macro_rules! ensure {
    ($holds:expr, $place:expr, $field:expr, $value:expr, $allowed:expr) => {
        if !$holds {
            return Err($crate::switch::ConfigError::new($place, $field, $value, $allowed));
        }
    };
}
pub(crate) use ensure;

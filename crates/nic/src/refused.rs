//! A setting that is refused, and the error number that Linux gives for it.

use std::fmt;

use wire::Mac;

use crate::mistake::{ConfigError, vlan_name};
use crate::{
    MAX_ADDRESSES, MAX_GROUPS, MAX_MACS, MAX_QUEUES, MAX_RULES, MAX_VFS, QOS_MAX, WEIGHT_MAX,
};

/// An error number of Linux; those that drivers give for settings of VFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum Errno {
    /// Operation not permitted.
    Eperm = 1,
    /// Device or resource busy.
    Ebusy = 16,
    /// File exists.
    Eexist = 17,
    /// No such device.
    Enodev = 19,
    /// Invalid argument.
    Einval = 22,
    /// No space left on device.
    Enospc = 28,
    /// Numerical result out of range.
    Erange = 34,
    /// Protocol not supported.
    Eprotonosupport = 93,
    /// Operation not supported.
    Eopnotsupp = 95,
}

impl Errno {
    /// The number on x86 and ARM.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The name, as manual pages write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eperm => "EPERM",
            Self::Ebusy => "EBUSY",
            Self::Eexist => "EEXIST",
            Self::Enodev => "ENODEV",
            Self::Einval => "EINVAL",
            Self::Enospc => "ENOSPC",
            Self::Erange => "ERANGE",
            Self::Eprotonosupport => "EPROTONOSUPPORT",
            Self::Eopnotsupp => "EOPNOTSUPP",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Why a change was refused. Nothing of it is in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is refused ({errno}); allowed is {allowed}")]
pub struct Refused {
    /// What Linux would answer.
    pub errno: Errno,
    /// The function, if it is one's, and the field.
    pub field: String,
    /// What was asked for.
    pub value: String,
    /// What is allowed instead.
    pub allowed: String,
}

impl Refused {
    pub(crate) fn new(
        errno: Errno,
        field: impl fmt::Display,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        let (field, value) = (field.to_string(), value.to_string());
        Self { errno, field, value, allowed: allowed.to_string() }
    }
}

impl From<ConfigError> for Refused {
    fn from(error: ConfigError) -> Self {
        let (field, value, allowed) = parts(&error);
        Self { errno: errno(&error), field, value, allowed }
    }
}

const fn errno(error: &ConfigError) -> Errno {
    match error {
        ConfigError::DuplicateMac { .. } => Errno::Eexist,
        ConfigError::SwitchBesidePf => Errno::Ebusy,
        ConfigError::Untrusted { .. } => Errno::Eperm,
        ConfigError::MirrorPort { .. } => Errno::Enodev,
        ConfigError::TooManyMacs { .. }
        | ConfigError::TooManyAddresses { .. }
        | ConfigError::TooManyFilters { .. }
        | ConfigError::TooManyGroups { .. }
        | ConfigError::TooManyRules { .. } => Errno::Enospc,
        ConfigError::SwitchdevBridge | ConfigError::Switchdev { .. } => Errno::Eopnotsupp,
        ConfigError::MulticastMac { .. }
        | ConfigError::ZeroMac { .. }
        | ConfigError::TooManyVfs { .. }
        | ConfigError::TooManyQueues { .. }
        | ConfigError::FilterVid { .. }
        | ConfigError::NoGroup { .. }
        | ConfigError::Qos { .. }
        | ConfigError::ServiceTrunk { .. }
        | ConfigError::Weight { .. }
        | ConfigError::Rule { .. }
        | ConfigError::Rates { .. } => Errno::Einval,
    }
}

/// As [`parts`], of what is behind the PF: a switch, or pipes in switchdev mode.
fn parts_behind_pf(error: &ConfigError) -> (String, String, String) {
    match error {
        ConfigError::SwitchBesidePf => {
            let value = "one beside settings of the PF".into();
            ("PF: switch".into(), value, "one of the two".into())
        }
        ConfigError::TooManyFilters { filters, others } => {
            let value = format!("{filters} addresses beside {others} of functions and queues");
            ("PF: switch".into(), value, format!("up to {MAX_ADDRESSES} together"))
        }
        ConfigError::FilterVid { field, vid } => {
            (format!("PF: {field}"), format!("VLAN {vid}"), "0 to 4094".into())
        }
        ConfigError::Switchdev { port, field } => {
            let value = "a setting of the bridge's".into();
            (format!("{port}: {field}"), value, "none in switchdev mode".into())
        }
        ConfigError::TooManyRules { rules } => {
            ("switchdev".into(), rules.to_string(), format!("up to {MAX_RULES}"))
        }
        ConfigError::Rule { rule, field, value, allowed } => {
            (format!("switchdev[{rule}].{field}"), value.clone(), allowed.clone())
        }
        _ => {
            let value = "it beside a switch, or in a mode other than veb,".into();
            ("switchdev".into(), value, "it alone".into())
        }
    }
}

/// The field, the value and what is allowed.
fn parts(error: &ConfigError) -> (String, String, String) {
    let up_to = |max: usize| format!("up to {max}");
    match error {
        ConfigError::DuplicateMac { port, field, mac, vid, other, other_field } => {
            let value = format!("{mac}, which is {other_field} of {other},");
            let allowed = format!("a MAC that is not yet in {}", vlan_name(*vid));
            (format!("{port}: {field}"), value, allowed)
        }
        ConfigError::MulticastMac { port, field, mac } => {
            (format!("{port}: {field}"), mac.to_string(), "a unicast address".into())
        }
        ConfigError::ZeroMac { port, field } => {
            (format!("{port}: {field}"), Mac::ZERO.to_string(), "a unicast address".into())
        }
        ConfigError::TooManyVfs { vfs } => {
            ("total_vfs".into(), vfs.to_string(), format!("0 to {MAX_VFS}"))
        }
        ConfigError::TooManyQueues { queues } => {
            ("queues".into(), queues.to_string(), format!("0 to {MAX_QUEUES}"))
        }
        ConfigError::SwitchBesidePf
        | ConfigError::TooManyFilters { .. }
        | ConfigError::FilterVid { .. }
        | ConfigError::SwitchdevBridge
        | ConfigError::Switchdev { .. }
        | ConfigError::TooManyRules { .. }
        | ConfigError::Rule { .. } => parts_behind_pf(error),
        ConfigError::TooManyMacs { port, macs } => {
            let value = format!("{macs} MACs of all functions");
            (format!("{port}: extra_macs"), value, up_to(MAX_MACS))
        }
        ConfigError::TooManyAddresses { port, addresses } => {
            let value = format!("{addresses} pairs of a MAC and a VLAN of all functions");
            (format!("{port}: trunk"), value, up_to(MAX_ADDRESSES))
        }
        ConfigError::TooManyGroups { port, groups } => {
            (format!("{port}: groups"), groups.to_string(), up_to(MAX_GROUPS))
        }
        ConfigError::NoGroup { port, index, mac } => {
            (format!("{port}: groups[{index}]"), mac.to_string(), "a group address".into())
        }
        ConfigError::Qos { port, qos } => {
            (format!("{port}: qos"), qos.to_string(), format!("0 to {QOS_MAX}"))
        }
        ConfigError::ServiceTrunk { port, vlans } => {
            let value = format!("{vlans} VLANs beside an 802.1ad VLAN");
            (format!("{port}: trunk"), value, "an empty trunk, or an 802.1Q VLAN".into())
        }
        ConfigError::Untrusted { port, field } => {
            let allowed = "that with trust on only".into();
            (format!("{port}: {field}"), "what takes trust".into(), allowed)
        }
        ConfigError::Weight { port, weight } => {
            (format!("{port}: weight"), weight.to_string(), format!("1 to {WEIGHT_MAX}"))
        }
        ConfigError::Rates { port, min, max } => {
            let value = format!("{min} Mbit/s, above max_tx_rate,");
            (format!("{port}: min_tx_rate"), value, format!("0 to {max}"))
        }
        ConfigError::MirrorPort { port, to } => {
            let allowed = "the uplink or another function that exists".into();
            (format!("{port}: mirror"), to.to_string(), allowed)
        }
    }
}

//! A setting that is refused, and the error number that Linux gives for it.

use std::fmt;

use crate::mistake::{ConfigError, vlan_name};
use crate::{MAX_ADDRESSES, MAX_GROUPS, MAX_MACS, MAX_QUEUES, MAX_VFS, QOS_MAX, WEIGHT_MAX};

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
        use Errno::{Ebusy, Eexist, Einval, Enodev, Enospc, Eperm};
        match error {
            ConfigError::DuplicateMac { port, field, mac, vid, other, other_field } => Self::new(
                Eexist,
                format_args!("{port}: {field}"),
                format_args!("{mac}, which is {other_field} of {other},"),
                format_args!("a MAC that is not yet in {}", vlan_name(vid)),
            ),
            ConfigError::MulticastMac { port, field, mac } => {
                Self::new(Einval, format_args!("{port}: {field}"), mac, "a unicast address")
            }
            ConfigError::ZeroMac { port, field } => {
                let zero = wire::Mac::ZERO;
                Self::new(Einval, format_args!("{port}: {field}"), zero, "a unicast address")
            }
            ConfigError::TooManyVfs { vfs } => {
                Self::new(Einval, "total_vfs", vfs, format_args!("0 to {MAX_VFS}"))
            }
            ConfigError::TooManyQueues { queues } => {
                Self::new(Einval, "queues", queues, format_args!("0 to {MAX_QUEUES}"))
            }
            ConfigError::SwitchBesidePf => {
                Self::new(Ebusy, "PF: switch", "one beside settings of the PF", "one of the two")
            }
            ConfigError::TooManyFilters { filters, others } => Self::new(
                Enospc,
                "PF: switch",
                format_args!("{filters} addresses beside {others} of functions and queues"),
                format_args!("up to {MAX_ADDRESSES} together"),
            ),
            ConfigError::FilterVid { field, vid } => {
                let value = format!("VLAN {vid}");
                Self::new(Einval, format_args!("PF: {field}"), value, "0 to 4094")
            }
            ConfigError::TooManyMacs { port, macs } => Self::new(
                Enospc,
                format_args!("{port}: extra_macs"),
                format_args!("{macs} MACs of all functions"),
                format_args!("up to {MAX_MACS}"),
            ),
            ConfigError::TooManyAddresses { port, addresses } => Self::new(
                Enospc,
                format_args!("{port}: trunk"),
                format_args!("{addresses} pairs of a MAC and a VLAN of all functions"),
                format_args!("up to {MAX_ADDRESSES}"),
            ),
            ConfigError::TooManyGroups { port, groups } => {
                let (field, allowed) = (format!("{port}: groups"), format!("up to {MAX_GROUPS}"));
                Self::new(Enospc, field, groups, allowed)
            }
            ConfigError::NoGroup { port, index, mac } => {
                Self::new(Einval, format_args!("{port}: groups[{index}]"), mac, "a group address")
            }
            ConfigError::Qos { port, qos } => {
                let (field, allowed) = (format!("{port}: qos"), format!("0 to {QOS_MAX}"));
                Self::new(Einval, field, qos, allowed)
            }
            ConfigError::ServiceTrunk { port, vlans } => Self::new(
                Einval,
                format_args!("{port}: trunk"),
                format_args!("{vlans} VLANs beside an 802.1ad VLAN"),
                "an empty trunk, or an 802.1Q VLAN",
            ),
            ConfigError::Untrusted { port, field } => {
                let field = format!("{port}: {field}");
                Self::new(Eperm, field, "what takes trust", "that with trust on only")
            }
            ConfigError::Weight { port, weight } => {
                let (field, allowed) = (format!("{port}: weight"), format!("1 to {WEIGHT_MAX}"));
                Self::new(Einval, field, weight, allowed)
            }
            ConfigError::Rates { port, min, max } => Self::new(
                Einval,
                format_args!("{port}: min_tx_rate"),
                format_args!("{min} Mbit/s, above max_tx_rate,"),
                format_args!("0 to {max}"),
            ),
            ConfigError::MirrorPort { port, to } => {
                let allowed = "the uplink or another function that exists";
                Self::new(Enodev, format_args!("{port}: mirror"), to, allowed)
            }
        }
    }
}

//! Paths in the planner's words, which are the daemon's.
//!
//! The lab and nfv-2017 call the same paths `vf`, `vhost` and `virtio` ([`PathKind`]). The planner
//! has no model of `vmq`: none of its sources measures it.

use std::fmt;
use std::str::FromStr;

use report::results::PathKind;
use serde::Serialize;

/// Path of an adapter's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlannedPath {
    /// A VF.
    Vf,
    /// The software switch.
    Synthetic,
    /// The kernel's tap and bridge: not a path of the daemon, for comparison.
    Kernel,
}

impl PlannedPath {
    /// All paths, in the order of [`PathKind::ALL`].
    pub const ALL: [Self; 3] = [Self::Vf, Self::Synthetic, Self::Kernel];

    /// The name as in the CLI and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vf => "vf",
            Self::Synthetic => "synthetic",
            Self::Kernel => "kernel",
        }
    }

    /// The path as the lab and nfv-2017 name it.
    pub const fn measured(self) -> PathKind {
        match self {
            Self::Vf => PathKind::Vf,
            Self::Synthetic => PathKind::Vhost,
            Self::Kernel => PathKind::Virtio,
        }
    }

    /// The name, with the measurement's word in brackets if it differs: for measured figures.
    pub fn with_measured(self) -> String {
        match self.measured() {
            PathKind::Vf => self.to_string(),
            measured => format!("{self} ({measured})"),
        }
    }
}

impl From<PathKind> for PlannedPath {
    fn from(measured: PathKind) -> Self {
        match measured {
            PathKind::Vf => Self::Vf,
            PathKind::Vhost => Self::Synthetic,
            PathKind::Virtio => Self::Kernel,
        }
    }
}

impl fmt::Display for PlannedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Unknown path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a path of the planner; use {allowed}")]
pub struct PathError {
    /// Given name.
    pub value: String,
    /// Allowed names; for a name of the lab, with the planner's word for it.
    pub allowed: String,
}

impl FromStr for PlannedPath {
    type Err = PathError;

    fn from_str(value: &str) -> Result<Self, PathError> {
        let found = Self::ALL.into_iter().find(|path| path.as_str() == value);
        found.ok_or_else(|| PathError {
            value: value.to_owned(),
            allowed: Self::ALL.map(Self::as_str).join(", ")
                + &value.parse::<PathKind>().map_or_else(
                    |_| String::new(),
                    |measured| format!(" ({measured} is {})", Self::from(measured)),
                ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_one_name_in_the_lab() {
        for path in PlannedPath::ALL {
            assert_eq!(PlannedPath::from(path.measured()), path);
            assert_eq!(path.as_str().parse(), Ok(path));
        }
        assert_eq!(PlannedPath::ALL.map(PlannedPath::measured), PathKind::ALL);
        let written = PlannedPath::ALL.map(PlannedPath::with_measured);
        assert_eq!(written, ["vf", "synthetic (vhost)", "kernel (virtio)"]);
    }

    #[test]
    fn a_name_of_the_lab_is_answered_with_the_planners() {
        let allowed = |name: &str| name.parse::<PlannedPath>().unwrap_err().allowed;
        assert_eq!(allowed("vhost"), "vf, synthetic, kernel (vhost is synthetic)");
        assert_eq!(allowed("virtio"), "vf, synthetic, kernel (virtio is kernel)");
        assert_eq!(allowed("vmq"), "vf, synthetic, kernel");
    }
}

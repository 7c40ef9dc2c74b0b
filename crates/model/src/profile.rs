//! Card profiles: limits of a real card, and the settings that its Linux driver rejects.
//!
//! # Model
//! A profile is a file in the folder `profiles`, named after it. A new card is a new file. Its
//! parts:
//! - `title` and `vfs`, the number of VFs of a port;
//! - `[soft]`, for a software NIC with the card's limits: read by this module;
//! - `[plan]`, for the planner, which reads it.
//!
//! The profile `ideal` rejects nothing. Others behave like the card's driver in Linux 6 in legacy
//! mode, unless a comment in the file says otherwise. Software that configures VFs can thus be
//! tested against the driver's errors. If a driver accepts a setting without effect, the profile
//! rejects it.

use std::fmt;
use std::sync::LazyLock;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

/// Name and text of each file.
pub const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/profiles.rs"));

/// Profiles of software NICs: `ideal` first, the others by name.
static ALL: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let parse = |&(name, text): &(&'static str, &'static str)| {
        let file: File = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let File { title, vfs, soft, .. } = file;
        soft.map(|soft| Profile { name, title, vfs, soft })
    };
    let mut all: Vec<Profile> = FILES.iter().filter_map(parse).collect();
    all.sort_by_key(|profile| (profile.name != IDEAL, profile.name));
    all
});
static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| ALL.iter().map(|profile| profile.name).collect());
const IDEAL: &str = "ideal";

/// A profile file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    vfs: u8,
    soft: Option<Soft>,
    /// For the planner only.
    #[serde(rename = "plan")]
    _plan: Option<IgnoredAny>,
}

/// Card profile. Documents write its name.
#[derive(Debug)]
pub struct Profile {
    /// Name in documents.
    pub name: &'static str,
    /// Name of the card, its speed and its driver.
    pub title: String,
    /// Number of VFs of a port.
    pub vfs: u8,
    /// Limits that a software NIC shows.
    pub soft: Soft,
}

/// Limits of a card, and settings that its driver rejects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Soft {
    /// Speed of the uplink, Mbit/s: the highest rate that can be set.
    pub speed_mbps: u32,
    /// Lowest maximum rate of a VF, Mbit/s; 0 (no limit) is always accepted.
    #[serde(default)]
    pub max_tx_mbps_min: u32,
    /// `true` if the driver rejects rates while the uplink is down.
    #[serde(default)]
    pub tx_rates_need_link: bool,
    /// `true` if the card floods unknown unicast from its functions to promiscuous functions.
    #[serde(default)]
    pub floods_unknown: bool,
    /// Limits for `budget_permille`.
    #[serde(default)]
    pub capacity: Capacity,
    /// Rejected settings.
    #[serde(default)]
    pub rejects: Rejects,
}

/// Limits of a card's parts; an absent one has none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Uplink in each direction, Mbit/s.
    pub wire_mbps: Option<u32>,
    /// PCIe, both directions together, Mbit/s.
    pub pcie_mbps: Option<u32>,
    /// Frames a second through the card; a frame between VFs passes twice.
    pub frames_per_s: Option<u32>,
}

/// Error number for each setting that the driver rejects; `None`: accepted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejects {
    /// Port VLAN with a service tag (IEEE 802.1ad).
    pub vlan_802_1ad: Option<Errno>,
    /// Link state `enable`.
    pub link_state_enable: Option<Errno>,
    /// Link state `disable`.
    pub link_state_disable: Option<Errno>,
    /// Minimum rate above 0.
    pub min_tx_mbps: Option<Errno>,
    /// Switchdev mode.
    pub switchdev: Option<Errno>,
    /// Bridge mode VEPA.
    pub vepa: Option<Errno>,
    /// Settings that Linux has no interface for, such as trunks and further MACs, and isolation.
    pub extensions: Option<Errno>,
}

/// Error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Errno {
    /// Invalid argument.
    Einval,
    /// Numerical result out of range.
    Erange,
    /// Protocol not supported.
    Eprotonosupport,
    /// Operation not supported.
    Eopnotsupp,
}

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Einval => "EINVAL",
            Self::Erange => "ERANGE",
            Self::Eprotonosupport => "EPROTONOSUPPORT",
            Self::Eopnotsupp => "EOPNOTSUPP",
        })
    }
}

impl Profile {
    /// All profiles of software NICs, `ideal` first.
    pub fn all() -> &'static [Profile] {
        &ALL
    }

    /// Their names, in the same order.
    pub fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        ALL.iter().find(|profile| profile.name == name)
    }

    /// `true` for the profile without limits.
    pub fn is_ideal(&self) -> bool {
        self.name == IDEAL
    }
}

impl Default for &'static Profile {
    fn default() -> Self {
        &ALL[0]
    }
}

impl PartialEq for Profile {
    fn eq(&self, other: &Profile) -> bool {
        self.name == other.name
    }
}

impl Eq for Profile {}

impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static Profile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Profile::named(&name).ok_or_else(|| {
            let names = Profile::names().join(", ");
            D::Error::custom(format_args!("unknown profile {name:?}; expected one of {names}"))
        })
    }
}

impl utoipa::PartialSchema for Profile {
    fn schema() -> RefOr<Schema> {
        let description = "Card profile with limits and rejected settings; `ideal` has none.";
        let names = Profile::names().iter().copied();
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(names))
            .description(Some(description))
            .into()
    }
}

impl utoipa::ToSchema for Profile {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_profile_and_ideal_is_the_first() {
        let [first, rest @ ..] = Profile::names() else { panic!("no profile") };
        assert!(*first == "ideal" && rest.is_sorted(), "{rest:?}");
        for name in ["82576", "cx6", "x520", "xl710"] {
            assert!(rest.contains(&name), "{name}");
        }
        assert!(FILES.iter().any(|(name, _)| *name == "82598"), "the planner's only");
        for profile in Profile::all() {
            assert_eq!(Profile::named(profile.name), Some(profile));
            assert_eq!(profile.is_ideal(), profile == <&Profile>::default());
            assert!(profile.title.len() > 5 && profile.soft.speed_mbps >= 1_000, "{profile:?}");
            let Soft { max_tx_mbps_min, speed_mbps, .. } = profile.soft;
            assert!(max_tx_mbps_min < speed_mbps, "{profile:?}");
        }
    }

    #[test]
    fn documents_write_the_name() {
        let profile: &'static Profile = serde_json::from_str("\"x520\"").unwrap();
        assert_eq!((profile.vfs, profile.soft.max_tx_mbps_min), (63, 11));
        assert_eq!(serde_json::to_string(profile).unwrap(), "\"x520\"");
        let error = serde_json::from_str::<&'static Profile>("\"e1000\"").unwrap_err().to_string();
        let names = Profile::names().join(", ");
        assert!(error.contains(&format!("\"e1000\"; expected one of {names}")), "{error}");
    }

    #[test]
    fn a_file_with_an_unknown_key_is_an_error() {
        let (_, text) = FILES.iter().find(|(name, _)| *name == "cx6").unwrap();
        for (from, to) in [("vfs = 127", "vfs = 127\nlanes = 3"), ("speed_mbps", "speed")] {
            let text = text.replacen(from, to, 1);
            assert!(toml::from_str::<File>(&text).is_err(), "{to}");
        }
        let text = text.replacen("EPROTONOSUPPORT", "ENOTTY", 1);
        assert!(toml::from_str::<File>(&text).is_err(), "an unknown errno");
    }
}

//! NIC and host of the model, from data files.
//!
//! A NIC is the section `plan` of a card profile (folder `profiles`); hosts are in the folder
//! `crates/plan/profiles/host`. Every figure has its source beside it. Any other name is the path
//! of a file of the same form.

mod host;
mod nic;

pub use host::{Costs, Host, Polling};
use model::profile::FILES;
use nic::Card;
pub use nic::{EmbeddedSwitch, Nic, NicWire};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A value with its source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Value, in the unit that its field name states.
    pub value: f64,
    /// Source: a data sheet, a paper, a fit, or an estimate.
    pub source: String,
}

impl Figure {
    /// A figure and its source.
    pub fn new(value: f64, source: &str) -> Self {
        Self { value, source: source.to_owned() }
    }
}

/// A NIC in a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The NIC.
    pub nic: Nic,
    /// The host.
    pub host: Host,
}

/// Maximum number of VFs of a software NIC.
pub const SOFT_VFS: u32 = 255;

impl Machine {
    /// VFs of the card, or of the software NIC in its place.
    pub fn vfs(&self) -> u32 {
        if self.host.soft_nic.is_some() { SOFT_VFS } else { self.nic.vfs }
    }

    /// Name of the card, for messages.
    pub fn card(&self) -> &str {
        if self.host.soft_nic.is_some() { "the software NIC" } else { &self.nic.title }
    }
}

/// Reason why a profile cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a known profile nor a file.
    #[error("unknown {kind} profile {name:?}; expected one of {known}, or the path of a profile")]
    Unknown {
        /// "NIC" or "host".
        kind: &'static str,
        /// Given name.
        name: String,
        /// Known names.
        known: String,
    },
    /// Unreadable file, syntax error, or a wrong field.
    #[error("profile {name}: {text}")]
    Form {
        /// Name of the profile.
        name: String,
        /// Cause, with line and column.
        text: String,
    },
    /// Value out of range.
    #[error("profile {name}: {field} = {value}: allowed is {allowed}")]
    Value {
        /// Name of the profile.
        name: String,
        /// Field.
        field: String,
        /// Given value.
        value: String,
        /// Allowed values.
        allowed: &'static str,
    },
}

const HOSTS: [(&str, &str); 2] = [
    ("nfv-2017", include_str!("../../profiles/host/nfv-2017.toml")),
    ("shunt", include_str!("../../profiles/host/shunt.toml")),
];

/// Name and text of each card profile with a section for the planner.
fn cards() -> impl Iterator<Item = &'static (&'static str, &'static str)> + Clone {
    FILES.iter().filter(|(_, text)| text.lines().any(|line| line == "[plan]"))
}

/// Names of the known NICs.
pub fn nics() -> impl Iterator<Item = &'static str> {
    cards().map(|(name, _)| *name)
}

/// Names of the known hosts.
pub fn hosts() -> impl Iterator<Item = &'static str> {
    HOSTS.iter().map(|(name, _)| *name)
}

impl Nic {
    /// Loads a NIC profile by name or path.
    ///
    /// # Errors
    /// The profile is unknown or invalid.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let card: Card = read("NIC", cards(), name)?;
        let nic = card.nic(name);
        nic.check().map_err(|fault| fault.of(name))?;
        Ok(nic)
    }
}

impl Host {
    /// Loads a host profile by name or path.
    ///
    /// # Errors
    /// The profile is unknown or invalid.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let host: Self = read("host", HOSTS.iter(), name)?;
        host.check().map_err(|fault| fault.of(name))?;
        Ok(host)
    }
}

fn read<'a, T: DeserializeOwned>(
    kind: &'static str,
    known: impl Iterator<Item = &'a (&'a str, &'a str)> + Clone,
    name: &str,
) -> Result<T, ProfileError> {
    let builtin = known.clone().find(|(known, _)| *known == name).map(|(_, text)| *text);
    let text = match builtin {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(name).map_err(|error| {
            let name = name.to_owned();
            if error.kind() != std::io::ErrorKind::NotFound {
                return ProfileError::Form { name, text: error.to_string() };
            }
            let known = known.map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            ProfileError::Unknown { kind, name, known }
        })?,
    };
    toml::from_str(&text).map_err(|error: toml::de::Error| ProfileError::Form {
        name: name.to_owned(),
        text: error.to_string().trim_end().to_owned(),
    })
}

/// A field with a value that is not allowed.
struct InvalidField {
    field: String,
    value: String,
    allowed: &'static str,
}

impl InvalidField {
    fn of(self, name: &str) -> ProfileError {
        let Self { field, value, allowed } = self;
        ProfileError::Value { name: name.to_owned(), field, value, allowed }
    }
}

/// Allowed range of any figure.
const FIGURES: std::ops::RangeInclusive<f64> = 1e-9..=1e12;

/// Checks the range of each figure.
fn check_figures<'a>(
    figures: impl IntoIterator<Item = (&'a str, &'a Figure)>,
) -> Result<(), InvalidField> {
    let wrong = |(_, figure): &(&str, &Figure)| !FIGURES.contains(&figure.value);
    match figures.into_iter().find(wrong) {
        None => Ok(()),
        Some((field, figure)) => Err(InvalidField {
            field: field.to_owned(),
            value: figure.value.to_string(),
            allowed: "above 0 and at most 1e12",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_can_be_read_and_names_its_sources() {
        for name in nics() {
            let nic = Nic::named(name).unwrap();
            assert_eq!(nic.name, name);
            let all = nic.figures();
            assert!(all.iter().all(|(_, figure)| figure.source.len() > 3), "{name}: {all:?}");
        }
        for name in hosts() {
            let host = Host::named(name).unwrap();
            assert_eq!(host.name, name);
            assert!(host.figures().iter().all(|(_, figure)| figure.source.len() > 3), "{name}");
        }
    }

    #[test]
    fn what_is_no_profile_is_said() {
        let error = Nic::named("3c509").unwrap_err().to_string();
        assert!(
            error.contains("unknown NIC profile \"3c509\"; expected one of 82598, cx6"),
            "{error}"
        );
        let bad = |from: &str, to: &str| {
            let (_, file) = cards().find(|(name, _)| *name == "xl710").unwrap();
            let text = file.replacen(from, to, 1);
            assert_ne!(text, *file, "nothing was changed");
            match toml::from_str::<Card>(&text).map(|card| card.nic("x")) {
                Ok(nic) => nic.check().map_err(|fault| fault.of("x").to_string()).unwrap_err(),
                Err(error) => error.to_string(),
            }
        };
        assert!(
            bad("generation = 3", "generation = 9")
                .contains("link.generation = 9: allowed is 1 to 5")
        );
        assert!(bad("value = 40.0", "value = -1.0").contains("allowed is above 0"));
        assert!(bad("lanes = 8", "lanes = 8\nlames = 8").contains("lames"));
    }
}

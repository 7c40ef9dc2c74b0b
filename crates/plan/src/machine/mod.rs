//! NIC and host of the model, from data files.
//!
//! A NIC is the section `plan` of a card profile (folder `profiles`); hosts are in the folder
//! `crates/plan/profiles/host`. Every figure has its source beside it. Any other name is the path
//! of a file of the same form.

mod host;
mod nic;

pub use host::{Costs, Host, Polling};
use model::config::of_toml;
use model::profile::FILES;
use model::state::{Problem, Problems, Remedy};
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

/// NIC of a query that names none.
pub const DEFAULT_NIC: &str = "xl710";
/// Host of a query that names none.
pub const DEFAULT_HOST: &str = "nfv-2017";

/// Maximum number of VFs of a software NIC.
pub const SOFT_VFS: u32 = 255;

impl Machine {
    /// A NIC and a host by names of profiles that come with the program; no file is read. Without a
    /// name: the default.
    ///
    /// # Errors
    /// The name is unknown, or a NIC is named and path `vf` of the host is the software NIC.
    pub fn shipped(nic: Option<&str>, host: Option<&str>) -> Result<Self, Problems> {
        let (card, place) = (nic.unwrap_or(DEFAULT_NIC), host.unwrap_or(DEFAULT_HOST));
        let unknown = |field, value: &str, known| {
            Problems::from(Problem::not_one_of(field, value, "is no profile", known))
        };
        if !nics().any(|known| known == card) {
            return Err(unknown("nic", card, nics().collect::<Vec<_>>()));
        }
        if !hosts().any(|known| known == place) {
            return Err(unknown("host", place, hosts().collect()));
        }
        let machine = Self { nic: Nic::named(card)?, host: Host::named(place)? };
        if nic.is_some() && machine.host.soft_nic.is_some() {
            let message = format!("is not used: path vf of host {place} is the software NIC");
            return Err(Problem::new("nic", card, message, "leave nic out").into());
        }
        Ok(machine)
    }

    /// VFs of the card, or of the software NIC in its place.
    pub fn vfs(&self) -> u32 {
        if self.host.soft_nic.is_some() { SOFT_VFS } else { self.nic.vfs }
    }

    /// Name of the card, for messages.
    pub fn card(&self) -> &str {
        if self.host.soft_nic.is_some() { "the software NIC" } else { &self.nic.title }
    }
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
    pub fn named(name: &str) -> Result<Self, Problems> {
        let card: Card = read("NIC", cards(), name)?;
        let nic = card.nic(name);
        nic.check().map_err(|problems| problems.of(&format!("profile {name}")))?;
        Ok(nic)
    }
}

impl Host {
    /// Loads a host profile by name or path.
    ///
    /// # Errors
    /// The profile is unknown or invalid.
    pub fn named(name: &str) -> Result<Self, Problems> {
        let host: Self = read("host", HOSTS.iter(), name)?;
        host.check().map_err(|problems| problems.of(&format!("profile {name}")))?;
        Ok(host)
    }
}

fn read<'a, T: DeserializeOwned>(
    kind: &'static str,
    known: impl Iterator<Item = &'a (&'a str, &'a str)> + Clone,
    name: &str,
) -> Result<T, Problems> {
    let builtin = known.clone().find(|(known, _)| *known == name).map(|(_, text)| *text);
    let text = match builtin {
        Some(text) => text.to_owned(),
        None => std::fs::read_to_string(name).map_err(|error| {
            let field = kind.to_ascii_lowercase();
            let message = match error.kind() {
                std::io::ErrorKind::NotFound => format!("is no {kind} profile"),
                _ => format!("cannot be read: {error}"),
            };
            let known: Vec<&str> = known.map(|(name, _)| *name).collect();
            let allowed = format!("{}, or the path of a profile", known.join(", "));
            let remedy = Remedy::choose(format!("write one of {allowed}"), allowed);
            Problems::from(Problem::new(field, name, message, remedy))
        })?,
    };
    toml::from_str(&text).map_err(|error| Problems::from(of_toml(&text, &error)).in_file(name))
}

/// Allowed range of any figure.
const FIGURES: std::ops::RangeInclusive<f64> = 1e-9..=1e12;

/// Checks the range of each figure.
fn check_figures<'a>(
    figures: impl IntoIterator<Item = (&'a str, &'a Figure)>,
) -> Result<(), Problems> {
    let wrong = |(_, figure): &(&str, &Figure)| !FIGURES.contains(&figure.value);
    match figures.into_iter().find(wrong) {
        None => Ok(()),
        Some((field, figure)) => {
            Err(Problem::out_of_range(field, figure.value, "1e-9", "1e12").into())
        }
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

    /// A path would have a client of the API read files.
    #[test]
    fn shipped_profiles_are_found_by_name_only() {
        let machine = Machine::shipped(None, None).unwrap();
        assert_eq!((&machine.nic.name[..], &machine.host.name[..]), (DEFAULT_NIC, DEFAULT_HOST));
        assert!(Machine::shipped(None, Some("shunt")).unwrap().host.soft_nic.is_some());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/xl710.toml");
        assert!(Nic::named(file).is_ok());
        for (nic, host, said) in [
            (Some(file), None, "is no profile; write one of 82598, cx6"),
            (None, Some("/etc/passwd"), "is no profile; write one of nfv-2017, shunt"),
            (Some("e810"), Some("shunt"), "is not used: path vf of host shunt is the software NIC"),
        ] {
            let error = Machine::shipped(nic, host).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_is_no_profile_is_said() {
        let error = Nic::named("3c509").unwrap_err().to_string();
        assert!(error.contains("\"3c509\" is no NIC profile; write one of 82598, cx6"), "{error}");
        let bad = |from: &str, to: &str| {
            let (_, file) = cards().find(|(name, _)| *name == "xl710").unwrap();
            let text = file.replacen(from, to, 1);
            assert_ne!(text, *file, "nothing was changed");
            match toml::from_str::<Card>(&text).map(|card| card.nic("x")) {
                Ok(nic) => nic.check().unwrap_err().to_string(),
                Err(error) => error.to_string(),
            }
        };
        assert!(
            bad("generation = 3", "generation = 9")
                .contains("link.generation: 9 is out of range; write 1 to 5")
        );
        assert!(bad("value = 40.0", "value = -1.0").contains("write a number, 1e-9 to 1e12"));
        assert!(bad("lanes = 8", "lanes = 8\nlames = 8").contains("lames"));
    }
}

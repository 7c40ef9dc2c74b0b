//! Explanations of the reasons in tables: drops, ring faults, and an adapter's path.

use model::state::Reason;
use serde::Serialize;
use utoipa::ToSchema;

use crate::stats::{FAULTS, ReasonEntry};

/// A reason in sentences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Explanation {
    /// Its name.
    pub name: String,
    /// `drop`, `fault` or `path`.
    pub kind: &'static str,
    /// Names of its counters in `/v1/stats`; a path has none.
    pub counters: Vec<&'static str>,
    /// The meaning.
    pub meaning: String,
    /// The likely cause; empty for a path.
    pub cause: &'static str,
    /// The remedy; empty if none is needed.
    pub remedy: String,
}

impl Explanation {
    /// All reasons: drops, ring faults, and those for an adapter's path or a NIC without VFs.
    pub fn all() -> impl Iterator<Item = Explanation> {
        ReasonEntry::all().map(Explanation::from).chain(Reason::ALL.map(Explanation::from))
    }

    /// The reason with this name, or with a counter of this name.
    pub fn find(name: &str) -> Option<Explanation> {
        Explanation::all().find(|entry| entry.name == name || entry.counters.contains(&name))
    }
}

impl From<&ReasonEntry> for Explanation {
    fn from(reason: &ReasonEntry) -> Explanation {
        let is_fault = FAULTS.iter().any(|fault| fault.name == reason.name);
        Explanation {
            name: reason.name.to_owned(),
            kind: if is_fault { "fault" } else { "drop" },
            counters: reason.counters().collect(),
            meaning: reason.meaning.to_owned(),
            cause: reason.cause,
            remedy: reason.remedy.to_owned(),
        }
    }
}

impl From<Reason> for Explanation {
    fn from(reason: Reason) -> Explanation {
        let (meaning, remedy) = reason.text().split_once("; ").unwrap_or((reason.text(), ""));
        Explanation {
            name: reason.to_string(),
            kind: "path",
            counters: Vec::new(),
            meaning: sentence(meaning),
            cause: "",
            remedy: sentence(remedy),
        }
    }
}

/// A phrase as a sentence.
fn sentence(phrase: &str) -> String {
    let mut rest = phrase.chars();
    let first = rest.next().map(|first| first.to_ascii_uppercase());
    format!("{}{}.", first.unwrap_or_default(), rest.as_str())
}

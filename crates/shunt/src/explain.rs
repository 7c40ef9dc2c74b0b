//! `shunt explain`: drop reasons, ring faults and reasons for a path in sentences.

use anyhow::Result;
use api::reasons::Explanation;
use api::stats::ReasonEntry;
use serde_json::json;

use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{cell, of_stdout, print, table, wrapped};

/// Explain why frames were dropped, a ring was stopped, or an adapter has no VF: meaning, likely
/// cause and remedy.
#[derive(Debug, clap::Args)]
#[command(add = Title("meaning, cause and remedy of the reasons in tables"))]
#[command(after_help = "\
Examples:
  shunt explain                           all reasons
  shunt explain tx_spoofed_mac            the reason of a counter of `shunt stats`
  shunt explain bad_index                 a ring fault
  shunt explain NoFreeVf                  the reason in `shunt adapter list`")]
pub(crate) struct Explain {
    /// Name of a reason, or of its counter; all reasons if absent.
    #[arg(add = complete::reason())]
    reason: Option<String>,
    /// Print JSON: an object, or a list of all.
    #[arg(long)]
    json: bool,
}

/// Names of all reasons.
pub(crate) fn names() -> impl Iterator<Item = String> {
    Explanation::all().map(|entry| entry.name)
}

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let text = match &self.reason {
            None if self.json => {
                format!("{:#}\n", json!(Explanation::all().collect::<Vec<_>>()))
            }
            None => {
                let row = |entry: Explanation| {
                    let counters = cell(&json!(entry.counters));
                    [entry.name, entry.kind.to_owned(), counters, entry.meaning]
                };
                let header = ["reason", "kind", "counters", "meaning"];
                table(header, Explanation::all().map(row).collect())
            }
            Some(name) => {
                let entry = Explanation::find(name).ok_or_else(|| unknown(name))?;
                if self.json { format!("{:#}\n", json!(entry)) } else { sentences(&entry) }
            }
        };
        Ok(print(&text)?)
    }
}

/// The error of an unknown name.
fn unknown(name: &str) -> UsageError {
    let names: Vec<String> = names().collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = "is no drop reason, ring fault or reason for a path";
    // A counter's name is one too.
    let counters: Vec<&str> = ReasonEntry::all().flat_map(ReasonEntry::counters).collect();
    let known = names.iter().chain(&counters).copied();
    UsageError::meant("<REASON>", name, message, known, &names)
}

fn sentences(entry: &Explanation) -> String {
    let Explanation { name, counters, meaning, cause, remedy, .. } = entry;
    let counters = counters.join(",");
    let fields = [("  counters", &*counters), ("  likely cause", cause), ("  remedy", remedy)];
    let fields: Vec<_> = fields.into_iter().filter(|(_, text)| !text.is_empty()).collect();
    wrapped(&format!("{name}: {meaning}")) + &of_stdout().fields(&fields)
}

#[cfg(test)]
mod tests {
    use api::stats::{DROPS, FAULTS};
    use model::state::Reason;

    use super::*;

    /// Reasons of `shunt adapter list` and `shunt nic list` are those of the schema.
    #[test]
    fn every_reason_that_a_table_shows_is_explained() {
        let codes = api::schemas()["Reason"]["enum"].as_array().expect("an enumeration").clone();
        assert_eq!(codes.len(), Reason::ALL.len());
        let codes = codes.iter().map(|code| code.as_str().expect("a code").to_owned());
        let counters = ReasonEntry::all().flat_map(ReasonEntry::counters).map(str::to_owned);
        let faults = FAULTS.iter().map(|fault| fault.name.to_owned());
        for name in codes.chain(counters).chain(faults) {
            let found = Explanation::find(&name).unwrap_or_else(|| panic!("{name}"));
            let Explanation { meaning, remedy, .. } = found;
            let is_sentence = |text: &str| text.len() >= 10 && text.ends_with('.');
            assert!(is_sentence(&meaning) && is_sentence(&remedy), "{name}: {meaning} {remedy}");
        }
    }

    const INTRODUCTION: &str = "\
# Drop reasons and ring faults

This page says for each drop reason and ring fault what it means, its likely cause and its remedy.
`shunt explain` shows the same text. The page is written from the table in
`crates/engine/src/drops.rs`.

`shunt stats` shows the counters of each port. `tx_` counters are at the port whose guest sent the
frame, `rx_` counters at the port that should have received it. `tx_switch_` counters are decisions
of the switch; other `tx_` counters are decisions of the NIC, or about the sender's ring.
";

    const RING_FAULTS: &str = "
# Ring faults

A ring whose guest or VMM breaks the rules of virtio is stopped, and no other ring. The counters
count the stops: `tx_` of transmit rings, `rx_` of receive rings.
";

    fn page() -> String {
        let section = |reason: &ReasonEntry| {
            let counters: Vec<String> = reason.counters().map(|name| format!("`{name}`")).collect();
            let ReasonEntry { name, meaning, cause, remedy, .. } = reason;
            format!(
                "\n## {name}\n\n{meaning}\n\n- Counters: {}.\n- Likely cause: {cause}\n- Remedy: \
                 {remedy}\n",
                counters.join(", ")
            )
        };
        let of = |reasons: &[ReasonEntry]| reasons.iter().map(section).collect::<String>();
        INTRODUCTION.to_owned() + &of(&DROPS) + RING_FAULTS + &of(&FAULTS)
    }

    /// `SHUNT_WRITE_DOCS=1` writes the page.
    #[test]
    fn the_page_has_the_reasons_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drops.md");
        if std::env::var_os("SHUNT_WRITE_DOCS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == page(), "run this test with SHUNT_WRITE_DOCS=1");
    }
}

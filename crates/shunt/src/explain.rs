//! `shunt explain`: drop reasons and ring faults in sentences.

use anyhow::Result;
use api::stats::{FAULTS, ReasonEntry};
use serde_json::{Value, json};

use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{print, table};

/// Explain why frames were dropped or a ring was stopped: meaning, likely cause and remedy.
#[derive(Debug, clap::Args)]
#[command(add = Title("meaning, cause and remedy of drop reasons and ring faults"))]
#[command(after_help = "\
Examples:
  shunt explain                           all drop reasons and ring faults
  shunt explain tx_spoofed_mac            the reason of a counter of `shunt stats`
  shunt explain bad_index                 a ring fault")]
pub(crate) struct Explain {
    /// Name of a reason, or of its counter; all reasons if absent.
    #[arg(add = complete::drop_reason())]
    reason: Option<String>,
    /// Print JSON: an object, or a list of all.
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let text = match &self.reason {
            None if self.json => {
                format!("{:#}\n", ReasonEntry::all().map(object).collect::<Value>())
            }
            None => {
                let row = |reason: &ReasonEntry| {
                    let ReasonEntry { name, meaning, .. } = *reason;
                    [name, kind(reason), &counters(reason), meaning].map(str::to_owned)
                };
                let header = ["reason", "kind", "counters", "meaning"];
                table(header, ReasonEntry::all().map(row).collect())
            }
            Some(name) => {
                let reason = ReasonEntry::find(name).ok_or_else(|| unknown(name))?;
                match self.json {
                    true => format!("{:#}\n", object(reason)),
                    false => sentences(reason),
                }
            }
        };
        Ok(print(&text)?)
    }
}

/// The error of an unknown name.
fn unknown(name: &str) -> UsageError {
    let names: Vec<&str> = ReasonEntry::all().map(|reason| reason.name).collect();
    let message = "is no drop reason or ring fault";
    // A counter's name is one too.
    let counters = ReasonEntry::all().flat_map(ReasonEntry::counters);
    UsageError::meant("<REASON>", name, message, names.iter().copied().chain(counters), &names)
}

fn kind(reason: &ReasonEntry) -> &'static str {
    if FAULTS.iter().any(|fault| fault.name == reason.name) { "fault" } else { "drop" }
}

fn counters(reason: &ReasonEntry) -> String {
    reason.counters().collect::<Vec<_>>().join(",")
}

fn object(reason: &ReasonEntry) -> Value {
    let counters: Vec<&str> = reason.counters().collect();
    json!({
        "name": reason.name,
        "kind": kind(reason),
        "counters": counters,
        "meaning": reason.meaning,
        "cause": reason.cause,
        "remedy": reason.remedy,
    })
}

fn sentences(reason: &ReasonEntry) -> String {
    let ReasonEntry { name, meaning, cause, remedy, .. } = reason;
    let counters = counters(reason);
    format!(
        "{name}: {meaning}\n  counters      {counters}\n  likely cause  {cause}\n  \
         remedy        {remedy}\n"
    )
}

#[cfg(test)]
mod tests {
    use api::stats::DROPS;

    use super::*;

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

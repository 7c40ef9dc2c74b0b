//! `shunt explain`: drop reasons in sentences.

use anyhow::Result;
use api::stats::{DROPS, DropEntry};
use serde_json::{Value, json};

use crate::error::UsageError;
use crate::text::{print, table};

/// Explain why frames were dropped: meaning, likely cause and remedy of each drop reason.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shunt explain                           all reasons
  shunt explain tx_spoofed_mac            the reason of a counter of `shunt stats`")]
pub(crate) struct Explain {
    /// Name of a reason, or of its counter; all reasons if absent.
    reason: Option<String>,
    /// Print JSON: an object, or a list of all.
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let text = match &self.reason {
            None if self.json => format!("{:#}\n", DROPS.iter().map(object).collect::<Value>()),
            None => {
                let row = |drop: &DropEntry| {
                    [drop.name, &counters(drop), drop.meaning].map(str::to_owned)
                };
                table(["reason", "counters", "meaning"], DROPS.iter().map(row).collect())
            }
            Some(name) => {
                let drop = DropEntry::find(name).ok_or_else(|| {
                    let names: Vec<&str> = DROPS.iter().map(|drop| drop.name).collect();
                    UsageError::new(format!(
                        "{name:?} is no drop reason; expected one of {}",
                        names.join(", ")
                    ))
                })?;
                match self.json {
                    true => format!("{:#}\n", object(drop)),
                    false => sentences(drop),
                }
            }
        };
        Ok(print(&text)?)
    }
}

fn counters(drop: &DropEntry) -> String {
    drop.counters().collect::<Vec<_>>().join(",")
}

fn object(drop: &DropEntry) -> Value {
    let counters: Vec<&str> = drop.counters().collect();
    json!({
        "name": drop.name,
        "counters": counters,
        "meaning": drop.meaning,
        "cause": drop.cause,
        "remedy": drop.remedy,
    })
}

fn sentences(drop: &DropEntry) -> String {
    let DropEntry { name, meaning, cause, remedy, .. } = drop;
    let counters = counters(drop);
    format!(
        "{name}: {meaning}\n  counters      {counters}\n  likely cause  {cause}\n  \
         remedy        {remedy}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTRODUCTION: &str = "\
# Drop reasons

This page says for each drop reason what it means, its likely cause and its remedy. `shunt explain`
shows the same text. The page is written from the table in `crates/engine/src/drops.rs`.

`shunt stats` shows the counters of each port. `tx_` counters are at the port whose guest sent the
frame, `rx_` counters at the port that should have received it. `tx_switch_` counters are decisions
of the switch; other `tx_` counters are decisions of the NIC, or about the sender's ring.
";

    fn page() -> String {
        let section = |drop: &DropEntry| {
            let counters: Vec<String> = drop.counters().map(|name| format!("`{name}`")).collect();
            let DropEntry { name, meaning, cause, remedy, .. } = drop;
            format!(
                "\n## {name}\n\n{meaning}\n\n- Counters: {}.\n- Likely cause: {cause}\n- Remedy: \
                 {remedy}\n",
                counters.join(", ")
            )
        };
        INTRODUCTION.to_owned() + &DROPS.iter().map(section).collect::<String>()
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

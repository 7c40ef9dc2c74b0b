//! `shunt apply` and `shunt export`.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use control::api::{MAX_BODY_BYTES, Method, Outcome};
use control::state::Plan;
use serde_json::Value;

use super::Target;
use crate::{Mistake, say};

/// Bring the state of a file into force: the whole of it, or nothing.
///
/// The file holds the desired state in TOML or JSON, as `shunt export` writes it; what it does not
/// name is removed. The plan is shown first. If somebody else changes the state between the plan and
/// the apply, nothing is done.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt export > state.toml               write down what is
  shunt apply -f state.toml --dry-run     show what would be done
  shunt apply -f state.toml
  generate | shunt apply -f - --json")]
pub(crate) struct Apply {
    #[command(flatten)]
    target: Target,
    /// The file; - for standard input.
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Only show the plan.
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub(crate) fn run(self) -> Result<()> {
        let document = read(&self.file)?;
        let name = self.file.display().to_string();
        let post = |path: &str, expected| {
            let sent = self.target.send(Method::POST, path, Some(&document), expected);
            // The daemon names the field, and does not know the file.
            sent.map_err(|error| match error.downcast::<Mistake>() {
                Ok(Mistake(text)) => {
                    let lines: Vec<_> =
                        text.lines().map(|line| format!("{name}: {line}")).collect();
                    Mistake(lines.join("\n")).into()
                }
                Err(other) => other,
            })
        };
        let planned = post("/v1/apply?dry_run=true", None)?;
        let plan = serde_json::from_value::<Outcome>(planned.body.clone())?.plan;
        if self.dry_run {
            return self.target.show(&planned.body, |_| shown(&plan));
        }
        if !self.target.json {
            say(&shown(&plan))?;
        }
        let done = post("/v1/apply", planned.generation)?;
        let outcome: Outcome = serde_json::from_value(done.body.clone())?;
        self.target.show(&done.body, |_| match plan.is_empty() {
            true => String::new(),
            false => format!("done; the state is of generation {}\n", outcome.generation),
        })
    }
}

fn shown(plan: &Plan) -> String {
    format!("{plan}\n")
}

/// Write the desired state, as a file for `shunt apply`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt export > state.toml
  shunt export --json | jq '.adapter[].name'")]
pub(crate) struct Export {
    #[command(flatten)]
    target: Target,
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        self.target.show_part("/v1/state")
    }
}

/// Reads a document: JSON if it begins with a brace, else TOML.
fn read(path: &Path) -> Result<Value> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let most = MAX_BODY_BYTES as u64;
    if path == Path::new("-") {
        let input = std::io::stdin().lock();
        input.take(most + 1).read_to_end(&mut bytes).context("standard input cannot be read")?;
    } else {
        let file = std::fs::File::open(path).map_err(|error| {
            Mistake(format!("{shown}: {error}; give the path of a file with -f"))
        })?;
        let file = file.take(most + 1).read_to_end(&mut bytes);
        file.map_err(|error| Mistake(format!("{shown}: cannot be read: {error}")))?;
    }
    if bytes.len() as u64 > most {
        return Err(
            Mistake(format!("{shown}: is larger than {most} bytes, the most allowed")).into()
        );
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Mistake(format!("{shown}: is not UTF-8; save the file as UTF-8")))?;
    let document = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| format!("is not JSON: {error}"))
    } else {
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line} is not TOML: {}", error.message())
        })
    };
    Ok(document.map_err(|why| Mistake(format!("{shown}: {why}; correct it")))?)
}

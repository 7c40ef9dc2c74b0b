//! `shunt apply` and `shunt export`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use api::{ApplyOutcome, Method};
use clap::Args;
use model::config::SourceFile;
use model::state::Problem;

use super::client::DaemonArgs;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::print;

/// Apply a state file atomically.
///
/// The file holds NICs, switches, adapters and virtual PFs in TOML or JSON, as `shunt export`
/// writes them. Objects that the file does not name stay; with --prune they are removed. A file
/// without any object is rejected. It may be the daemon's own file, whose other settings are
/// ignored, and which needs no object without --prune. The plan is shown first. If another client
/// changes the state between the plan and the apply, no change is made.
#[derive(Debug, Args)]
#[command(add = Title("atomic application of a state file"))]
#[command(after_help = "\
Examples:
  shunt export > state.toml               save the present state
  shunt apply -f state.toml --dry-run     show the plan
  shunt apply -f state.toml
  shunt apply -f state.toml --prune       and remove objects that it does not name
  generate | shunt apply -f - --json")]
pub(crate) struct Apply {
    #[command(flatten)]
    target: DaemonArgs,
    /// State file; - for standard input.
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Only show the plan.
    #[arg(long)]
    dry_run: bool,
    /// Remove the NICs, switches, adapters and virtual PFs that the file does not name.
    #[arg(long)]
    prune: bool,
    /// Remove adapters with running guests without asking.
    #[arg(long)]
    yes: bool,
}

impl Apply {
    pub(crate) fn run(self) -> Result<()> {
        let source = SourceFile::read(&self.file, "--file").map_err(UsageError::from)?;
        let document = source.document(self.target.daemon.path()?).map_err(UsageError::from)?;
        let name = source.name().to_owned();
        let post = |path: &str, expected| {
            let sent = self.target.send(Method::POST, path, Some(&document), expected);
            // The daemon names the field, but does not know the file.
            sent.map_err(|error| match error.downcast::<UsageError>() {
                Ok(UsageError(problems)) => {
                    UsageError(source.tell_named(problems, &document)).into()
                }
                Err(other) => other,
            })
        };
        let prune = self.prune;
        let is_empty = document.as_object().is_some_and(|it| it.is_empty());
        if !prune && is_empty && !source.settings().is_empty() {
            let generation = self.target.send(Method::GET, "/v1/state", None, None)?.generation;
            let outcome = ApplyOutcome {
                dry_run: self.dry_run,
                generation: generation.unwrap_or_default(),
                ..ApplyOutcome::default()
            };
            return self.target.show(&serde_json::to_value(&outcome)?, |_| shown(&outcome));
        }
        let planned = post(&format!("/v1/apply?dry_run=true&prune={prune}"), None)?;
        let plan: ApplyOutcome = serde_json::from_value(planned.body.clone())?;
        if self.dry_run {
            return self.target.show(&planned.body, |_| shown(&plan));
        }
        let asks = !plan.in_use.is_empty() && !self.yes;
        if asks && !self.may_ask() {
            let adapters = plan.in_use.join(", ");
            let message =
                format!("is missing: this removes adapters with running guests: {adapters}");
            let problem = Problem::new("--yes", (), message, "repeat with --yes to remove them");
            return Err(UsageError::from(Problem { file: name, ..problem }).into());
        }
        if !self.target.json {
            print(&shown(&plan))?;
        }
        if asks && !agreed(&plan.in_use)? {
            bail!("nothing was changed");
        }
        let done = post(&format!("/v1/apply?prune={prune}"), planned.generation)?;
        let outcome: ApplyOutcome = serde_json::from_value(done.body.clone())?;
        self.target.show(&done.body, |_| match plan.plan.is_empty() {
            true => String::new(),
            false => format!("applied, generation {}\n", outcome.generation),
        })
    }

    /// Returns `true` if there is a terminal for questions; standard input may be the file.
    fn may_ask(&self) -> bool {
        let input = std::io::stdin();
        self.file != Path::new("-") && input.is_terminal() && std::io::stderr().is_terminal()
    }
}

/// The plan, the objects that stay although the file does not name them, and removals that need
/// consent.
fn shown(outcome: &ApplyOutcome) -> String {
    const SHOWN: usize = 8;
    let ApplyOutcome { plan, kept, in_use, .. } = outcome;
    let mut text = format!("{plan}\n");
    if !kept.is_empty() {
        let names = kept.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        let more = if kept.len() > SHOWN { ", ..." } else { "" };
        let count = kept.len();
        text += &format!("not in the file, and kept without --prune: {names}{more} ({count})\n");
    }
    if !in_use.is_empty() {
        text += &format!("removed, with running guests: {}\n", in_use.join(", "));
    }
    text
}

/// Asks for consent to remove adapters with running guests.
fn agreed(in_use: &[String]) -> Result<bool> {
    eprint!("Remove {}, whose guests are running? [y/N] ", in_use.join(", "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Write the desired state, as a file for `shunt apply`.
#[derive(Debug, Args)]
#[command(add = Title("desired state of the daemon, as a file"))]
#[command(after_help = "\
Examples:
  shunt export > state.toml
  shunt export --json | jq '.adapter[].name'")]
pub(crate) struct Export {
    #[command(flatten)]
    target: DaemonArgs,
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        self.target.show_at("/v1/state")
    }
}

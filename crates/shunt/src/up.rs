//! `shunt up`: the daemon in the foreground.

use std::path::PathBuf;

use anyhow::Result;
use control::config::Config;

use crate::{Mistake, say};

/// Run the daemon in the foreground.
///
/// It serves the NICs, switches and adapters of a TOML file on their vhost-user sockets until SIGINT
/// or SIGTERM. With a state_dir in the file, what is kept there wins over them. A line "ready" goes to
/// standard output once all sockets are served; everything else is logged to standard error
/// (SHUNT_LOG=debug says more).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shunt up --config shunt.toml            serve the NICs of shunt.toml
  shunt up --config shunt.toml --check    only check the file

docs/shunt.example.toml is an annotated example, docs/configuration.md lists every field.")]
pub(crate) struct Up {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only check the file: exit code 2 and one line a mistake if there are any.
    #[arg(long)]
    check: bool,
    /// End when the process that started this one ends; for experiments, not for people.
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Up {
    pub(crate) fn run(self) -> Result<()> {
        let config = Config::load(&self.config).map_err(|errors| Mistake(errors.to_string()))?;
        if self.check {
            return Ok(say(&format!("{}: good\n", self.config.display()))?);
        }
        if self.with_parent {
            host::process::end_with_parent()?;
        }
        // Nobody may be listening, and the daemon serves all the same.
        control::daemon::run(&config, || drop(say("ready\n")))
    }
}

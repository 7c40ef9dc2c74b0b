//! `shunt completions` and `shunt man`: generated from the definition of the command line.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::text::print;

/// Write completions for a shell to standard output.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt completions bash > /etc/bash_completion.d/shunt
  shunt completions zsh > \"${fpath[1]}/_shunt\"")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "shunt", &mut text);
        Ok(print(&String::from_utf8(text)?)?)
    }
}

/// Write a manual page for every command into a directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt man /usr/local/share/man/man1 && man shunt-adapter-set")]
pub(crate) struct Man {
    /// Directory; made if missing.
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self, command: Command) -> Result<()> {
        let shown = self.dir.display();
        std::fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {shown}"))?;
        clap_mangen::generate_to(command, &self.dir)
            .with_context(|| format!("cannot write the manual pages to {shown}"))
    }
}

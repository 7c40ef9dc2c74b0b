//! `shunt completions` and `shunt man`: generated from the definition of the command line.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::CommandExt;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::complete;
use crate::text::print;

/// Noun phrase of a command, for the section NAME of its manual page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Title(pub(crate) &'static str);

impl CommandExt for Title {}

/// Write a script for a shell that completes commands, options and values.
///
/// For each completion the shell runs this program, which asks the daemon for the names of its
/// NICs, switches, adapters, VFs and ports.
#[derive(Debug, Args)]
#[command(add = Title("completion script for a shell"))]
#[command(after_help = "\
Examples:
  source <(shunt completions bash)        in ~/.bashrc
  source <(shunt completions zsh)         in ~/.zshrc, after compinit
  shunt completions fish | source         in ~/.config/fish/config.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell.to_string()).context("an unknown shell")?;
        // The script runs the program as this command did: found in PATH, or by this path.
        let mut program = PathBuf::from(std::env::args_os().next().unwrap_or_default());
        if program.components().count() > 1 {
            program = std::path::absolute(program)?;
        }
        let mut text = Vec::new();
        let program = program.to_string_lossy();
        shell.write_registration(complete::VARIABLE, "shunt", "shunt", &program, &mut text)?;
        Ok(print(&String::from_utf8(text)?)?)
    }
}

/// Write a manual page for every command into a directory.
#[derive(Debug, Args)]
#[command(add = Title("manual pages of all commands"))]
#[command(after_help = "\
Examples:
  sudo shunt man /usr/local/share/man/man1 && man shunt-adapter-set
  shunt man ~/.local/share/man/man1       for this user; apropos finds them after mandb")]
pub(crate) struct Man {
    /// Directory; made if missing.
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self, command: Command) -> Result<()> {
        let shown = self.dir.display();
        std::fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {shown}"))?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        write_pages(command, &self.dir)
            .with_context(|| format!("cannot write the manual pages to {shown}"))
    }
}

/// Writes the pages of a command and of all below it.
fn write_pages(command: Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below.clone(), dir)?;
    }
    let page = clap_mangen::Man::new(titled(command));
    page.source(concat!("shunt ", env!("CARGO_PKG_VERSION")))
        .manual("Shunt Manual")
        .generate_to(dir)
        .map(|_| ())
}

/// The command with its title as the text beside its name; the description stays.
fn titled(command: Command) -> Command {
    let Some(&Title(title)) = command.get::<Title>() else { return command };
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.cloned().unwrap_or_default();
    command.about(title).long_about(about)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// First words of the sentences in helps, which are imperatives.
    fn imperatives(command: &Command, all: &mut Vec<String>) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        all.extend(about.split([' ', ',']).next().map(str::to_lowercase));
        command.get_subcommands().for_each(|below| imperatives(below, all));
    }

    #[test]
    fn every_manual_page_has_a_noun_phrase_beside_its_name() {
        let dir = tempfile::tempdir().unwrap();
        Man { dir: dir.path().to_owned() }.run(Cli::command()).unwrap();
        let mut verbs = Vec::new();
        imperatives(&Cli::command(), &mut verbs);
        verbs.retain(|verb| verb != "network"); // of the program itself
        assert!(verbs.iter().any(|verb| verb == "show"), "{verbs:?}");
        let mut seen = 0;
        for page in std::fs::read_dir(dir.path()).unwrap() {
            let path = page.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let line =
                text.split(".SH NAME\n").nth(1).and_then(|rest| rest.lines().next()).unwrap();
            let line = line.replace("\\-", "-");
            let title =
                line.strip_prefix(&format!("{name} - ")).unwrap_or_else(|| panic!("{line}"));
            let first = title.split([' ', ',']).next().unwrap();
            assert!(!title.is_empty() && title.len() <= 60, "{line}");
            assert!(!verbs.iter().any(|verb| verb == first), "an imperative: {line}");
            assert!(!title.ends_with('.') && !first.is_empty(), "{line}");
            assert!(text.contains(".SH DESCRIPTION\n"), "{name}");
            let source = concat!("\"shunt ", env!("CARGO_PKG_VERSION"), "\" \"Shunt Manual\"");
            let header = text.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(header.trim_end().ends_with(source), "{header}");
            seen += 1;
        }
        assert!(seen > 60, "only {seen} pages");
    }
}

//! The daemon that a command is for: `--run-dir`, `SHUNT_RUN_DIR`, or the only one that runs.

use std::cell::OnceCell;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use api::Client;
use api::daemons::{self, RunningDaemon};
use model::config::socket_path;
use model::state::{Problem, Problems, Remedy};
use serde_json::{Value, json};

use crate::complete;

/// Option that names the daemon.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RunDirArg {
    /// Run directory of the daemon (run_dir in its configuration). Default: SHUNT_RUN_DIR, or that
    /// of the only daemon that runs.
    #[arg(long, value_name = "DIR", global = true, help_heading = "Daemon", add = complete::run_dir())]
    run_dir: Option<PathBuf>,
    /// The directory, once it is known: a command is for one daemon, whatever starts meanwhile.
    #[arg(skip)]
    found: OnceCell<PathBuf>,
}

impl RunDirArg {
    /// The option with this value.
    pub(crate) fn of(run_dir: Option<PathBuf>) -> RunDirArg {
        RunDirArg { run_dir, ..RunDirArg::default() }
    }

    /// The option in the words of a command line that need not be complete.
    pub(crate) fn of_words(words: &[String]) -> RunDirArg {
        RunDirArg::of(value_of("--run-dir", words).map(PathBuf::from))
    }

    /// The target daemon of a migration, `--to`, if the words have one.
    pub(crate) fn target_of_words(words: &[String]) -> Option<RunDirArg> {
        Some(RunDirArg::of(Some(value_of("--to", words)?.into())))
    }

    /// Run directory of the daemon.
    ///
    /// # Errors
    /// None is named, and no daemon or more than one runs.
    pub(crate) fn path(&self) -> Result<&Path> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let run_dir = match self.named() {
            Some(named) => named,
            None => only(daemons::running())?,
        };
        Ok(self.found.get_or_init(|| run_dir))
    }

    /// Returns `true` if the command is for no daemon: none is named, and none runs.
    pub(crate) fn is_for_none(&self) -> bool {
        self.found.get().is_none() && self.named().is_none() && daemons::running().is_empty()
    }

    /// Client of the daemon.
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub(crate) fn client(&self) -> Result<Client> {
        let client = Client::new(&socket_path(self.path()?));
        Ok(client.telling(|waiting| eprintln!("shunt: {waiting}")))
    }

    /// Run directory of the option, or of the environment.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        let variable = || std::env::var_os("SHUNT_RUN_DIR").filter(|value| !value.is_empty());
        self.run_dir.clone().or_else(|| variable().map(PathBuf::from))
    }
}

/// Value of an option: `--option VALUE` or `--option=VALUE`.
fn value_of<'w>(option: &str, words: &'w [String]) -> Option<&'w str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix(option) {
            Some("") => return words.next().map(String::as_str),
            Some(rest) if rest.starts_with('=') => return Some(&rest[1..]),
            _ => {}
        }
    }
    None
}

/// Run directory of the only daemon.
fn only(mut running: Vec<RunningDaemon>) -> Result<PathBuf> {
    match running.len() {
        0 => {
            let message = "is missing: no daemon of this user runs";
            let remedy = "start one with `shunt up --config FILE`, or name another user's";
            Err(Problems::from(Problem::new("--run-dir", (), message, remedy)).into())
        }
        1 => Ok(running.remove(0).run_dir),
        _ => Err(SeveralDaemons(running).into()),
    }
}

/// No daemon is named, and several run: exit code 2.
#[derive(Debug)]
pub(crate) struct SeveralDaemons(Vec<RunningDaemon>);

impl SeveralDaemons {
    fn problem(&self) -> Problem {
        let run_dirs = self.0.iter().map(|one| one.run_dir.display().to_string());
        let remedy = "choose one with --run-dir, or for all commands with SHUNT_RUN_DIR";
        let remedy = Remedy::choose(remedy, run_dirs.collect::<Vec<_>>().join(", "));
        let message = format!("is missing: {} daemons run", self.0.len());
        Problem::new("--run-dir", (), message, remedy)
    }

    /// The error as JSON, with a list of the daemons.
    pub(crate) fn json(&self) -> Value {
        let daemon = |one: &RunningDaemon| {
            let RunningDaemon { run_dir, pid, state_file } = one;
            json!({"run_dir": run_dir, "pid": pid, "state_file": state_file})
        };
        let daemons: Vec<Value> = self.0.iter().map(daemon).collect();
        json!({"errors": [self.problem()], "more": 0, "daemons": daemons})
    }
}

impl fmt::Display for SeveralDaemons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.problem(), self.0.iter().map(line).collect::<String>())
    }
}

impl std::error::Error for SeveralDaemons {}

/// Run directory, process and state file of a daemon.
fn line(daemon: &RunningDaemon) -> String {
    let RunningDaemon { run_dir, pid, state_file } = daemon;
    let pid = pid.map_or(String::new(), |pid| format!("  process {pid}"));
    let state = state_file.as_ref().map_or(String::new(), |file| format!("  {}", file.display()));
    format!("\n  {}{pid}{state}", run_dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(run_dir: &str, pid: u32) -> RunningDaemon {
        let state_file = Some(Path::new(run_dir).join("state/state.json"));
        RunningDaemon { run_dir: run_dir.into(), pid: Some(pid), state_file }
    }

    #[test]
    fn the_only_daemon_is_the_one_meant() {
        assert_eq!(only(vec![daemon("/run/a", 1)]).unwrap(), Path::new("/run/a"));
    }

    #[test]
    fn several_daemons_are_listed_with_the_way_to_choose() {
        let error = only(vec![daemon("/run/a", 11), daemon("/run/b", 22)]).unwrap_err();
        let several: SeveralDaemons = error.downcast().expect("the user must choose");
        assert_eq!(
            several.to_string(),
            "--run-dir: is missing: 2 daemons run; choose one with --run-dir, or for all commands \
             with SHUNT_RUN_DIR:\n  /run/a  process 11  /run/a/state/state.json\n  \
             /run/b  process 22  /run/b/state/state.json"
        );
        let json = several.json();
        let problem = &json["errors"][0];
        assert_eq!(problem["allowed"], "/run/a, /run/b");
        let remedy = "choose one with --run-dir, or for all commands with SHUNT_RUN_DIR";
        assert_eq!(problem["remedy"], remedy);
        let second =
            json!({"run_dir": "/run/b", "pid": 22, "state_file": "/run/b/state/state.json"});
        assert_eq!(json["daemons"][1], second);
    }

    #[test]
    fn without_a_daemon_the_error_says_how_to_start_one() {
        let error = only(Vec::new()).unwrap_err().to_string();
        assert!(error.contains("start one with `shunt up --config FILE`"), "{error}");
    }

    #[test]
    fn a_named_directory_needs_no_running_daemon() {
        let named = RunDirArg::of(Some("/nowhere".into()));
        assert_eq!(named.path().unwrap(), Path::new("/nowhere"));
    }
}

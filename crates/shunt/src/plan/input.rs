//! Machine options and files of the planner's commands.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use plan::CORES;
use plan::machine::{DEFAULT_HOST, DEFAULT_NIC, Figure, Host, Machine, Nic};

use model::config::cannot_read;
use model::state::{Problem, Problems};

use crate::complete;
use crate::error::UsageError;
use crate::text::wrapped;

/// Machine of a query.
#[derive(Debug, Args)]
pub(super) struct MachineArgs {
    /// NIC: a card profile with planner parameters (default xl710; an unknown name lists them), or
    /// the path of such a file.
    #[arg(long, value_name = "NIC", add = complete::profile())]
    pub(super) nic: Option<String>,
    /// Host and switch: nfv-2017 (the default, the paper's), shunt, or a profile file; `shunt plan
    /// validate --from DIR --write FILE` makes one from a run of `shunt lab`.
    #[arg(long, value_name = "HOST", add = complete::words(["nfv-2017", "shunt"]))]
    pub(super) host: Option<String>,
    /// Threads of the switch, instead of the profile's.
    #[arg(long, value_name = "N")]
    pub(super) cores: Option<f64>,
}

impl MachineArgs {
    /// Name of the NIC; `None` for the software NIC.
    pub(super) fn nic(&self, machine: &Machine) -> Option<&str> {
        machine.host.soft_nic.is_none().then(|| self.nic.as_deref().unwrap_or(DEFAULT_NIC))
    }

    /// Name of the host.
    pub(super) fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(DEFAULT_HOST)
    }

    pub(super) fn machine(&self) -> Result<Machine, UsageError> {
        let mut host =
            Host::named(self.host()).map_err(|problems| of_option("--host", problems))?;
        if let (Some(nic), Some(_)) = (&self.nic, &host.soft_nic) {
            let message =
                format!("is not used: path vf of host {} is the software NIC", self.host());
            return Err(UsageError::option("--nic", nic.as_str(), &message, "leave --nic out"));
        }
        let nic = Nic::named(self.nic.as_deref().unwrap_or(DEFAULT_NIC))
            .map_err(|problems| of_option("--nic", problems))?;
        if let Some(cores) = self.cores {
            if !CORES.contains(&cores) {
                let [least, most] = [CORES.start(), CORES.end()];
                return Err(UsageError::out_of_range("--cores", cores, least, most));
            }
            host.switch_cores = Figure::new(cores, "--cores");
        }
        Ok(Machine { nic, host })
    }
}

/// Description of a machine.
pub(super) fn titles(machine: &Machine) -> String {
    wrapped(machine.card()) + &wrapped(&machine.host.title)
}

/// Writes a new file; never overwrites one.
pub(super) fn write_new(to: &Path, text: &str) -> Result<()> {
    let file = std::fs::File::create_new(to);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let name = to.to_string_lossy();
            Err(UsageError::option("--write", &*name, "exists already", "give another name").into())
        }
        other => other.with_context(|| format!("{} cannot be written", to.display())),
    }
}

/// Mistakes in the value of an option.
pub(super) fn of_option(option: &str, mut problems: Problems) -> UsageError {
    for problem in problems.problems.iter_mut().filter(|problem| problem.object.is_empty()) {
        option.clone_into(&mut problem.field);
    }
    UsageError(problems)
}

/// Mistakes in a file.
pub(super) fn of_file(path: &Path, problems: impl Into<Problems>) -> UsageError {
    UsageError(problems.into().in_file(&path.to_string_lossy()))
}

/// Text of the file of an option.
pub(super) fn read(path: &Path, option: &str) -> Result<String, UsageError> {
    Ok(std::fs::read_to_string(path).map_err(|error| cannot_read(path, option, &error))?)
}

/// Text of the file of an option, with `what` as TOML; results of the lab are JSON.
pub(super) fn read_toml(path: &Path, option: &str, what: &str) -> Result<String, UsageError> {
    let text = read(path, option)?;
    match text.trim_start().starts_with('{') {
        false => Ok(text),
        true => {
            let message = format!("is JSON, and {what} is TOML (docs/planner.md)");
            let remedy = format!(
                "put what shunt lab measured into a host's profile: shunt plan validate --from {} \
                 --write host.toml, then --host host.toml",
                path.display()
            );
            Err(of_file(path, Problem::new("", (), message, remedy)))
        }
    }
}

//! Machine options and files of the planner's commands.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use plan::CORES;
use plan::machine::{Figure, Host, Machine, Nic};

use crate::error::UsageError;

/// Machine of a query.
#[derive(Debug, Args)]
pub(super) struct MachineArgs {
    /// NIC: a card profile with planner parameters (default xl710; an unknown name lists them), or
    /// the path of such a file.
    #[arg(long, value_name = "NIC")]
    pub(super) nic: Option<String>,
    /// Host and switch: nfv-2017 (the default, the paper's), shunt, or a profile file; `shunt plan
    /// validate --from DIR --write FILE` makes one from a run of `shunt lab`.
    #[arg(long, value_name = "HOST")]
    pub(super) host: Option<String>,
    /// Threads of the switch, instead of the profile's.
    #[arg(long, value_name = "N")]
    pub(super) cores: Option<f64>,
}

/// Default NIC.
pub(super) const NIC: &str = "xl710";
/// Default host.
pub(super) const HOST: &str = "nfv-2017";

impl MachineArgs {
    /// Name of the NIC; `None` for the software NIC.
    pub(super) fn nic(&self, machine: &Machine) -> Option<&str> {
        machine.host.soft_nic.is_none().then(|| self.nic.as_deref().unwrap_or(NIC))
    }

    /// Name of the host.
    pub(super) fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(HOST)
    }

    pub(super) fn machine(&self) -> Result<Machine, UsageError> {
        let usage_error =
            |error: plan::machine::ProfileError| UsageError::new(format!("shunt plan: {error}"));
        let mut host = Host::named(self.host()).map_err(usage_error)?;
        if let (Some(nic), Some(_)) = (&self.nic, &host.soft_nic) {
            let text = format!(
                "shunt plan: --nic {nic}: path vf of host {} is the software NIC; leave --nic out",
                self.host()
            );
            return Err(UsageError::new(text));
        }
        let nic = Nic::named(self.nic.as_deref().unwrap_or(NIC)).map_err(usage_error)?;
        if let Some(cores) = self.cores {
            if !CORES.contains(&cores) {
                let text = format!("shunt plan: --cores {cores}: allowed are 0.001 to 1024");
                return Err(UsageError::new(text));
            }
            host.switch_cores = Figure::new(cores, "--cores");
        }
        Ok(Machine { nic, host })
    }
}

/// Description of a machine.
pub(super) fn titles(machine: &Machine) -> String {
    format!("{}\n{}\n", machine.card(), machine.host.title)
}

/// Writes a new file; never overwrites one.
pub(super) fn write_new(to: &Path, text: &str) -> Result<()> {
    let file = std::fs::File::create_new(to);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("shunt plan: {} exists: give another name", to.display());
            Err(UsageError::new(text).into())
        }
        other => other.with_context(|| format!("{} cannot be written", to.display())),
    }
}

/// Text of a file that the user names.
pub(super) fn read(path: &PathBuf) -> Result<String, UsageError> {
    std::fs::read_to_string(path)
        .map_err(|error| UsageError::new(format!("shunt plan: {}: {error}", path.display())))
}

/// Text of `what`, which must be TOML; results of the lab are JSON.
pub(super) fn read_toml(path: &PathBuf, what: &str) -> Result<String, UsageError> {
    let text = read(path)?;
    match text.trim_start().starts_with('{') {
        false => Ok(text),
        true => Err(UsageError::new(format!(
            "shunt plan: {0}: is JSON, and {what} is TOML (docs/planner.md). What shunt lab \
             measured goes into a host's profile: shunt plan validate --from {0} --write \
             host.toml, then --host host.toml",
            path.display()
        ))),
    }
}

//! `shunt plan`: the planner.

mod advise;
mod explain;
mod file;
mod fleet;
mod predict;
mod sweep;
mod validate;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use plan::CORES;
use plan::machine::{Figure, Host, Machine, Nic};

use crate::UsageError;

/// Recommend a path for each adapter of a workload on a machine, with reasons.
///
/// The model counts each frame's use of the line, PCIe, the NIC, the switch's threads, guests and
/// memory. Its parameters are in profiles of NICs and hosts, with their sources; the host
/// `nfv-2017` and the NIC `xl710` hold the results of `shunt plan validate`. docs/planner.md
/// describes the model and the format of a workload.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  shunt plan --workload chain.toml                       paths, rates, limits, margins
  shunt plan --workload chain.toml --nic e810 --cores 4  on another NIC, with four threads
  shunt plan --workload chain.toml --what-if cores=1..8  how the answer changes
  shunt plan --workload chain.toml --write shunt.toml    a configuration with iov_weights
  shunt plan predict --nic xl710 --pattern east-west --path vhost --frame 64 --guests 8
  shunt plan validate --fit-guests 4                     how far to trust it
  shunt plan explain --guests 6 --out chain.svg          where bytes and cycles go
  shunt plan fleet --fleet fleet.toml                    chains on many hosts")]
pub(crate) struct Plan {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    advise: advise::Advise,
}

#[derive(Debug, Subcommand)]
enum Task {
    Predict(predict::Predict),
    Validate(validate::Validate),
    Explain(explain::Explain),
    Fleet(fleet::Fleet),
}

impl Plan {
    pub(crate) fn run(self) -> Result<()> {
        match self.task {
            None => self.advise.run(),
            Some(Task::Predict(predict)) => predict.run(),
            Some(Task::Validate(validate)) => validate.run(),
            Some(Task::Explain(explain)) => explain.run(),
            Some(Task::Fleet(fleet)) => fleet.run(),
        }
    }
}

/// Machine of a query.
#[derive(Debug, Args)]
struct On {
    /// NIC: a card profile with planner parameters (default xl710; an unknown name lists them), or
    /// the path of such a file.
    #[arg(long, value_name = "NIC")]
    nic: Option<String>,
    /// Host and switch: nfv-2017 (the default, the paper's), shunt, or a profile file; `shunt plan
    /// validate --from DIR --write FILE` makes one from a run of `shunt lab`.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Threads of the switch, instead of the profile's.
    #[arg(long, value_name = "N")]
    cores: Option<f64>,
}

/// Default NIC.
const NIC: &str = "xl710";
/// Default host.
const HOST: &str = "nfv-2017";

impl On {
    /// Name of the NIC; `None` for the software NIC.
    fn nic(&self, machine: &Machine) -> Option<&str> {
        machine.host.soft_nic.is_none().then(|| self.nic.as_deref().unwrap_or(NIC))
    }

    /// Name of the host.
    fn host(&self) -> &str {
        self.host.as_deref().unwrap_or(HOST)
    }

    fn machine(&self) -> Result<Machine, UsageError> {
        let mistake =
            |error: plan::machine::ProfileError| UsageError(format!("shunt plan: {error}"));
        let mut host = Host::named(self.host()).map_err(mistake)?;
        if let (Some(nic), Some(_)) = (&self.nic, &host.soft_nic) {
            let text = format!(
                "shunt plan: --nic {nic}: path vf of host {} is the software NIC; leave --nic out",
                self.host()
            );
            return Err(UsageError(text));
        }
        let nic = Nic::named(self.nic.as_deref().unwrap_or(NIC)).map_err(mistake)?;
        if let Some(cores) = self.cores {
            if !CORES.contains(&cores) {
                let text = format!("shunt plan: --cores {cores}: 0.001 to 1024 are possible");
                return Err(UsageError(text));
            }
            host.switch_cores = Figure::new(cores, "--cores");
        }
        Ok(Machine { nic, host })
    }
}

/// Description of a machine.
fn titles(machine: &Machine) -> String {
    format!("{}\n{}\n", machine.card(), machine.host.title)
}

/// Writes a new file; never overwrites one.
fn write_new(to: &Path, text: &str) -> Result<()> {
    let file = std::fs::File::create_new(to);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("shunt plan: {} exists: give another name", to.display());
            Err(UsageError(text).into())
        }
        other => other.with_context(|| format!("{} cannot be written", to.display())),
    }
}

/// Text of a file that the user names.
fn read(path: &PathBuf) -> Result<String, UsageError> {
    std::fs::read_to_string(path)
        .map_err(|error| UsageError(format!("shunt plan: {}: {error}", path.display())))
}

/// Text of `what`, which must be TOML; results of the lab are JSON.
fn read_toml(path: &PathBuf, what: &str) -> Result<String, UsageError> {
    let text = read(path)?;
    match text.trim_start().starts_with('{') {
        false => Ok(text),
        true => Err(UsageError(format!(
            "shunt plan: {0}: is JSON, and {what} is TOML (docs/planner.md). What shunt lab \
             measured goes into a host's profile: shunt plan validate --from {0} --write \
             host.toml, then --host host.toml",
            path.display()
        ))),
    }
}

//! `shunt plan`: the planner.

mod advise;
mod explain;
mod file;
mod fleet;
mod predict;
mod sweep;
mod validate;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use plan::machine::{Figure, Host, Machine, Nic};

use crate::Mistake;

/// Say which path each adapter of a workload is to take on a machine, and why.
///
/// The model counts what each frame takes of the line, of PCIe, of the NIC, of the switch's threads, of guests and of
/// memory. Its parameters are in profiles of NICs and hosts, with their sources; the host `nfv-2017` and the NIC `xl710`
/// hold what `shunt plan validate` finds. docs/planner.md has the model and the form of a workload.
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

/// The machine of a question.
#[derive(Debug, Args)]
struct On {
    /// The NIC: 82598, x520, xl710, e810, cx6dx, ideal, or a profile's file.
    #[arg(long, default_value = "xl710", value_name = "NIC")]
    nic: String,
    /// The host and its switch: nfv-2017, shunt, or a profile's file.
    #[arg(long, default_value = "nfv-2017", value_name = "HOST")]
    host: String,
    /// Threads of the switch, instead of the profile's.
    #[arg(long, value_name = "N")]
    cores: Option<f64>,
}

impl On {
    fn machine(&self) -> Result<Machine, Mistake> {
        let mistake = |error: plan::machine::ProfileError| Mistake(format!("shunt plan: {error}"));
        let nic = Nic::named(&self.nic).map_err(mistake)?;
        let mut host = Host::named(&self.host).map_err(mistake)?;
        if let Some(cores) = self.cores {
            if !(cores > 0.0 && cores <= 1024.0) {
                let text = format!(
                    "shunt plan: --cores {cores}: more than 0 and at most 1024 are possible"
                );
                return Err(Mistake(text));
            }
            host.switch_cores = Figure::new(cores, "--cores");
        }
        Ok(Machine { nic, host })
    }
}

/// What a machine is, for people. Where the software NIC is its card, there is no other.
fn titles(machine: &Machine) -> String {
    let Machine { nic, host } = machine;
    let card = if host.soft_nic.is_some() { "the software NIC" } else { &nic.title };
    format!("{card}\n{}\n", host.title)
}

/// The text of a file that the user names.
fn read(path: &PathBuf) -> Result<String, Mistake> {
    std::fs::read_to_string(path)
        .map_err(|error| Mistake(format!("shunt plan: {}: {error}", path.display())))
}

//! `shunt plan`: the planner.

mod advise;
mod explain;
mod file;
mod fleet;
mod input;
mod predict;
mod sweep;
mod validate;

use crate::pages::Title;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Recommend a path for each adapter of a workload on a machine, with reasons.
///
/// The model counts each frame's use of the line, PCIe, the NIC, the switch's threads, guests and
/// memory. Its parameters are in profiles of NICs and hosts, with their sources; the host
/// `nfv-2017` and the NIC `xl710` hold the results of `shunt plan validate`. docs/planner.md
/// describes the model and the format of a workload.
#[derive(Debug, Args)]
#[command(add = Title("planner of paths for a workload"))]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  shunt plan --workload chain.toml                       paths, rates, limits, margins
  shunt plan --workload chain.toml --nic e810 --cores 4  on another NIC, with four threads
  shunt plan --workload chain.toml --what-if cores=1..8  how the answer changes
  shunt plan --workload chain.toml --write shunt.toml    a configuration with these paths
  shunt plan predict --nic xl710 --pattern east-west --path synthetic --frame 64 --guests 8
  shunt plan validate --fit-guests 4                     accuracy of the model
  shunt plan explain --guests 6 --out chain.svg          bytes and cycles of a frame
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

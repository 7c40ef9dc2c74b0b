//! `shunt doctor`: what this machine has and lacks, what each lack costs, and its remedy.
//!
//! Model: [`Report`] holds the facts of a machine. The checks are rows of one table in `checks`,
//! functions over these facts; a report of another machine gives that machine's answers. Nothing is
//! changed, and root is not needed: a check that sees more as root says so.

mod checks;
mod machine;
pub(crate) mod report;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use sriov::Sysfs;
use sriov::discovery::Listing;
use sriov::facts::{Facts, ThisKernel};

use crate::conform::shown;
use crate::manage::pci;
use crate::pages::Title;
use crate::text::{of_stdout, print, table, wrapped};
use checks::{Finding, State};
use report::Report;

/// Check this machine: CPUs, IOMMU, PCI NICs, kernel features, rights, QEMU and libvirt. Says for
/// each lack what it costs and how to get it.
#[derive(Debug, Args)]
#[command(add = Title("checks of this machine, with remedies"))]
#[command(after_help = "\
Examples:
  shunt doctor                             a table, then cost and remedy of each lack
  shunt doctor --json
  shunt doctor --report                    write shunt-report.json, to send with a problem
  shunt conform --nic card0 --json >tests.json
  shunt doctor --report --conform tests.json
                                           the same, with what the card enforces and refuses
  shunt doctor --from shunt-report.json    the checks of another machine

Exit code 0, whatever is missing. A report has no MAC address beyond the vendor's part, no host
name, no serial number and no IP address.")]
pub(crate) struct Doctor {
    /// Write facts and checks to a file, or with - to standard output.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "shunt-report.json")]
    report: Option<PathBuf>,
    /// Add results of `shunt conform --nic NAME --json` to the report.
    #[arg(long, value_name = "FILE", requires = "report")]
    conform: Option<PathBuf>,
    /// Check the machine of this report instead.
    #[arg(long, value_name = "FILE", conflicts_with = "report")]
    from: Option<PathBuf>,
    /// Print JSON: one object.
    #[arg(long)]
    json: bool,
}

/// Facts about the PCI NICs of this machine.
pub(crate) fn pci_facts() -> Facts {
    Facts::read(&Sysfs::default(), &ThisKernel::default())
}

impl Doctor {
    pub(crate) fn run(self) -> Result<()> {
        let mut report = match &self.from {
            Some(file) => Report::read(file)?,
            None => Report::of_this_machine(),
        };
        if let Some(file) = &self.conform {
            report.add_conform(file)?;
        }
        let Some(file) = &self.report else {
            let text = if self.json { format!("{:#}\n", answer(&report)) } else { text(&report) };
            return Ok(print(&text)?);
        };
        let written = report.anonymised()?.text()?;
        if file.as_os_str() == "-" {
            return Ok(print(&written)?);
        }
        report::write(file, &written)?;
        let told = match self.json {
            true => format!("{:#}\n", json!({ "report": file })),
            false => format!("wrote {}\n", file.display()),
        };
        Ok(print(&told)?)
    }
}

/// Checks and NICs, for programs.
fn answer(report: &Report) -> serde_json::Value {
    json!({
        "version": report.version,
        "kernel": report.machine.kernel,
        "checks": report.checks(),
        "nics": Listing::all(&report.pci),
        "conform": report.conform,
    })
}

/// Table of the checks, table of the NICs, each lack, then results of the conformance suite.
fn text(report: &Report) -> String {
    let findings = report.checks();
    let row = |it: &Finding| [it.name.clone(), it.state.to_string(), it.found.clone()];
    let mut text = table(["check", "state", "found"], findings.iter().map(row).collect());
    if !report.pci.nics.is_empty() {
        text += &format!("\n{}", pci::listed(&Listing::all(&report.pci)));
    }
    for it in findings.iter().filter(|it| it.state != State::Ok) {
        text += &format!("\n{}", wrapped(&format!("{}: {}", it.name, it.state)));
        text += &of_stdout().fields(&[("  costs", &*it.costs), ("  remedy", &*it.remedy)]);
    }
    if let Some(conform) = &report.conform {
        text += &format!("\nconformance of {}\n{}", conform.nic, shown(conform));
    }
    text
}

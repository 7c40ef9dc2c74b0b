//! File of `shunt doctor --report`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use conform::SuiteReport;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sriov::facts::{Facts, anonymised};

use super::checks::{self, Finding};
use super::machine::HostFacts;
use crate::error::UsageError;

/// Version of the file's form.
const FORM: u32 = 1;

/// Facts of a machine, with the findings of the program that wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Version of this form.
    pub(crate) report: u32,
    /// Version of Shunt.
    pub(crate) version: String,
    /// The machine.
    pub(crate) machine: HostFacts,
    /// Its PCI NICs.
    pub(crate) pci: Facts,
    /// Results of the conformance suite on one of these NICs, with its driver's answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conform: Option<SuiteReport>,
    /// Findings at the time of writing; a reader judges the facts again.
    #[serde(default)]
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    /// Reads this machine.
    pub(crate) fn of_this_machine() -> Report {
        Report {
            report: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: HostFacts::read(),
            pci: super::pci_facts(),
            conform: None,
            findings: Vec::new(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`UsageError`]: it is missing, or no report.
    pub(crate) fn read(file: &Path) -> Result<Report> {
        read("--from", file, "is no report", "shunt doctor --report")
    }

    /// Reads results of the conformance suite.
    ///
    /// # Errors
    /// [`UsageError`]: the file is missing, or has none.
    pub(super) fn add_conform(&mut self, file: &Path) -> Result<()> {
        let command = "shunt conform --nic NAME --json";
        self.conform = Some(read("--conform", file, "has no results of the suite", command)?);
        Ok(())
    }

    /// Findings of all checks.
    pub(crate) fn checks(&self) -> Vec<Finding> {
        checks::run(self)
    }

    /// The report as it may be sent: with its findings, without MAC addresses.
    pub(crate) fn anonymised(&self) -> Result<Report> {
        let report = Report { findings: self.checks(), ..self.clone() };
        Ok(anonymised(&report)?)
    }

    /// Text of the file.
    pub(crate) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Reads JSON from the file of an option, which this command writes.
fn read<T: DeserializeOwned>(option: &str, file: &Path, other: &str, command: &str) -> Result<T> {
    let refused = |message: &str| {
        let remedy = format!("give a file that `{command}` wrote");
        UsageError::option(option, file.display().to_string(), message, remedy)
    };
    let text = fs::read_to_string(file).map_err(|_| refused("cannot be read"))?;
    serde_json::from_str(&text).map_err(|_| refused(other).into())
}

/// Writes the file.
pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

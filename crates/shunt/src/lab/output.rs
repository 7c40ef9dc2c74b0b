//! Results of experiments over guests' sockets: the report's directory, and tables or JSON.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use lab::report::{self, FileCopy, Results, Started, Transfer};

use crate::say;

/// Where the report goes, and what is printed.
#[derive(Debug, Args)]
pub(super) struct Output {
    /// Where the report's directory is made.
    #[arg(long, default_value = "lab-results", value_name = "DIR")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What an experiment measured, and notes for its reader.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) transfers: Vec<Transfer>,
    pub(super) copies: Vec<FileCopy>,
    pub(super) notes: Vec<String>,
}

/// Shows how far an experiment is.
pub(super) fn progress(done: usize, of: usize) {
    eprint!("\rmeasurement {done} of {of} ");
}

impl Output {
    /// Measures, writes the report, and prints the results. The directory is made before the time
    /// is spent.
    pub(super) fn report(self, measure: impl FnOnce() -> Result<Measured>) -> Result<()> {
        std::fs::create_dir_all(&self.out).with_context(|| {
            format!("cannot make {}; choose another place with --out", self.out.display())
        })?;
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let Measured { transfers, copies, notes } = measure()?;
        eprintln!();
        let version = env!("CARGO_PKG_VERSION");
        let machine = host::MachineFacts::read(env!("SHUNT_RUSTC"), version);
        let host = machine.hostname.clone().unwrap_or_else(|| "unknown".into());
        let results = Results {
            schema: report::model::SCHEMA,
            version: version.into(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            started: Started::at(unix_s),
            machine: serde_json::to_value(&machine)?,
            points: Vec::new(),
            transfers,
            copies,
            notes,
        };
        let dir = self.out.join(report::folder_name(unix_s, &host));
        report::write(&dir, &results)?;
        if self.json {
            return Ok(say(&report::json::results(&results)?)?);
        }
        let place = dir.join("report.html").display().to_string();
        Ok(say(&format!("{}\nReport: {place}\n", text(&results)))?)
    }
}

/// Tables, our results beside the papers' in words, and notes.
fn text(results: &Results) -> String {
    let mut text = report::transfer_table::all(&results.transfers);
    text += &report::copy_table::all(&results.copies);
    for sentence in report::copy::sentences(&results.copies) {
        text += &format!("\n{}", super::wrapped(&sentence));
    }
    if !results.copies.is_empty() {
        text += "\n";
    }
    for note in &results.notes {
        text += &super::wrapped(note);
    }
    text
}

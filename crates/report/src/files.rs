//! A run's folder: `results.json`, `report.html`, and as CSV `results.csv` for points,
//! `transfers.csv` for what went over guests' sockets, `receives.csv` for what guests received and
//! `copies.csv` for file copies, each if there is any.
//!
//! Each file is written beside its place and renamed into it, so that it is there whole or not at
//! all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::results::{PointError, Results, SCHEMA};
use super::transfer::TransferError;
use super::{csv, html, json, time};

/// The most characters of a host's name that a folder's name takes.
const MAX_HOST_CHARS: usize = 64;

/// Name of the file that holds a run's results.
pub const RESULTS: &str = "results.json";

/// Why results could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder is not there and could not be made.
    #[error("cannot make the folder {dir}; choose a place that you may write to")]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {file}; choose a place that you may write to and that has room")]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {file}; give the folder of a run, as `shunt lab history` names it")]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Results of a later program.
    #[error("results of schema {0}; this program reads up to {SCHEMA}: take a newer one")]
    Schema(u32),
    /// Text that is not the lab's JSON, or results that JSON cannot hold.
    #[error("these are not results of the lab in JSON; give a results.json as the lab wrote it")]
    Json(#[source] serde_json::Error),
    /// A number that no measurement can give.
    #[error(transparent)]
    Point(#[from] PointError),
    /// The same of a transfer or a file copy.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

/// The name of a run's folder, such as `2026-03-01T09-30-00Z-lab1`: the time in UTC, and of the
/// host's name what is safe in any file system and shell (letters, digits, `-`, `_`, `.`).
pub fn folder_name(unix_s: u64, host: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }
    };
    let host: String = host.chars().take(MAX_HOST_CHARS).map(safe).collect();
    let host = host.trim_matches(['-', '.']);
    let host = if host.is_empty() { "host" } else { host };
    format!("{}-{host}", time::utc_text(unix_s).replace(':', "-"))
}

/// Writes the files into the folder `dir`, which is made if it is not there, and returns their
/// paths.
///
/// # Errors
/// A point that cannot be (nothing is written then), or the folder or file that could not be
/// written.
pub fn write(dir: &Path, results: &Results) -> Result<Vec<PathBuf>, ReportError> {
    let mut files = vec![(RESULTS, json::results(results)?)];
    let others = results.has_others();
    if !results.points.is_empty() || !others {
        files.push(("results.csv", csv::text(&results.points)));
    }
    if !results.transfers.is_empty() {
        files.push(("transfers.csv", csv::transfers(&results.transfers)));
    }
    if !results.copies.is_empty() {
        files.push(("copies.csv", csv::copies(&results.copies)));
    }
    if !results.receives.is_empty() {
        files.push(("receives.csv", csv::receives(&results.receives)));
    }
    files.push(("report.html", html::page(results)));
    files.iter().map(|(name, text)| put(dir, name, text)).collect()
}

/// Writes `results.json` alone, as a run does on its way.
///
/// # Errors
/// As [`write()`].
pub fn save(dir: &Path, results: &Results) -> Result<PathBuf, ReportError> {
    put(dir, RESULTS, &json::results(results)?)
}

/// Reads `results.json` of a run's folder.
///
/// # Errors
/// There is none, or it is not of the lab.
pub fn read(dir: &Path) -> Result<Results, ReportError> {
    let file = dir.join(RESULTS);
    let text = fs::read_to_string(&file).map_err(|source| ReportError::Read { file, source })?;
    json::read(&text)
}

fn put(dir: &Path, name: &str, text: &str) -> Result<PathBuf, ReportError> {
    fs::create_dir_all(dir)
        .map_err(|source| ReportError::Folder { dir: dir.to_owned(), source })?;
    let file = dir.join(name);
    let aside = dir.join(format!(".{name}.{}.tmp", std::process::id()));
    match replace(&file, &aside, text.as_bytes()) {
        Ok(()) => Ok(file),
        Err(source) => {
            // The error told is the first one; a leftover that cannot be removed either is
            // harmless.
            let _ = fs::remove_file(&aside);
            Err(ReportError::File { file, source })
        }
    }
}

fn replace(file: &Path, aside: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut out = fs::File::create(aside)?;
    out.write_all(bytes)?;
    out.sync_all()?;
    fs::rename(aside, file)
}

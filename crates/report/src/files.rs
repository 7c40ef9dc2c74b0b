//! Folder of a run: `results.json`, `report.html`, and CSV files. `results.csv` has points,
//! `transfers.csv` socket traffic, `receives.csv` received frames and `copies.csv` file copies;
//! empty ones are left out.
//!
//! Each file is written to a temporary name and renamed, so that it is never partial.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::ReportError;
use super::results::Results;
use super::{csv, html, json, time};

/// Maximum number of characters of the host name in a folder name.
const MAX_HOST_CHARS: usize = 64;

/// Name of the results file.
pub const RESULTS: &str = "results.json";

/// Name of a run's folder, such as `2026-03-01T09-30-00Z-lab1`: the time in UTC, and the host name
/// reduced to characters that are safe in file systems and shells (letters, digits, `-`, `_`, `.`).
pub fn folder_name(unix_s: u64, host: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }
    };
    let host: String = host.chars().take(MAX_HOST_CHARS).map(safe).collect();
    let host = host.trim_matches(['-', '.']);
    let host = if host.is_empty() { "host" } else { host };
    format!("{}-{host}", time::utc_text(unix_s).replace(':', "-"))
}

/// Writes the files into the folder `dir`, creates it if needed, and returns their paths.
///
/// # Errors
/// An invalid point (then no file is written), or a folder or file that could not be written.
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

/// Writes `results.json` alone, as a run does after each step.
///
/// # Errors
/// As [`write()`].
pub fn save(dir: &Path, results: &Results) -> Result<PathBuf, ReportError> {
    put(dir, RESULTS, &json::results(results)?)
}

/// Reads `results.json` of a run's folder.
///
/// # Errors
/// The file is missing or invalid.
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
            // The first error is reported; a temporary file left behind does no harm.
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

//! Errors of reading and writing results.

use std::io;
use std::path::PathBuf;

use super::results::{PointError, SCHEMA};
use super::transfer::TransferError;

/// Failure to write or read results.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder could not be created.
    #[error("cannot make the folder {dir}; choose a place that you may write to")]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {file}; choose a place that you may write to and that has room")]
    File {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {file}; give the folder of a run, as `shunt lab history` names it")]
    Read {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Results of a newer program version.
    #[error("results of schema {0}; this program reads up to {SCHEMA}: take a newer one")]
    Schema(u32),
    /// Invalid JSON, or results that JSON cannot represent.
    #[error("these are not results of the lab in JSON; give a results.json as the lab wrote it")]
    Json(#[source] serde_json::Error),
    /// Invalid number in a point.
    #[error(transparent)]
    Point(#[from] PointError),
    /// Invalid number in a transfer or a file copy.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

//! Errors of reading and writing results.

use std::io;
use std::path::PathBuf;

use super::results::{PointError, SCHEMA};
use super::transfer::TransferError;

/// Failure to write or read results.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder could not be created.
    #[error("cannot create the folder {dir}; choose a writable location")]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {file}; choose a writable location with free space")]
    File {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {file}; give the folder of a run, as listed by `shunt lab history`")]
    Read {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Results of a newer program version.
    #[error("results have schema {0}, newer than {SCHEMA}; update this program")]
    Schema(u32),
    /// Invalid JSON, or results that JSON cannot represent.
    #[error("invalid results; expected a results.json of the lab")]
    Json(#[source] serde_json::Error),
    /// Invalid number in a point.
    #[error(transparent)]
    Point(#[from] PointError),
    /// Invalid number in a transfer or a file copy.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

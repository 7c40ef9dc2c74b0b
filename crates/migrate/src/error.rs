//! Errors of a migration.

use std::fmt;

use host::qmp::QmpError;
use model::state::{Problem, Problems};

use super::printable::printable;

/// Error of a migration or of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrateError {
    /// Caused by the user's input.
    Refused(Problems),
    /// Caused by the machine: cause and remedy.
    Failed(String),
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrateError::Refused(problems) => problems.fmt(f),
            MigrateError::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for MigrateError {}

impl MigrateError {
    pub(super) fn new(text: impl Into<String>) -> MigrateError {
        MigrateError::Failed(text.into())
    }
}

impl From<Problem> for MigrateError {
    fn from(problem: Problem) -> MigrateError {
        MigrateError::Refused(problem.into())
    }
}

impl From<QmpError> for MigrateError {
    fn from(error: QmpError) -> MigrateError {
        let cause = std::error::Error::source(&error);
        let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
        MigrateError::new(printable(&format!("{error}{cause}")))
    }
}

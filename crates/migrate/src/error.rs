//! Errors of a migration.

use std::fmt;

use host::qmp::QmpError;

use super::printable::printable;

/// Error of a migration or of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrateError {
    /// Cause and remedy.
    pub(super) text: String,
    /// Caused by the user's input, not by the machine.
    pub is_usage_error: bool,
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for MigrateError {}

impl MigrateError {
    pub(super) fn new(text: impl Into<String>) -> MigrateError {
        MigrateError { text: text.into(), is_usage_error: false }
    }

    pub(super) fn usage(text: impl Into<String>) -> MigrateError {
        MigrateError { text: text.into(), is_usage_error: true }
    }
}

impl From<QmpError> for MigrateError {
    fn from(error: QmpError) -> MigrateError {
        let cause = std::error::Error::source(&error);
        let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
        MigrateError::new(printable(&format!("{error}{cause}")))
    }
}

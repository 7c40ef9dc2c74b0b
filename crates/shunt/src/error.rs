//! Usage errors.

use model::config::ConfigErrors;

/// Error in the command line or a file: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

impl From<ConfigErrors> for UsageError {
    fn from(errors: ConfigErrors) -> UsageError {
        UsageError(errors.to_string())
    }
}

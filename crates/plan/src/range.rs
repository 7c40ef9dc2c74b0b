//! Allowed ranges of values in files.

use std::ops::RangeInclusive;

/// Allowed cores of a guest or host.
pub const CORES: RangeInclusive<f64> = 0.001..=1024.0;
/// Allowed guest cycles for a frame.
pub(crate) const CYCLES: RangeInclusive<f64> = 1.0..=1e9;
/// Allowed frame rates, in million frames per second.
pub(crate) const MPPS: RangeInclusive<f64> = 1e-9..=1e5;

/// Value out of range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{of}: {field} = {value}: allowed are {allowed}")]
pub struct ValueError {
    /// Object with the value, e.g. `host "rack"`.
    pub of: String,
    /// Field.
    pub field: &'static str,
    /// Given value.
    pub value: String,
    /// Allowed values.
    pub allowed: String,
}

/// Checks that a value is within a range.
pub(crate) fn check_range(
    of: &str,
    field: &'static str,
    value: impl Into<f64>,
    range: RangeInclusive<f64>,
) -> Result<(), ValueError> {
    let value = value.into();
    if range.contains(&value) {
        return Ok(());
    }
    let allowed = format!("{} to {}", range.start(), range.end());
    Err(ValueError { of: of.to_owned(), field, value: value.to_string(), allowed })
}

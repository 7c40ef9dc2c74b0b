//! Figures of files, and what they may be.

use std::ops::RangeInclusive;

/// Cores that a guest or a host may have.
pub const CORES: RangeInclusive<f64> = 0.001..=1024.0;
/// Cycles that a frame may cost a guest.
pub(crate) const CYCLES: RangeInclusive<f64> = 1.0..=1e9;
/// Million frames a second that may be wanted.
pub(crate) const MPPS: RangeInclusive<f64> = 1e-9..=1e5;

/// A figure that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{of} has {field} = {value}: {allowed} are possible")]
pub struct ValueError {
    /// Whose.
    pub of: String,
    /// Which.
    pub field: &'static str,
    /// What it is.
    pub value: String,
    /// What it may be.
    pub allowed: String,
}

/// Checks that a number is one that it may be.
pub(crate) fn within(
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

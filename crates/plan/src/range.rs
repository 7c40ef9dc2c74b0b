//! Allowed ranges of values in files.

use std::ops::RangeInclusive;

use model::state::{Problem, Problems};

/// Allowed cores of a guest or host.
pub const CORES: RangeInclusive<f64> = 0.001..=1024.0;
/// Allowed guest cycles for a frame.
pub(crate) const CYCLES: RangeInclusive<f64> = 1.0..=1e9;
/// Allowed frame rates, in million frames per second.
pub(crate) const MPPS: RangeInclusive<f64> = 1e-9..=1e5;

/// Checks that a value is within a range; `of` is the object with the value, such as `host rack`.
pub(crate) fn check_range(
    of: &str,
    field: &str,
    value: impl Into<f64>,
    range: RangeInclusive<f64>,
) -> Result<(), Problems> {
    let value = value.into();
    if range.contains(&value) {
        return Ok(());
    }
    Err(Problem::out_of_range(field, value, range.start(), range.end()).of(of).into())
}

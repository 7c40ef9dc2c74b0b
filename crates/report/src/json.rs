//! Results as JSON: a file for a run, one line for a point.

use serde::Deserialize;

use super::error::ReportError;
use super::results::{FileCopy, Point, Receive, Results, SCHEMA, Transfer};

/// One point as one line without line end, as in `shunt lab run --json`.
///
/// # Errors
/// An invalid number ([`Point::check`]).
pub fn point(point: &Point) -> Result<String, ReportError> {
    point.check()?;
    serde_json::to_string(point).map_err(ReportError::Json)
}

/// A whole run, indented, as in `results.json`.
///
/// # Errors
/// An invalid number ([`Point::check`]).
pub fn results(results: &Results) -> Result<String, ReportError> {
    check(results)?;
    let text = serde_json::to_string_pretty(results).map_err(ReportError::Json)?;
    Ok(text + "\n")
}

/// Reads the output of [`results()`].
///
/// # Errors
/// Invalid JSON, or an invalid number.
pub fn read(text: &str) -> Result<Results, ReportError> {
    /// The version field, common to the results of all program versions.
    #[derive(Deserialize)]
    struct Format {
        #[serde(default)]
        schema: u32,
    }
    let format: Format = serde_json::from_str(text).map_err(ReportError::Json)?;
    if format.schema > SCHEMA {
        return Err(ReportError::Schema(format.schema));
    }
    let results: Results = serde_json::from_str(text).map_err(ReportError::Json)?;
    check(&results)?;
    Ok(results)
}

/// JSON Schema of `results.json`.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Results);
    serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"
}

fn check(results: &Results) -> Result<(), ReportError> {
    results.points.iter().try_for_each(Point::check)?;
    results.receives.iter().try_for_each(Receive::check)?;
    results.copies.iter().try_for_each(FileCopy::check)?;
    Ok(results.transfers.iter().try_for_each(Transfer::check)?)
}

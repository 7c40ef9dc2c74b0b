//! `shunt plan validate`: accuracy of the model.

use std::error::Error;
use std::path::{Path, PathBuf};

use anyhow::Result;
use model::state::Problem;
use plan::path::PlannedPath;
use plan::validate::{Errors, Measured, ValidateError, Validation};
use report::json;

use super::input::{of_file, read, write_new};
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{print, table, wrapped};

/// Fit the model to points of few guests, and compare its predictions with points of many.
///
/// The points are nfv-2017's 180, or those of a run of `shunt lab` on this machine or another.
#[derive(Debug, clap::Args)]
#[command(add = Title("accuracy of the planner against measurements"))]
#[command(after_help = "\
Examples:
  shunt plan validate                     fitted to points of 1 to 4 guests, predicts 5 to 8
  shunt plan validate --fit-guests 8      fitted to all points: the profiles' parameters
  shunt plan validate --json              each point, and each parameter with its interval
  shunt plan validate --from lab-results/2026-11-21T19-44-16Z-vm --fit-guests 2
  shunt plan validate --from lab-results/... --fit-guests 2 --write here.toml
  shunt plan --workload chain.toml --host here.toml")]
pub(super) struct Validate {
    /// Fit to the points with at most so many guests.
    #[arg(long, default_value_t = 4, value_name = "N")]
    fit_guests: u32,
    /// Directory of `shunt lab`, or its results.json, instead of the published points.
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Write the host's profile with the fitted parameters.
    #[arg(long, value_name = "FILE", requires = "from")]
    write: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Validate {
    pub(super) fn run(self) -> Result<()> {
        let measured = match &self.from {
            None => Measured::published()?,
            Some(from) => {
                let path = if from.is_dir() { from.join("results.json") } else { from.clone() };
                let mistake = |error: &dyn std::fmt::Display| {
                    let remedy = "name the results of another run";
                    of_file(&path, Problem::new("", (), error.to_string(), remedy))
                };
                let results =
                    json::read(&read(&path, "--from")?).map_err(|error| mistake(&error))?;
                Measured::lab(&results).map_err(|error| mistake(&error))?
            }
        };
        let (validation, machine) = match measured.validate(self.fit_guests) {
            Err(ValidateError::Guests(guests, most)) => {
                return Err(UsageError::out_of_range("--fit-guests", guests, 2, most).into());
            }
            Err(error @ ValidateError::Fit(_)) => {
                let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
                let remedy = "measure more points";
                let problem = Problem::new("", (), format!("{error}{cause}"), remedy);
                let from = self.from.as_deref().unwrap_or(Path::new("the published points"));
                return Err(of_file(from, problem).into());
            }
            other => other?,
        };
        if let Some(to) = &self.write {
            write_new(to, &toml::to_string(&machine.host)?)?;
        }
        let text = match self.json {
            true => serde_json::to_string_pretty(&validation)? + "\n",
            false => people(&validation),
        };
        Ok(print(&text)?)
    }
}

fn people(validation: &Validation) -> String {
    let row = |name: &str, errors: &Errors| {
        let Errors { points, median_error_pct, worst_error_pct } = errors;
        let percent = |value: &f64| format!("{value:.1} %");
        [name.to_owned(), points.to_string(), percent(median_error_pct), percent(worst_error_pct)]
    };
    let Validation { predicted, fit_guests, guests_max, left_out, .. } = validation;
    let Validation { fitted, all, paths, parameters, list, .. } = validation;
    let to = format!("1 to {fit_guests} guests (fitted)");
    let mut rows = vec![row(&to, fitted)];
    if fit_guests < guests_max {
        rows.push(row(
            &format!("{} to {guests_max} guests (predicted)", fit_guests + 1),
            predicted,
        ));
    }
    let of = |(path, errors): &(PlannedPath, Errors)| {
        row(&format!("of these on path {}", path.with_measured()), errors)
    };
    rows.extend(paths.iter().map(of));
    rows.push(row("all", all));
    let mut text = table(["POINTS OF", "COUNT", "MEDIAN ERROR", "WORST"], rows);
    if *left_out > 0 {
        text += "\n";
        text += &wrapped(&format!("{left_out} more are excluded: the CPUs' distance differed."));
    }
    let row = |estimate: &plan::fit::Estimate| {
        let interval = estimate.interval.map_or_else(
            || "not determined by these points".to_owned(),
            |(low, high)| format!("{low:.4} to {high:.4}"),
        );
        let name = serde_json::to_value(estimate.parameter);
        let name = name.ok().and_then(|name| Some(name.as_str()?.to_owned()));
        [name.unwrap_or_default(), format!("{:.4}", estimate.value), interval]
    };
    text += "\n";
    text += &table(["PARAMETER", "VALUE", "WITH 95 %"], parameters.iter().map(row).collect());
    let far: Vec<_> = list.iter().filter(|one| one.is_unexplained()).collect();
    let row = |one: &&plan::validate::PointComparison| {
        [
            format!(
                "{} {} {} B, {}",
                one.pattern,
                one.path.with_measured(),
                one.frame_bytes,
                one.guests
            ),
            format!("{:.2}", one.measured_mpps),
            format!("{:.2}", one.predicted_mpps),
            format!("{:+.1} %", one.error_pct),
        ]
    };
    text += &format!("\nNot explained, with possible causes ({}):\n\n", far.len());
    text += &table(["POINT", "MEASURED", "PREDICTED", "ERROR"], far.iter().map(row).collect());
    let mut told = Vec::new();
    for one in far {
        let Some(hypothesis) = one.hypothesis else { continue };
        let cause = (one.pattern, one.path, one.frame_bytes, hypothesis);
        if !told.contains(&cause) {
            told.push(cause);
        }
    }
    for (pattern, path, bytes, hypothesis) in told {
        text += "\n";
        text += &wrapped(&format!("{pattern} {} {bytes} B: {hypothesis}", path.with_measured()));
    }
    text
}

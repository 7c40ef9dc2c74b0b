//! Experiment files: information for the reader, and tables of measurements.
//!
//! A table is a sweep: every combination of its lists is measured. Its kind is a kind of load. A
//! Rust file here has the settings of the kind, and one in the crate `lab` measures it. The files
//! in `lab/experiments` are part of the program.
//!
//! A [`SettingOverride`] replaces a setting in all tables that have it, before any check, so an
//! [`Experiment`] fully determines the measurements.

use std::fmt::Display;

use model::config::of_toml;
use model::state::{Problem, Problems, Remedy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::PathKind;

mod copy;
mod forward;
mod receive;
#[cfg(test)]
mod tests;
mod transfer;

pub use self::copy::CopySweep;
pub use self::forward::ForwardSweep;
pub use self::receive::ReceiveSweep;
pub use self::transfer::TransferSweep;

/// Built-in experiments: name, and text of the file.
pub const SHIPPED: [(&str, &str); 7] = [
    ("quick", include_str!("../../../../lab/experiments/quick.toml")),
    ("nfv", include_str!("../../../../lab/experiments/nfv.toml")),
    ("netperf", include_str!("../../../../lab/experiments/netperf.toml")),
    ("vmdq", include_str!("../../../../lab/experiments/vmdq.toml")),
    ("hyperv", include_str!("../../../../lab/experiments/hyperv.toml")),
    ("ntttcp", include_str!("../../../../lab/experiments/ntttcp.toml")),
    ("vpf", include_str!("../../../../lab/experiments/vpf.toml")),
];

/// Settings on which published values depend; with other values they are not compared.
const PUBLISHED_FOR: [&str; 3] = ["patterns", "guests", "frame_bytes"];

/// Kinds of tables.
const SWEEPS: [&str; 4] = ["forward", "transfer", "receive", "copy"];

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name: letters, digits and `-`.
    pub name: String,
    /// Short description of the measurement.
    pub title: String,
    /// Paper with the original experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// The question that it answers.
    pub question: String,
    /// Reasons why values here differ from the paper's, a sentence or two each.
    #[serde(default)]
    pub differs: Vec<String>,
    /// Sweeps of forwarded frames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<ForwardSweep>,
    /// Sweeps of TCP and UDP between guests' kernels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfer: Vec<TransferSweep>,
    /// Sweeps of frames that guests only receive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receive: Vec<ReceiveSweep>,
    /// Sweeps of file copies from a server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy: Vec<CopySweep>,
}

/// A table of an experiment file.
trait Sweep {
    /// Checks its values.
    ///
    /// # Errors
    /// The setting that is wrong.
    fn check(&self) -> Result<(), Problems>;
}

/// A setting that replaces the value in all tables.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingOverride {
    /// Name of the setting, as in the file.
    pub key: &'static str,
    /// Its new value.
    pub value: Value,
}

impl Experiment {
    /// Text of the built-in experiment of this name.
    pub fn shipped(name: &str) -> Option<&'static str> {
        SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text)
    }

    /// Parses a file, and applies `changes`.
    ///
    /// # Errors
    /// A mistake in the text, or a setting that no table has, with the line if known.
    pub fn parse(text: &str, changes: &[SettingOverride]) -> Result<Experiment, Problems> {
        // Parses the original text, so that errors have line numbers.
        let experiment: Experiment = toml::from_str(text).map_err(|error| of_toml(text, &error))?;
        if changes.is_empty() {
            return experiment.checked();
        }
        let mut whole: Table = toml::from_str(text).map_err(|error| of_toml(text, &error))?;
        for change in changes {
            let mut changed = false;
            for table in sweeps(&mut whole) {
                let Some(value) = table.get_mut(change.key) else { continue };
                let is_other = *value != change.value;
                *value = change.value.clone();
                changed = true;
                if is_other && PUBLISHED_FOR.contains(&change.key) {
                    table.remove("published");
                }
            }
            if !changed {
                let name = whole.get("name").and_then(Value::as_str).unwrap_or("this one");
                let message = format!("is no setting of experiment {name}");
                return Err(Problem::new(change.key, (), message, "leave it out").into());
            }
        }
        let mut experiment: Experiment = whole.try_into().map_err(|error| of_toml("", &error))?;
        // Merges tables that differed only in an overridden setting.
        experiment.receive.dedup_by(|next, kept| {
            let of = |sweep: &ReceiveSweep| ReceiveSweep { published: None, ..sweep.clone() };
            let is_same = of(next) == of(kept);
            if is_same {
                kept.published = kept.published.or(next.published);
            }
            is_same
        });
        experiment.checked()
    }

    /// Paths of tables that name them.
    pub fn paths(&self) -> impl Iterator<Item = PathKind> {
        let forward = self.forward.iter().map(|sweep| &sweep.paths);
        forward.chain(self.transfer.iter().map(|sweep| &sweep.paths)).flatten().copied()
    }

    /// The experiment without the paths that this machine lacks.
    #[must_use]
    pub fn on_paths(mut self, available: &[PathKind]) -> Experiment {
        let forward = self.forward.iter_mut().map(|sweep| &mut sweep.paths);
        let transfer = self.transfer.iter_mut().map(|sweep| &mut sweep.paths);
        forward.chain(transfer).for_each(|paths| paths.retain(|path| available.contains(path)));
        self
    }

    /// Tables in the order of measurement, each with the name of its kind.
    fn sweeps(&self) -> impl Iterator<Item = (&'static str, &dyn Sweep)> {
        fn of<'a, S: Sweep>(
            kind: &'static str,
            tables: &'a [S],
        ) -> impl Iterator<Item = (&'static str, &'a dyn Sweep)> {
            tables.iter().map(move |table| (kind, table as &dyn Sweep))
        }
        let [forward, transfer, receive, copy] = SWEEPS;
        of(forward, &self.forward)
            .chain(of(transfer, &self.transfer))
            .chain(of(receive, &self.receive))
            .chain(of(copy, &self.copy))
    }

    fn checked(self) -> Result<Experiment, Problems> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(allowed) {
            let remedy = "use letters, digits and hyphens";
            return Err(
                Problem::new("name", &*self.name, "is no name of an experiment", remedy).into()
            );
        }
        let mut found = 0;
        for (kind, sweep) in self.sweeps() {
            sweep.check().map_err(|problems| problems.of(&format!("[[{kind}]]")))?;
            found += 1;
        }
        match found {
            0 => {
                let kinds = SWEEPS.join(", ");
                let remedy = Remedy::choose(format!("add a table of {kinds}"), kinds);
                Err(Problem::new("", (), "there are no measurements", remedy).into())
            }
            _ => Ok(self),
        }
    }
}

/// JSON Schema of the files.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Experiment);
    serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"
}

/// Sweep tables of a file.
fn sweeps(whole: &mut Table) -> impl Iterator<Item = &mut Table> {
    let tables = whole.iter_mut().filter(|(key, _)| SWEEPS.contains(&key.as_str()));
    let tables = tables.filter_map(|(_, value)| value.as_array_mut()).flatten();
    tables.filter_map(Value::as_table_mut)
}

/// Checks that a list is not empty and has no duplicates.
fn check_list<T: PartialEq + Display>(key: &str, list: &[T]) -> Result<(), Problems> {
    if list.is_empty() {
        return Err(Problem::new(key, (), "the list is empty", "give at least one value").into());
    }
    match (1..list.len()).find(|at| list[..*at].contains(&list[*at])) {
        Some(at) => {
            let value = list[at].to_string();
            Err(Problem::new(key, value, "is there twice", "leave one of the two out").into())
        }
        None => Ok(()),
    }
}

/// Checks the list, and the range of every number.
fn check_numbers<T: PartialOrd + Display + Copy + Into<serde_json::Value>>(
    key: &str,
    list: &[T],
    [least, most]: [T; 2],
) -> Result<(), Problems> {
    check_list(key, list)?;
    match list.iter().find(|value| !(**value >= least && **value <= most)) {
        Some(value) => Err(Problem::out_of_range(key, *value, least, most).into()),
        None => Ok(()),
    }
}

/// Checks published values.
fn check_published(figures: impl IntoIterator<Item = f64>) -> Result<(), Problems> {
    match figures.into_iter().find(|figure| !(figure.is_finite() && *figure > 0.0)) {
        Some(figure) => {
            let remedy = Remedy::choose("write a number above 0", "a number above 0");
            Err(Problem::new("published", figure.to_string(), "is no measured value", remedy)
                .into())
        }
        None => Ok(()),
    }
}

/// Checks the times and rounds common to all sweeps.
fn check_times(rounds: usize, times: &[(&str, f64)]) -> Result<(), Problems> {
    check_numbers("rounds", &[rounds], [1, 100])?;
    times.iter().try_for_each(|(key, seconds)| check_numbers(key, &[*seconds], [0.1, 3600.0]))
}

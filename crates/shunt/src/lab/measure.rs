//! `shunt lab NAME`, `list`, `show`, `resume` and `history`: experiment files.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, ValueEnum};
use lab::experiment::runner::{self, RunResult, Runner};
use lab::experiment::step::{Machine, steps};
use model::config::{SourceFile, of_toml};
use model::state::{Problem, Problems, Remedy};
use model::suggest::nearest;
use report::experiment::{self, Experiment, SHIPPED, SettingOverride};
use report::{self, PathKind, Pattern, Results};
use serde_json::{Value, json};

use super::common::{IncompleteRun, program};
use crate::complete;
use crate::error::{UsageError, of_command_line, suggestion};
use crate::pages::Title;
use crate::text::{cell, of_stdout, print, table, wrapped};

/// Options that override a setting of the file, with its name there.
const SETTINGS: [(&str, &str); 6] = [
    ("--path", "paths"),
    ("--pattern", "patterns"),
    ("--guests", "guests"),
    ("--frame", "frame_bytes"),
    ("--rounds", "rounds"),
    ("--seconds", "seconds"),
];

/// Default directory of reports.
const OUT: &str = "lab-results";

/// Measure an experiment of a file.
///
/// `shunt lab list` names those of this program; the name of a file of your own ends in .toml.
/// `shunt lab show NAME` prints a file to start from.
#[derive(Debug, Parser)]
#[command(
    name = "shunt lab",
    bin_name = "shunt lab",
    disable_version_flag = true,
    after_help = "\
Examples:
  shunt lab nfv --frame 64 --guests 1,2,4
  shunt lab ntttcp --path virtio --seconds 60 --rounds 1     as long as in the paper
  shunt lab vmdq --rounds 7 --json
  shunt lab ./mine.toml --out results"
)]
pub(super) struct Named {
    /// Name of an experiment, or a file name that ends in .toml.
    #[arg(value_name = "NAME|FILE")]
    name: String,
    #[command(flatten)]
    measure: Measure,
}

/// Settings that override those of the file.
#[derive(Debug, Default, Args)]
pub(super) struct Measure {
    #[arg(
        long = "path",
        value_name = "PATH",
        value_delimiter = ',',
        help = PathKind::MEANING,
        add = complete::path()
    )]
    paths: Vec<PathKind>,
    /// Patterns: north-south, east-west.
    #[arg(long = "pattern", value_name = "PATTERN", value_delimiter = ',', add = complete::pattern())]
    patterns: Vec<Pattern>,
    /// Numbers of guests.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    guests: Vec<u32>,
    /// Frame sizes with FCS, bytes.
    #[arg(long = "frame", value_name = "BYTES", value_delimiter = ',')]
    frames: Vec<u32>,
    /// Rounds of each measurement.
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Seconds of each measurement.
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Directory in which to make the report's directory.
    #[arg(long, default_value = OUT, value_name = "DIR")]
    out: PathBuf,
    /// Print the results as one JSON object, as in results.json.
    #[arg(long)]
    json: bool,
}

impl Measure {
    /// Runs an experiment with these settings.
    pub(super) fn run(self, name: &str) -> Result<()> {
        let text = text_of(name)?;
        let changes = self.changes();
        let experiment = Experiment::parse(&text, &changes);
        let experiment =
            experiment.map_err(|problems| of_options(&changes, of_file(name, problems)))?;
        self.with(|runner| runner::run(runner, experiment))
    }

    fn with(&self, run: impl FnOnce(&Runner<'_>) -> Result<RunResult>) -> Result<()> {
        let ran = run(&Runner {
            machine: Machine { program: &program()?, cpus: host::cpu::allowed() },
            out: &self.out,
            rustc: env!("SHUNT_RUSTC"),
            version: env!("CARGO_PKG_VERSION"),
        })?;
        match self.json {
            true => print(&report::json::results(&ran.results)?)?,
            false => print(&shown(&ran.results, &ran.dir))?,
        }
        match ran.failure {
            None => Ok(()),
            Some(error) => Err(error.context(IncompleteRun(ran.dir))),
        }
    }

    fn changes(&self) -> Vec<SettingOverride> {
        let words = |words: Vec<String>| (!words.is_empty()).then(|| words.into());
        let numbers = |list: &[u32]| {
            (!list.is_empty())
                .then(|| list.iter().map(|n| i64::from(*n)).collect::<Vec<_>>().into())
        };
        let values: [Option<toml::Value>; 6] = [
            words(self.paths.iter().map(PathKind::to_string).collect()),
            words(self.patterns.iter().map(Pattern::to_string).collect()),
            numbers(&self.guests),
            numbers(&self.frames),
            self.rounds.map(|rounds| i64::from(rounds).into()),
            self.seconds.map(Into::into),
        ];
        let change = |((_, key), value): ((_, &'static str), Option<toml::Value>)| {
            value.map(|value| SettingOverride { key, value })
        };
        SETTINGS.into_iter().zip(values).filter_map(change).collect()
    }
}

/// Runs `shunt lab NAME ...`, an external subcommand for clap.
pub(super) fn named(words: Vec<OsString>) -> Result<()> {
    let words: Vec<OsString> = std::iter::once("shunt lab".into()).chain(words).collect();
    // Help and usage errors end the program here, as in clap.
    match Named::try_parse_from(&words) {
        Ok(Named { name, measure }) => measure.run(&name),
        Err(error) if error.use_stderr() && words.iter().any(|word| word == "--json") => {
            Err(UsageError(of_command_line(&error).into()).into())
        }
        Err(error) => error.exit(),
    }
}

/// Text of a shipped experiment, or of a file.
fn text_of(name: &str) -> Result<String> {
    if let Some(text) = Experiment::shipped(name) {
        return Ok(text.to_owned());
    }
    if !name.ends_with(".toml") {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let remedy = format!(
            "write {names}, or a file whose name ends in .toml; shunt lab --help lists the commands"
        );
        let meant = nearest(name, SHIPPED.map(|(name, _)| name));
        let remedy = meant.map_or(remedy.clone(), |meant| suggestion(meant, &remedy));
        let remedy = Remedy::choose(remedy, names);
        let message = "is no experiment and no command";
        return Err(UsageError::option("<NAME>", name, message, remedy).into());
    }
    let file = SourceFile::read(Path::new(name), "<NAME>").map_err(UsageError::from)?;
    Ok(file.text().to_owned())
}

/// Problems of an experiment, with the name of its file unless it is a shipped one.
fn of_file(name: &str, problems: Problems) -> UsageError {
    let is_shipped = Experiment::shipped(name).is_some();
    UsageError(if is_shipped { problems } else { problems.in_file(name) })
}

/// Mistakes in settings that an option overrides are the option's, not the file's.
fn of_options(changes: &[SettingOverride], UsageError(mut problems): UsageError) -> UsageError {
    for problem in &mut problems.problems {
        let is_it = |(_, key): &&(&str, &str)| {
            *key == problem.field && changes.iter().any(|change| change.key == *key)
        };
        if let Some((option, _)) = SETTINGS.iter().find(is_it) {
            (problem.file, problem.object) = Default::default();
            (*option).clone_into(&mut problem.field);
        }
    }
    UsageError(problems)
}

/// List the experiments of this program.
#[derive(Debug, Args)]
#[command(add = Title("table of experiments"))]
#[command(after_help = "\
Example:
  shunt lab list")]
pub(super) struct List {
    /// Print a list of objects.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(&self) -> Result<()> {
        let mut all = Vec::new();
        for (name, file) in SHIPPED {
            let experiment = Experiment::parse(file, &[]).map_err(UsageError::from)?;
            let (paper, title) = (&experiment.paper, &experiment.title);
            let steps = steps(&experiment).len();
            all.push(json!({"name": name, "paper": paper, "steps": steps, "title": title}));
        }
        if self.json {
            return Ok(print(&format!("{:#}\n", Value::from(all)))?);
        }
        let rows =
            all.iter().map(|one| ["name", "paper", "steps", "title"].map(|it| cell(&one[it])));
        Ok(print(&table(["experiment", "paper", "steps", "title"], rows.collect()))?)
    }
}

/// Print an experiment file, or the JSON Schema of experiment files or of results.
#[derive(Debug, Args)]
#[command(add = Title("experiment file, or a JSON Schema"))]
#[command(after_help = "\
Examples:
  shunt lab show nfv > mine.toml
  shunt lab show --schema experiment > experiment.schema.json")]
pub(super) struct Show {
    /// Name of an experiment.
    #[arg(value_name = "NAME", required_unless_present = "schema", add = complete::words(SHIPPED.map(|(name, _)| name)))]
    name: Option<String>,
    /// Print a JSON Schema: experiment (experiment files), results (results.json).
    #[arg(long, value_name = "OF", conflicts_with = "name")]
    schema: Option<Schema>,
    /// Print the experiment as one JSON object, as a schema is.
    #[arg(long)]
    json: bool,
}

/// Available JSON Schemas.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Schema {
    Experiment,
    Results,
}

impl Show {
    pub(super) fn run(self) -> Result<()> {
        let text = match (self.name, self.schema) {
            (Some(name), _) if self.json => {
                let text = text_of(&name)?;
                let mistake = |error| of_file(&name, of_toml(&text, &error).into());
                format!("{:#}\n", toml::from_str::<Value>(&text).map_err(mistake)?)
            }
            (Some(name), _) => text_of(&name)?,
            (None, Some(Schema::Results)) => report::json::schema(),
            (None, _) => experiment::schema(),
        };
        Ok(print(&text)?)
    }
}

/// Resume a run that ended before its last step.
///
/// Measures the remaining steps, in the same directory, and writes the report again.
#[derive(Debug, Args)]
#[command(add = Title("continuation of an interrupted run"))]
#[command(after_help = "\
Example:
  shunt lab resume lab-results/2026-03-01T09-30-00Z-lab1")]
pub(super) struct Resume {
    /// Directory of the run.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print the results as one JSON object, as in results.json.
    #[arg(long)]
    json: bool,
}

impl Resume {
    pub(super) fn run(self) -> Result<()> {
        if !self.dir.join(report::RESULTS).is_file() {
            let remedy = Remedy::choose(
                "give the directory of a run, as `shunt lab history` lists them",
                "the directory of a run",
            );
            let problem = Problem::of_path("<DIR>", &self.dir, "has no results of a run", remedy);
            return Err(UsageError::from(problem).into());
        }
        let (out, json) = (self.dir.clone(), self.json);
        let measure = Measure { out, json, ..Measure::default() };
        measure.with(|runner| runner::resume(runner, &self.dir))
    }
}

/// List the runs whose reports are in a directory, oldest first.
///
/// For each: begin, experiment, steps measured and total, directory and command.
#[derive(Debug, Args)]
#[command(add = Title("table of earlier runs"))]
#[command(after_help = "\
Example:
  shunt lab history")]
pub(super) struct History {
    /// Directory of the reports.
    #[arg(long, default_value = OUT, value_name = "DIR")]
    out: PathBuf,
    /// Print a list of objects.
    #[arg(long)]
    json: bool,
}

impl History {
    pub(super) fn run(self) -> Result<()> {
        let mut dirs: Vec<PathBuf> = match std::fs::read_dir(&self.out) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => {
                let entries =
                    entries.with_context(|| format!("cannot read {}", self.out.display()));
                entries?.flatten().map(|entry| entry.path()).collect()
            }
        };
        dirs.sort();
        dirs.retain(|dir| dir.join(report::RESULTS).exists());
        let runs: Vec<Value> = dirs.iter().map(|dir| described(dir)).collect();
        if self.json {
            return Ok(print(&format!("{:#}\n", Value::from(runs)))?);
        }
        if runs.is_empty() {
            let out = self.out.display();
            return Ok(print(&format!("No runs in {out}: shunt lab makes one.\n"))?);
        }
        let row = |run: &Value| {
            let done = format!("{}/{}", cell(&run["steps_done"]), cell(&run["steps"]));
            let [started, experiment, dir] =
                ["started", "experiment", "directory"].map(|it| cell(&run[it]));
            let told = if run["error"].is_null() { "command" } else { "error" };
            [started, experiment, done, dir, cell(&run[told])]
        };
        let header = ["begin", "experiment", "steps", "directory", "command"];
        Ok(print(&table(header, runs.iter().map(row).collect()))?)
    }
}

/// A run; null is a field that its directory does not tell.
fn described(dir: &Path) -> Value {
    let shown = dir.display().to_string();
    let mut run = json!({"started": null, "experiment": null, "steps_done": null, "steps": null,
        "directory": shown, "command": null, "error": null});
    match report::read(dir) {
        Ok(results) => {
            let experiment = results.experiment.as_ref();
            run["started"] = results.started.utc.into();
            run["experiment"] = experiment.map(|experiment| experiment.name.clone()).into();
            run["steps_done"] = results.steps_done.into();
            run["steps"] = experiment.map(|experiment| steps(experiment).len()).into();
            // The command tells whole experiments from parts.
            let words = results.command.split_ascii_whitespace();
            run["command"] = words.skip(1).collect::<Vec<_>>().join(" ").into();
        }
        Err(error) => run["error"] = format!("{:#}", anyhow::Error::from(error)).into(),
    }
    run
}

/// Results as text.
fn shown(results: &Results, dir: &Path) -> String {
    let (mut text, format) = (String::new(), of_stdout());
    if !results.points.is_empty() {
        text += &(report::table::all(&results.points, format) + "\n");
    }
    text += &report::by_band::text(&results.points, format);
    text += &report::transfer_table::all(&results.transfers, format);
    text += &report::receive::text(&results.receives, format);
    text += &report::copy_table::all(&results.copies, format);
    let answers = report::verdict::answers(&results.points);
    if !answers.is_empty() {
        text += "Which interface for my traffic?\n";
    }
    for (kind, answer) in answers {
        text += &wrapped(&format!("{}: {answer}.", kind.title()));
    }
    for (_, sentence) in report::verdict::all(&results.points) {
        text += &("\n".to_owned() + &wrapped(&sentence));
    }
    text.extend(report::copy_verdict::sentences(&results.copies).iter().map(|it| wrapped(it)));
    let beside = report::scaling::sentences(results);
    if !beside.is_empty() {
        text += "\nBeside the published figures, as ratios:\n";
    }
    text.extend(beside.iter().map(|sentence| wrapped(sentence)));
    let notes: Vec<&String> = results.ended_early.iter().chain(&results.notes).collect();
    text += "\n";
    text.extend(notes.into_iter().map(|note| wrapped(note)));
    text + &format!("\nReport: {}\n", dir.join("report.html").display())
}

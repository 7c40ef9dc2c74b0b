//! Runs an experiment step by step, keeps what is measured, and writes the report.
//!
//! Results are in the report's directory from the first seconds on, and written anew as they grow:
//! what ends a run (a signal, an error, a full disk) leaves those before it, and [`resume`] goes on
//! with the step after them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use host::MachineFacts;
use indicatif::{ProgressBar, ProgressStyle};

use super::file::Experiment;
use super::step::{Machine, Step};
use super::{copy, transfer};
use crate::bench::{arena, interrupt};
use crate::report::{self, PathKind, Results, Started};

/// Bytes that a report may take.
const REPORT_BYTES: usize = 4 << 20;
/// Time from one writing of results to the next.
const SAVE: Duration = Duration::from_secs(5);

/// Who runs an experiment, and where its report goes.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// Where it runs.
    pub machine: Machine<'a>,
    /// The directory in which the report's directory is made.
    pub out: &'a Path,
    /// The compiler, for the record.
    pub rustc: &'a str,
    /// The program's version, for the record.
    pub version: &'a str,
}

/// Results of a run.
#[derive(Debug)]
pub struct Ran {
    /// What was measured; a note tells if that is not all.
    pub results: Results,
    /// The report's directory.
    pub dir: PathBuf,
    /// Why the run ended before its last step, if it did.
    pub failure: Option<anyhow::Error>,
}

/// Measures an experiment and writes the report. If a step fails, the report has those before it.
///
/// # Errors
/// The first step fails, or the report cannot be written.
pub fn run(runner: &Runner<'_>, experiment: Experiment) -> Result<Ran> {
    std::fs::create_dir_all(runner.out).with_context(|| {
        format!("cannot make {}; choose another place with --out", runner.out.display())
    })?;
    check_room(runner.out)?;
    let started = Started::now();
    let (paths, left_out) = paths();
    let experiment = experiment.on_paths(&paths);
    let machine = MachineFacts::read(runner.rustc, runner.version);
    let host = machine.hostname.clone().unwrap_or_else(|| "unknown".into());
    let results = Results {
        schema: report::model::SCHEMA,
        version: runner.version.into(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started,
        machine: serde_json::to_value(&machine)?,
        notes: notes(&experiment, runner.machine.cpus).into_iter().chain(left_out).collect(),
        experiment: Some(experiment),
        steps_done: 0,
        ended_early: None,
        points: Vec::new(),
        transfers: Vec::new(),
        receives: Vec::new(),
        copies: Vec::new(),
    };
    let dir = runner.out.join(report::folder_name(results.started.unix_s, &host));
    measure(runner, results, dir)
}

/// Goes on with a run that ended early, in its own directory.
///
/// # Errors
/// The directory holds no results of an experiment, or those of a whole one; and those of [`run`].
pub fn resume(runner: &Runner<'_>, dir: &Path) -> Result<Ran> {
    let mut results = report::read(dir)?;
    check_room(dir)?;
    // As in `run`: before the first child is started.
    let (available, _) = paths();
    let experiment = results.experiment.as_ref().context("these results are of no experiment")?;
    let steps = experiment.steps().len();
    let lacks = experiment.clone().on_paths(&available) != *experiment;
    anyhow::ensure!(!lacks, "this machine, or this user, lacks a path that the run measured");
    let done = results.steps_done;
    if done >= steps {
        bail!("{}: all {steps} steps are measured already", dir.display());
    }
    results.ended_early = None;
    let when = Started::now().utc;
    results.notes.push(format!("Resumed after step {done} of {steps} at {when}."));
    measure(runner, results, dir.to_owned())
}

/// Measures the steps that are left.
fn measure(runner: &Runner<'_>, mut results: Results, dir: PathBuf) -> Result<Ran> {
    let steps = results.experiment.as_ref().map(Experiment::steps).unwrap_or_default();
    anyhow::ensure!(!steps.is_empty(), "this machine has none of the experiment's paths");
    let bar = ProgressBar::new(steps.len() as u64).with_position(results.steps_done as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {eta} left: {msg}")?);
    let (mut failure, mut saved) = (None, Instant::now());
    for step in &steps[results.steps_done..] {
        bar.set_message(step.title().to_owned());
        if let Err(error) = take(step, runner, &mut results) {
            failure = Some(error);
            break;
        }
        bar.inc(1);
        if saved.elapsed() >= SAVE {
            report::save(&dir, &results)?;
            saved = Instant::now();
        }
    }
    bar.finish_and_clear();
    if let Some(error) = failure.take_if(|_| results.steps_done == 0) {
        return Err(error);
    }
    results.ended_early = failure.as_ref().map(|error| {
        let done = results.steps_done;
        format!("NOT WHOLE: the run ended after {done} of {} steps: {error:#}.", steps.len())
    });
    report::write(&dir, &results)?;
    Ok(Ran { results, dir, failure })
}

fn take(step: &Step, runner: &Runner<'_>, results: &mut Results) -> Result<()> {
    interrupt::check()?;
    step.measure(&runner.machine)?.add_to(results);
    results.steps_done += 1;
    Ok(())
}

/// Checks that a report can be written, before the time is spent.
fn check_room(out: &Path) -> Result<()> {
    let checked = tempfile::tempfile_in(out)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &vec![1; REPORT_BYTES]));
    checked.with_context(|| {
        let (mib, out) = (REPORT_BYTES >> 20, out.display());
        format!("cannot write {mib} MiB to {out}")
    })
}

/// The paths that this machine has, and what is to be said of the others.
fn paths() -> (Vec<PathKind>, Vec<String>) {
    match arena::bridge() {
        Ok(_) => (PathKind::ALL.to_vec(), Vec::new()),
        Err(why) => {
            let note =
                format!("The path virtio, tap and bridge of the kernel, is left out: {why:#}.");
            (vec![PathKind::Vf, PathKind::Vhost], vec![note])
        }
    }
}

/// What a reader has to know of the figures.
fn notes(experiment: &Experiment, cpus: &[usize]) -> Vec<String> {
    let mut notes = Vec::new();
    match cpus {
        [] | [_] => notes.push("One CPU: switch, generator and guests took turns on it.".into()),
        [switch, rest] if !experiment.forward.is_empty() => notes.push(format!(
            "Two CPUs: the switch had CPU {switch}; the generator and all guests shared CPU {rest}. \
             On the path virtio the kernel is the switch, wherever frames are sent: there the \
             generator had CPU {switch}, and the guests CPU {rest}."
        )),
        _ => {}
    }
    if !experiment.transfer.is_empty() {
        notes.extend(transfer::notes(cpus));
    }
    if !experiment.copy.is_empty() {
        notes.extend(copy::notes(cpus));
    }
    notes
}

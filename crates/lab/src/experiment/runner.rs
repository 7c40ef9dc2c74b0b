//! Runs an experiment step by step, stores its results, and writes the report.
//!
//! Results are stored in the report's directory as they grow. If a signal, an error or a full disk
//! ends a run, the earlier results remain, and [`resume`] continues with the next step.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use host::MachineFacts;
use indicatif::{ProgressBar, ProgressStyle};
use report::experiment::Experiment;
use report::{self, PathKind, Results, Started};
use traffic::netns;

use super::forwarding::until_frames_pass;
use super::step::{Machine, Step, steps};
use super::{copy, transfer};
use crate::bench::interrupt;
use crate::measure::other_processes::OtherProcesses;

/// Maximum bytes of a report.
const REPORT_BYTES: usize = 4 << 20;
/// Interval of saving results.
const SAVE: Duration = Duration::from_secs(5);

/// Machine and output directory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Runner<'a> {
    /// Machine to run on.
    pub machine: Machine<'a>,
    /// Directory in which to make the report's directory.
    pub out: &'a Path,
    /// Compiler version, for the record.
    pub rustc: &'a str,
    /// Program version, for the record.
    pub version: &'a str,
}

/// Results of a run.
#[derive(Debug)]
pub struct RunResult {
    /// Measured results; a note says if they are incomplete.
    pub results: Results,
    /// Directory of the report.
    pub dir: PathBuf,
    /// Error that ended the run before its last step, if any.
    pub failure: Option<anyhow::Error>,
}

/// Measures an experiment and writes the report. If a step fails, the report has those before it.
///
/// # Errors
/// The first step fails, or the report cannot be written.
pub fn run(runner: &Runner<'_>, experiment: Experiment) -> Result<RunResult> {
    std::fs::create_dir_all(runner.out).with_context(|| {
        format!("cannot make {}; choose another directory with --out", runner.out.display())
    })?;
    check_room(runner.out)?;
    let started = Started::now();
    let (paths, left_out) = paths(&experiment);
    let experiment = experiment.on_paths(&paths);
    if steps(&experiment).is_empty() {
        bail!("no path to measure. {}", left_out.unwrap_or_default());
    }
    let machine = machine(runner)?;
    let host = machine["hostname"].as_str().unwrap_or("unknown").to_owned();
    let results = Results {
        schema: report::results::SCHEMA,
        version: runner.version.into(),
        command: command(),
        started,
        machine,
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

/// Resumes a run that ended early, in its own directory.
///
/// # Errors
/// The directory holds no results of an experiment, or complete ones; and those of [`run`].
pub fn resume(runner: &Runner<'_>, dir: &Path) -> Result<RunResult> {
    let mut results = report::read(dir)?;
    check_room(dir)?;
    // As in `run`: before the first child is started.
    let experiment = results.experiment.as_ref().context("these results have no experiment")?;
    let (available, left_out) = paths(experiment);
    let steps = steps(experiment).len();
    if experiment.clone().on_paths(&available) != *experiment {
        bail!("a path of this run is missing. {}", left_out.unwrap_or_default());
    }
    check_same_machine(&results.machine, &machine(runner)?)?;
    let done = results.steps_done;
    if done >= steps {
        bail!("{}: all {steps} steps are measured already", dir.display());
    }
    results.ended_early = None;
    let when = Started::now().utc;
    results.notes.push(format!("Resumed after step {done} of {steps} at {when}."));
    measure(runner, results, dir.to_owned())
}

/// Measures the remaining steps.
fn measure(runner: &Runner<'_>, mut results: Results, dir: PathBuf) -> Result<RunResult> {
    let steps = results.experiment.as_ref().map(steps).unwrap_or_default();
    let bar = ProgressBar::new(steps.len() as u64).with_position(results.steps_done as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} steps, {eta} left: {msg}")?);
    let (mut failure, mut saved) = (None, Instant::now());
    let others = OtherProcesses::on(runner.machine.cpus);
    for step in &steps[results.steps_done..] {
        bar.set_message(step.title().to_owned());
        if let Err(error) = take(step, runner, &mut results) {
            failure = Some(error);
            break;
        }
        bar.inc(1);
        if saved.elapsed() >= SAVE {
            // This save may be the last: a later one can fail.
            results.ended_early = Some(not_whole(&results, steps.len(), "for an unknown reason"));
            report::save(&dir, &results)?;
            saved = Instant::now();
        }
    }
    bar.finish_and_clear();
    results.notes.extend(others.shares().and_then(|shares| shares.note()));
    // An interrupt ends its processes: an error caused by that is not reported.
    failure = failure.map(|error| interrupt::check().err().unwrap_or(error));
    if let Some(error) = failure.take_if(|_| results.steps_done == 0) {
        return Err(error);
    }
    results.ended_early =
        failure.as_ref().map(|error| not_whole(&results, steps.len(), &format!("{error:#}")));
    report::write(&dir, &results)?;
    Ok(RunResult { results, dir, failure })
}

fn not_whole(results: &Results, steps: usize, why: &str) -> String {
    format!("INCOMPLETE: the run ended after {} of {steps} steps: {why}.", results.steps_done)
}

/// Command line, for the record.
fn command() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Facts of the machine and the program.
fn machine(runner: &Runner<'_>) -> Result<serde_json::Value> {
    Ok(serde_json::to_value(MachineFacts::read(runner.rustc, runner.version))?)
}

/// Checks that a run resumes on the same machine.
fn check_same_machine(then: &serde_json::Value, now: &serde_json::Value) -> Result<()> {
    const SAME: [&str; 6] = ["hostname", "cpu_model", "cpus_allowed", "kernel", "rustc", "version"];
    for name in SAME {
        let (then, now) = (&then[name], &now[name]);
        if then != now {
            bail!(
                "{name} was {then} when the run began and is {now}: a report covers one machine \
                 and program; begin a new run"
            );
        }
    }
    Ok(())
}

fn take(step: &Step, runner: &Runner<'_>, results: &mut Results) -> Result<()> {
    until_frames_pass(|| step.measure(&runner.machine))?.add_to(results);
    results.steps_done += 1;
    Ok(())
}

/// Checks that a report can be written, before measuring.
fn check_room(out: &Path) -> Result<()> {
    let checked = tempfile::tempfile_in(out)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &vec![1; REPORT_BYTES]));
    checked.with_context(|| {
        let (mib, out) = (REPORT_BYTES >> 20, out.display());
        format!("cannot write {mib} MiB to {out}; free disk space, or choose another directory with --out")
    })
}

/// Paths of the experiment that this machine has, and the reasons for missing ones.
fn paths(experiment: &Experiment) -> (Vec<PathKind>, Option<String>) {
    if experiment.paths().all(|path| path != PathKind::Virtio) {
        return (PathKind::ALL.to_vec(), None);
    }
    match netns::bridge() {
        Ok(_) => (PathKind::ALL.to_vec(), None),
        Err(why) => {
            let note =
                format!("The path virtio, tap and bridge of the kernel, is left out: {why:#}.");
            (vec![PathKind::Vf, PathKind::Vhost], Some(note))
        }
    }
}

/// Notes for a reader of the figures.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_goes_on_where_it_began() {
        let then = json!({ "hostname": "a", "cpus_allowed": 2, "kernel": null, "cpu_mhz": 1.0 });
        let mut now = then.clone();
        now["cpu_mhz"] = json!(2.0);
        assert!(check_same_machine(&then, &now).is_ok(), "the clock may move");
        now["cpus_allowed"] = json!(4);
        let error = check_same_machine(&then, &now).unwrap_err().to_string();
        assert!(error.starts_with("cpus_allowed was 2 when the run began and is 4"), "{error}");
    }
}

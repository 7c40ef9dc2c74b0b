//! `shunt lab`: all patterns, paths, frame sizes and numbers of guests in one run.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use host::MachineFacts;
use indicatif::{ProgressBar, ProgressStyle};

use super::forwarding::{self, PointSpec};
use crate::bench::{arena, interrupt};
use crate::report::{self, Load, PathKind, Pattern, Results, RingKind, Started};

/// Frame sizes with FCS.
const FRAMES: [u32; 3] = [64, 256, 1518];
/// Guests; a chain begins with two.
const GUESTS: [usize; 3] = [1, 2, 4];
/// Seconds before each slot's measurement.
const WARMUP_S: f64 = 0.1;

/// The slots of the suite, in the order of measurement: at each place the paths one after the other,
/// and then back, so that drift meets all of them alike.
pub fn slots(paths: &[PathKind], seconds: f64) -> Vec<PointSpec> {
    let (warmup_s, ring, load) = (WARMUP_S, RingKind::Split, Load::Closed);
    let mut slots = Vec::new();
    for pattern in Pattern::ALL {
        for vms in GUESTS {
            for frame_bytes in FRAMES {
                let there_and_back = paths.iter().chain(paths.iter().rev()).copied();
                let slot = |path| PointSpec {
                    pattern,
                    path,
                    vms,
                    frame_bytes,
                    warmup_s,
                    seconds,
                    ring,
                    load,
                };
                slots.extend(there_and_back.map(slot).filter(|slot| slot.check().is_ok()));
            }
        }
    }
    slots
}

/// Who runs the suite, and where its report goes.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Shunt itself.
    pub program: &'a Path,
    /// CPUs that may be used.
    pub cpus: &'a [usize],
    /// Seconds a point.
    pub seconds: f64,
    /// The directory in which the report's directory is made.
    pub out: &'a Path,
    /// The compiler, for the record.
    pub rustc: &'a str,
    /// The program's version, for the record.
    pub version: &'a str,
}

/// Bytes that a report may take.
const REPORT_BYTES: usize = 4 << 20;

/// Checks that a report can be written, before the time is spent.
fn check_room(out: &Path) -> Result<()> {
    let checked = tempfile::tempfile_in(out)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &vec![1; REPORT_BYTES]));
    checked.with_context(|| {
        let (mib, out) = (REPORT_BYTES >> 20, out.display());
        format!("cannot write {mib} MiB to {out}")
    })
}

/// Results of a run.
#[derive(Debug)]
pub struct Ran {
    /// What was measured; a note tells if that is not all.
    pub results: Results,
    /// The report's directory.
    pub dir: PathBuf,
    /// Why the run ended before its last slot, if it did.
    pub failure: Option<anyhow::Error>,
}

/// Measures everything and writes the report. If a slot fails, the report has those before it.
///
/// # Errors
/// The first slot fails, or the report cannot be written.
pub fn run(run: &Run<'_>) -> Result<Ran> {
    check_room(run.out)?;
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let machine = MachineFacts::read(run.rustc, run.version);
    let host = machine.hostname.clone().unwrap_or_else(|| "unknown".into());
    let (paths, left_out) = paths();
    let specs = slots(&paths, run.seconds);
    let bar = ProgressBar::new(specs.len() as u64);
    let style = "{bar:30} {pos}/{len} slots, {eta} left: {msg}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let (mut measured, mut failure) = (Vec::new(), None);
    for spec in &specs {
        let PointSpec { pattern, path, vms, frame_bytes, .. } = spec;
        bar.set_message(format!("{pattern} {path}, {vms} guests, {frame_bytes} B"));
        let slot = match interrupt::is_set() {
            true => Err(anyhow!("interrupted")),
            false => forwarding::slot(run.program, spec, run.cpus),
        };
        match slot {
            Ok(point) => measured.push(point),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(error) = failure.take_if(|_| measured.is_empty()) {
        return Err(error);
    }
    let (done, all) = (measured.len(), specs.len());
    let partial = failure
        .as_ref()
        .map(|error| format!("NOT WHOLE: the run ended after {done} of {all} slots: {error:#}."));
    let results = Results {
        schema: report::model::SCHEMA,
        version: run.version.into(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started: Started::at(unix_s),
        machine: serde_json::to_value(&machine)?,
        points: measured,
        transfers: Vec::new(),
        copies: Vec::new(),
        notes: partial.into_iter().chain(notes(run.cpus)).chain(left_out).collect(),
    };
    let dir = run.out.join(report::folder_name(unix_s, &host));
    report::write(&dir, &results)?;
    Ok(Ran { results, dir, failure })
}

/// The paths that this machine has, and what is to be said of the others.
pub(super) fn paths() -> (Vec<PathKind>, Vec<String>) {
    match arena::bridge() {
        Ok(_) => (PathKind::ALL.to_vec(), Vec::new()),
        Err(why) => {
            let note =
                format!("The path virtio, tap and bridge of the kernel, is left out: {why:#}.");
            (vec![PathKind::Vf, PathKind::Vhost], vec![note])
        }
    }
}

fn notes(cpus: &[usize]) -> Vec<String> {
    let mut notes = Vec::new();
    match cpus {
        [] | [_] => notes.push("One CPU: switch, generator and guests took turns on it.".into()),
        [switch, rest] => notes.push(format!(
            "Two CPUs: the switch had CPU {switch}; the generator and all guests shared CPU {rest}. On the \
             path virtio the kernel is the switch, wherever frames are sent: there the generator had \
             CPU {switch}, and the guests CPU {rest}."
        )),
        _ => {}
    }
    notes
}

//! `shunt lab`: all patterns, paths, frame sizes and numbers of guests in one run.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use host::MachineFacts;
use indicatif::{ProgressBar, ProgressStyle};

use super::forwarding::{self, PointSpec};
use crate::bench::arena;
use crate::report::{self, PathKind, Pattern, Results, RingKind, Started};

/// Frame sizes with FCS.
const FRAMES: [u32; 3] = [64, 256, 1518];
/// Guests; a chain begins with two.
const GUESTS: [usize; 4] = [1, 2, 4, 8];

/// The points of the suite on these paths, in the order of measurement: the paths of a place in turn, as
/// they are to be compared.
pub fn points(paths: &[PathKind], seconds: f64) -> Vec<PointSpec> {
    let mut points = Vec::new();
    for pattern in Pattern::ALL {
        for vms in GUESTS {
            for frame_bytes in FRAMES {
                for path in paths.iter().copied() {
                    let ring = RingKind::Split;
                    let point = PointSpec { pattern, path, vms, frame_bytes, seconds, ring };
                    if point.check().is_ok() {
                        points.push(point);
                    }
                }
            }
        }
    }
    points
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

/// Measures everything, writes the report, and says where.
pub fn run(run: &Run<'_>) -> Result<(Results, PathBuf)> {
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let machine = MachineFacts::read(run.rustc, run.version);
    let host = machine.hostname.clone().unwrap_or_else(|| "unknown".into());
    let (paths, left_out) = paths();
    let specs = points(&paths, run.seconds);
    let bar = ProgressBar::new(specs.len() as u64);
    let style = "{bar:30} {pos}/{len} points, {eta} left: {msg}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let mut measured = Vec::new();
    for spec in &specs {
        let PointSpec { pattern, path, vms, frame_bytes, .. } = spec;
        bar.set_message(format!("{pattern} {path}, {vms} guests, {frame_bytes} B"));
        measured.push(forwarding::run(run.program, spec, run.cpus)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let results = Results {
        version: run.version.into(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started: Started::at(unix_s),
        machine: serde_json::to_value(&machine)?,
        points: measured,
        transfers: Vec::new(),
        notes: notes(run.cpus).into_iter().chain(left_out).collect(),
    };
    let dir = run.out.join(report::folder_name(unix_s, &host));
    report::write(&dir, &results)?;
    Ok((results, dir))
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

//! From the tree of a file to a [`Config`]: each field by its own rules, then what must not occur twice.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::error::Report;
use super::fields::{CPU, LANES, ROOT};
use super::model::{Config, Lanes, Limits, Nic};
use super::table::Table;
use super::unique::Unique;
use super::value::Given;
use super::{MAX_LANES, MAX_NICS, default_run_dir};
use crate::run_dir::{COUNTERS, LOCK};

mod api;
mod attachment;
mod document;
mod function;
mod nic;
mod rules;

/// What holds across the file.
struct Reader {
    run_dir: PathBuf,
    /// Files of the daemon's own, which no socket may take.
    own_files: Vec<PathBuf>,
    sockets: Unique<PathBuf>,
    names: Unique<String>,
}

/// The configuration, or `None` where something was wrong; everything wrong is in the report.
pub(super) fn config(report: &Report<'_>, tree: &DeTable<'_>) -> Option<Config> {
    let root = Table::root(report, &ROOT, tree);
    let run_dir = run_dir(&root);
    let state_dir = state_dir(&root, &run_dir);
    let own_files = [COUNTERS, LOCK].map(|name| run_dir.join(name)).to_vec();
    let (sockets, names) = (Unique::new(), Unique::new());
    let mut reader = Reader { run_dir, own_files, sockets, names };
    let api = reader.api(&root);
    let lanes = root.table("lanes").as_ref().map_or_else(default_lanes, lanes);
    let limits = root.table("limits").as_ref().map_or_else(Limits::default, limits);
    let tables = root.tables("nic");
    if let Some(beyond) = tables.get(MAX_NICS) {
        let message =
            format!("is NIC {} of {}; at most {MAX_NICS} are allowed", MAX_NICS + 1, tables.len());
        report.error(beyond.at, format!("nic[{MAX_NICS}]"), message);
        return None;
    }
    let errors = report.errors();
    // Not a `collect` into an option: that would stop at the first NIC with a mistake.
    let nics: Vec<Option<Nic>> = tables.iter().map(|table| reader.nic(table)).collect();
    let nics: Option<Vec<Nic>> = nics.into_iter().collect();
    // What is wrong with a NIC would be told again as a mistake of the state.
    let nics = nics.filter(|_| report.errors() == errors);
    let state = reader.state(&root, nics.as_deref(), tree);
    let (nics, state) = (nics?, state?);
    Some(Config { run_dir: reader.run_dir, state_dir, api, lanes, limits, nics, state })
}

fn run_dir(root: &Table<'_>) -> PathBuf {
    if let Some(path) = absolute_path(root, "run_dir") {
        return path;
    }
    let path = default_run_dir();
    if path.to_str().is_none() {
        let why = "is not given, and the default of this user is not UTF-8";
        let message = format!("{why}; write {}", root.field("run_dir").kind);
        root.report.error_of_file("run_dir", message);
    }
    path
}

fn state_dir(root: &Table<'_>, run_dir: &Path) -> Option<PathBuf> {
    let path = absolute_path(root, "state_dir")?;
    if path == run_dir
        && let Given::Value(item) = root.item("state_dir")
    {
        let problem =
            "is run_dir too, which may not outlive a restart of the machine; choose another";
        root.refuse(&item, problem);
    }
    Some(path)
}

/// A path that begins with /, if one is given; a wrong one is reported.
fn absolute_path(table: &Table<'_>, name: &str) -> Option<PathBuf> {
    let (text, item) = table.text(name).value()?;
    if !text.starts_with('/') {
        table.refuse_as(table.field(name), &item, "is not an absolute path");
    } else if text.contains('\0') {
        table.refuse_as(table.field(name), &item, "has a zero character");
    }
    Some(PathBuf::from(text))
}

fn lanes(table: &Table<'_>) -> Lanes {
    Lanes {
        cpus: cpus(table),
        poll_us: table.int("poll_us"),
        yield_us: table.int("yield_us"),
        sleep: table.bool("sleep"),
        cpu_latency_us: table
            .given_int("cpu_latency_us")
            .value()
            .and_then(|(latency_us, _)| u32::try_from(latency_us).ok()),
    }
}

fn limits(table: &Table<'_>) -> Limits {
    let mib = |name| table.given_int(name).value().map(|(mib, _)| mib);
    Limits {
        session_memory_mib: mib("session_memory_mib"),
        guest_memory_mib: mib("guest_memory_mib"),
    }
}

fn cpus(table: &Table<'_>) -> Vec<usize> {
    let Given::Value((items, list)) = table.list("cpus", MAX_LANES) else {
        return Vec::new();
    };
    if items.is_empty() {
        table.refuse(
            &list,
            "names no CPU; list at least one, or leave cpus out for one lane that is not pinned",
        );
    }
    let mut lanes = Unique::new();
    let mut cpus = Vec::new();
    for item in items {
        let Some(cpu) = table.int_in(&CPU, &item).and_then(|cpu| usize::try_from(cpu).ok()) else {
            continue;
        };
        let words = format!("CPU {cpu}");
        let place = (item.path, item.span.start);
        lanes.claim(table.report, cpu, place, (&words, "name each CPU once"));
        cpus.push(cpu);
    }
    cpus
}

fn default_lanes() -> Lanes {
    // The one place where the defaults of the table of fields are needed without a table of the file.
    let (report, tree) = (Report::new("", ""), DeTable::new());
    lanes(&Table::root(&report, &LANES, &tree))
}

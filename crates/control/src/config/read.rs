//! From the tree of a file to a [`Config`]: each field by its own rules, then what must not occur twice.

use std::path::PathBuf;

use toml::de::DeTable;

use super::error::Report;
use super::fields::{CPU, LANES, ROOT};
use super::model::{Config, Lanes, Nic};
use super::table::Table;
use super::unique::Unique;
use super::value::Given;
use super::{MAX_LANES, MAX_NICS, default_run_dir};

mod function;
mod nic;
mod rules;

/// What holds across the file.
struct Reader {
    run_dir: PathBuf,
    sockets: Unique<PathBuf>,
    names: Unique<String>,
}

/// The configuration, or `None` where something was wrong; everything wrong is in the report.
pub(super) fn config(report: &Report<'_>, tree: &DeTable<'_>) -> Option<Config> {
    let root = Table::root(report, &ROOT, tree);
    let run_dir = run_dir(&root);
    let lanes = root.table("lanes").as_ref().map_or_else(default_lanes, lanes);
    let mut reader = Reader { run_dir, sockets: Unique::new(), names: Unique::new() };
    let tables = root.tables("nic");
    if let Some(beyond) = tables.get(MAX_NICS) {
        let message =
            format!("is NIC {} of {}; at most {MAX_NICS} are allowed", MAX_NICS + 1, tables.len());
        report.error(beyond.at, format!("nic[{MAX_NICS}]"), message);
        return None;
    }
    // Not a `collect` into an option: that would stop at the first NIC with a mistake.
    let nics: Vec<Option<Nic>> = tables.iter().map(|table| reader.nic(table)).collect();
    let nics: Vec<Nic> = nics.into_iter().collect::<Option<_>>()?;
    Some(Config { run_dir: reader.run_dir, lanes, nics })
}

fn run_dir(root: &Table<'_>) -> PathBuf {
    let Given::Value((text, item)) = root.text("run_dir") else {
        return default_run_dir();
    };
    if !text.starts_with('/') {
        root.refuse_as(root.field("run_dir"), &item, "is not an absolute path");
    } else if text.contains('\0') {
        root.refuse_as(root.field("run_dir"), &item, "has a zero character");
    }
    PathBuf::from(text)
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

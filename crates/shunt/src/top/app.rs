//! State of `shunt top`: the last rates, and what the user chose to see of them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use api::stats::{Stats, without_queue};
use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::columns::Column;
use crate::manage::adapter::path_and_reason;
use crate::rates::{PortRates, Rates};

/// Lines that Page Up and Page Down scroll.
const PAGE: usize = 10;

/// Path and reason of each adapter, by its name.
#[derive(Debug, Default)]
pub(super) struct Paths(BTreeMap<String, [String; 2]>);

impl Paths {
    /// Paths in `actual` of `/v1/actual`.
    pub(super) fn of(actual: &Value) -> Paths {
        let adapters = actual["adapters"].as_array().into_iter().flatten();
        let named = adapters.filter_map(|adapter| {
            Some((adapter["name"].as_str()?.to_owned(), path_and_reason(adapter)))
        });
        Paths(named.collect())
    }

    /// Path and reason of the adapter at a port. Port `nic0/vf3` is adapter `nic0-vf3` of a file.
    fn find(&self, port: &str) -> Option<&[String; 2]> {
        let port = without_queue(port);
        let short = port.split_once('/').map_or(port, |(_, short)| short);
        let of_file = short.starts_with("vf").then(|| self.0.get(&port.replacen('/', "-", 1)));
        of_file.flatten().or_else(|| self.0.get(short))
    }
}

/// A row of the table of ports.
#[derive(Debug)]
pub(super) struct Port<'a> {
    pub(super) rates: &'a PortRates,
    /// Path in force; empty if it is unknown, or the port has none.
    pub(super) path: &'a str,
    /// Reason for another path than the requested one.
    pub(super) why: &'a str,
    /// Attached rings.
    pub(super) rings: u64,
}

/// A row of the pane of drops: a drop reason or ring fault at all ports that are shown.
#[derive(Debug, PartialEq)]
pub(super) struct Dropped {
    /// Name of its counter.
    pub(super) reason: String,
    /// Frames a second; `None` for a ring fault, which is rare.
    pub(super) per_s: Option<f64>,
    /// Frames, or stops of rings, since the daemon's start.
    pub(super) total: u64,
    /// Port with the most of them.
    pub(super) port: String,
}

/// State of the program.
#[derive(Debug)]
pub(super) struct App {
    /// Run directory of the daemon.
    pub(super) place: String,
    pub(super) stats: Stats,
    pub(super) rates: Rates,
    /// `None` while the API does not answer.
    pub(super) paths: Option<Paths>,
    pub(super) is_running: bool,
    pub(super) has_colors: bool,
    pub(super) sort: Column,
    pub(super) is_reversed: bool,
    /// `true` while each queue pair has a row.
    pub(super) by_queue: bool,
    pub(super) filter: String,
    /// `true` while the user types the filter.
    pub(super) is_typing: bool,
    /// Pane that scrolls and grows: 0 ports, 1 lanes, 2 drops.
    pub(super) focus: usize,
    /// First line of each pane.
    pub(super) offsets: [usize; 3],
}

impl App {
    /// The state after a first reading, without rates.
    pub(super) fn new(run_dir: &Path, stats: Stats) -> App {
        App {
            place: run_dir.display().to_string(),
            rates: Rates::between(&stats, &stats, 1.0),
            stats,
            paths: None,
            is_running: true,
            has_colors: true,
            sort: Column::Name,
            is_reversed: false,
            by_queue: false,
            filter: String::new(),
            is_typing: false,
            focus: 0,
            offsets: [0; 3],
        }
    }

    /// Takes a reading, `seconds` after the last one. Without one, as between the end and the start
    /// of a daemon, the last counters stay and their rates are 0.
    pub(super) fn take(&mut self, reading: Result<Stats>, seconds: f64) {
        let now = reading.unwrap_or_else(|_| self.stats.clone());
        self.rates = Rates::between(&self.stats, &now, seconds);
        self.stats = now;
    }

    /// Begins again with a reading of other rows, without rates.
    pub(super) fn begin(&mut self, reading: Result<Stats>) {
        if let Ok(stats) = reading {
            self.rates = Rates::between(&stats, &stats, 1.0);
            self.stats = stats;
        }
    }

    /// Ports that the filter lets through, sorted.
    pub(super) fn ports<'a>(&'a self) -> Vec<Port<'a>> {
        let port = |rates: &'a PortRates| {
            let PortRates { name, .. } = rates;
            let found = self.paths.as_ref().and_then(|paths| paths.find(name));
            let [path, why] = found.map_or(["", ""], |[path, why]| [path, why]);
            let counted = self.stats.ports.iter().find(|port| port.name == *name);
            Port { rates, path, why, rings: counted.map_or(0, |port| port.rings_attached) }
        };
        let wanted = self.filter.to_lowercase();
        let is_shown = |port: &Port<'_>| {
            [&port.rates.name, port.path, port.why]
                .iter()
                .any(|text| text.to_lowercase().contains(&wanted))
        };
        let mut ports: Vec<_> = self.rates.ports.iter().map(port).filter(is_shown).collect();
        ports.sort_by(|one, other| {
            let order = self.sort.compare(one, other);
            let order = if self.is_reversed { order.reverse() } else { order };
            order.then_with(|| Column::Name.compare(one, other))
        });
        ports
    }

    /// Drops and ring faults of these ports: the most frequent now first, then by their number.
    pub(super) fn dropped(&self, ports: &[Port<'_>]) -> Vec<Dropped> {
        let mut found = BTreeMap::<&str, (Dropped, u64)>::new();
        for port in ports {
            let name = &port.rates.name;
            let Some(counted) = self.stats.ports.iter().find(|port| port.name == *name) else {
                continue;
            };
            let drops = counted.drops.iter().map(|(reason, count)| {
                let per_s = port.rates.drops_per_s.get(reason).copied();
                (reason, *count, Some(per_s.unwrap_or(0.0)))
            });
            let faults = counted.faults.iter().map(|(fault, count)| (fault, *count, None));
            for (reason, count, per_s) in drops.chain(faults) {
                let new = || {
                    let reason = reason.clone();
                    (Dropped { reason, per_s: None, total: 0, port: String::new() }, 0)
                };
                let (row, most) = found.entry(reason).or_insert_with(new);
                row.total += count;
                row.per_s = per_s.map(|rate| rate + row.per_s.unwrap_or(0.0));
                if count > *most {
                    *most = count;
                    row.port.clone_from(name);
                }
            }
        }
        let mut rows: Vec<Dropped> = found.into_values().map(|(row, _)| row).collect();
        let rate = |row: &Dropped| row.per_s.unwrap_or(0.0);
        rows.sort_by(|one, other| {
            let by_rate = rate(other).total_cmp(&rate(one));
            by_rate.then(other.total.cmp(&one.total))
        });
        rows
    }

    /// Does what a key asks for; returns `true` if it ends the program.
    pub(super) fn is_ended_by(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code == KeyCode::Char('c');
        }
        match key.code {
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Backspace if self.is_typing => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.is_typing => self.filter.push(letter),
            KeyCode::Char('q') => return true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => self.sort_by_next(1),
            KeyCode::Char('S') => self.sort_by_next(Column::value_variants().len() - 1),
            KeyCode::Char('u') => self.by_queue = !self.by_queue,
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Tab => self.focus = (self.focus + 1) % 3,
            KeyCode::BackTab => self.focus = (self.focus + 2) % 3,
            KeyCode::Up | KeyCode::Char('k') => self.scroll(|line| line.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(|line| line.saturating_add(1)),
            KeyCode::PageUp => self.scroll(|line| line.saturating_sub(PAGE)),
            KeyCode::PageDown => self.scroll(|line| line.saturating_add(PAGE)),
            KeyCode::Home => self.scroll(|_| 0),
            KeyCode::End => self.scroll(|_| usize::MAX),
            _ => {}
        }
        false
    }

    /// Sorts by the column that is `steps` further.
    fn sort_by_next(&mut self, steps: usize) {
        let all = Column::value_variants();
        let at = all.iter().position(|column| *column == self.sort).unwrap_or(0);
        self.sort = all[(at + steps) % all.len()];
        self.is_reversed = false;
    }

    /// Scrolls the pane in focus; drawing limits it to the pane's lines.
    fn scroll(&mut self, to: impl Fn(usize) -> usize) {
        self.offsets[self.focus] = to(self.offsets[self.focus]);
    }
}

//! `shunt top`: live rates of a daemon in a terminal.
//!
//! Counters are read from the shared file, so lanes do no work for it. Paths of adapters come from
//! the API, in a thread of their own: a daemon that does not answer leaves the rates running.

mod app;
mod columns;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::stats::{self, Stats};
use api::{Client, Method};
use model::config::socket_path;
use model::state::{Problem, Problems};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGTERM};

use crate::pages::Title;
use crate::run_dir::RunDirArg;
use crate::stats::seconds;
use app::{App, Paths};
use columns::Column;

/// Time until the first rates; a longer interval begins after it.
const FIRST_RATES: Duration = Duration::from_millis(250);
/// Longest time until a signal ends the program.
const SIGNAL_POLL: Duration = Duration::from_millis(100);
/// Pause between two readings of paths.
const PATHS_POLL: Duration = Duration::from_secs(1);
/// Limit for an answer with paths.
const PATHS_LIMIT: Duration = Duration::from_secs(5);

/// Show live rates of a daemon: ports with their paths, lanes, and drops with remedies.
///
/// The counters are read from a shared file, at no cost for the daemon. Keys: q quit, / filter,
/// s and S next and previous column to sort by, r reverse, u a row for each queue pair, Tab next
/// pane, arrows and Page Up and Down scroll, Esc clear the filter. With NO_COLOR it has no colours.
#[derive(Debug, clap::Args)]
#[command(add = Title("live rates of a daemon in a terminal"))]
#[command(after_help = "\
Examples:
  shunt top                               ports, lanes and drops, each second
  shunt top --sort drops                  ports that lose most first
  shunt top --filter vmq --interval 5     ports on path vmq, every 5 s
  shunt top --queues --filter nic0/web    each queue pair of a port
  shunt stats --watch                     the same rates for a pipe, as JSON")]
pub(crate) struct Top {
    #[command(flatten)]
    daemon: RunDirArg,
    /// Column to sort ports by.
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = Column::Name)]
    sort: Column,
    /// Show only ports with this text in name, path or reason.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Show each queue pair of a port by itself.
    #[arg(long)]
    queues: bool,
    /// Time between two readings, in seconds.
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

impl Top {
    pub(crate) fn run(self) -> Result<()> {
        let run_dir = self.daemon.path()?;
        if !io::stdout().is_terminal() {
            let remedy = "run it in one, or use `shunt stats --watch`";
            let problem = Problem::new("", (), "standard output is no terminal", remedy);
            return Err(Problems::from(problem).into());
        }
        let mut app = App::new(run_dir, read_counters(run_dir, self.queues)?);
        app.by_queue = self.queues;
        app.sort = self.sort;
        app.filter = self.filter;
        app.has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, ended.clone()).context("no signal handler")?;
        }
        let paths = follow_paths(run_dir);
        let mut terminal = ratatui::try_init().context("cannot prepare the terminal")?;
        let shown = show(&mut terminal, &mut app, run_dir, self.interval, &paths, &ended);
        let restored = ratatui::try_restore();
        shown?;
        restored.context("cannot restore the terminal")
    }
}

/// Draws and reads until the user or a signal ends it.
fn show(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    run_dir: &Path,
    interval: Duration,
    paths: &Receiver<Option<Paths>>,
    ended: &AtomicBool,
) -> Result<()> {
    let mut read = Instant::now();
    let mut due = read + interval.min(FIRST_RATES);
    let mut is_changed = true;
    while !ended.load(Relaxed) {
        if is_changed {
            terminal.draw(|frame| screen::draw(frame, app)).context("cannot draw")?;
        }
        let left = due.saturating_duration_since(Instant::now());
        is_changed = event::poll(left.min(SIGNAL_POLL)).context("cannot read keys")?;
        let by_queue = app.by_queue;
        if is_changed
            && let Event::Key(key) = event::read().context("cannot read keys")?
            && app.is_ended_by(key)
        {
            return Ok(());
        }
        if app.by_queue != by_queue {
            app.begin(read_counters(run_dir, app.by_queue));
            read = Instant::now();
            due = read + interval.min(FIRST_RATES);
        }
        for paths in paths.try_iter() {
            is_changed = true;
            app.paths = paths;
        }
        let now = Instant::now();
        if now >= due {
            is_changed = true;
            app.take(read_counters(run_dir, app.by_queue), (now - read).as_secs_f64());
            app.is_running = stats::is_running(run_dir).unwrap_or(false);
            (read, due) = (now, now + interval);
        }
    }
    Ok(())
}

/// Counters of ports, or of their queue pairs.
fn read_counters(run_dir: &Path, by_queue: bool) -> Result<Stats> {
    if by_queue { stats::read_queues(run_dir) } else { stats::read(run_dir) }
}

/// Reads paths of adapters until the program ends; `None` while the API does not answer.
fn follow_paths(run_dir: &Path) -> Receiver<Option<Paths>> {
    let client = Client::new(&socket_path(run_dir)).within(PATHS_LIMIT);
    let (sender, receiver) = channel();
    thread::spawn(move || {
        loop {
            let answer = client.send(Method::GET, "/v1/actual", None, None);
            let paths = answer.ok().map(|answer| Paths::of(&answer.body["actual"]));
            if sender.send(paths).is_err() {
                return;
            }
            thread::sleep(PATHS_POLL);
        }
    });
    receiver
}

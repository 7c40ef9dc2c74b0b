//! `shunt stats`: counters of a daemon.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use api::stats::{self, LaneStats, PortStats};

use crate::text::print;

/// Show the counters of a daemon since its start.
///
/// The counters are read from a shared file, at no cost for the daemon. If the daemon was killed,
/// its last counters are shown, and the exit code is 1 ("daemon_runs": false with --json).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shunt stats                             of the daemon with the default run directory
  shunt stats --run-dir /tmp/x --json     of another daemon, as JSON")]
pub(crate) struct Stats {
    /// Run directory of the daemon (run_dir in its configuration).
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Result<()> {
        let run_dir = self.run_dir.unwrap_or_else(model::config::default_run_dir);
        // Read first: a daemon that ends in between is at worst reported as running.
        let daemon_runs = stats::is_running(&run_dir)?;
        let stats = stats::read(&run_dir)?;
        let text = if self.json {
            let mut json = serde_json::to_value(&stats)?;
            json["daemon_runs"] = daemon_runs.into();
            serde_json::to_string_pretty(&json)? + "\n"
        } else {
            let ports = stats.ports.iter().map(port_lines);
            let lanes = stats.lanes.iter().map(lane_line);
            let dropped = match stats.log_lines_dropped {
                0 => String::new(),
                lines => format!("log: {lines} lines dropped\n"),
            };
            HEADER.to_string() + &ports.chain(lanes).chain([dropped]).collect::<String>()
        };
        print(&text)?;
        if !daemon_runs {
            let run_dir = run_dir.display();
            bail!("no daemon runs with run_dir {run_dir}; these are the counters of the last one");
        }
        Ok(())
    }
}

const HEADER: &str = "port                      tx frames      rx frames      drops  rings\n";

fn port_lines(port: &PortStats) -> String {
    let drops: u64 = port.drops.values().sum();
    let (name, tx, rx) = (&port.name, port.tx_frames, port.rx_frames);
    let rings = port.rings_attached;
    let mut lines = format!("{name:<20} {tx:>14} {rx:>14} {drops:>10} {rings:>6}\n");
    for (what, count) in port.drops.iter().chain(&port.faults) {
        let _ = writeln!(lines, "  {what:<32} {count:>16}"); // writing to a String cannot fail
    }
    lines
}

fn lane_line(lane: &LaneStats) -> String {
    let get = |name: &str| lane.values.get(name).copied().unwrap_or(0);
    let (frames, sleeps) = (get("frames"), get("sleeps"));
    let cycles = get("busy_cycles") as f64 / frames.max(1) as f64;
    let name = &lane.lane;
    format!("lane {name}: {frames} frames, {cycles:.1} cycles each, {sleeps} sleeps\n")
}

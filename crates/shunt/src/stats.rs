//! `shunt stats`: what a daemon has counted.

use std::path::PathBuf;

use anyhow::Result;
use control::stats;

/// Show what a daemon has counted since it started.
///
/// The counters are read from a file that the daemon shares: reading costs it nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shunt stats                             of the daemon with the default run directory
  shunt stats --run-dir /tmp/x --json     of another one, for a program")]
pub(crate) struct Stats {
    /// The daemon's run directory (run_dir in its configuration).
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Result<()> {
        let run_dir = self.run_dir.unwrap_or_else(control::config::default_run_dir);
        let stats = stats::read(&run_dir)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&stats)?);
            return Ok(());
        }
        println!(
            "{:<20} {:>14} {:>14} {:>10} {:>6}",
            "port", "tx frames", "rx frames", "drops", "rings"
        );
        for port in &stats.ports {
            let drops: u64 = port.drops.values().sum();
            let (name, rings) = (&port.name, port.rings_attached);
            println!(
                "{name:<20} {:>14} {:>14} {drops:>10} {rings:>6}",
                port.tx_frames, port.rx_frames
            );
            for (what, count) in port.drops.iter().chain(&port.faults) {
                println!("  {what:<32} {count:>16}");
            }
        }
        for lane in &stats.lanes {
            let get = |name: &str| lane.values.get(name).copied().unwrap_or(0);
            let (busy, frames) = (get("busy_cycles"), get("frames").max(1));
            let cycles = busy as f64 / frames as f64;
            let (name, frames) = (&lane.lane, get("frames"));
            println!(
                "lane {name}: {frames} frames, {cycles:.1} cycles each, {} sleeps",
                get("sleeps")
            );
        }
        Ok(())
    }
}

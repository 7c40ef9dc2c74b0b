//! `shunt stats`: counters of a daemon, and their rates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use api::run_dir::{counters_path, no_daemon};
use api::stats::{self, LaneStats, LimitStats, PortStats, ReasonEntry};
use model::config::default_run_dir;
use model::state::{Problem, Problems};

use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::rates::{LaneRates, PortRates, Rates};
use crate::run_dir::{RunDirArg, SeveralDaemons};
use crate::text::{of_stdout, print, wait_for_reader};
use report::Align::{Left, Right};

/// Show the counters of a daemon since its start, or their rates.
///
/// The counters are read from a shared file, at no cost for the daemon. If the daemon was killed,
/// its last counters are shown, and the exit code is 1 ("daemon_runs": false with --json). Each
/// drop reason has an explanation: `shunt explain`.
#[derive(Debug, clap::Args)]
#[command(add = Title("counters of a daemon, and their rates"))]
#[command(after_help = "\
Examples:
  shunt stats                             of the only daemon that runs
  shunt stats web db                      of these ports only
  shunt stats --interval 1                rates each second, until interrupted
  shunt stats --watch | jq .total         the same as JSON, one object a line
  shunt stats --run-dir /tmp/x --json     of another daemon, as JSON")]
pub(crate) struct Stats {
    /// Ports to show: an adapter, vf0, uplink, a NIC, or NIC/port. All if absent.
    #[arg(value_name = "PORT", add = complete::counted_port())]
    ports: Vec<String>,
    #[command(flatten)]
    daemon: RunDirArg,
    /// Show rates of each S seconds, until interrupted.
    #[arg(long, value_name = "S", value_parser = seconds)]
    interval: Option<Duration>,
    /// Print rates as one JSON object a line each S seconds [1 if S is absent], until interrupted
    /// or the reader closes; as --interval S --json.
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "1",
        value_parser = seconds, conflicts_with = "interval")]
    watch: Option<Duration>,
    /// End after N intervals.
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    count: Option<u32>,
    /// Print one JSON object; of rates one a line for each interval.
    #[arg(long)]
    json: bool,
}

/// An interval of 0.01 s to a day.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.01 to 86400 seconds".to_owned())
}

impl Stats {
    pub(crate) fn run(self) -> Result<()> {
        let interval = self.watch.or(self.interval);
        if let (Some(count), None) = (self.count, interval) {
            let remedy = "give --watch S or --interval S as well";
            let problem = Problem::new("--count", count, "counts intervals of rates", remedy);
            return Err(UsageError::from(problem).into());
        }
        let run_dir = self.run_dir()?;
        match interval {
            Some(interval) => self.rates(&run_dir, interval),
            None => self.totals(&run_dir),
        }
    }

    /// Run directory of the daemon; if none runs, the default one with the counters of the last.
    fn run_dir(&self) -> Result<PathBuf> {
        let default = default_run_dir();
        match self.daemon.path() {
            Err(error) if !error.is::<SeveralDaemons>() && counters_path(&default).exists() => {
                Ok(default)
            }
            found => Ok(found?.to_owned()),
        }
    }

    /// Reads the counters of the ports to show.
    fn read(&self, run_dir: &Path) -> Result<stats::Stats> {
        let mut stats = stats::read(run_dir)?;
        let names: Vec<&str> = stats.ports.iter().map(|port| &*port.name).collect();
        let is =
            |wanted: &str, name: &str| name == wanted || name.split('/').any(|part| part == wanted);
        if let Some(wrong) =
            self.ports.iter().find(|wanted| !names.iter().any(|name| is(wanted, name)))
        {
            let parts = || names.iter().flat_map(|name| name.split('/'));
            let known = names.iter().copied().chain(parts());
            return Err(UsageError::meant("<PORT>", wrong, "is no port", known, &names).into());
        }
        stats.ports.retain(|port| {
            self.ports.is_empty() || self.ports.iter().any(|wanted| is(wanted, &port.name))
        });
        Ok(stats)
    }

    fn totals(&self, run_dir: &Path) -> Result<()> {
        // Read first: a daemon that ends in between is at worst reported as running.
        let daemon_runs = stats::is_running(run_dir)?;
        let stats = self.read(run_dir)?;
        let text = if self.json {
            let mut json = serde_json::to_value(&stats)?;
            json["daemon_runs"] = daemon_runs.into();
            serde_json::to_string_pretty(&json)? + "\n"
        } else {
            let dropped = match stats.log_lines_dropped {
                0 => String::new(),
                lines => format!("log: {lines} lines dropped\n"),
            };
            let forbidden = match stats.forbidden_calls {
                0 => String::new(),
                calls => format!(", {calls} forbidden system calls (shunt events)"),
            };
            let parts = match &stats.sandbox[..] {
                [] => "off".to_owned(),
                parts => parts.join(", "),
            };
            let sandbox = format!("sandbox: {parts}{forbidden}\n");
            [
                ports(&stats.ports),
                drops(&stats.ports),
                lanes(&stats.lanes),
                limits(&stats.limits),
                dropped,
                sandbox,
            ]
            .concat()
        };
        print(&text)?;
        if !daemon_runs {
            let why = "these are the counters of the last one";
            return Err(Problems::from(no_daemon(run_dir, why)).into());
        }
        Ok(())
    }

    /// Shows rates until interrupted, for `count` intervals, or until the reader closes.
    fn rates(&self, run_dir: &Path, interval: Duration) -> Result<()> {
        let (mut before, mut began) = (self.read(run_dir)?, Instant::now());
        let mut left = self.count.map_or(u64::MAX, u64::from);
        while left > 0 {
            if !wait_for_reader(interval)? {
                return Ok(());
            }
            if !stats::is_running(run_dir)? {
                return Err(Problems::from(no_daemon(run_dir, "it ended")).into());
            }
            let (now, read) = (self.read(run_dir)?, Instant::now());
            let rates = Rates::between(&before, &now, (read - began).as_secs_f64());
            let text = match self.json || self.watch.is_some() {
                true => serde_json::to_string(&rates)? + "\n",
                false => rate_tables(&rates),
            };
            print(&text)?;
            (before, began) = (now, read);
            left -= 1;
        }
        Ok(())
    }
}

fn ports(ports: &[PortStats]) -> String {
    let header = [
        ("port", Left),
        ("tx frames", Right),
        ("tx bytes", Right),
        ("rx frames", Right),
        ("rx bytes", Right),
        ("drops", Right),
        ("rings", Right),
    ];
    let row = |port: &PortStats| {
        let PortStats { name, tx_frames, tx_bytes, rx_frames, rx_bytes, .. } = port;
        let numbers = [*tx_frames, *tx_bytes, *rx_frames, *rx_bytes, port.drops.values().sum()];
        let rings = [port.rings_attached];
        let numbers = numbers.iter().chain(&rings).map(u64::to_string);
        std::iter::once(name.clone()).chain(numbers).collect()
    };
    of_stdout().table(&header, ports.iter().map(row).collect())
}

/// Drops and faults with their meaning; empty if there are none.
fn drops(ports: &[PortStats]) -> String {
    let row = |port: &PortStats, (reason, count): (&String, &u64)| {
        let meaning = ReasonEntry::find(reason).map_or("-", |reason| reason.meaning);
        vec![port.name.clone(), reason.clone(), count.to_string(), meaning.to_owned()]
    };
    let table = |[name, counted]: [&str; 2], counts: fn(&PortStats) -> &BTreeMap<String, u64>| {
        let of_port = |port| counts(port).iter().map(|it| row(port, it)).collect::<Vec<_>>();
        let rows: Vec<_> = ports.iter().flat_map(of_port).collect();
        let header = [("port", Left), (name, Left), (counted, Right), ("meaning", Left)];
        match rows.is_empty() {
            true => String::new(),
            false => format!("\n{}", of_stdout().table(&header, rows)),
        }
    };
    table(["drop reason", "frames"], |port| &port.drops)
        + &table(["ring fault", "stops"], |port| &port.faults)
}

fn lanes(lanes: &[LaneStats]) -> String {
    let header = [
        ("lane", Left),
        ("frames", Right),
        ("cycles/frame", Right),
        ("busy % of polls", Right),
        ("sleeps", Right),
    ];
    let row = |lane: &LaneStats| {
        let [frames, busy, idle, sleeps] =
            ["frames", "busy_cycles", "idle_cycles", "sleeps"].map(|name| lane.value(name));
        let polled = busy.saturating_add(idle).max(1) as f64;
        vec![
            lane.lane.clone(),
            frames.to_string(),
            format!("{:.1}", busy as f64 / frames.max(1) as f64),
            format!("{:.1}", 100.0 * busy as f64 / polled),
            sleeps.to_string(),
        ]
    };
    format!("\n{}", of_stdout().table(&header, lanes.iter().map(row).collect()))
}

/// Limits that were met; empty if there are none.
fn limits(limits: &[LimitStats]) -> String {
    let header = [("limit", Left), ("met", Right), ("in use", Right), ("allowed", Right)];
    let row = |limit: &LimitStats| {
        let LimitStats { name, used, allowed, refused } = limit;
        std::iter::once(name.clone()).chain([refused, used, allowed].map(u64::to_string)).collect()
    };
    let rows: Vec<_> = limits.iter().filter(|limit| limit.refused > 0).map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", of_stdout().table(&header, rows)),
    }
}

fn rate_tables(rates: &Rates) -> String {
    let port = |port: &PortRates| {
        let mbps = |bytes_per_s: f64| format!("{:.1}", bytes_per_s * 8.0 / 1e6);
        let reasons: Vec<&str> = port.drops_per_s.keys().map(String::as_str).collect();
        vec![
            port.name.clone(),
            format!("{:.0}", port.tx_frames_per_s),
            mbps(port.tx_bytes_per_s),
            format!("{:.0}", port.rx_frames_per_s),
            mbps(port.rx_bytes_per_s),
            format!("{:.0}", port.all_drops_per_s()),
            if reasons.is_empty() { "-".to_owned() } else { reasons.join(",") },
        ]
    };
    let lane = |lane: &LaneRates| {
        vec![
            lane.lane.clone(),
            format!("{:.0}", lane.frames_per_s),
            format!("{:.1}", 100.0 * lane.load),
            format!("{:.1}", 100.0 * lane.polling),
            format!("{:.1}", lane.cycles_per_frame),
        ]
    };
    let ports = rates.ports.iter().map(port).collect();
    let lanes = rates.lanes.iter().map(lane).collect();
    let port_columns = [
        ("port", Left),
        ("tx frames/s", Right),
        ("tx Mbit/s", Right),
        ("rx frames/s", Right),
        ("rx Mbit/s", Right),
        ("drops/s", Right),
        ("reasons", Left),
    ];
    let lane_columns = [
        ("lane", Left),
        ("frames/s", Right),
        ("load %", Right),
        ("polling %", Right),
        ("cycles/frame", Right),
    ];
    let format = of_stdout();
    format!("{}\n{}\n", format.table(&port_columns, ports), format.table(&lane_columns, lanes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::of_one_port;

    #[test]
    fn tables_of_rates_name_the_reasons_of_drops() {
        let row = |drops| {
            let rates = Rates::between(&of_one_port(10, 1, 100), &of_one_port(30, drops, 600), 2.0);
            let text = rate_tables(&rates);
            let web = text.lines().find(|line| line.starts_with("nic0/web")).expect("a row");
            web.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row(5), ["nic0/web", "10", "0.0", "0", "0.0", "2", "tx_spoofed_mac"]);
        assert_eq!(row(1)[5..], ["0", "-"]);
    }

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "abc", "1e9", "inf", "NaN"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}

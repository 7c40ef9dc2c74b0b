//! `shunt plan predict`: one point.

use anyhow::Result;
use model::state::Problems;
use plan::machine::Machine;
use plan::predict::{Latency, Pattern, PlannedPath, Prediction, Scenario, predict};
use serde_json::{Value, json};

use super::input::{MachineArgs, of_option, titles};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{print, table, wrapped};

/// Loads of reported latencies, as shares of the predicted rate.
const LOADS: [f64; 4] = [0.0, 0.5, 0.8, 0.95];

/// Predict one point: all guests on one path, with one pattern of traffic.
#[derive(Debug, clap::Args)]
#[command(add = Title("prediction of one point"))]
#[command(after_help = "\
Examples:
  shunt plan predict --nic xl710 --pattern east-west --path synthetic --frame 64 --guests 8 --json
  shunt plan predict --nic e810 --pattern north-south --path vf --frame imix --guests 16")]
pub(super) struct Predict {
    #[command(flatten)]
    on: MachineArgs,
    /// Traffic pattern: north-south (over the wire) or east-west (from guest to guest, in a chain).
    #[arg(long, value_name = "PATTERN", add = complete::pattern())]
    pattern: Pattern,
    /// Path: vf, synthetic (the switch) or kernel (the kernel's tap and bridge, for comparison).
    #[arg(long, value_name = "PATH", add = complete::planned_path())]
    path: PlannedPath,
    /// Frame size with FCS in bytes, imix, or sizes with shares as 64:7,1518:1.
    #[arg(long, value_name = "SIZE")]
    frame: String,
    /// Number of guests.
    #[arg(long, value_name = "N")]
    guests: u32,
    /// Cores of each guest.
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    guest_cores: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Predict {
    pub(super) fn run(self) -> Result<()> {
        let machine = self.on.machine()?;
        let frames =
            self.frame.parse().map_err(|problems: Problems| of_option("--frame", problems))?;
        let &Self { pattern, path, guests, guest_cores: cores_each, .. } = &self;
        let scenario = Scenario { pattern, path, frames, guests, cores_each };
        let said = predict(&machine, &scenario).map_err(UsageError)?;
        let text = match self.json {
            true => format!("{:#}\n", object(&self, &machine, &said)),
            false => people(&machine, &scenario, &said),
        };
        Ok(print(&text)?)
    }
}

fn object(asked: &Predict, machine: &Machine, said: &Prediction) -> Value {
    let term =
        |term: &plan::predict::Term| json!({"limit": term.limit, "mpps": term.rate.as_mpps()});
    let latency = |share: f64| {
        let Latency { unloaded, queued } = Latency::at(&said.stations, said.rate * share);
        json!({"load": share, "mean_us": (unloaded + queued).as_ns() / 1e3})
    };
    json!({
        "nic": asked.on.nic(machine), "host": asked.on.host(),
        "pattern": asked.pattern, "path": asked.path,
        "frame": asked.frame, "guests": asked.guests, "guest_cores": asked.guest_cores,
        "mpps": said.rate.as_mpps(),
        "gbps": said.bits.as_gbps(),
        "chain_mpps": said.chain(asked.guests).as_mpps(),
        "binding_limit": said.binding,
        "terms": said.terms.iter().map(term).collect::<Vec<_>>(),
        "pcie_bytes_up": said.pcie_up.0,
        "pcie_bytes_down": said.pcie_down.0,
        "switch_cores": said.switch_cores,
        "guest_cores_used": said.guest_cores,
        "latency": LOADS.map(latency),
    })
}

fn people(machine: &Machine, scenario: &Scenario, said: &Prediction) -> String {
    let Scenario { pattern, path, guests, frames, .. } = scenario;
    let mut text = wrapped(&format!("{pattern}, path {path}, {guests} guests, {frames}"));
    text += &titles(machine);
    text += "\n";
    text += &wrapped(&format!(
        "{:.2} Mpps, {:.2} Gbit/s, sent by all guests; bottleneck {}",
        said.rate.as_mpps(),
        said.bits.as_gbps(),
        said.binding
    ));
    if *pattern == Pattern::EastWest {
        let mpps = said.chain(*guests).as_mpps();
        text += &wrapped(&format!("{mpps:.2} Mpps through the whole chain"));
    }
    let (up, down) = (said.pcie_up.0, said.pcie_down.0);
    text += &wrapped(&format!("{up:.0} bytes up and {down:.0} down on PCIe for each frame"));
    let (switch, guests) = (said.switch_cores, said.guest_cores);
    text += &wrapped(&format!("{switch:.1} cores of the switch, {guests:.1} of guests"));
    text += "\n";
    let row = |term: &plan::predict::Term| {
        let free = 1.0 - said.rate / term.rate;
        [
            term.limit.to_string(),
            format!("{:.2}", term.rate.as_mpps()),
            format!("{:.0} %", free * 100.0),
        ]
    };
    text += &table(["LIMIT", "MPPS", "FREE"], said.terms.iter().map(row).collect());
    let row = |share: &f64| {
        let Latency { unloaded, queued } = Latency::at(&said.stations, said.rate * *share);
        [format!("{:.0} %", share * 100.0), format!("{:.2}", (unloaded + queued).as_ns() / 1e3)]
    };
    text += "\n";
    text += &table(["LOAD", "MEAN LATENCY, us"], LOADS.iter().map(row).collect());
    text
}

//! `shunt plan fleet`: chains on many hosts.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use model::state::Problems;
use plan::fleet::{Fleet as Task, FleetPlan, PlacedChains, Placement, Utilization};
use serde_json::json;

use super::input::{of_file, read_toml};
use crate::pages::Title;
use crate::text::{print, table, wrapped};

/// Maximum placements in the text output.
const SHOWN: usize = 24;

/// Place chains of guests on many hosts with few VFs, cores, PCIe and memory bandwidth.
///
/// A chain is placed on one host: on VFs, on the switch, or with its ends on VFs and the rest on
/// the switch. A linear program gives the upper bound; the placement derived from it is compared
/// with a greedy one.
#[derive(Debug, clap::Args)]
#[command(add = Title("placement of chains of guests on many hosts"))]
#[command(after_help = "\
Examples:
  shunt plan fleet --fleet fleet.toml            placed chains by layout, and hosts used
  shunt plan fleet --fleet fleet.toml --json     every kind of chain on every kind of host")]
pub(super) struct Fleet {
    /// Fleet file: hosts and chains (docs/planner.md).
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Fleet {
    pub(super) fn run(self) -> Result<()> {
        let mistake = |problems: Problems| of_file(&self.fleet, problems);
        let task = Task::parse(&read_toml(&self.fleet, "--fleet", "a fleet")?).map_err(mistake)?;
        let begun = Instant::now();
        let plan = task.plan().map_err(mistake)?;
        let seconds = begun.elapsed().as_secs_f64();
        let text = match self.json {
            true => format!("{:#}\n", json!({"plan": plan, "seconds": seconds})),
            false => people(&plan, seconds),
        };
        Ok(print(&text)?)
    }
}

fn people(plan: &FleetPlan, seconds: f64) -> String {
    let FleetPlan { chains, guests, hosts, solved, greedy, bound_placed, bound_hosts, missing } =
        plan;
    let title = format!("{chains} chains of {guests} guests, {hosts} hosts, {seconds:.1} s");
    let mut text = wrapped(&title) + "\n";
    let row = |name: &str, answer: &Placement| {
        [name.to_owned(), answer.placed.to_string(), answer.hosts_used.to_string()]
    };
    let bound =
        ["with fractions".to_owned(), format!("{bound_placed:.1}"), format!("{bound_hosts:.1}")];
    text += &table(
        ["ANSWER", "CHAINS PLACED", "HOSTS USED"],
        vec![row("solved", solved), row("greedy", greedy), bound],
    );
    if !missing.is_empty() {
        text += "\n";
    }
    for one in missing {
        text += &wrapped(&format!(
            "{}: all chains need {:.1}x of what is available",
            one.limit,
            one.share + 1.0
        ));
    }
    for one in solved.unplaced.iter().filter(|_| missing.is_empty()) {
        text += "\n";
        text += &wrapped(&format!(
            "No single host has room for chains {:?} that are left ({}): the one with most room is {:.1} % short of {}.",
            one.chain,
            one.count,
            one.short * 100.0,
            one.limit
        ));
    }
    let row = |place: &PlacedChains| {
        let layout = json!(place.layout);
        [
            place.chain.clone(),
            place.host.clone(),
            layout.as_str().unwrap_or("-").to_owned(),
            place.count.to_string(),
        ]
    };
    text += "\n";
    text += &table(
        ["CHAIN", "HOST", "LAYOUT", "COUNT"],
        solved.places.iter().take(SHOWN).map(row).collect(),
    );
    if solved.places.len() > SHOWN {
        text += &format!("and {} more: --json has them\n", solved.places.len() - SHOWN);
    }
    let row =
        |taken: &Utilization| [taken.limit.to_string(), format!("{:.0} %", taken.share * 100.0)];
    text += "\n";
    text +=
        &table(["RESOURCE", "TAKEN, MEAN OF USED HOSTS"], solved.taken.iter().map(row).collect());
    text
}

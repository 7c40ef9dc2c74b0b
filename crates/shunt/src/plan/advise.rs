//! `shunt plan --workload`: paths for a workload.

use std::path::PathBuf;

use anyhow::{Context, Result};
use model::state::Problems;
use plan::advise::{AdapterAdvice, Advice, advise, crossover};
use plan::frames::FrameMix;
use plan::limit::Resource;
use plan::machine::{DEFAULT_HOST, Machine};
use plan::workload::Workload;
use serde_json::{Value, json};

use super::input::{MachineArgs, of_file, read_toml, titles, write_new};
use super::{file, sweep};
use crate::error::UsageError;
use crate::text::{print, table, wrapped};

/// Frame sizes whose crossovers are reported.
const SIZES: [u32; 6] = [64, 128, 256, 512, 1024, 1518];
/// Maximum resources in the text output.
const SHOWN: usize = 6;

#[derive(Debug, clap::Args)]
pub(super) struct Advise {
    /// Workload file: services and flows (docs/planner.md).
    #[arg(long, value_name = "FILE", required = true)]
    workload: Option<PathBuf>,
    #[command(flatten)]
    on: MachineArgs,
    /// Repeat the query for each value of a parameter: nic, cores, guest-cores, ghz, vfs, lanes,
    /// line, guests or frame, as cores=1..8, frame=64,512,1518 or nic=xl710,e810.
    #[arg(long, value_name = "FIGURE=VALUES")]
    what_if: Option<String>,
    /// Write a configuration for `shunt up` with these adapters, each on its recommended path.
    #[arg(long, value_name = "FILE", conflicts_with = "what_if")]
    write: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Advise {
    pub(super) fn run(self) -> Result<()> {
        let machine = self.on.machine()?;
        let path = self.workload.as_ref().context("clap asks for it")?;
        let mistake = |problems: Problems| of_file(path, problems);
        let text = read_toml(path, "--workload", "a workload")?;
        let workload = Workload::parse(&text).map_err(mistake)?;
        if let Some(what) = &self.what_if {
            let text = sweep::sweep(&machine, &workload, what, self.json).map_err(UsageError)?;
            return Ok(print(&text)?);
        }
        let advice = advise(&machine, &workload).map_err(mistake)?;
        if let Some(to) = &self.write {
            let text = file::configuration(&machine, &workload, &advice).map_err(UsageError)?;
            write_new(to, &text)?;
        }
        let text = match self.json {
            true => format!("{:#}\n", object(&self.on, &machine, &workload, &advice)),
            false => people(&machine, &workload, &advice) + &default_host(&self.on),
        };
        Ok(print(&text)?)
    }
}

/// Hint if the answer is not for the user's own host.
fn default_host(on: &MachineArgs) -> String {
    let told = format!(
        "For the host {DEFAULT_HOST}, since --host is not given. For yours: shunt lab, then shunt plan \
         validate --from DIR --write host.toml, then --host host.toml."
    );
    if on.host.is_none() { format!("\n{}", wrapped(&told)) } else { String::new() }
}

fn resource(workload: &Workload, advice: &Advice, of: &(Resource, f64)) -> Value {
    let (what, taken) = of;
    json!({"limit": what.limit, "of": advice.owner(workload, what.scope), "taken": taken})
}

fn object(on: &MachineArgs, machine: &Machine, workload: &Workload, advice: &Advice) -> Value {
    let adapter = |adapter: &AdapterAdvice| {
        let otherwise = adapter.alternative.map(|other| {
            json!({"path": other.path, "against": other.relative_scale, "binding_limit": other.binding})
        });
        json!({
            "adapter": adapter.name, "guests": adapter.guests, "path": adapter.path,
            "received_mpps": adapter.received.rate.as_mpps(),
            "received_gbps": adapter.received.bits.as_gbps(),
            "sent_mpps": adapter.sent.rate.as_mpps(), "sent_gbps": adapter.sent.bits.as_gbps(),
            "binding_limit": adapter.binding.map(|(limit, _)| limit),
            "margin": adapter.binding.map(|(_, margin)| margin), "otherwise": otherwise,
        })
    };
    let crossover = |bytes: u32| {
        let frames = FrameMix::of(bytes).ok()?;
        Some(json!({"frame_bytes": bytes, "guests": crossover(machine, &frames)}))
    };
    json!({
        "nic": on.nic(machine), "host": on.host(),
        "wanted": workload.has_rates, "scale": advice.scale, "binding_limit": advice.binding,
        "vfs": advice.functions, "switch_cores": advice.switch_cores, "exact": advice.is_exact,
        "adapters": advice.adapters.iter().map(adapter).collect::<Vec<_>>(),
        "resources": advice.resources.iter().map(|of| resource(workload, advice, of)).collect::<Vec<_>>(),
        "crossovers": SIZES.into_iter().filter_map(crossover).collect::<Vec<_>>(),
    })
}

fn people(machine: &Machine, workload: &Workload, advice: &Advice) -> String {
    let mut text = titles(machine) + "\n";
    let row = |adapter: &AdapterAdvice| {
        let otherwise = adapter.alternative.map_or_else(
            || "-".to_owned(),
            |other| {
                format!(
                    "{}: {:+.0} % ({})",
                    other.path,
                    (other.relative_scale - 1.0) * 100.0,
                    other.binding
                )
            },
        );
        [
            adapter.name.clone(),
            adapter.path.to_string(),
            format!("{:.2}", adapter.received.rate.as_mpps()),
            format!("{:.2}", adapter.sent.rate.as_mpps()),
            adapter.binding.map_or_else(|| "-".to_owned(), |(limit, _)| limit.to_string()),
            adapter.binding.map_or_else(
                || "-".to_owned(),
                |(_, margin)| format!("{:.0} %", (margin * 100.0).max(-999.0)),
            ),
            otherwise,
        ]
    };
    let header = ["ADAPTER", "PATH", "MPPS IN", "OUT", "BOTTLENECK", "FREE", "ALTERNATIVE"];
    text += &table(header, advice.adapters.iter().map(row).collect());
    text += "\n";
    text.extend(advice.verdict(workload).map(|sentence| wrapped(&sentence)));
    let row = |of: &(Resource, f64)| {
        let (what, taken) = of;
        [
            what.limit.to_string(),
            advice.owner(workload, what.scope),
            format!("{:.0} %", taken * 100.0),
        ]
    };
    let resources = advice.resources.iter().take(SHOWN).map(row).collect();
    text += "\n";
    text += &table(["RESOURCE", "OF", "TAKEN"], resources);
    text += &format!("\n{}", crossovers(machine));
    text
}

/// Crossovers between guests.
fn crossovers(machine: &Machine) -> String {
    let each =
        SIZES.into_iter().filter_map(|bytes| {
            let from = crossover(machine, &FrameMix::of(bytes).ok()?);
            Some(from.map_or_else(
                || format!("none ({bytes} B)"),
                |guests| format!("{guests} ({bytes} B)"),
            ))
        });
    let each = each.collect::<Vec<_>>().join(", ");
    let begin =
        "Between guests, the path synthetic carries more than the NIC in chains of this length on:";
    wrapped(begin) + &wrapped(&format!("{each}."))
}

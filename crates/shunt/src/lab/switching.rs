//! `shunt lab switching`: what the switch costs a frame.

use anyhow::Result;
use clap::Args;
use lab::experiment::switching;

use super::{check_rounds, program, progress};
use crate::say;

/// Measure what the switch costs a 64 B frame beside a bare copying loop, and beside the path vf.
///
/// With a VLAN and 100 rules at each port, and without; and the path vf of a NIC with and without a
/// switch.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shunt lab switching --rounds 7 --json")]
pub(super) struct Switching {
    /// How often all are measured, in turn; medians count.
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Switching {
    pub(super) fn run(self) -> Result<()> {
        check_rounds(self.rounds)?;
        let cpus = host::cpu::allowed();
        let told = switching::run(&program()?, cpus, self.rounds, |done, of| {
            progress("round", done, of);
        })?;
        Ok(say(&if self.json { serde_json::to_string_pretty(&told)? + "\n" } else { text(&told) })?)
    }
}

/// The result, for people.
fn text(told: &switching::Switching) -> String {
    let mut text =
        format!("{:<44} {:>9} {:>9} {:>9}\n", "busy cycles a frame", "least", "median", "most");
    let ruled = format!("switch, VLAN {} and {} rules a port", told.vlan, told.rules);
    for (name, [least, median, most]) in [
        ("bare loop", told.bare_cycles),
        ("path vf, no switch", told.vf_cycles),
        ("path vf, the NIC has a switch", told.vf_beside_switch_cycles),
        ("switch alone", told.plain_switch_cycles),
        (ruled.as_str(), told.switch_cycles),
    ] {
        text += &format!("{name:<44} {least:>9.1} {median:>9.1} {most:>9.1}\n");
    }
    for (name, [least, median, most]) in [
        ("switch with VLAN and rules over bare loop", told.ratio),
        ("path vf with a switch over without", told.vf_ratio),
    ] {
        text += &format!("{name:<44} {least:>9.2} {median:>9.2} {most:>9.2}\n");
    }
    let kept = if told.ratio[1] <= told.ratio_max { "kept" } else { "NOT KEPT" };
    text + &format!(
        "the switch may cost {} times the bare loop: {kept}\n\
         through the switch {:.2} Mpps; a generator alone can send {:.1} Mpps\n\
         pinned: switch on CPU {}, guests on CPU {}\n",
        told.ratio_max,
        told.switch_mpps[1],
        told.generator_limit_mpps,
        told.switch_cpu,
        told.guests_cpu
    )
}

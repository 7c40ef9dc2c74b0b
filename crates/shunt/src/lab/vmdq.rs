//! `shunt lab vmdq`: receive-only traffic to four guests, with VMQ and without.

use anyhow::Result;
use clap::Args;
use lab::experiment::vmdq;

use super::{check_rounds, program};
use crate::say;

/// Measure receive-only traffic to four guests with VMQ and without, as vmdq-2009 did.
///
/// From the uplink, on the paths vmq and synthetic in turn: throughput, and the lane's cycles for
/// each frame.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shunt lab vmdq --rounds 7 --json")]
pub(super) struct Vmdq {
    /// How often each frame size is measured, both paths in turn; medians count.
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Vmdq {
    pub(super) fn run(self) -> Result<()> {
        check_rounds(self.rounds)?;
        let cpus = host::cpu::allowed();
        let told = vmdq::run(&program()?, cpus, self.rounds, |done, of| {
            eprint!("\rround {done} of {of} ");
        })?;
        eprintln!();
        Ok(say(&if self.json { serde_json::to_string_pretty(&told)? + "\n" } else { text(&told) })?)
    }
}

/// The result, for people.
fn text(told: &vmdq::Vmdq) -> String {
    let mut text = format!(
        "{:>6} {:<10} {:>9} {:>9} {:>13} {:>22}\n",
        "frame", "path", "Mpps", "Gbit/s", "cycles/frame", "least..most"
    );
    for point in &told.points {
        for (path, side) in [("vmq", point.vmq), ("synthetic", point.synthetic)] {
            let (bytes, mpps, gbps) = (point.frame_bytes, side.mpps[1], side.gbps[1]);
            let [least, median, most] = side.switch_cycles_per_frame;
            let range = format!("{least:.1}..{most:.1}");
            text += &format!(
                "{bytes:>6} {path:<10} {mpps:>9.2} {gbps:>9.2} {median:>13.1} {range:>22}\n"
            );
        }
    }
    text += "\nsynthetic over vmq, least, median and most of the rounds\n";
    for point in &told.points {
        let shown = |[a, b, c]: [f64; 3]| format!("{a:.2} {b:.2} {c:.2}");
        let (cycles, throughput) = (shown(point.cycles_ratio), shown(point.throughput_ratio));
        let bytes = point.frame_bytes;
        text += &format!("{bytes:>6} B: cycles {cycles}; throughput, vmq over it, {throughput}\n");
        if point.generator_bound {
            text += "        the generator was the limit: throughput says nothing\n";
        }
    }
    let paper = &told.paper;
    text += &format!(
        "the paper: {} Gbit/s without VMDq, {} with it: {:.2} times\n",
        paper.without_gbps, paper.with_gbps, paper.ratio
    );
    for note in &told.notes {
        text += &super::wrapped(note);
    }
    text
}

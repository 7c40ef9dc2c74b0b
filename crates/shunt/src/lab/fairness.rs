//! `shunt lab fairness`: shares of a lane.

use anyhow::Result;
use clap::Args;
use lab::experiment::fairness::{self, FairnessSpec, Situation};

use super::common::{program, progress};
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::print;

/// Measure each guest's share of a lane under contention.
///
/// Bytes of each guest, with equal weights (frames of one size, and of two), with other weights,
/// with maximum and with minimum rates; and the cost for the others of a receiver that takes no
/// frames.
#[derive(Debug, Args)]
#[command(add = Title("shares of a lane under contention"))]
#[command(after_help = "\
Example:
  shunt lab fairness --guests 8 --json")]
pub(super) struct Fairness {
    /// Guests: an even number, 4 to 64.
    #[arg(long, default_value_t = 8, value_name = "N")]
    guests: usize,
    /// Seconds to measure each situation, 0.1 to 60.
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Fairness {
    pub(super) fn run(self) -> Result<()> {
        let Fairness { guests, seconds, json } = self;
        let spec = FairnessSpec { guests, seconds };
        spec.check().map_err(UsageError)?;
        let fairness = fairness::run(&program()?, host::cpu::allowed(), spec, |done, of| {
            progress("situation", done, of);
        })?;
        let text =
            if json { serde_json::to_string_pretty(&fairness)? + "\n" } else { text(&fairness) };
        Ok(print(&text)?)
    }
}

/// Result as text.
fn text(fairness: &fairness::Fairness) -> String {
    let mut text = String::new();
    let mixed = &fairness.mixed;
    for (title, index, shares) in [
        ("64 B", fairness.jain_index, &fairness.shares),
        ("64 and 1518 B", mixed.jain_index, &mixed.shares),
    ] {
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min) * 100.0;
        let most = shares.iter().copied().fold(0.0, f64::max) * 100.0;
        text += &format!(
            "equal weights, {title:<14} Jain's index {index:.5}, shares {least:.2} to {most:.2} %\n"
        );
    }
    text += &format!("\n{:>10} {:>10} {:>10} {:>8}\n", "weight", "share %", "expected", "error %");
    for guest in &fairness.weights {
        let (share, expected) = (guest.share * 100.0, guest.expected * 100.0);
        let (weight, error) = (guest.weight, guest.error_pct);
        text += &format!("{weight:>10} {share:>10.3} {expected:>10.3} {error:>8.2}\n");
    }
    text += &format!("\n{:>10} {:>10} {:>10} {:>8}\n", "min Mbit/s", "sent", "expected", "error %");
    for guest in &fairness.minima {
        let (min, error) = (guest.min_tx_mbps, guest.error_pct);
        let (sent, expected) = (guest.mbps, guest.expected_mbps);
        text += &format!("{min:>10} {sent:>10.1} {expected:>10.1} {error:>8.2}\n");
    }
    text += &format!("\n{:>10} {:>10} {:>19}\n", "max Mbit/s", "sent", "error %");
    for guest in &fairness.maxima {
        let (max, sent, error) = (guest.max_tx_mbps, guest.mbps, guest.error_pct);
        text += &format!("{max:>10} {sent:>10.1} {error:>19.2}\n");
    }
    text + &stuck(&fairness.stuck) + &situations(&fairness.situations)
}

fn stuck(stuck: &fairness::Stuck) -> String {
    let shown = |[least, median, most]: [f64; 3]| format!("{least:.3} {median:.3} {most:.3}");
    format!(
        "\nreceived by the other pairs, Mpps: minimum, median, maximum of {} rounds\n\
         {:<44} {:>24}\n{:<44} {:>24}\n{:<44} {:>24}\n{:<44} {:>24}\n{:<44} {:>24}\n\
         a stuck receiver costs the others {:.2} %\n",
        stuck.rounds,
        "  the pair takes its frames",
        shown(stuck.receiving_mpps),
        "  its receiver is stuck",
        shown(stuck.stuck_mpps),
        "  it is stuck, and its peer sends nothing",
        shown(stuck.silent_mpps),
        "  stuck over taking its frames",
        shown(stuck.ratio),
        "  stuck over stuck and silent",
        shown(stuck.ratio_to_silent),
        stuck.cost_pct
    )
}

fn situations(situations: &[Situation]) -> String {
    let mut text = format!(
        "\n{:<32} {:>7} {:>8} {:>8} {:>7} {:>11}\n",
        "situation", "Mpps", "Gbit/s", "cycles", "busy %", "backlog %"
    );
    for situation in situations {
        let (name, mpps, gbps) = (situation.name, situation.mpps, situation.mbps / 1e3);
        let cycles = situation.switch_cycles_per_frame;
        let busy = situation.switch_busy_share * 100.0;
        let backlog = situation.backlog_share * 100.0;
        text += &format!(
            "{name:<32} {mpps:>7.2} {gbps:>8.2} {cycles:>8.1} {busy:>7.1} {backlog:>11.1}\n"
        );
    }
    let limits = situations.iter().map(|situation| situation.generator_limit_mpps);
    let limit = limits.fold(f64::INFINITY, f64::min);
    text += &format!("limit of a generator alone: {limit:.1} Mpps\n");
    let trips = situations.iter().filter_map(|situation| situation.round_trip_cycles).flatten();
    if let Some((least, most)) =
        trips.map(|trip| (trip, trip)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    {
        text += &format!(
            "round trip of a cache line between the two CPUs: {least:.0} to {most:.0} cycles\n"
        );
    }
    let disturbed: usize = situations.iter().map(|situation| situation.slices_disturbed).sum();
    let counted: usize = situations.iter().map(|situation| situation.slices).sum();
    text += &format!(
        "{counted} slices counted; {disturbed} excluded: a process had no CPU for a while\n"
    );
    for situation in situations.iter().filter(|situation| !situation.contended) {
        text += &format!(
            "{}: the guests did not keep their rings full, so the result does not show the switch's limit\n",
            situation.name
        );
    }
    text
}

//! `shunt lab fairness`: shares of a lane.

use anyhow::Result;
use clap::Args;
use lab::experiment::fairness::{self, Burden, FairnessSpec, Guaranteed, Situation, Weighted};

use super::common::{program, progress};
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{figures, print};

/// Measure each guest's share of a lane under contention.
///
/// Bytes of each guest, with equal weights (frames of one size, and of two), with other weights,
/// with weights and frames of unequal cost, with maximum and with minimum rates; and the cost for
/// the others of a receiver that takes no frames.
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
        ("bytes of 64 B frames", fairness.jain_index, &fairness.shares),
        ("time, 64 and 1518 B", mixed.jain_index, &mixed.shares),
    ] {
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min) * 100.0;
        let most = shares.iter().copied().fold(0.0, f64::max) * 100.0;
        text += &format!(
            "equal weights, {title:<20} Jain's index {index:.5}, shares {least:.2} to {most:.2} %\n"
        );
    }
    let row = |first: &dyn ToString, numbers: [String; 3]| {
        let [a, b, c] = numbers;
        [first.to_string(), a, b, c]
    };
    let weights = fairness.weights.iter().map(|guest| {
        let [share, expected] =
            [guest.share, guest.expected].map(|it| format!("{:.3}", it * 100.0));
        row(&guest.weight, [share, expected, format!("{:.2}", guest.error_pct)])
    });
    let burdens = fairness.burdens.iter().map(|guest| {
        let Weighted { weight, share, expected, error_pct } = guest.weighted;
        let frames = format!("{} B{}", guest.frame_bytes, kind(guest.burden));
        let [share, expected] = [share, expected].map(|it| format!("{:.3}", it * 100.0));
        let (cycles, error) = (format!("{:.1}", guest.cycles_per_frame), format!("{error_pct:.2}"));
        [frames, cycles, weight.to_string(), share, expected, error]
    });
    let minimum = |guest: &Guaranteed| {
        let [sent, expected] = [guest.mbps, guest.expected_mbps].map(|it| format!("{it:.1}"));
        row(&guest.min_tx_mbps, [sent, expected, format!("{:.2}", guest.error_pct)])
    };
    let [minima, beside] =
        [&fairness.minima, &fairness.burdens_minima].map(|it| it.iter().map(minimum).collect());
    let maxima = fairness.maxima.iter().map(|guest| {
        let [sent, error] = [format!("{:.1}", guest.mbps), format!("{:.2}", guest.error_pct)];
        [guest.max_tx_mbps.to_string(), sent, error]
    });
    text += "\n";
    text += &figures(["weight", "time %", "expected", "error %"], weights.collect());
    text += "\n";
    let header = ["frames", "cycles", "weight", "time %", "expected", "error %"];
    text += &figures(header, burdens.collect());
    text += "\n";
    text += &figures(["min Mbit/s beside these", "sent", "expected", "error %"], beside);
    text += "\n";
    text += &figures(["min Mbit/s", "sent", "expected", "error %"], minima);
    text += "\n";
    text += &figures(["max Mbit/s", "sent", "error %"], maxima.collect());
    text + &stuck(&fairness.stuck) + &situations(&fairness.situations)
}

fn kind(burden: Burden) -> &'static str {
    match burden {
        Burden::None => "",
        Burden::Pieces => " in 256 pieces",
        Burden::Flood => " broadcasts",
        Burden::Interrupt => ", slow interrupt",
    }
}

fn stuck(stuck: &fairness::Stuck) -> String {
    let row = |(name, values): (&str, [f64; 3])| {
        let [least, median, most] = values.map(|value| format!("{value:.3}"));
        [name.to_owned(), least, median, most]
    };
    let rows = [
        ("the pair takes its frames", stuck.receiving_mpps),
        ("its receiver is stuck", stuck.stuck_mpps),
        ("it is stuck, and its peer sends nothing", stuck.silent_mpps),
        ("stuck over taking its frames", stuck.ratio),
        ("stuck over stuck and silent", stuck.ratio_to_silent),
    ];
    format!(
        "\nreceived by the other pairs, Mpps, in {} rounds\n{}a stuck receiver costs the others \
         {:.2} %\n",
        stuck.rounds,
        figures(["one pair", "minimum", "median", "maximum"], rows.map(row).to_vec()),
        stuck.cost_pct
    )
}

fn situations(situations: &[Situation]) -> String {
    let row = |situation: &Situation| {
        let numbers = [
            format!("{:.2}", situation.mpps),
            format!("{:.2}", situation.mbps / 1e3),
            format!("{:.1}", situation.switch_cycles_per_frame),
            format!("{:.1}", situation.switch_busy_share * 100.0),
            format!("{:.1}", situation.backlog_share * 100.0),
        ];
        let [mpps, gbps, cycles, busy, backlog] = numbers;
        [situation.name.to_string(), mpps, gbps, cycles, busy, backlog]
    };
    let header = ["situation", "Mpps", "Gbit/s", "cycles", "busy %", "backlog %"];
    let mut text = "\n".to_owned() + &figures(header, situations.iter().map(row).collect());
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

//! `shunt lab switches`: Shunt beside other switches, with the same guest.

use anyhow::Result;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use control::migrate::interrupted_by_signals;
use lab::experiment::switches::{self, PAIRS_MIN, Settings, Switch, Switches as Comparison};
use lab::report::{SAMPLED_ONE_IN, Stages};

use super::{check_rounds, program};
use crate::{Mistake, say};

/// Compare switches between the same two vhost-user ports: cycles a frame, and frames a second.
///
/// The guest of each switch is the same testpmd, on the same CPU. Switches take turns of a fraction
/// of a second, forward then backward; results are grouped by the distance of both CPUs. Needs
/// root for huge pages, priorities and Open vSwitch, and what `tests/e2e/setup --peers` installs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab switches                                     shunt, bare, ovs-dpdk, testpmd
  shunt lab switches --ring packed --mergeable off --sizes 64 --pairs 40
  shunt lab switches --switch shunt,ovs-dpdk --rules     a VLAN and 100 rules on both
  shunt lab switches --switch shunt,bare --no-hugepages --json")]
pub(super) struct Switches {
    /// Switches, the first is the one that others are compared with: bare, shunt, ovs-dpdk,
    /// testpmd.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "shunt,bare,ovs-dpdk,testpmd"
    )]
    switch: Vec<Switch>,
    /// Rings of the guests: split or packed.
    #[arg(long, default_value = "split", value_name = "KIND", value_parser = ["split", "packed"])]
    ring: String,
    /// Mergeable receive buffers of the guests: on or off.
    #[arg(long, default_value = "on", value_name = "STATE", value_parser = ["on", "off"])]
    mergeable: String,
    /// Frame sizes with FCS, 64 to 1518 bytes.
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_value = "64,256,1518")]
    sizes: Vec<u32>,
    /// Pairs of slots of each size, over all rounds: 2 to 1000.
    #[arg(long, default_value_t = 24, value_name = "N")]
    pairs: usize,
    /// Rounds, each with fresh processes: 1 to 100.
    #[arg(long, default_value_t = 2, value_name = "N")]
    rounds: usize,
    /// Seconds of a slot: 0.05 to 60.
    #[arg(long, default_value_t = 0.2, value_name = "S")]
    slot: f64,
    /// Seconds before each slot for caches to fill: 0 to 60.
    #[arg(long, default_value_t = 0.08, value_name = "S")]
    settle: f64,
    /// Bursts of 32 frames in flight from each port: 1 to 30.
    #[arg(long, default_value_t = 16, value_name = "N")]
    bursts: u64,
    /// CPU of the switches' polling threads; by default the first that is allowed.
    #[arg(long, value_name = "N")]
    switch_cpu: Option<usize>,
    /// CPU of the guests; by default the last that is allowed.
    #[arg(long, value_name = "N")]
    guest_cpu: Option<usize>,
    /// Time-stamp cycles that the bare loop spins for each frame: a planted slow-down.
    #[arg(long, default_value_t = 0, value_name = "N")]
    delay_cycles: u64,
    /// Shunt and Open vSwitch learn addresses, with a VLAN and 100 rules of which none matches.
    #[arg(long)]
    rules: bool,
    /// Pages of 4 KiB for the guests, Open vSwitch and testpmd.
    #[arg(long)]
    no_hugepages: bool,
    /// Print one JSON object, with every slot.
    #[arg(long)]
    json: bool,
}

impl Switches {
    pub(super) fn run(self) -> Result<()> {
        let json = self.json;
        let settings = self.settings()?;
        let interrupted = interrupted_by_signals()?;
        let result =
            switches::run(&program()?, settings, &interrupted, |line| eprintln!("{line}"))?;
        let text = match json {
            true => serde_json::to_string_pretty(&result)? + "\n",
            false => text(&result),
        };
        Ok(say(&text)?)
    }

    fn settings(self) -> Result<Settings> {
        check_rounds(self.rounds)?;
        let cpus = host::cpu::allowed();
        let switch_cpu = self.switch_cpu.unwrap_or(cpus[0]);
        let guest_cpu = self.guest_cpu.unwrap_or(cpus[cpus.len() - 1]);
        let twice = |i: usize| self.switch[..i].contains(&self.switch[i]);
        let wrong = if switch_cpu == guest_cpu {
            Some("--switch-cpu and --guest-cpu must differ: two CPUs are needed".to_owned())
        } else if (0..self.switch.len()).any(twice) {
            Some("--switch: give each switch once".to_owned())
        } else if let Some(size) = self.sizes.iter().find(|size| !(64..=1518).contains(*size)) {
            Some(format!("--sizes: {size} is out of range, allowed are 64 to 1518"))
        } else if !(2..=1000).contains(&self.pairs) {
            Some(format!("--pairs {}: allowed are 2 to 1000", self.pairs))
        } else if !(0.05..=60.0).contains(&self.slot) {
            Some(format!("--slot {}: allowed are 0.05 to 60", self.slot))
        } else if !(0.0..=60.0).contains(&self.settle) {
            Some(format!("--settle {}: allowed are 0 to 60", self.settle))
        } else if !(1..=switches::BURSTS_MAX).contains(&self.bursts) {
            Some(format!("--bursts {}: allowed are 1 to {}", self.bursts, switches::BURSTS_MAX))
        } else if self.rules && self.switch.iter().any(|switch| !has_rules(*switch)) {
            Some("--rules: only shunt and ovs-dpdk have rules; name them with --switch".to_owned())
        } else {
            None
        };
        if let Some(text) = wrong {
            return Err(Mistake(text).into());
        }
        Ok(Settings {
            switches: self.switch,
            packed: self.ring == "packed",
            mergeable: self.mergeable == "on",
            sizes: self.sizes,
            pairs: self.pairs,
            rounds: self.rounds,
            slot_s: self.slot,
            settle_s: self.settle,
            bursts: self.bursts,
            switch_cpu,
            guest_cpu,
            delay_cycles: self.delay_cycles,
            rules: self.rules,
            hugepages: !self.no_hugepages,
        })
    }
}

fn has_rules(switch: Switch) -> bool {
    matches!(switch, Switch::Shunt | Switch::OvsDpdk)
}

/// The result, for people.
fn text(result: &Comparison) -> String {
    let settings = &result.settings;
    let first = settings.switches[0];
    let ring = if settings.packed { "packed" } else { "split" };
    let mergeable = if settings.mergeable { "on" } else { "off" };
    format!(
        "{ring} rings, mergeable buffers {mergeable}; switch on CPU {}, guest on CPU {}\n\n{}\n\n{}\
         ratio: cycles a frame over those of {first}, with its interval of 99 %; a band needs \
         {PAIRS_MIN} pairs\n\
         busy: share of the switch's CPU; below 100 % the guest limits Mpps, and cycles a frame \
         are an upper limit\n{}",
        settings.switch_cpu,
        settings.guest_cpu,
        table(result),
        notes(result),
        stages(result)
    )
}

/// Shunt's cycles by stage, a row for each band; empty without any.
fn stages(result: &Comparison) -> String {
    let mut table = Table::new();
    let header = ["frame", "distance"].into_iter().chain(Stages::PARTS);
    table.load_style(presets::NOTHING).set_header(header);
    for size in &result.sizes {
        for (band, side) in size.bands.iter().flat_map(|b| b.sides.iter().map(move |s| (b, s))) {
            let Some(stages) = side.figures.and_then(|figures| figures.stages) else { continue };
            let cycles = stages.cycles().map(|cycles| format!("{cycles:.1}"));
            let row = [format!("{} B", size.frame_bytes), band.band.clone()];
            table.add_row(row.into_iter().chain(cycles));
        }
    }
    if table.is_empty() {
        return String::new();
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_cell_alignment(match at {
            1 => CellAlignment::Left,
            _ => CellAlignment::Right,
        });
    }
    format!(
        "\nCycles a frame of shunt by stage, medians\n{table}\n\
         sampled on 1 burst in {SAMPLED_ONE_IN}; sampling: cost of the readings; other: busy \
         cycles outside of bursts (rounds, polls that found nothing)\n"
    )
}

/// A row for each switch in each band that has pairs.
fn table(result: &Comparison) -> Table {
    const HEADER: [&str; 8] =
        ["frame", "distance", "switch", "pairs", "cycles/frame", "busy", "Mpps", "ratio"];
    /// Columns with words, which are read from the left.
    const WORDS: [&str; 2] = ["distance", "switch"];
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(HEADER);
    for size in &result.sizes {
        let bands = size.bands.iter().filter(|band| band.sides.iter().any(|side| side.pairs > 0));
        for (band, side) in bands.flat_map(|band| band.sides.iter().map(move |side| (band, side))) {
            let mut row = vec![format!("{} B", size.frame_bytes), band.band.clone()];
            row.extend([side.switch.to_string(), side.pairs.to_string()]);
            match &side.figures {
                None => row.push("too few".into()),
                Some(figures) => row.extend([
                    format!("{:.1}", figures.cycles_per_frame),
                    format!("{:.0} %", 100.0 * figures.busy_share),
                    format!("{:.1}", figures.mpps),
                    figures.ratio.map_or_else(String::new, |ratio| {
                        format!("{:.2} ({:.2}-{:.2})", ratio.ratio, ratio.low, ratio.high)
                    }),
                ]),
            }
            table.add_row(row);
        }
    }
    for (column, name) in table.column_iter_mut().zip(HEADER) {
        let is_word = WORDS.contains(&name);
        column.set_cell_alignment(if is_word { CellAlignment::Left } else { CellAlignment::Right });
    }
    table
}

/// Empty bands, pairs that do not count, and lost frames.
fn notes(result: &Comparison) -> String {
    let mut notes = String::new();
    for size in &result.sizes {
        let frame = format!("{} B", size.frame_bytes);
        for band in size.bands.iter().filter(|band| band.sides.iter().all(|side| side.pairs == 0)) {
            notes += &format!("{frame}, {}: no pairs\n", band.band);
        }
        for out in size.left_out.iter().filter(|out| out.moved + out.disturbed + out.lost > 0) {
            notes += &format!(
                "{frame}, {}: not counted: {} pairs moved between bands, {} disturbed, {} in \
                 rounds with lost frames\n",
                out.switch, out.moved, out.disturbed, out.lost
            );
        }
    }
    for drain in result.drains.iter().filter(|drain| drain.frames != drain.expected) {
        notes += &format!(
            "{}, round {}, {} B: of {} frames in flight {} came back\n",
            drain.switch,
            drain.round + 1,
            drain.frame_bytes,
            drain.expected,
            drain.frames
        );
    }
    notes
}

//! `shunt lab switches`: Shunt compared with other switches, with the same guest.

use anyhow::{Result, bail};
use clap::{Args, Command, FromArgMatches};
use lab::experiment::switches::{
    self, BandResult, GuestType, PAIRS_MIN, Rings, RingsResult, SideResult, SwitchType,
    Switches as Comparison, SwitchesSettings,
};
use report::{Align, Stages};

use super::common::{check_rounds, program};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{of_stdout, print};

/// Compare switches between two ports of the same guest: cycles per frame, frames per second.
///
/// The guest of each switch is the same program, on the same CPU. Switches take turns of a fraction
/// of a second, forward then backward; results are grouped by the distance of both CPUs. Needs root
/// for huge pages, priorities and Open vSwitch, and the packages of `tests/e2e/setup --peers`.
/// Neither root nor DPDK: --switch bare,shunt --guest lab.
///
/// Ports are vhost-user sockets. Switches of the kernel's network, ovs-userspace and linux-bridge,
/// have interfaces (veth), which the guest reaches by AF_PACKET: their figures include the guest's
/// system calls.
#[derive(Debug, Args)]
#[command(add = Title("comparison of switches between two ports of a guest"))]
#[command(after_help = "\
Examples:
  shunt lab switches                                     shunt, bare, ovs-dpdk, testpmd
  shunt lab switches --ring packed --mergeable off --sizes 64 --pairs 40
  shunt lab switches --ring split,packed --mergeable on,off         all rings in one table
  shunt lab switches --switch shunt,bare --guest lab     no root, no DPDK
  shunt lab switches --switch shunt,ovs-userspace,linux-bridge --slot 1
  shunt lab switches --switch shunt-rules,ovs-dpdk-rules           a VLAN and 100 rules on both
  shunt lab switches --switch shunt,bare --guest qemu --slot 1     a virtual machine
  shunt lab switches --switch shunt,bare --no-hugepages --json")]
pub(super) struct Switches {
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "shunt,bare,ovs-dpdk,testpmd",
        add = complete::words(SwitchType::ALL.map(SwitchType::as_str)),
        help = switch_help()
    )]
    switch: Vec<SwitchType>,
    #[arg(long, value_name = "NAME", default_value = "testpmd", add = complete::words(GuestType::ALL.map(GuestType::as_str)),
        help = guest_help())]
    guest: GuestType,
    /// Rings of the guests, measured one after the other: split, packed.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KINDS",
        default_value = "split",
        value_parser = ["split", "packed"]
    )]
    ring: Vec<String>,
    /// Mergeable receive buffers of the guests, measured one after the other: on, off.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "STATES",
        default_value = "on",
        value_parser = ["on", "off"]
    )]
    mergeable: Vec<String>,
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
    /// Seconds before each slot to warm caches: 0 to 60.
    #[arg(long, default_value_t = 0.08, value_name = "S")]
    settle: f64,
    /// Bursts of 32 frames in flight from each port: 1 to 30.
    #[arg(long, default_value_t = 16, value_name = "N")]
    bursts: u64,
    /// CPU of the switches' polling threads; by default the first allowed one.
    #[arg(long, value_name = "N")]
    switch_cpu: Option<usize>,
    /// CPU of the guests; by default the last allowed one.
    #[arg(long, value_name = "N")]
    guest_cpu: Option<usize>,
    /// Time-stamp cycles that the bare loop spins for each frame: an artificial delay.
    #[arg(long, default_value_t = 0, value_name = "N")]
    delay_cycles: u64,
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
        let result = switches::run(&program()?, settings, |line| eprintln!("{line}"))?;
        let text = match json {
            true => serde_json::to_string_pretty(&result)? + "\n",
            false => text(&result),
        };
        print(&text)?;
        match result.ended_early {
            Some(why) => bail!("ended early, with the results so far; {why}"),
            None => Ok(()),
        }
    }

    fn settings(self) -> Result<SwitchesSettings> {
        check_rounds(self.rounds)?;
        let cpus = host::cpu::allowed();
        let switch_cpu = self.switch_cpu.unwrap_or(cpus[0]);
        let guest_cpu = self.guest_cpu.unwrap_or(cpus[cpus.len() - 1]);
        let wrong = if switch_cpu == guest_cpu {
            let message = "is the CPU of the guests too: two CPUs are needed";
            Some(UsageError::option("--switch-cpu", switch_cpu, message, "choose another CPU"))
        } else if has_twice(&self.switch) {
            Some(UsageError::option("--switch", (), "has a switch twice", "give each once"))
        } else if has_twice(&self.ring) {
            Some(UsageError::option("--ring", (), "has a value twice", "give each once"))
        } else if has_twice(&self.mergeable) {
            Some(UsageError::option("--mergeable", (), "has a value twice", "give each once"))
        } else if let Some(size) = self.sizes.iter().find(|size| !(64..=1518).contains(*size)) {
            Some(UsageError::out_of_range("--sizes", *size, 64, 1518))
        } else if !(2..=1000).contains(&self.pairs) {
            Some(UsageError::out_of_range("--pairs", self.pairs, 2, 1000))
        } else if !(0.05..=60.0).contains(&self.slot) {
            Some(UsageError::out_of_range("--slot", self.slot, 0.05, 60))
        } else if !(0.0..=60.0).contains(&self.settle) {
            Some(UsageError::out_of_range("--settle", self.settle, 0, 60))
        } else if !(1..=switches::BURSTS_MAX).contains(&self.bursts) {
            Some(UsageError::out_of_range("--bursts", self.bursts, 1, switches::BURSTS_MAX))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
        let rings = self.ring.iter().flat_map(|ring| {
            let of = move |mergeable: &String| Rings {
                packed: ring == "packed",
                mergeable: mergeable == "on",
            };
            self.mergeable.iter().map(of)
        });
        let settings = SwitchesSettings {
            rings: rings.collect(),
            switches: self.switch,
            guest: self.guest,
            sizes: self.sizes,
            pairs: self.pairs,
            rounds: self.rounds,
            slot_s: self.slot,
            settle_s: self.settle,
            bursts: self.bursts,
            switch_cpu,
            guest_cpu,
            delay_cycles: self.delay_cycles,
            hugepages: !self.no_hugepages,
        };
        settings.check().map_err(UsageError)?;
        Ok(settings)
    }
}

fn switch_help() -> String {
    let about = SwitchType::ALL.map(|switch| format!("\n- {switch}: {}", switch.about()));
    format!("Switches; the others are compared with the first:{}", about.concat())
}

fn guest_help() -> String {
    let about = GuestType::ALL.map(|guest| format!("\n- {guest}: {}", guest.about()));
    format!("Guest of each switch:{}", about.concat())
}

fn has_twice<T: PartialEq>(list: &[T]) -> bool {
    list.iter().enumerate().any(|(at, value)| list[..at].contains(value))
}

/// Measure the daemon's overhead per frame over the bare copying loop.
///
/// Same as: shunt lab switches --switch bare,shunt --guest lab.
#[derive(Debug, Args)]
#[command(add = Title("overhead of the daemon over the bare copying loop"))]
#[command(after_help = "\
Example:
  shunt lab overhead --pairs 40 --json")]
pub(super) struct Overhead {
    #[command(flatten)]
    preset: Preset,
}

impl Overhead {
    pub(super) fn run(self) -> Result<()> {
        self.preset.run("bare,shunt", "64,256,1518")
    }
}

/// Measure the cost of the software switch for a 64 B frame, and its effect on VFs: none.
///
/// Compares the bare copying loop with: VFs; VFs of a NIC that also has a switch; the path
/// synthetic; the path synthetic with a VLAN and 100 rules at each port. The guest is this
/// program's own.
#[derive(Debug, Args)]
#[command(add = Title("cost of the software switch per frame"))]
#[command(after_help = "\
Example:
  shunt lab switching --pairs 40 --json")]
pub(super) struct Switching {
    #[command(flatten)]
    preset: Preset,
}

impl Switching {
    pub(super) fn run(self) -> Result<()> {
        self.preset.run("bare,shunt,shunt-beside-switch,shunt-switch,shunt-rules", "64")
    }
}

/// Options of a comparison with fixed switches and guest.
#[derive(Debug, Args)]
struct Preset {
    /// Pairs of slots of each size, over all rounds: 2 to 1000.
    #[arg(long, default_value_t = 24, value_name = "N")]
    pairs: usize,
    /// Rounds, each with fresh processes: 1 to 100.
    #[arg(long, default_value_t = 2, value_name = "N")]
    rounds: usize,
    /// Print one JSON object, with every slot.
    #[arg(long)]
    json: bool,
}

impl Preset {
    fn run(self, switches: &str, sizes: &str) -> Result<()> {
        let (pairs, rounds) = (self.pairs.to_string(), self.rounds.to_string());
        let mut args = vec!["switches", "--guest", "lab", "--switch", switches, "--sizes", sizes];
        args.extend(["--pairs", &pairs, "--rounds", &rounds]);
        args.extend(self.json.then_some("--json"));
        let matches =
            Switches::augment_args(Command::new("switches")).try_get_matches_from(args)?;
        Switches::from_arg_matches(&matches)?.run()
    }
}

/// Result as text.
fn text(result: &Comparison) -> String {
    let SwitchesSettings { switches, guest, switch_cpu, guest_cpu, .. } = &result.settings;
    let first = switches[0];
    let kind = result.guest_cpu_kind.map_or_else(String::new, |kind| format!(" ({kind})"));
    format!(
        "guest {guest}{kind} on CPU {guest_cpu}, switch on CPU {switch_cpu}\n\n{}\n{}\
         ratio: cycles per frame over those of {first}, with its 99 % interval; a band needs \
         {PAIRS_MIN} pairs\n\
         not counted: pairs whose CPUs moved between bands, with other processes beside them, or \
         in rounds with lost frames\n\
         busy: share of the switch's CPU; below 100 % the guest limits Mpps, and cycles a frame \
         are an upper limit\n{}{}",
        table(result),
        notes(result),
        about_interfaces(result),
        stages(result)
    )
}

/// Note on switches between interfaces, if there are any.
fn about_interfaces(result: &Comparison) -> String {
    let switches = result.settings.switches.iter().filter(|switch| !switch.is_vhost_user());
    let names = switches.clone().map(|switch| switch.as_str()).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return names;
    }
    let cycles = switches.clone().filter_map(|switch| Some((switch, switch.cycles()?)));
    let cycles = cycles.map(|(switch, cycles)| format!("cycles of {switch}: {cycles}\n"));
    let fewer = switches.map(|switch| (switch, result.settings.bursts_of(*switch)));
    let fewer =
        fewer.filter(|(_, bursts)| *bursts < result.settings.bursts).map(|(switch, bursts)| {
            format!(
                "{switch}: {bursts} bursts in flight from each port, as its sockets hold no more\n"
            )
        });
    format!(
        "{names}: ports are not vhost-user but interfaces (veth), which the guest reaches by \
         AF_PACKET; rings and mergeable buffers do not apply\n\
         kernel: time of the guest's CPU in the kernel (/proc/stat, steps of 10 ms), part of \
         cycles/frame; contains the guest's own system calls, of which vhost-user ports have none\n\
         {}",
        cycles.chain(fewer).collect::<String>()
    )
}

/// One value of a switch in a band.
struct Row<'a> {
    rings: &'a RingsResult,
    frame_bytes: u32,
    band: &'a BandResult,
    side: &'a SideResult,
}

impl Row<'_> {
    /// First columns: rings, mergeable, frame, distance.
    fn place(&self) -> [String; 4] {
        let Rings { packed, mergeable } = self.rings.rings;
        [
            if packed { "packed" } else { "split" }.to_owned(),
            if mergeable { "on" } else { "off" }.to_owned(),
            format!("{} B", self.frame_bytes),
            self.band.band.clone(),
        ]
    }
}

const PLACE: [&str; 4] = ["rings", "mergeable", "frame", "distance"];
/// Text columns, aligned left.
const WORDS: [&str; 4] = ["rings", "mergeable", "distance", "switch"];

fn rows(result: &Comparison) -> impl Iterator<Item = Row<'_>> {
    let sizes = result.results.iter().flat_map(|r| r.sizes.iter().map(move |size| (r, size)));
    let bands = sizes.flat_map(|(rings, size)| size.bands.iter().map(move |b| (rings, size, b)));
    bands.flat_map(|(rings, size, band)| {
        let frame_bytes = size.frame_bytes;
        band.sides.iter().map(move |side| Row { rings, frame_bytes, band, side })
    })
}

fn table_of(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let align = |name| if WORDS.contains(name) { Align::Left } else { Align::Right };
    let columns: Vec<_> = header.iter().map(|name| (*name, align(name))).collect();
    of_stdout().table(&columns, rows)
}

/// Shunt's cycles by stage, a row for each band; empty without any.
fn stages(result: &Comparison) -> String {
    let mut lines = Vec::new();
    for row in rows(result) {
        let Some(stages) = row.side.figures.and_then(|figures| figures.stages) else { continue };
        let cycles = stages.cycles().map(|cycles| format!("{cycles:.1}"));
        let place = row.place().into_iter().chain([row.side.switch.to_string()]);
        lines.push(place.chain(cycles).collect());
    }
    if lines.is_empty() {
        return String::new();
    }
    let table = table_of(&[&PLACE[..], &["switch"], &Stages::PARTS[..]].concat(), lines);
    format!(
        "\nShunt's cycles per frame by stage, medians\n{table}\
         measured on a sample of the bursts; sampling: cost of the readings; other: busy \
         cycles outside of bursts (rounds, polls that found nothing)\n"
    )
}

/// Table with a row for each switch in each band with enough pairs.
fn table(result: &Comparison) -> String {
    const FIGURES: [&str; 7] =
        ["switch", "pairs", "cycles/frame", "kernel", "busy", "Mpps", "ratio"];
    let has_kernel = result.settings.switches.iter().any(|switch| !switch.is_vhost_user());
    let figures = FIGURES.into_iter().filter(|name| has_kernel || *name != "kernel");
    let header: Vec<&str> = PLACE.into_iter().chain(figures).collect();
    let mut lines = Vec::new();
    for row in rows(result) {
        let side = row.side;
        let Some(figures) = &side.figures else { continue };
        let mut cells: Vec<String> = row.place().into();
        cells.extend([side.switch.to_string(), side.pairs.to_string()]);
        cells.push(format!("{:.1}", figures.cycles_per_frame));
        cells.extend(has_kernel.then(|| format!("{:.1}", figures.kernel_cycles_per_frame)));
        cells.extend([
            format!("{:.0} %", 100.0 * figures.busy_share),
            mpps(figures.mpps),
            figures.ratio.map_or_else(String::new, |ratio| {
                format!("{:.2} ({:.2}-{:.2})", ratio.ratio, ratio.low, ratio.high)
            }),
        ]);
        lines.push(cells);
    }
    table_of(&header, lines)
}

/// Three significant digits: the kernel's switches forward a fraction of a Mframe/s.
fn mpps(mpps: f64) -> String {
    if mpps < 1.0 { format!("{mpps:.3}") } else { format!("{mpps:.1}") }
}

/// Name of a band in which some switch has too few pairs, and how many it has; `None` for a band
/// without any pairs.
fn too_few(band: &BandResult) -> Option<String> {
    let few = band.sides.iter().filter(|side| side.figures.is_none());
    let most = few.clone().map(|side| side.pairs).max().filter(|most| *most > 0)?;
    let (name, least) = (&band.band, few.map(|side| side.pairs).min()?);
    Some(if least == most {
        format!("{name} ({most})")
    } else {
        format!("{name} ({least}-{most})")
    })
}

/// Notes on bands with too few pairs, excluded pairs and lost frames.
fn notes(result: &Comparison) -> String {
    let mut notes = String::new();
    for rings in &result.results {
        for size in &rings.sizes {
            let at = format!("{}, {} B", rings.rings, size.frame_bytes);
            let few = size.bands.iter().filter_map(too_few).collect::<Vec<_>>().join("; ");
            if !few.is_empty() {
                notes += &format!("{at}: too few pairs: {few}\n");
            }
            let out = size.left_out.iter().map(|out| (out.moved + out.disturbed + out.lost, out));
            let out = out.filter(|(pairs, _)| *pairs > 0);
            let out: Vec<_> = out.map(|(n, out)| format!("{} {n}", out.switch)).collect();
            if !out.is_empty() {
                notes += &format!("{at}: pairs not counted: {}\n", out.join(", "));
            }
        }
        for drain in rings.drains.iter().filter(|drain| drain.frames != drain.expected) {
            notes += &format!(
                "{}, {} B, {}, round {}: of {} frames in flight {} came back\n",
                rings.rings,
                drain.frame_bytes,
                drain.switch,
                drain.round + 1,
                drain.expected,
                drain.frames
            );
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        switches: Switches,
    }

    fn settings(args: &[&str]) -> Result<SwitchesSettings, String> {
        let cpus = ["shunt", "--switch-cpu", "0", "--guest-cpu", "1"];
        let parsed = Program::try_parse_from(cpus.iter().chain(args));
        let parsed = parsed.map_err(|error| error.to_string())?;
        parsed.switches.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn lists_of_rings_are_combined() {
        let settings = settings(&["--ring", "split,packed", "--mergeable", "on,off"]).unwrap();
        let rings = settings.rings.iter().map(Rings::to_string);
        let expected = ["split", "packed"].map(|layout| {
            ["on", "off"].map(|state| format!("{layout} rings, mergeable buffers {state}"))
        });
        assert_eq!(rings.collect::<Vec<_>>(), expected.concat());
        assert_eq!(settings.guest.as_str(), "testpmd");
    }

    #[test]
    fn every_switch_and_guest_is_known_by_its_name() {
        for switch in SwitchType::ALL {
            assert_eq!(switch.as_str().parse::<SwitchType>().unwrap(), switch);
            assert!(!switch.about().is_empty(), "{switch}");
        }
        for guest in GuestType::ALL {
            assert_eq!(guest.as_str().parse::<GuestType>().unwrap().as_str(), guest.as_str());
        }
    }

    #[test]
    fn a_guest_without_ports_for_a_switch_is_rejected_with_what_is_possible() {
        let error = settings(&["--guest", "lab", "--switch", "shunt,linux-bridge"]).unwrap_err();
        let words = "--guest: \"lab\" has no ports for switch linux-bridge; write one of testpmd, \
                     or leave lab and choose from --switch bare, shunt, shunt-beside-switch, \
                     shunt-switch, shunt-rules, ovs-dpdk, ovs-dpdk-rules, testpmd";
        assert!(error.contains(words), "{error}");
        assert!(settings(&["--guest", "lab", "--switch", "shunt,bare"]).is_ok());
    }
}

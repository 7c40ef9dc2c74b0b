//! `shunt lab`: experiments.

mod bare;
mod calibrate;
mod compare;
mod fairness;
mod measure;
mod path_changes;
mod succession;
mod switches;
mod switching;
mod throughput;

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use lab::bench::interrupt;
use lab::experiment::forwarding::{self, PointSpec};
use lab::experiment::hostile::{self, HostileRun};
use lab::experiment::idle::{self, IdleSpec};
use lab::experiment::{distance, overhead, scale};
use lab::report::{self, Load, PathKind, Pattern, RingKind};

use crate::{Mistake, say};

/// Measure virtual machines' network paths on this machine.
///
/// Without a subcommand the experiment "quick": every pattern and path, three frame sizes, 1, 2 and
/// 4 guests, in about a minute, with tables, verdicts and a report in lab-results/. Nothing but Rust
/// and this program is needed: guests are processes that attach to a daemon over real vhost-user
/// sockets. No root.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples, experiments of files (shunt lab NAME --help for their settings):
  shunt lab                                              quick: everything in about a minute
  shunt lab nfv                                          forwarding, 1 to 8 guests, 64 to 1518 B
  shunt lab vmdq                                         receiving with VMQ and without
  shunt lab hyperv                                       file copies, CPU by layer
  shunt lab ntttcp                                       TCP between kernels, 1 and 4 streams
  shunt lab netperf                                      TCP by the size of each write
  shunt lab vpf                                          UDP both ways, and round trips
  shunt lab ./mine.toml                                  one of your own

Examples, others:
  shunt lab run --pattern north-south --path vf --vms 2 --frame 64 --seconds 5 --json
  shunt lab throughput --pattern east-west               NDR, PDR and latency
  shunt lab calibrate                                    the error of latency figures
  shunt lab compare ./old/shunt ./new/shunt              is one of two builds faster?
  shunt lab switches                                     Shunt beside other switches
  shunt lab scale --json                                 cycles per frame as VFs and MACs grow
  shunt lab distance                                     how far apart the pinned CPUs are
  shunt lab idle --guests 64                             what silence costs, and the first frame
  shunt lab fairness                                     who gets what of a lane
  shunt lab path-changes --count 1000                    paths change, and no frame is lost
  shunt lab switching                                    what the switch costs a frame
  shunt lab hostile --bursts 100000                      honest guests beside a hostile one")]
pub(crate) struct Lab {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    #[command(flatten)]
    measure: measure::Measure,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Run(Run),
    Scale(Scale),
    Overhead(Overhead),
    Distance(Distance),
    Idle(Idle),
    Fairness(fairness::Fairness),
    PathChanges(path_changes::PathChanges),
    Upgrade(succession::Upgrade),
    Kill(succession::Kill),
    Switching(switching::Switching),
    Throughput(throughput::Throughput),
    Calibrate(calibrate::Calibrate),
    Switches(switches::Switches),
    Compare(compare::Compare),
    List(measure::List),
    Show(measure::Show),
    Resume(measure::Resume),
    History(measure::History),
    Hostile(Hostile),
    Bare(bare::Bare),
    /// A guest process of an experiment; not for people.
    #[command(hide = true)]
    Guest,
    /// An experiment of a file.
    #[command(external_subcommand)]
    Named(Vec<OsString>),
}

/// Measure one point.
///
/// Below the rates stand the switch's cycles by stage of a burst, which its lanes sample.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab run --pattern north-south --path vf --vms 2 --frame 64 --seconds 5 --json
  shunt lab run --pattern east-west --vms 4 --frame 1518
  shunt lab run --pattern east-west --ring packed            guests with packed rings
  shunt lab run --pattern east-west --load overload          offered, delivered and lost
  shunt lab run --pattern north-south --path virtio          the kernel's tap and bridge")]
struct Run {
    /// Where frames go: north-south or east-west.
    #[arg(long)]
    pattern: Pattern,
    /// How they get there: vf, vhost or virtio.
    #[arg(long, default_value = "vf")]
    path: PathKind,
    /// Guests: 1 to 8; a chain (east-west) takes 2 or more.
    #[arg(long, default_value_t = 2, value_name = "N")]
    vms: usize,
    /// Bytes of a frame with its FCS: 64 to 1518.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    frame: u32,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split")]
    ring: RingKind,
    /// closed: a frame is sent when another one came back, and none is lost. overload: as fast as
    /// the ring takes them; the rest is lost.
    #[arg(long, default_value = "closed")]
    load: Load,
    /// Seconds to measure for.
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Measure what a 64 B frame costs as VFs and MAC addresses grow.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab scale --rounds 5 --json
  shunt lab scale --ring packed-in-order")]
struct Scale {
    /// How often each point is measured; the median counts.
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Frames that each VF keeps in flight: 1 to 512.
    #[arg(long, default_value_t = 64, value_name = "N")]
    in_flight: u32,
    /// Guests give buffers back unseen, instead of writing and reading each frame.
    #[arg(long)]
    untouched: bool,
    /// Guests' memory is on 2 MiB pages that were reserved (sysctl vm.nr_hugepages=256), instead of
    /// those that the kernel can gather by itself since Linux 6.1.
    #[arg(long)]
    huge_pages: bool,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split")]
    ring: RingKind,
    /// Seconds to measure each point for.
    #[arg(long, default_value_t = 0.5, value_name = "S")]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Lab {
    pub(crate) fn run(self) -> Result<()> {
        match self.experiment {
            // Child processes of an experiment, which end by their own rules.
            Some(Experiment::Guest | Experiment::Bare(_)) => return self.experiment(),
            _ => interrupt::watch()?,
        }
        match self.experiment() {
            Err(error) if interrupt::is_set() => {
                eprintln!("shunt: interrupted; all that was started is ended");
                if let Some(Partial(_)) = error.downcast_ref() {
                    eprintln!("shunt: {error}");
                }
                std::process::exit(interrupt::EXIT_CODE)
            }
            done => done,
        }
    }

    fn experiment(self) -> Result<()> {
        match self.experiment {
            None => self.measure.run("quick"),
            Some(Experiment::Run(run)) => run.run(),
            Some(Experiment::Scale(scale)) => scale.run(),
            Some(Experiment::Overhead(overhead)) => overhead.run(),
            Some(Experiment::Distance(distance)) => distance.run(),
            Some(Experiment::Idle(idle)) => idle.run(),
            Some(Experiment::Fairness(fairness)) => fairness.run(),
            Some(Experiment::PathChanges(changes)) => changes.run(),
            Some(Experiment::Upgrade(upgrade)) => upgrade.run(),
            Some(Experiment::Kill(kill)) => kill.run(),
            Some(Experiment::Switching(switching)) => switching.run(),
            Some(Experiment::Throughput(throughput)) => throughput.run(),
            Some(Experiment::Calibrate(calibrate)) => calibrate.run(),
            Some(Experiment::Switches(switches)) => switches.run(),
            Some(Experiment::Compare(compare)) => compare.run(),
            Some(Experiment::List(list)) => list.run(),
            Some(Experiment::Show(show)) => show.run(),
            Some(Experiment::Resume(resume)) => resume.run(),
            Some(Experiment::History(history)) => history.run(),
            Some(Experiment::Named(words)) => measure::named(words),
            Some(Experiment::Hostile(hostile)) => hostile.run(),
            Some(Experiment::Bare(bare)) => bare.run(),
            Some(Experiment::Guest) => lab::guest::main(),
        }
    }
}

impl Run {
    fn run(self) -> Result<()> {
        let spec = PointSpec {
            pattern: self.pattern,
            path: self.path,
            vms: self.vms,
            frame_bytes: self.frame,
            warmup_s: forwarding::WARMUP_S,
            seconds: self.seconds,
            ring: self.ring,
            load: self.load,
        };
        spec.check().map_err(Mistake)?;
        let point = forwarding::run(&program()?, &spec, host::cpu::allowed())?;
        if self.json {
            println!("{}", report::json::point(&point)?);
        } else {
            println!("{}", report::table::all(std::slice::from_ref(&point)));
            if let Some(stages) = &point.stages {
                println!("{}", report::stages::table(stages));
            }
        }
        Ok(())
    }
}

impl Scale {
    fn run(self) -> Result<()> {
        check_rounds(self.rounds)?;
        if !(1..=512).contains(&self.in_flight) {
            let text = format!("--in-flight {}: 1 to 512 are possible", self.in_flight);
            return Err(Mistake(text).into());
        }
        check_seconds(self.seconds)?;
        let settings = scale::Settings {
            rounds: self.rounds,
            in_flight: self.in_flight,
            touch: !self.untouched,
            huge_pages: self.huge_pages,
            ring: self.ring,
            seconds: self.seconds,
        };
        let scale = scale::run(&program()?, host::cpu::allowed(), settings, |done, of| {
            progress("point", done, of);
        })?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&scale)?);
            return Ok(());
        }
        println!(
            "{:>5} {:>6} {:>14} {:>16} {:>8} {:>7} {:>11}",
            "VFs", "MACs", "cycles/frame", "least..most", "Mpps", "rounds", "round trip"
        );
        for point in &scale.points {
            let range = format!("{:.1}..{:.1}", point.range.0, point.range.1);
            let (vfs, macs, mpps) = (point.vfs, point.macs, point.mpps);
            let cycles = point.switch_cycles_per_frame;
            let (rounds, trip) = (point.near, point.round_trip_cycles.unwrap_or(f64::NAN));
            println!(
                "{vfs:>5} {macs:>6} {cycles:>14.1} {range:>16} {mpps:>8.2} {rounds:>7} {trip:>11.0}"
            );
        }
        println!("rounds: those in which both CPUs were near each other, the others do not count");
        println!("round trip: cycles that a cache line takes between switch and guests and back");
        Ok(())
    }
}

/// Measure what the daemon costs a frame beside a bare copying loop.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shunt lab overhead --rounds 5 --json")]
struct Overhead {
    /// How often each frame size is measured, both in turn; medians count.
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Overhead {
    fn run(self) -> Result<()> {
        check_rounds(self.rounds)?;
        let cpus = host::cpu::allowed();
        let overhead = overhead::run(&program()?, cpus, self.rounds, |done, of| {
            progress("round", done, of);
        })?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&overhead)?);
            return Ok(());
        }
        println!("Busy cycles a frame: least, median, most of {} rounds", self.rounds);
        println!("{:>6} {:>24} {:>24} {:>18}", "frame", "bare loop", "daemon", "ratio");
        for point in &overhead.points {
            let shown =
                |[least, median, most]: [f64; 3]| format!("{least:.1} {median:.1} {most:.1}");
            let [a, b, c] = point.ratio;
            let (bare, daemon) = (shown(point.bare_cycles), shown(point.daemon_cycles));
            let bytes = point.frame_bytes;
            println!("{bytes:>6} {bare:>24} {daemon:>24} {a:>6.2} {b:>5.2} {c:>5.2}");
        }
        let (switch, guests) = (overhead.switch_cpu, overhead.guests_cpu);
        println!("pinned: switch on CPU {switch}, guests on CPU {guests}");
        Ok(())
    }
}

/// Measure how far apart two CPUs are: the round trip of a cache line between them.
///
/// What a frame costs follows it. On a virtual machine it changes while one looks.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab distance                       the CPUs that experiments use, for two seconds
  shunt lab distance --cpus 0,2 --samples 1 --json")]
struct Distance {
    /// The two CPUs; by default those of the switch and of the guests.
    #[arg(long, value_name = "A,B", value_parser = two_cpus)]
    cpus: Option<(usize, usize)>,
    /// How often to measure, every 20 ms: 1 to 100000.
    #[arg(long, default_value_t = 100, value_name = "N")]
    samples: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Two different numbers of CPUs, such as `0,1`.
fn two_cpus(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once(',').and_then(|(a, b)| a.parse().ok().zip(b.parse().ok()));
    numbers
        .filter(|(a, b)| a != b)
        .ok_or_else(|| "two different CPUs are wanted, such as 0,1".into())
}

impl Distance {
    fn run(self) -> Result<()> {
        if !(1..=100_000).contains(&self.samples) {
            let text = format!("--samples {}: 1 to 100000 are possible", self.samples);
            return Err(Mistake(text).into());
        }
        let cpus = match self.cpus {
            Some(cpus) => cpus,
            None => distance::default_cpus(host::cpu::allowed())?,
        };
        let distance = distance::run(cpus, self.samples)?;
        if self.json {
            return Ok(say(&format!("{}\n", serde_json::to_string_pretty(&distance)?))?);
        }
        let [least, median, most] = distance.round_trip_cycles;
        let text = format!(
            "CPU {} to CPU {} and back: {least:.0} cycles at least, {median:.0} in the median, \
             {most:.0} at most; near for {:.0} % of {} samples\n",
            distance.cpus.0,
            distance.cpus.1,
            distance.near_share * 100.0,
            distance.samples
        );
        Ok(say(&text)?)
    }
}

/// Measure what silent guests cost, and what the first frame after a silence waits for.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  shunt lab idle --guests 64 --json
  shunt lab idle --cpu-latency 0          with CPUs that do not sleep deeply")]
struct Idle {
    /// Guests that are attached: 2 to 255.
    #[arg(long, default_value_t = 64, value_name = "N")]
    guests: usize,
    /// Seconds of the silence whose CPU time is measured.
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Frames to send, each after 5 to 20 ms of silence.
    #[arg(long, default_value_t = 500, value_name = "N")]
    frames: u64,
    /// Let no CPU take longer to wake up than this, in microseconds, 0 to 1000000.
    ///
    /// The daemon holds it for the whole machine while this runs (lanes.cpu_latency_us of its
    /// configuration), so it counts for the thread that only sleeps, too. Needs root, as a rule.
    #[arg(long, value_name = "US")]
    cpu_latency: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Idle {
    fn run(self) -> Result<()> {
        let Idle { guests, seconds, frames, cpu_latency: cpu_latency_us, json } = self;
        let spec = IdleSpec { guests, seconds, frames, cpu_latency_us };
        spec.check().map_err(Mistake)?;
        let idle = idle::run(&program()?, host::cpu::allowed(), spec)?;
        if json {
            return Ok(say(&format!("{}\n", serde_json::to_string_pretty(&idle)?))?);
        }
        let percent = idle.cpu_share * 100.0;
        let (wake, floor) = (idle.wake_us, idle.floor_us);
        let held = match idle.cpu_latency_us {
            Some(us) => format!("held at {us} us while this ran"),
            None => "left alone (--cpu-latency 0 holds it low)".into(),
        };
        let text = format!(
            "{guests} silent guests: the daemon uses {percent:.2} % of a core\n\
             first frame after a silence: {:.1} us in the median, {:.1} us at the 99th percentile, \
             {:.1} us at most ({} frames, the lane slept {} times)\n\
             a thread that only sleeps, on the same CPU: {:.1}, {:.1} and {:.1} us\n\
             wake-up latency of the CPUs: {held}\n",
            wake.p50,
            wake.p99,
            wake.max,
            idle.samples,
            idle.sleeps,
            floor.p50,
            floor.p99,
            floor.max
        );
        Ok(say(&text)?)
    }
}

/// Attack a daemon from a hostile guest, while honest ones account for every frame.
///
/// Exit code 1 if an honest guest lost a frame or saw a wrong one, or the daemon ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab hostile --bursts 20000 --seed 7
  shunt lab hostile --json")]
struct Hostile {
    /// Batches of up to 64 mutated descriptors.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    bursts: u64,
    /// Where the random numbers begin; by default from the clock.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Hostile {
    fn run(self) -> Result<()> {
        let bursts = self.bursts;
        if !(1..=1_000_000_000).contains(&bursts) {
            let text = format!("--bursts {bursts}: 1 to 1000000000 are possible");
            return Err(Mistake(text).into());
        }
        let seed = self.seed.unwrap_or_else(seed_from_clock);
        eprintln!("seed {seed}");
        let run = HostileRun { bursts, seed };
        let hostile = hostile::run(&program()?, host::cpu::allowed(), run, |done| {
            progress("burst", done, bursts);
        })?;
        let text =
            if self.json { serde_json::to_string_pretty(&hostile)? + "\n" } else { told(&hostile) };
        say(&text)?;
        match (hostile.passed(), hostile.failure) {
            (true, _) => Ok(()),
            (false, Some(failure)) => bail!("not passed with seed {seed}: {failure}"),
            (false, None) => bail!("not passed with seed {seed}; the figures say what went wrong"),
        }
    }
}

/// What happened, for people.
fn told(hostile: &hostile::Hostile) -> String {
    let (attack, honest) = (&hostile.attack, &hostile.honest);
    let mut text = format!(
        "{} bursts and {} mutations of the connection in {:.1} s; \
         {} rings and {} connections started anew\n",
        attack.bursts,
        attack.control_mutations,
        hostile.seconds,
        attack.restarts,
        attack.reconnects
    );
    text += &format!(
        "honest guests: {} frames sent, {} lost, {} corrupted, {} spoofed, {} on a wrong VLAN; \
         longest gap {:.1} ms, longest time without a CPU {:.1} ms\n",
        honest.sent,
        honest.lost,
        honest.corrupted,
        honest.spoofed,
        honest.misplaced,
        honest.longest_gap_ms,
        honest.longest_absence_ms
    );
    text += &format!(
        "daemon: {}, {:.1} -> {:.1} MiB of its own, {} -> {} open files\n",
        if hostile.daemon_alive { "alive" } else { "DEAD" },
        hostile.daemon_own_mib_before,
        hostile.daemon_own_mib_after,
        hostile.daemon_fds_before,
        hostile.daemon_fds_after
    );
    for (title, counts) in [
        ("rings stopped", &hostile.faults),
        ("frames dropped", &hostile.drops),
        ("mutations", &attack.mutations),
    ] {
        text += &format!("{title}:\n");
        for (name, count) in counts {
            text += &format!("  {name:<40} {count:>12}\n");
        }
    }
    text
}

fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64)
}

fn check_seconds(seconds: f64) -> Result<(), Mistake> {
    if (0.1..=3600.0).contains(&seconds) {
        return Ok(());
    }
    Err(Mistake(format!("--seconds {seconds}: 0.1 to 3600 are possible")))
}

fn check_rounds(rounds: usize) -> Result<(), Mistake> {
    if (1..=100).contains(&rounds) {
        return Ok(());
    }
    Err(Mistake(format!("--rounds {rounds}: 1 to 100 are possible")))
}

/// Results that are not whole: the directory that holds them.
#[derive(Debug)]
struct Partial(PathBuf);

impl Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not whole; go on with: shunt lab resume {}", self.0.display())
    }
}

/// Says how far an experiment is, on one line of a terminal; where nobody looks, nothing.
fn progress<N: PartialEq + Display>(what: &str, done: N, of: N) {
    if std::io::stderr().is_terminal() {
        let end = if done == of { "\n" } else { "" };
        eprint!("\r{what} {done} of {of} {end}");
    }
}

/// This program, to start again as daemon and as guests.
fn program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

//! `shunt lab compare A B`: is one of two builds faster?

use anyhow::Result;
use clap::Args;
use lab::experiment::compare::{self, CompareSettings, Side};
use lab::experiment::forwarding::PointSpec;
use lab::experiment::step::Machine;
use model::state::Problem;
use report::{GeneratorLoad, PathKind, Pattern, RingKind};

use super::common::{check_path_of_daemon, program, progress};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{of_stdout, print, wrapped};

/// Compare two builds of shunt at one point.
///
/// A and B are programs; `bare` is this program's bare copying loop, and `bare+N` the same with N
/// cycles of delay for each frame. Both are measured in short slots, in the order A B B A, with
/// fresh processes and this program's guests. A permutation test at 1 % separates a difference from
/// noise.
#[derive(Debug, Args)]
#[command(add = Title("comparison of two builds of shunt"))]
#[command(after_help = "\
Examples:
  shunt lab compare ./old/shunt target/release/shunt
  shunt lab compare ./old ./new --pattern east-west --vms 2 --frame 1518 --pairs 64
  shunt lab compare bare bare+3                          are 3 cycles detectable?")]
pub(super) struct Compare {
    /// Baseline.
    #[arg(value_name = "A", add = complete::program())]
    a: Side,
    /// Program to compare with it.
    #[arg(value_name = "B", add = complete::program())]
    b: Side,
    /// Traffic pattern: north-south or east-west.
    #[arg(long, default_value = "north-south", add = complete::pattern())]
    pattern: Pattern,
    #[arg(long, default_value = "vf", help = PathKind::MEANING_OF_DAEMON,
        add = complete::daemon_path())]
    path: PathKind,
    /// Guests: 1 to 8; a chain (east-west) takes 2 or more.
    #[arg(long, default_value_t = 1, value_name = "N")]
    vms: usize,
    /// Frame size with FCS, bytes: 64 to 1518.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    frame: u32,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split", add = complete::ring())]
    ring: RingKind,
    /// Pairs of slots: an even number, 8 to 1000.
    #[arg(long, default_value_t = 32, value_name = "N")]
    pairs: usize,
    /// Seconds of each slot.
    #[arg(long, default_value_t = 0.1, value_name = "S")]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(super) fn run(self) -> Result<()> {
        let point = PointSpec {
            pattern: self.pattern,
            path: self.path,
            vms: self.vms,
            frame_bytes: self.frame,
            warmup_s: 0.1,
            seconds: self.seconds,
            ring: self.ring,
            load: GeneratorLoad::Closed,
        };
        point.check().map_err(UsageError)?;
        check_path_of_daemon(self.path, "is the kernel's, which is the same for both")?;
        let bare = [&self.a, &self.b].iter().any(|side| matches!(side, Side::Bare(_)));
        if bare && (self.pattern, self.vms) != (Pattern::NorthSouth, 1) {
            let remedy = "give --pattern north-south and --vms 1";
            let problem = Problem::new("", (), "has two sockets only", remedy).of("bare");
            return Err(UsageError(problem.into()).into());
        }
        if !(8..=1000).contains(&self.pairs) || !self.pairs.is_multiple_of(2) {
            let message = "is not allowed: each side is first as often as the other";
            let remedy = "write an even number, 8 to 1000";
            return Err(UsageError::option("--pairs", self.pairs, message, remedy).into());
        }
        let settings = CompareSettings { sides: [self.a, self.b], point, pairs: self.pairs };
        let machine = Machine { program: &program()?, cpus: host::cpu::allowed() };
        let compared = compare::run(&machine, &settings, |done| {
            progress("pair", done, settings.pairs);
        })?;
        if self.json {
            return Ok(print(&(serde_json::to_string_pretty(&compared)? + "\n"))?);
        }
        let title = "Switch's cycles for a delivered frame, medians by distance of the CPUs\n";
        let text =
            title.to_owned() + &compared.table(of_stdout()) + "\n" + &wrapped(&compared.sentence());
        Ok(print(&text)?)
    }
}

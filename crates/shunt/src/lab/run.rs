//! `shunt lab run`: one point.

use anyhow::Result;
use clap::Args;
use lab::experiment::forwarding::{self, PointSpec};
use report::{self, GeneratorLoad, PathKind, Pattern, RingKind};

use super::common::program;
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{of_stdout, print};

/// Measure one point.
///
/// Prints rates, and the switch's cycles by stage of a burst, which its lanes sample.
#[derive(Debug, Args)]
#[command(add = Title("measurement of one point"))]
#[command(after_help = "\
Examples:
  shunt lab run --pattern north-south --path vf --vms 2 --frame 64 --seconds 5 --json
  shunt lab run --pattern east-west --vms 4 --frame 1518
  shunt lab run --pattern east-west --ring packed            guests with packed rings
  shunt lab run --pattern east-west --load overload          offered, delivered and lost
  shunt lab run --pattern north-south --path virtio          the kernel's tap and bridge")]
pub(super) struct Run {
    /// Traffic pattern: north-south or east-west.
    #[arg(long, add = complete::pattern())]
    pattern: Pattern,
    #[arg(long, default_value = "vf", help = PathKind::MEANING, add = complete::path())]
    path: PathKind,
    /// Guests: 1 to 8; a chain (east-west) takes 2 or more.
    #[arg(long, default_value_t = 2, value_name = "N")]
    vms: usize,
    /// Frame size with FCS, bytes: 64 to 1518.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    frame: u32,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split", add = complete::ring())]
    ring: RingKind,
    /// closed: send a frame when another one returns; no loss. overload: send as fast as the ring
    /// takes them; the excess is lost.
    #[arg(long, default_value = "closed",
        add = complete::words(GeneratorLoad::ALL.map(GeneratorLoad::as_str)))]
    load: GeneratorLoad,
    /// Seconds of the measurement.
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(super) fn run(self) -> Result<()> {
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
        spec.check().map_err(UsageError)?;
        let point = forwarding::run(&program()?, &spec, host::cpu::allowed())?;
        let text = if self.json {
            report::json::point(&point)? + "\n"
        } else {
            let stages = point.stages.as_ref();
            let stages = stages.map(|stages| report::stages::table(stages, of_stdout()) + "\n");
            let points = report::table::all(std::slice::from_ref(&point), of_stdout());
            format!("{points}\n{}", stages.unwrap_or_default())
        };
        Ok(print(&text)?)
    }
}

//! `shunt lab scale`: cycles per frame by number of VFs and addresses.

use anyhow::Result;
use clap::Args;
use lab::experiment::scale;
use report::{Align, RingKind};

use super::common::{check_rounds, check_seconds, program, progress};
use crate::complete;
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::{of_stdout, print};

/// Measure the cost of a 64 B frame by number of VFs and MAC addresses.
///
/// Each round also measures the bare copying loop with as many guests: more guests have more memory
/// than a core's caches hold, which slows any switch.
#[derive(Debug, Args)]
#[command(add = Title("cost of a frame by number of VFs and MAC addresses"))]
#[command(after_help = "\
Examples:
  shunt lab scale --rounds 5 --json
  shunt lab scale --ring packed-in-order")]
pub(super) struct Scale {
    /// Measurements of each point; the median counts.
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Frames that each VF keeps in flight: 1 to 512.
    #[arg(long, default_value_t = 64, value_name = "N")]
    in_flight: u32,
    /// Guests recycle buffers unread, instead of writing and reading each frame.
    #[arg(long)]
    untouched: bool,
    /// Guest memory on reserved 2 MiB pages (sysctl vm.nr_hugepages=256), instead of transparent
    /// huge pages (Linux 6.1 or later).
    #[arg(long)]
    huge_pages: bool,
    /// Rings of the guests' adapters: split, packed or packed-in-order.
    #[arg(long, default_value = "split", add = complete::ring())]
    ring: RingKind,
    /// Seconds to measure each point.
    #[arg(long, default_value_t = 0.5, value_name = "S")]
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Scale {
    pub(super) fn run(self) -> Result<()> {
        check_rounds(self.rounds)?;
        if !(1..=512).contains(&self.in_flight) {
            return Err(UsageError::out_of_range("--in-flight", self.in_flight, 1, 512).into());
        }
        check_seconds(self.seconds)?;
        let settings = scale::ScaleSettings {
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
            return Ok(print(&(serde_json::to_string_pretty(&scale)? + "\n"))?);
        }
        Ok(print(&table(&scale))?)
    }
}

/// Table with a row for each band of a point.
fn table(scale: &scale::Scale) -> String {
    let columns = [
        ("VFs", Align::Right),
        ("MACs", Align::Right),
        ("CPUs apart", Align::Left),
        ("rounds", Align::Right),
        ("cycles/frame", Align::Right),
        ("least..most", Align::Right),
        ("bare loop", Align::Right),
        ("ratio", Align::Right),
        ("Mpps", Align::Right),
    ];
    let mut rows = Vec::new();
    for point in &scale.points {
        let mut row = |band: String, numbers: [String; 6]| {
            let place = [point.vfs.to_string(), point.macs.to_string(), band];
            rows.push(place.into_iter().chain(numbers).collect());
        };
        for band in &point.bands {
            let [least, median, most] = band.switch_cycles_per_frame;
            let (rounds, mpps) = (band.rounds.to_string(), format!("{:.2}", band.mpps));
            let range = format!("{least:.1}..{most:.1}");
            let bare = band.bare_cycles_per_frame[1];
            let (cycles, ratio) = (format!("{median:.1}"), format!("{:.2}", median / bare));
            let bare = format!("{bare:.1}");
            row(band.band.to_string(), [rounds, cycles, range, bare, ratio, mpps]);
        }
        if point.bands.is_empty() {
            let few = format!("no band has {} rounds", scale::ROUNDS_MIN);
            row(few, ["-"; 6].map(str::to_owned));
        }
    }
    let pinned = scale.pinned.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    of_stdout().table(&columns, rows)
        + &format!(
            "busy cycles for each delivered frame, of the switch and of the bare loop; closed loop\n\
         rounds in which the CPUs moved to another band, or a frame was dropped, do not count\n\
         pinned: switch and guests on CPUs {pinned}\n"
        )
}

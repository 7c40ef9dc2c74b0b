//! `shunt plan explain`: a drawing.

use std::path::PathBuf;

use anyhow::{Context, Result};
use model::state::Problems;
use plan::explain::draw;
use plan::frames::FrameMix;

use super::input::{MachineArgs, of_option};
use crate::error::UsageError;
use crate::pages::Title;
use crate::text::print;

/// Longest chain that is readable in a drawing.
const GUESTS_MAX: u32 = 16;

/// Draw bytes and cycles of a frame on its path through a chain of guests, as SVG.
#[derive(Debug, clap::Args)]
#[command(add = Title("drawing of the bytes and cycles of a frame"))]
#[command(after_help = "\
Examples:
  shunt plan explain --guests 6 --frame 1518 --out chain.svg   12 crossings of PCIe on VFs, 2 on the switch
  shunt plan explain --nic e810 > chain.svg")]
pub(super) struct Explain {
    #[command(flatten)]
    on: MachineArgs,
    /// Guests of the chain, 1 to 16.
    #[arg(long, default_value_t = 6, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=GUESTS_MAX.into()))]
    guests: u32,
    /// Frame size with FCS in bytes, imix, or sizes with shares as 64:7,1518:1.
    #[arg(long, default_value = "1518", value_name = "SIZE")]
    frame: String,
    /// Output file; by default standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Explain {
    pub(super) fn run(self) -> Result<()> {
        let machine = self.on.machine()?;
        let frames: FrameMix =
            self.frame.parse().map_err(|problems: Problems| of_option("--frame", problems))?;
        let svg = draw(&machine, self.guests, &frames).map_err(UsageError)?;
        match self.out {
            None => Ok(print(&svg)?),
            Some(path) => std::fs::write(&path, svg)
                .with_context(|| format!("{} cannot be written", path.display())),
        }
    }
}

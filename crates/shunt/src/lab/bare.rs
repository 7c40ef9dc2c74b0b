//! `shunt lab bare`: the bare copying loop as a switch.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use lab::bench::bare::{self, BareSpec};
use wire::Mac;

use crate::error::UsageError;
use crate::pages::Title;

/// Run the bare copying loop as a vhost-user switch between pairs of guests.
///
/// Frames are copied once, from ring to ring, without any other work: a lower limit for a switch
/// with the same guests. Prints a line "ready", then counters as JSON for each line on standard
/// input, until SIGINT or SIGTERM. It polls without sleeping while a guest is attached.
#[derive(Debug, Args)]
#[command(add = Title("bare copying loop as a vhost-user switch"))]
#[command(after_help = "\
Examples:
  shunt lab bare --socket /tmp/a.sock --socket /tmp/b.sock --cpu 0
  shunt lab bare --socket /tmp/a.sock --socket /tmp/b.sock --delay-cycles 20
                                                        a planted slow-down of 20 cycles a frame")]
pub(super) struct Bare {
    /// Socket of a guest; give an even number, the two guests of a pair in a row.
    #[arg(long, value_name = "PATH", required = true)]
    socket: Vec<PathBuf>,
    /// MAC address of a guest, in the order of the sockets.
    #[arg(long, value_name = "MAC")]
    mac: Vec<Mac>,
    /// Connect to the sockets, on which the guests listen.
    #[arg(long)]
    connect: bool,
    /// CPU to pin to.
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Time-stamp cycles to spin for each frame.
    #[arg(long, default_value_t = 0, value_name = "N")]
    delay_cycles: u64,
    /// Do not offer packed rings.
    #[arg(long)]
    no_packed: bool,
    /// Do not offer mergeable receive buffers.
    #[arg(long)]
    no_mergeable: bool,
    /// End when standard input ends.
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Maximum cycles of a delay: about 1 ms, the interval between two polls of the sockets.
const DELAY_MAX: u64 = 1_000_000;

impl Bare {
    pub(super) fn run(self) -> Result<()> {
        let guests = self.socket.len();
        if !guests.is_multiple_of(2) {
            let message = "must be given an even number of times";
            let remedy = "give one for each guest of a pair";
            return Err(UsageError::option("--socket", (), message, remedy).into());
        }
        if !self.mac.is_empty() && self.mac.len() != guests {
            let message = "must be given as often as --socket, or not at all";
            return Err(UsageError::option("--mac", (), message, "give one for each guest").into());
        }
        let default = (1..=u16::MAX).map(|guest| {
            let [high, low] = guest.to_be_bytes();
            Mac([2, 0, 0, 0, high, low])
        });
        let macs: Vec<Mac> = match self.mac.is_empty() {
            true => default.take(guests).collect(),
            false => self.mac,
        };
        if self.delay_cycles > DELAY_MAX {
            let cycles = self.delay_cycles;
            return Err(UsageError::out_of_range("--delay-cycles", cycles, 0, DELAY_MAX).into());
        }
        bare::serve(&BareSpec {
            guests: self.socket.into_iter().zip(macs).collect(),
            connect: self.connect,
            cpu: self.cpu,
            delay_cycles: self.delay_cycles,
            packed: !self.no_packed,
            mergeable: !self.no_mergeable,
            with_parent: self.with_parent,
        })
    }
}

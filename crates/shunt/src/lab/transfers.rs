//! `shunt lab ntttcp`, `netperf` and `vpf`: traffic over the sockets of guests' kernels.

use anyhow::Result;
use clap::Args;
use lab::experiment::transfer::{self, Settings};
use lab::experiment::{netperf, ntttcp, vpf};
use lab::report::{PathKind, Pattern, Transfer};

use super::output::{Measured, Output, progress};
use super::program;
use crate::Mistake;

/// Measure TCP as vmware-2014 did with NTttcp: 1 and 4 streams, 64 KiB writes, default and large socket
/// buffers.
///
/// Between two real kernels' TCP/IP, each a network namespace with an eth0 of MTU 1500: the guest sends to
/// the external machine. Warm-up and cool-down are left out. Needs root or unprivileged user namespaces.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab ntttcp
  shunt lab ntttcp --path virtio --seconds 60 --rounds 1     as long as the paper did
  shunt lab ntttcp --pattern east-west --json")]
pub(super) struct Ntttcp {
    #[command(flatten)]
    common: Common,
}

/// Measure TCP as nfv-2017 did with netperf: 4 streams, writes of 64 B to 64 KiB.
///
/// Between two real kernels' TCP/IP, each a network namespace with an eth0 of MTU 1500: the guest sends to
/// the external machine. Needs root or unprivileged user namespaces.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab netperf
  shunt lab netperf --path vf --path virtio --rounds 5 --json")]
pub(super) struct Netperf {
    #[command(flatten)]
    common: Common,
}

/// Measure UDP as virtual-pf-2023 did: bulk to and from a guest, and the round trip of requests.
///
/// Between two real kernels' IP, each a network namespace with an eth0 of MTU 1500: a guest and the external
/// machine. Needs root or unprivileged user namespaces.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab vpf
  shunt lab vpf --path virtio --seconds 10 --json")]
pub(super) struct Vpf {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// The path, several times if several: vf, vhost, virtio; by default all that this machine has.
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<PathKind>,
    /// What the far end is: north-south, the external machine; east-west, a second guest.
    #[arg(long, default_value = "north-south")]
    pattern: Pattern,
    /// How often each is measured, the paths in turn; medians count.
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    seconds: f64,
    #[command(flatten)]
    output: Output,
}

impl Ntttcp {
    pub(super) fn run(self) -> Result<()> {
        self.common.run(|settings| ntttcp::run(settings, progress))
    }
}

impl Netperf {
    pub(super) fn run(self) -> Result<()> {
        self.common.run(|settings| netperf::run(settings, progress))
    }
}

impl Vpf {
    pub(super) fn run(self) -> Result<()> {
        self.common.run(|settings| vpf::run(settings, progress))
    }
}

impl Common {
    fn run(self, measure: impl FnOnce(&Settings) -> Result<Vec<Transfer>>) -> Result<()> {
        transfer::check(self.seconds, self.rounds).map_err(Mistake)?;
        let (all, mut notes) = transfer::paths();
        let paths = if self.paths.is_empty() { all } else { self.paths };
        let settings = Settings {
            program: program()?,
            cpus: host::cpu::allowed().to_vec(),
            paths,
            pattern: self.pattern,
            rounds: self.rounds,
            seconds: self.seconds,
        };
        self.output.report(|| {
            let transfers = measure(&settings)?;
            notes.extend(transfer::notes(&settings));
            Ok(Measured { transfers, notes, ..Measured::default() })
        })
    }
}

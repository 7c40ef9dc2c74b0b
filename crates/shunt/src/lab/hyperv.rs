//! `shunt lab hyperv`: file copies to guests on the paths vf and synthetic.

use anyhow::Result;
use clap::Args;
use lab::experiment::copy::{self, FILE_MIB, Settings};

use super::output::{Measured, Output, progress};
use super::{check_rounds, program};
use crate::Mistake;

/// Measure file copies as hyperv-2012 did: CPU of guests and host, on the paths vf and synthetic.
///
/// Two guests on the path vf and two on the path synthetic copy the same file at once, over TCP
/// from one server beyond the uplink; then one guest alone, on either path in turn. CPU is
/// accounted by layer: guests, the lane with NIC and switch, kernel. Each guest has a real kernel's
/// TCP/IP in a network namespace, and checks what it received. Needs root or unprivileged user
/// namespaces.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shunt lab hyperv
  shunt lab hyperv --mib 2048 --rounds 9 --json")]
pub(super) struct Hyperv {
    /// MiB of the file, which is kept in memory: 1 to 4096.
    #[arg(long, default_value_t = 512, value_name = "N")]
    mib: u32,
    /// How often each setup is measured, the paths in the order A B B A; medians count.
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

impl Hyperv {
    pub(super) fn run(self) -> Result<()> {
        check_rounds(self.rounds)?;
        if !FILE_MIB.contains(&self.mib) {
            let (least, most) = (FILE_MIB.start(), FILE_MIB.end());
            let text = format!("--mib {}: {least} to {most} are possible", self.mib);
            return Err(Mistake(text).into());
        }
        let settings = Settings {
            program: program()?,
            cpus: host::cpu::allowed().to_vec(),
            file_mib: self.mib,
            rounds: self.rounds,
        };
        self.output.report(|| {
            let copies = copy::run(&settings, progress)?;
            Ok(Measured { copies, notes: copy::notes(&settings), ..Measured::default() })
        })
    }
}

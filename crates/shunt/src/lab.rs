//! `shunt lab`: experiments.

mod bare;
mod calibrate;
mod common;
mod compare;
mod distance;
mod fairness;
mod hostile;
mod idle;
mod measure;
mod path_changes;
mod restarts;
mod run;
mod scale;
mod soak;
mod switches;
mod throughput;

use std::ffi::OsString;

use anyhow::Result;
use clap::{Args, Subcommand};
use lab::bench::interrupt;

use crate::complete;
use crate::pages::Title;
use common::IncompleteRun;

/// Measure virtual machines' network paths on this machine.
///
/// Without a subcommand, runs the experiment "quick": every pattern and path, three frame sizes, 1,
/// 2 and 4 guests, in about a minute, with tables, verdicts and a report in lab-results/. Only Rust
/// and this program are needed: guests are processes that attach to a daemon over real vhost-user
/// sockets. No root.
#[derive(Debug, Args)]
#[command(add = Title("measurement of network paths on this machine"), add = complete::experiment())]
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
  shunt lab distance                                     cache distance of the pinned CPUs
  shunt lab idle --guests 64                             idle CPU with 64 guests; wake-up latency
  shunt lab fairness                                     each guest's share of a lane
  shunt lab path-changes --count 1000                    path changes without loss
  shunt lab switching                                    cost of the switch per frame
  shunt lab hostile --bursts 100000                      honest guests beside a hostile one
  shunt lab soak --minutes 60                            random actions: losses, leaks")]
pub(crate) struct Lab {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    #[command(flatten)]
    measure: measure::Measure,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Run(run::Run),
    Scale(scale::Scale),
    Overhead(switches::Overhead),
    Distance(distance::Distance),
    Idle(idle::Idle),
    Fairness(fairness::Fairness),
    PathChanges(path_changes::PathChanges),
    Upgrade(restarts::Upgrade),
    Kill(restarts::Kill),
    Switching(switches::Switching),
    Throughput(throughput::Throughput),
    Calibrate(calibrate::Calibrate),
    Switches(switches::Switches),
    Compare(compare::Compare),
    List(measure::List),
    Show(measure::Show),
    Resume(measure::Resume),
    History(measure::History),
    Hostile(hostile::Hostile),
    Soak(soak::Soak),
    Bare(bare::Bare),
    /// Guest process of an experiment (internal).
    #[command(hide = true)]
    Guest,
    /// An experiment file.
    #[command(external_subcommand)]
    Named(Vec<OsString>),
}

impl Lab {
    pub(crate) fn run(self) -> Result<()> {
        match self.experiment {
            // Child processes of an experiment end with their parent.
            Some(Experiment::Guest | Experiment::Bare(_)) => return self.experiment(),
            _ => interrupt::watch()?,
        }
        match self.experiment() {
            Err(error) if interrupt::is_set() => {
                eprintln!("shunt: interrupted; all child processes have ended");
                if let Some(IncompleteRun(_)) = error.downcast_ref() {
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
            Some(Experiment::Soak(soak)) => soak.run(),
            Some(Experiment::Bare(bare)) => bare.run(),
            Some(Experiment::Guest) => traffic::main(),
        }
    }
}

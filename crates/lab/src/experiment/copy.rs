//! Experiment of hyperv-2012: guests on the paths vf and synthetic copy the same large file at
//! once, with CPU by layer; and one guest alone, on either path.
//!
//! The server beyond the uplink and each guest are network namespaces with a real TCP/IP stack and
//! an `eth0`, which is a tap of one daemon. Its soft NIC has a VF for each adapter on the path vf,
//! and a switch on its PF for the others. All copies start at one moment; each guest checks length
//! and checksum.
//!
//! Every measurement uses fresh processes. The order of paths alternates by round (A B B A), so
//! that drift and the order of guests affect both paths alike.

mod measure;
mod summarize;

use anyhow::{Context, Result};
use model::state::PathInForce::{self, Synthetic, Vf};
use report::experiment::CopySweep;
use report::{CopySetup, FileCopy, copy_verdict};
use traffic::netns;

pub use self::measure::CopySettings;
use self::measure::{CopyRun, measure};
use self::summarize::summarize;
use super::step::{Step, StepResult, Steps};
use crate::bench::interrupt;

impl Steps for CopySweep {
    fn steps(&self, _experiment: &str) -> Vec<Step> {
        let step = |file_mib: &u32| {
            let (file_mib, rounds) = (*file_mib, self.rounds);
            Step::new(format!("copies of {file_mib} MiB"), move |machine| {
                let (program, cpus) = (machine.program.to_owned(), machine.cpus.to_vec());
                Ok(StepResult::Copies(run(&CopySettings { program, cpus, file_mib, rounds })?))
            })
        };
        self.file_mib.iter().map(step).collect()
    }
}

/// Paths of the guests by setup, in even rounds. Odd rounds reverse each list and the order of
/// setups with one guest.
const SETUPS: [(CopySetup, &[PathInForce]); 3] = [
    (CopySetup::Together, &[Vf, Synthetic, Synthetic, Vf]),
    (CopySetup::Alone, &[Vf]),
    (CopySetup::Alone, &[Synthetic]),
];

/// Measures every setup, round by round.
///
/// # Errors
/// The user may not make network namespaces, a copy differs from the file, or a process fails.
pub fn run(settings: &CopySettings) -> Result<Vec<FileCopy>> {
    netns::enter_for_guests()?;
    let mut seen: [Vec<CopyRun>; SETUPS.len()] = Default::default();
    for round in 0..settings.rounds {
        for setup in order(round) {
            interrupt::check()?;
            let paths = paths(setup, round);
            let measured = measure(settings, &paths);
            let guests = paths.len();
            let context =
                || format!("file copies, {guests} guests, the first on path {}", paths[0]);
            seen[setup].push(measured.with_context(context)?);
        }
    }
    let mut copies = Vec::new();
    for ((setup, _), seen) in SETUPS.iter().zip(&seen) {
        let copy = summarize(settings, *setup, seen);
        copy.check().context("the measurement is inconsistent")?;
        copies.push(copy);
    }
    Ok(copies)
}

/// Setups in the order of a round: the last two are one pair of paths.
fn order(round: usize) -> [usize; SETUPS.len()] {
    if round.is_multiple_of(2) { [0, 1, 2] } else { [0, 2, 1] }
}

/// Paths of a setup's guests in a round: in odd rounds every guest of four has the other path.
fn paths(setup: usize, round: usize) -> Vec<PathInForce> {
    let (setup, paths) = SETUPS[setup];
    let other = |path: &PathInForce| if *path == Vf { Synthetic } else { Vf };
    match setup {
        CopySetup::Together if !round.is_multiple_of(2) => paths.iter().map(other).collect(),
        CopySetup::Together | CopySetup::Alone => paths.to_vec(),
    }
}

/// Notes for a reader of these figures.
pub fn notes(cpus: &[usize]) -> Vec<String> {
    let mut notes = vec![
        "A guest is a network namespace, not a virtual machine: entering and leaving a guest costs \
         nothing here."
            .to_owned(),
    ];
    let pinned = measure::cpus(cpus, SETUPS[0].1.len());
    match (&pinned.switch[..], &pinned.guests[..]) {
        ([], _) => notes.push("One CPU: guests, server and the daemon took turns on it.".into()),
        (_, guests) if pinned.generator == guests => notes.push(format!(
            "The lane had CPU {}; server and guests shared CPU {}, so how long a copy takes is \
             also the scheduler's choice.",
            pinned.switch[0], guests[0]
        )),
        _ => {}
    }
    notes.push(copy_verdict::WHY.to_owned());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_paths_alternates_by_round() {
        let alone = |round| {
            let of = |setup| (setup != 0).then(|| paths(setup, round)[0]);
            order(round).into_iter().filter_map(of).collect::<Vec<_>>()
        };
        assert_eq!([alone(0), alone(1)].concat(), [Vf, Synthetic, Synthetic, Vf]);
        for round in 0..2 {
            let together = paths(0, round);
            assert_eq!(together.iter().filter(|path| **path == Vf).count(), 2, "{together:?}");
        }
        assert_eq!(paths(0, 0)[0], Vf);
        assert_eq!(paths(0, 1)[0], Synthetic);
    }

    #[test]
    fn a_reader_is_told_who_shared_a_cpu() {
        let notes = |cpus: &[usize]| super::notes(cpus).join("\n");
        assert!(notes(&[3]).contains("One CPU"));
        assert!(notes(&[3, 5]).contains("The lane had CPU 3; server and guests shared CPU 5"));
        assert!(!notes(&[0, 1, 2, 3]).contains("shared CPU"));
    }
}

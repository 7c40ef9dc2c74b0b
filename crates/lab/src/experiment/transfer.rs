//! Experiments over guests' sockets: one measurement, and figures from rounds.
//!
//! Each measurement uses fresh processes: two guests, each a network namespace with a program in
//! it, and the carrier between them. Each round measures each traffic first over loopback, which is
//! the self-test of the programs, and then over the paths in turn. Odd rounds reverse the order, so
//! that drift affects all paths alike.

mod measure;
mod summarize;
mod sweep;

use anyhow::{Context, Result};
use report::Transfer;
use traffic::netns;

pub use self::measure::{TransferLoad, TransferSettings};
use self::measure::{cpus_of_ends, measure};
use self::summarize::summarize;
use crate::bench::{interrupt, plan};

/// Measures a traffic on each path, round by round, for the experiment of this name.
///
/// # Errors
/// The user may not make network namespaces, or a process fails.
pub fn run(
    settings: &TransferSettings,
    experiment: &str,
    traffic: TransferLoad,
) -> Result<Vec<Transfer>> {
    netns::enter_for_guests()?;
    let mut limits = Vec::new();
    let mut seen = vec![Vec::new(); settings.paths.len()];
    for round in 0..settings.rounds {
        let one = |path| {
            interrupt::check()?;
            measure(settings, &traffic, path).with_context(|| match path {
                Some(path) => format!("{experiment} on path {path}"),
                None => format!("{experiment} over loopback"),
            })
        };
        limits.push(one(None)?);
        let mut order: Vec<usize> = (0..settings.paths.len()).collect();
        if round % 2 == 1 {
            order.reverse(); // drift within a round affects all paths alike
        }
        for path in order {
            seen[path].push(one(Some(settings.paths[path]))?);
        }
    }
    let mut transfers = Vec::new();
    for (path, seen) in settings.paths.iter().zip(&seen) {
        let transfer = summarize(settings, (experiment, *path), &traffic, (seen, &limits));
        transfer.check().context("the measurement is inconsistent")?;
        transfers.push(transfer);
    }
    Ok(transfers)
}

/// Notes for a reader of these figures.
pub fn notes(cpus: &[usize]) -> Vec<String> {
    let mut notes = vec![
        "A guest is a network namespace, not a virtual machine: entering and leaving a guest costs nothing here.".to_owned(),
    ];
    let placement = plan(cpus, 1);
    let (guest, far) = cpus_of_ends(&placement);
    match placement.switch.zip(guest) {
        Some((carrier, guest)) if far == Some(guest) => notes.push(format!(
            "Both ends shared CPU {guest}; what carries their frames, the daemon's lane or the relays, had CPU {carrier}."
        )),
        Some(_) => {}
        None => notes.push("One CPU: both ends and what carries their frames took turns on it.".into()),
    }
    notes
}

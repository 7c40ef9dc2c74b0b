//! Comparison of two paths: paired slots, and a permutation test.
//!
//! The slots of a place (frame size, guests) are measured in the order A B B A. The first slot of one
//! path and the first of the other are a pair, and so on. Pairs of all places of a pattern are tested
//! together, by bands of the CPUs' distance; a pair whose slots are in two bands is only counted.

use super::super::figure::three;
use super::super::model::{PathKind, Point};
use super::super::view::View;
use super::{ALPHA, at_least, guests, limits};
use crate::guest::random::Random;
use crate::statistics::Pair;
use crate::statistics::bands::{Grouped, PairedSlots, Slot};
use crate::statistics::permutation::{self, Comparison, Verdict};

/// Fewest pairs with which a difference can be found at [`ALPHA`].
const PAIRS_MIN: usize = 8;

/// The clauses on a pattern with several paths.
pub(super) fn clauses(view: &View<'_>) -> Vec<String> {
    let paths: Vec<PathKind> = view.paths().into_iter().collect();
    let mut clauses = Vec::new();
    for (i, one) in paths.iter().enumerate() {
        clauses.extend(paths[i + 1..].iter().map(|other| compared(view, *one, *other)));
    }
    clauses.extend(view.paths().into_iter().filter_map(|path| peak(view, path)));
    clauses
}

/// Paired slots of two paths.
struct Slots {
    /// Nanoseconds per frame of both, and the distance of the CPUs.
    pairs: Vec<PairedSlots>,
    /// Pairs left out because the generator was the limit of one.
    open: usize,
}

impl Slots {
    fn new(view: &View<'_>, one: PathKind, other: PathKind) -> Slots {
        let mut slots = Slots { pairs: Vec::new(), open: 0 };
        for frame_bytes in view.frames() {
            for vms in view.vms() {
                let of = |path| {
                    let key = (path, frame_bytes, vms);
                    let points = view.points.iter().copied();
                    points.filter(move |it| (it.path, it.frame_bytes, it.vms) == key)
                };
                for (one, other) in of(one).zip(of(other)) {
                    if one.is_lower_bound() || other.is_lower_bound() {
                        slots.open += 1;
                    } else if one.mpps > 0.0 && other.mpps > 0.0 {
                        slots.pairs.push(PairedSlots { a: slot(one), b: slot(other) });
                    }
                }
            }
        }
        slots
    }
}

fn slot(point: &Point) -> Slot {
    // Of one CPU there is no distance; all its slots are in the first band.
    let round_trip_cycles = point.round_trip_cycles.unwrap_or(1.0);
    Slot { cycles_per_frame: 1e3 / point.mpps, round_trip_cycles }
}

/// What is found between two paths.
fn compared(view: &View<'_>, one: PathKind, other: PathKind) -> String {
    let Slots { pairs, open } = Slots::new(view, one, other);
    let grouped = Grouped::new(&pairs, PAIRS_MIN);
    let strata = grouped.strata();
    let n: usize = strata.iter().map(|pairs| pairs.len()).sum();
    let mut remarks = vec![match n {
        1 => "1 pair".to_owned(),
        n => format!("{n} pairs"),
    }];
    let counted = [(grouped.moved, "whose CPUs moved"), (open, "limited by the generator")];
    remarks
        .extend(counted.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} more {why}")));
    let found = tested(&strata).filter(|_| n >= PAIRS_MIN);
    let Some(Comparison { verdict, detectable, .. }) = found else {
        let remarks = remarks.join(", ");
        return format!(
            "{one} and {other} cannot be compared ({remarks}; at least {PAIRS_MIN} are needed)"
        );
    };
    let percent = (1.0 - ALPHA) * 100.0;
    let won = |winner, loser, [ratio, low, high]: [f64; 3]| {
        let [ratio, low, high] = [ratio, low, high].map(three);
        let remarks = remarks.join(", ");
        format!(
            "{winner} carries {ratio} times {loser}'s frames ({percent:.0} % interval {low} to {high}; \
             {remarks})"
        )
    };
    match verdict {
        // Time per frame: what takes less carries more.
        Verdict::Faster(it) => {
            won(other, one, [it.ratio, it.high, it.low].map(|ratio| 1.0 / ratio))
        }
        Verdict::Slower(it) => won(one, other, [it.ratio, it.low, it.high]),
        Verdict::NoDifferenceFound => {
            let least = detectable.map_or(String::new(), |effect| {
                format!("; one of {:.0} % would have been found", (effect * 100.0).ceil())
            });
            format!("no difference found between {one} and {other} ({}{least})", remarks.join(", "))
        }
    }
}

fn tested(strata: &[&[Pair]]) -> Option<Comparison> {
    let mut random = Random::new(1);
    permutation::compare_stratified(strata, ALPHA, || random.bits()).ok()
}

/// A path's highest rate and what limits it.
fn peak(view: &View<'_>, path: PathKind) -> Option<String> {
    let grid: Vec<&Point> = view.grid().into_iter().filter(|point| point.path == path).collect();
    let best = grid.iter().max_by(|a, b| a.mpps.total_cmp(&b.mpps))?;
    let (at_least, mpps, frame, guests) =
        (at_least(best), three(best.mpps), best.frame_bytes, guests(best));
    Some(format!("{path} reaches {at_least}{mpps} Mpps ({frame} B, {guests}), {}", limits(&grid)))
}

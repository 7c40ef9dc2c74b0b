//! Comparison of two paths: paired slots, and a permutation test.
//!
//! The slots of a place (frame size, guests) are measured in the order A B B A. The first slot of
//! one path and the first of the other are a pair, and so on. Pairs of all places of a kind of
//! traffic are tested together, by bands of the CPUs' distance; a pair between whose slots the CPUs
//! moved is only counted.

use super::super::figure::{list, three};
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
    let mut clauses: Vec<String> = pairs(view).iter().map(Compared::clause).collect();
    clauses.extend(view.paths().into_iter().filter_map(|path| peak(view, path)));
    clauses
}

/// Which path to take for a pattern's traffic, in a sentence or two; `None` with one path.
pub(super) fn answer(view: &View<'_>) -> Option<String> {
    let pairs = pairs(view);
    if pairs.is_empty() {
        return None;
    }
    let wins: Vec<Win> = pairs.iter().filter_map(Compared::win).collect();
    let paths = view.paths().into_iter();
    let best: Vec<PathKind> =
        paths.filter(|path| wins.iter().all(|win| win.loser != *path)).collect();
    let names: Vec<String> = best.iter().map(PathKind::to_string).collect();
    let times = wins.iter().filter(|win| best[..] == [win.winner]);
    let times: Vec<String> =
        times.map(|win| format!("{} times {}'s", three(win.ratio[0]), win.loser)).collect();
    Some(match (&best[..], &times[..]) {
        ([], _) => "each path is beaten by another".to_owned(),
        ([only], [_, ..]) => format!("{only}; it carries {} frames", list(&times)),
        _ => {
            let among = |pair: &&Compared| best.contains(&pair.one) && best.contains(&pair.other);
            let open: Vec<&Compared> =
                pairs.iter().filter(among).filter(|pair| pair.found.is_none()).collect();
            let why = match open[..] {
                [] => "no difference was found between them",
                _ if open.iter().all(|pair| pair.is_bound) => "the generator was the limit",
                _ => {
                    "measured too seldom to tell (8 pairs at one distance are needed; more --rounds)"
                }
            };
            format!("{}; {why}", names.join(" or "))
        }
    })
}

/// Every two paths of a pattern.
fn pairs(view: &View<'_>) -> Vec<Compared> {
    let paths: Vec<PathKind> = view.paths().into_iter().collect();
    let others = |(i, one): (usize, &PathKind)| {
        let one = *one;
        paths[i + 1..].iter().map(move |other| Compared::new(view, one, *other)).collect::<Vec<_>>()
    };
    paths.iter().enumerate().flat_map(others).collect()
}

/// Paired slots of two paths.
struct Slots {
    /// Nanoseconds per frame of both, and the distance of the CPUs.
    pairs: Vec<PairedSlots>,
    /// Pairs left out because the generator was the limit of one.
    open: usize,
    /// Pairs left out because one lost frames in a closed loop.
    lost: usize,
}

impl Slots {
    fn new(view: &View<'_>, one: PathKind, other: PathKind) -> Slots {
        let mut slots = Slots { pairs: Vec::new(), open: 0, lost: 0 };
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
                    } else if one.lost_in_closed_loop() || other.lost_in_closed_loop() {
                        slots.lost += 1;
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
struct Compared {
    one: PathKind,
    other: PathKind,
    /// How many pairs there are, and of what kinds.
    remarks: String,
    /// The generator was the limit of every pair.
    is_bound: bool,
    /// `None` with too few pairs.
    found: Option<Comparison>,
}

/// A path that carries more frames than another one.
struct Win {
    winner: PathKind,
    loser: PathKind,
    /// Frames of the winner over those of the loser, with the interval's ends.
    ratio: [f64; 3],
}

impl Compared {
    fn new(view: &View<'_>, one: PathKind, other: PathKind) -> Compared {
        let Slots { pairs, open, lost } = Slots::new(view, one, other);
        let grouped = Grouped::new(&pairs, PAIRS_MIN);
        let strata = grouped.strata();
        let n: usize = strata.iter().map(|pairs| pairs.len()).sum();
        let mut remarks = vec![match n {
            1 => "1 pair".to_owned(),
            n => format!("{n} pairs"),
        }];
        let counted = [
            (grouped.moved + grouped.unknown, "whose CPUs moved"),
            (open, "limited by the generator"),
            (lost, "with lost frames"),
        ];
        let counted = counted.iter().filter(|(n, _)| *n > 0);
        remarks.extend(counted.map(|(n, why)| format!("{n} more {why}")));
        let found = tested(&strata).filter(|_| n >= PAIRS_MIN);
        let is_bound = open > 0 && n + grouped.moved == 0;
        Compared { one, other, remarks: remarks.join(", "), is_bound, found }
    }

    fn win(&self) -> Option<Win> {
        let (winner, loser, ratio) = match self.found.as_ref()?.verdict {
            // Time per frame: what takes less carries more.
            Verdict::Faster(it) => {
                let ratio = [it.ratio, it.high, it.low].map(|ratio| 1.0 / ratio);
                (self.other, self.one, ratio)
            }
            Verdict::Slower(it) => (self.one, self.other, [it.ratio, it.low, it.high]),
            Verdict::NoDifferenceFound => return None,
        };
        Some(Win { winner, loser, ratio })
    }

    fn clause(&self) -> String {
        let Compared { one, other, remarks, found, .. } = self;
        if let Some(Win { winner, loser, ratio }) = self.win() {
            let [ratio, low, high] = ratio.map(three);
            let percent = (1.0 - ALPHA) * 100.0;
            return format!(
                "{winner} carries {ratio} times {loser}'s frames ({percent:.0} % interval {low} to \
                 {high}; {remarks})"
            );
        }
        let Some(found) = found else {
            return format!(
                "{one} and {other} cannot be compared ({remarks}; at least {PAIRS_MIN} are needed)"
            );
        };
        let least = found.detectable.map_or(String::new(), |effect| {
            format!("; one of {:.0} % would have been found", (effect * 100.0).ceil())
        });
        format!("no difference found between {one} and {other} ({remarks}{least})")
    }
}

/// `None` without pairs. Of more than the test takes, every second or third pair counts, and so on.
fn tested(strata: &[&[Pair]]) -> Option<Comparison> {
    let pairs: usize = strata.iter().map(|pairs| pairs.len()).sum();
    let step = pairs.div_ceil(permutation::PAIRS_MAX).max(1);
    let thinned: Vec<Vec<Pair>> = strata
        .iter()
        .map(|pairs| pairs.chunks_exact(step).map(|pairs| pairs[0]).collect())
        .collect();
    let strata: Vec<&[Pair]> = thinned.iter().map(Vec::as_slice).collect();
    let mut random = Random::new(1);
    permutation::compare_stratified(&strata, ALPHA, || random.bits()).ok()
}

/// A path's highest rate and what limits it.
fn peak(view: &View<'_>, path: PathKind) -> Option<String> {
    let grid: Vec<&Point> = view.grid().into_iter().filter(|point| point.path == path).collect();
    let best = grid.iter().max_by(|a, b| a.mpps.total_cmp(&b.mpps))?;
    let (at_least, mpps, frame, guests) =
        (at_least(best), three(best.mpps), best.frame_bytes, guests(best));
    Some(format!("{path} reaches {at_least}{mpps} Mpps ({frame} B, {guests}), {}", limits(&grid)))
}

//! Comparison of two paths: paired slots, and a permutation test.
//!
//! The slots of a place (frame size, guests) are measured in the order A B B A. The first slot of
//! one path and the first of the other are a pair, and so on. Pairs of all places of a kind of
//! traffic are tested together, by bands of the CPUs' distance; a pair between whose slots the CPUs
//! moved is only counted.

use super::super::format::{count, list, three};
use super::super::results::{PathKind, Point};
use super::super::view::TrafficView;
use super::{ALPHA, at_least, guests, limits};
use crate::statistics::CyclePair;
use crate::statistics::bands::{Band, Grouped, PairedSlots, SlotSample};
use crate::statistics::permutation::{self, Comparison, PairedVerdict};
use crate::statistics::quantile::median;
use crate::statistics::random::Random;

/// Fewest pairs with which a difference can be found at [`ALPHA`].
const PAIRS_MIN: usize = 8;

/// The clauses on a pattern with several paths.
pub(super) fn clauses(view: &TrafficView<'_>) -> Vec<String> {
    let mut clauses: Vec<String> = pairs(view).iter().map(Compared::clause).collect();
    clauses.extend(view.paths().into_iter().filter_map(|path| peak(view, path)));
    clauses
}

/// Which path to take for a pattern's traffic, in a sentence or two; `None` with one path.
pub(super) fn answer(view: &TrafficView<'_>) -> Option<String> {
    let pairs = pairs(view);
    if pairs.is_empty() {
        return None;
    }
    let wins: Vec<Win> = pairs.iter().filter_map(Compared::win).collect();
    let (large, small): (Vec<&Win>, Vec<&Win>) =
        wins.iter().partition(|win| win.ratio[0] >= MATTERS);
    let paths = view.paths().into_iter();
    let best: Vec<PathKind> =
        paths.filter(|path| large.iter().all(|win| win.loser != *path)).collect();
    let names: Vec<String> = best.iter().map(PathKind::to_string).collect();
    let of_best: Vec<String> =
        large.iter().filter(|win| best[..] == [win.winner]).map(|win| win.text()).collect();
    let too_small = small.iter().filter(|it| best.contains(&it.winner) && best.contains(&it.loser));
    let too_small: Vec<String> = too_small.map(|win| win.text()).collect();
    let why = match (&best[..], &of_best[..]) {
        ([], _) => return Some("each path is beaten by another".to_owned()),
        ([_], [_, ..]) => list(&of_best),
        _ if !too_small.is_empty() => {
            format!("{}, too little to choose by", list(&too_small))
        }
        _ => undecided(&pairs, &best),
    };
    let cycles = cycles(view).map_or(String::new(), |cycles| format!("; {cycles}"));
    Some(format!("{}; {why}{cycles}", names.join(" or ")))
}

/// Why none of these paths is called better than another one of them.
fn undecided(pairs: &[Compared], paths: &[PathKind]) -> String {
    let among = |pair: &&Compared| paths.contains(&pair.one) && paths.contains(&pair.other);
    let pairs: Vec<&Compared> = pairs.iter().filter(among).collect();
    let open: Vec<&&Compared> = pairs.iter().filter(|pair| pair.found.is_none()).collect();
    if open.is_empty() {
        let ranges: String =
            pairs.iter().filter_map(|pair| pair.range(pair.one, pair.other)).collect();
        format!("no difference was found over all sizes{ranges}")
    } else if open.iter().all(|pair| pair.is_bound) {
        "the generator was the limit".to_owned()
    } else {
        let seen: Vec<String> = open.iter().filter_map(|pair| pair.seen()).collect();
        let seen = if seen.is_empty() { "no pair".to_owned() } else { list(&seen) };
        format!("{seen}: too few for a test ({PAIRS_MIN} pairs are needed; raise --rounds)")
    }
}

/// Cycles of the switch for a frame on each path, as a sentence, from the steady points of the most
/// guests and the smallest frames that more than one path has; `None` without such.
fn cycles(view: &TrafficView<'_>) -> Option<String> {
    let of = |frame_bytes, vms| -> Vec<(PathKind, f64)> {
        let cycles = |path| {
            let steady = view.all(path, frame_bytes, vms).filter(|point| point.is_steady());
            let cycles: Vec<f64> = steady.filter_map(|it| it.switch_cycles_per_frame).collect();
            Some((path, median(&cycles)?))
        };
        view.paths().into_iter().filter_map(cycles).collect()
    };
    let places = view.vms().into_iter().rev();
    let mut places =
        places.flat_map(|vms| view.frames().into_iter().map(move |frame| (frame, vms)));
    let (frame_bytes, vms) = places.find(|(frame, vms)| of(*frame, *vms).len() > 1)?;
    let costs = of(frame_bytes, vms);
    let costs: Vec<String> =
        costs.iter().map(|(path, cycles)| format!("{cycles:.0} on {path}")).collect();
    let (costs, guests) = (list(&costs), count(vms as usize, "guest"));
    Some(format!("cycles of the switch for a frame ({frame_bytes} B, {guests}): {costs}"))
}

/// Every two paths of a pattern.
fn pairs(view: &TrafficView<'_>) -> Vec<Compared> {
    let paths: Vec<PathKind> = view.paths().into_iter().collect();
    let others = |(i, one): (usize, &PathKind)| {
        let one = *one;
        paths[i + 1..].iter().map(move |other| Compared::new(view, one, *other)).collect::<Vec<_>>()
    };
    paths.iter().enumerate().flat_map(others).collect()
}

/// A ratio from which one path is recommended over another.
const MATTERS: f64 = 1.05;

/// Paired slots of two paths.
struct Slots {
    /// Frame bytes, guests, and the median of one path's frames over the other's.
    places: Vec<(u32, u32, f64)>,
    /// Nanoseconds per frame of both, and the distance of the CPUs.
    pairs: Vec<PairedSlots>,
    /// Pairs left out because the generator was the limit of one.
    open: usize,
    /// Pairs left out because one lost frames in a closed loop.
    lost: usize,
}

impl Slots {
    fn new(view: &TrafficView<'_>, one: PathKind, other: PathKind) -> Slots {
        let mut slots = Slots { places: Vec::new(), pairs: Vec::new(), open: 0, lost: 0 };
        for frame_bytes in view.frames() {
            for vms in view.vms() {
                let mut ratios = Vec::new();
                let of = |path| view.all(path, frame_bytes, vms);
                for (one, other) in of(one).zip(of(other)) {
                    if one.is_lower_bound() || other.is_lower_bound() {
                        slots.open += 1;
                    } else if one.lost_in_closed_loop() || other.lost_in_closed_loop() {
                        slots.lost += 1;
                    } else if one.mpps > 0.0 && other.mpps > 0.0 {
                        let (a, b) = (slot(one), slot(other));
                        slots.pairs.push(PairedSlots { a, b });
                        if Band::of_both(a.round_trip_cycles, b.round_trip_cycles).is_some() {
                            ratios.push(one.mpps / other.mpps);
                        }
                    }
                }
                slots.places.extend(median(&ratios).map(|ratio| (frame_bytes, vms, ratio)));
            }
        }
        slots
    }
}

fn slot(point: &Point) -> SlotSample {
    // Of one CPU there is no distance; all its slots are in the first band.
    let round_trip_cycles = point.round_trip_cycles.unwrap_or(1.0);
    SlotSample { cycles_per_frame: 1e3 / point.mpps, round_trip_cycles }
}

/// Result of comparing two paths.
struct Compared {
    one: PathKind,
    other: PathKind,
    /// Number and kinds of pairs.
    remarks: String,
    /// The generator was the limit of every pair.
    is_bound: bool,
    /// `None` with too few pairs.
    found: Option<Comparison>,
    /// `one`'s frames over `other`'s, by pair; those between whose slots the CPUs moved too.
    ratios: Vec<f64>,
    /// Frame bytes, guests, and the median of `one`'s frames over `other`'s.
    places: Vec<(u32, u32, f64)>,
}

/// A path that carries more frames than another one.
struct Win {
    winner: PathKind,
    loser: PathKind,
    /// Frames of the winner over those of the loser, with the interval's ends.
    ratio: [f64; 3],
    /// Sizes at which the ratio is least and greatest, in words; `None` if they are about the same.
    range: Option<String>,
}

impl Win {
    /// `vf carries 1.16 times vhost's frames`, with the range of that ratio.
    fn text(&self) -> String {
        let Win { winner, loser, ratio, range } = self;
        let range = range.as_deref().unwrap_or_default();
        format!("{winner} carries {} times {loser}'s frames{range}", three(ratio[0]))
    }
}

impl Compared {
    fn new(view: &TrafficView<'_>, one: PathKind, other: PathKind) -> Compared {
        let Slots { places, pairs, open, lost } = Slots::new(view, one, other);
        let grouped = Grouped::new(&pairs, PAIRS_MIN);
        let strata = grouped.strata();
        let n: usize = strata.iter().map(|pairs| pairs.len()).sum();
        let mut remarks = vec![count(n, "pair")];
        let counted = [
            (grouped.moved + grouped.unknown, "whose CPUs moved"),
            (open, "limited by the generator"),
            (lost, "with lost frames"),
        ];
        let counted = counted.iter().filter(|(n, _)| *n > 0);
        remarks.extend(counted.map(|(n, why)| format!("{n} more {why}")));
        let found = tested(&strata).filter(|_| n >= PAIRS_MIN);
        let is_bound = open > 0 && n + grouped.moved == 0;
        let ratio = |pair: &PairedSlots| pair.b.cycles_per_frame / pair.a.cycles_per_frame;
        let ratios = pairs.iter().map(ratio).collect();
        Compared { one, other, remarks: remarks.join(", "), is_bound, found, ratios, places }
    }

    /// Median ratio of the pairs, which were not tested: `vf carried 40 times virtio's frames in 5
    /// pairs`; `None` without pairs.
    fn seen(&self) -> Option<String> {
        let ratio = median(&self.ratios)?;
        let (more, less, ratio) = match ratio {
            ratio if ratio < 1.0 => (self.other, self.one, 1.0 / ratio),
            ratio => (self.one, self.other, ratio),
        };
        let pairs = count(self.ratios.len(), "pair");
        Some(format!("{more} carried {} times {less}'s frames in {pairs}", three(ratio)))
    }

    fn win(&self) -> Option<Win> {
        let (winner, loser, ratio) = match self.found.as_ref()?.verdict {
            // Time per frame: what takes less carries more.
            PairedVerdict::Faster(it) => {
                let ratio = [it.ratio, it.high, it.low].map(|ratio| 1.0 / ratio);
                (self.other, self.one, ratio)
            }
            PairedVerdict::Slower(it) => (self.one, self.other, [it.ratio, it.low, it.high]),
            PairedVerdict::NoDifferenceFound => return None,
        };
        Some(Win { winner, loser, ratio, range: self.range(winner, loser) })
    }

    /// Sizes of the smallest and the largest ratio of two paths' frames; `None` if both are about
    /// the same.
    fn range(&self, path: PathKind, other: PathKind) -> Option<String> {
        let of_path = |(frame, vms, ratio): &(u32, u32, f64)| {
            (*frame, *vms, if path == self.one { *ratio } else { 1.0 / ratio })
        };
        let places: Vec<_> = self.places.iter().map(of_path).collect();
        let least = places.iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
        let most = places.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
        let at = |(frame, vms, ratio): &(u32, u32, f64)| {
            format!("{} at {frame} B, {}", three(*ratio), count(*vms as usize, "guest"))
        };
        (most.2 >= MATTERS * least.2)
            .then(|| format!(" ({path} over {other} from {} to {})", at(least), at(most)))
    }

    fn clause(&self) -> String {
        let Compared { one, other, remarks, found, .. } = self;
        if let Some(Win { winner, loser, ratio, .. }) = self.win() {
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
fn tested(strata: &[&[CyclePair]]) -> Option<Comparison> {
    let pairs: usize = strata.iter().map(|pairs| pairs.len()).sum();
    let step = pairs.div_ceil(permutation::PAIRS_MAX).max(1);
    let thinned: Vec<Vec<CyclePair>> = strata
        .iter()
        .map(|pairs| pairs.chunks_exact(step).map(|pairs| pairs[0]).collect())
        .collect();
    let strata: Vec<&[CyclePair]> = thinned.iter().map(Vec::as_slice).collect();
    let mut random = Random::new(1);
    permutation::compare_stratified(&strata, ALPHA, || random.bits()).ok()
}

/// A path's highest rate and what limits it.
fn peak(view: &TrafficView<'_>, path: PathKind) -> Option<String> {
    let grid: Vec<&Point> = view.grid().into_iter().filter(|point| point.path == path).collect();
    let best = grid.iter().max_by(|a, b| a.mpps.total_cmp(&b.mpps))?;
    let (at_least, mpps, frame, guests) =
        (at_least(best), three(best.mpps), best.frame_bytes, guests(best));
    Some(format!(
        "{path} reaches {at_least}{mpps} Mpps ({frame} B, {guests}), and {}",
        limits(&grid)
    ))
}

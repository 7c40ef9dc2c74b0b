//! The verdict: one sentence per kind of traffic, computed from its points and from nothing else.
//!
//! With one path it says how that scales with guests and frame size and what limits it. With more,
//! every two paths are compared by a permutation test of their paired slots: a difference is called
//! one at the level [`ALPHA`], else none was found, with the smallest that would have been.
//!
//! Limits: pairs in which the generator was the bottleneck of a slot are left out, and counted.

use super::format::{count, list, three, whole};
use super::results::{Bottleneck, PathKind, Point};
use super::view::{TrafficKind, TrafficView};

mod compare;
#[cfg(test)]
mod tests;

/// Share of comparisons of equal paths in which a difference may be found.
const ALPHA: f64 = 0.01;
/// Share by which a rate must exceed the last one of its line to be called a peak.
const PEAK_SHARE: f64 = 0.05;

fn sentence(view: &TrafficView<'_>) -> String {
    let title = view.kind.title();
    let paths: Vec<PathKind> = view.paths().into_iter().collect();
    match paths[..] {
        [path] => format!("{title} on the {path} path: {}.", single(view, path)),
        _ => format!("{title}: {}.", compare::clauses(view).join("; ")),
    }
}

/// A sentence on each kind of traffic that was measured.
pub fn all(points: &[Point]) -> Vec<(TrafficKind, String)> {
    TrafficView::each(points).iter().map(|view| (view.kind, sentence(view))).collect()
}

/// Which path to take for each kind of traffic of which several paths were measured.
pub fn answers(points: &[Point]) -> Vec<(TrafficKind, String)> {
    let views = TrafficView::each(points).into_iter();
    views.filter_map(|view| Some((view.kind, compare::answer(&view)?))).collect()
}

/// Scaling of one path, and its bottleneck.
fn single(view: &TrafficView<'_>, path: PathKind) -> String {
    let mut clauses = Vec::new();
    let grid = view.grid();
    let frames: Vec<u32> = view.frames().into_iter().collect();
    if let Some(&smallest) = frames.first() {
        clauses.push(scaling(&view.line(path, smallest)));
    }
    if let [_, .., largest] = frames[..] {
        let best = view.line(path, largest).into_iter().max_by(|a, b| a.gbps.total_cmp(&b.gbps));
        clauses.extend(best.map(|best| {
            let (at_least, gbps) = (at_least(best), three(best.gbps));
            format!("{largest} B frames reach {at_least}{gbps} Gbps with {}", guests(best))
        }));
    }
    clauses.extend(cycles(&grid));
    clauses.push(if grid.iter().all(|point| point.is_lower_bound()) {
        "the generator was the limit everywhere, so the switch was not measured out".to_owned()
    } else {
        limits(&grid)
    });
    clauses.join("; ")
}

/// Mpps from the fewest guests to the most, for one frame size.
fn scaling(line: &[&Point]) -> String {
    let ([first, .., last] | [first @ last]) = line else {
        return String::new();
    };
    let frame = first.frame_bytes;
    let (first_mpps, last_mpps) = (three(first.mpps), three(last.mpps));
    if first.vms == last.vms {
        let at_least = at_least(first);
        return format!(
            "{frame} B frames reach {at_least}{first_mpps} Mpps with {}",
            guests(first)
        );
    }
    let from = format!("{}{first_mpps} Mpps with {}", at_least(first), guests(first));
    let to = format!("{}{last_mpps} with {}", at_least(last), last.vms);
    // Of two lower bounds, or of a figure over a lower bound, no ratio is known.
    let ratio = if first.is_lower_bound() || first.mpps <= 0.0 {
        String::new()
    } else {
        format!(" ({}{} times)", at_least(last), three(last.mpps / first.mpps))
    };
    let peak = line.iter().max_by(|a, b| a.mpps.total_cmp(&b.mpps));
    let peak = peak.filter(|peak| peak.mpps > last.mpps * (1.0 + PEAK_SHARE));
    let peak = peak.map_or(String::new(), |peak| {
        let at_least = at_least(peak);
        format!(", with a peak of {at_least}{} at {}", three(peak.mpps), peak.vms)
    });
    format!("{frame} B frames go from {from} to {to}{ratio}{peak}")
}

/// Switch cycles for a frame, from the cheapest point to the most expensive.
fn cycles(grid: &[&Point]) -> Option<String> {
    let known = || grid.iter().filter_map(|point| point.switch_cycles_per_frame);
    let least = known().min_by(f64::total_cmp)?;
    let most = known().max_by(f64::total_cmp)?;
    let (least, most) = (whole(Some(least)), whole(Some(most)));
    let range = if least == most { least } else { format!("{least} to {most}") };
    Some(format!("the switch spends {range} cycles on a frame"))
}

/// The bottleneck of each point, counted, e.g.
/// `the bottleneck is the switch in 5 of 6 points and the guests in 1`.
fn limits(grid: &[&Point]) -> String {
    let by = |who: Bottleneck| grid.iter().filter(|point| point.bottleneck == who).count();
    let mut found: Vec<_> = Bottleneck::ALL.into_iter().map(|who| (who, by(who))).collect();
    found.retain(|(_, points)| *points > 0);
    found.sort_by_key(|(_, points)| std::cmp::Reverse(*points));
    let total = grid.len();
    let share = |(place, &(who, points)): (usize, &(Bottleneck, usize))| {
        let who = if who == Bottleneck::Guest { "guests" } else { who.as_str() };
        let of_total = match (place, points == total) {
            (_, true) if total == 1 => String::new(),
            (_, true) if total == 2 => " in both points".to_owned(),
            (_, true) => format!(" in all {total} points"),
            (0, false) => format!(" in {points} of {total} points"),
            (_, false) => format!(" in {points}"),
        };
        let bounds = match (who, points) {
            ("generator", 1) => " (a lower bound)",
            ("generator", _) => " (lower bounds)",
            _ => "",
        };
        format!("the {who}{of_total}{bounds}")
    };
    let shares: Vec<String> = found.iter().enumerate().map(share).collect();
    format!("the bottleneck is {}", list(&shares))
}

fn at_least(point: &Point) -> &'static str {
    if point.is_lower_bound() { "at least " } else { "" }
}

fn guests(point: &Point) -> String {
    count(point.vms as usize, "guest")
}

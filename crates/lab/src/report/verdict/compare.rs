//! Which path wins where.

use std::collections::BTreeSet;

use super::super::figure::{list, three};
use super::super::model::{PathKind, Point};
use super::super::view::View;
use super::{EVEN_SHARE, at_least, guests, limits};

/// One frame size and number of guests, measured on several paths.
struct Comparison {
    frame_bytes: u32,
    outcome: Outcome,
}

/// How a comparison ended.
#[derive(Clone, Copy)]
enum Outcome {
    /// The path carried more frames; how many times the next path's, if that carried any; whether that is a lower bound.
    Won { path: PathKind, ratio: Option<f64>, or_more: bool },
    /// Within the share that runs differ by.
    Even,
    /// A lower bound stands in the way.
    Open,
}

/// What a pattern with several paths has to say.
pub(super) fn clauses(view: &View<'_>) -> Vec<String> {
    let comparisons = comparisons(view);
    let mut clauses = Vec::new();
    if comparisons.is_empty() {
        clauses.push(
            "the paths were not measured at the same frame size and number of guests, so none can be called faster"
                .to_owned(),
        );
    }
    clauses.extend(view.paths().into_iter().filter_map(|path| wins(&comparisons, path)));
    let number =
        |what: fn(&Outcome) -> bool| comparisons.iter().filter(|c| what(&c.outcome)).count();
    let are = |n: usize| {
        if n == 1 { "1 comparison is".to_owned() } else { format!("{n} comparisons are") }
    };
    let even = number(|outcome| matches!(outcome, Outcome::Even));
    clauses.extend((even > 0).then(|| format!("{} even (within 5 %)", are(even))));
    let open = number(|outcome| matches!(outcome, Outcome::Open));
    clauses.extend(
        (open > 0).then(|| format!("{} open because the generator was the limit", are(open))),
    );
    clauses.extend(view.paths().into_iter().filter_map(|path| peak(view, path)));
    clauses
}

fn comparisons(view: &View<'_>) -> Vec<Comparison> {
    let places: BTreeSet<(u32, u32)> =
        view.points.iter().map(|point| (point.frame_bytes, point.vms)).collect();
    let judged = places.into_iter().filter_map(|(frame_bytes, vms)| {
        let there: Vec<&Point> =
            view.paths().into_iter().filter_map(|path| view.at(path, frame_bytes, vms)).collect();
        (there.len() > 1).then(|| Comparison { frame_bytes, outcome: judge(there) })
    });
    judged.collect()
}

/// Judges the points of one place, one for each of at least two paths.
fn judge(mut there: Vec<&Point>) -> Outcome {
    there.sort_by(|a, b| b.mpps.total_cmp(&a.mpps));
    let [best, rest @ ..] = &there[..] else {
        return Outcome::Open;
    };
    let next_mpps = rest.iter().map(|point| point.mpps).fold(0.0, f64::max);
    let close = best.mpps <= next_mpps * (1.0 + EVEN_SHARE);
    // A lower bound below the best may in truth lie above it; and how far above the next a bound lies is unknown.
    if rest.iter().any(|point| point.is_lower_bound()) || (close && best.is_lower_bound()) {
        Outcome::Open
    } else if close {
        Outcome::Even
    } else {
        let ratio = (next_mpps > 0.0).then(|| best.mpps / next_mpps);
        Outcome::Won { path: best.path, ratio, or_more: best.is_lower_bound() }
    }
}

/// Where a path won, and by how much; `None` if nowhere.
fn wins(comparisons: &[Comparison], path: PathKind) -> Option<String> {
    let is_win =
        |c: &&Comparison| matches!(c.outcome, Outcome::Won { path: winner, .. } if winner == path);
    let won: Vec<&Comparison> = comparisons.iter().filter(is_win).collect();
    if won.is_empty() {
        return None;
    }
    let all = won.len() == comparisons.len();
    let what = match (all, comparisons.len()) {
        (true, 1) => "the one comparison".to_owned(),
        (true, total) => format!("all {total} comparisons"),
        (false, total) => format!("{} of {total} comparisons", won.len()),
    };
    let mut remarks = Vec::new();
    if !all {
        remarks.push(places(comparisons, &won));
    }
    remarks.extend(margin(&won));
    let remarks =
        if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) };
    Some(format!("{path} carries more frames in {what}{remarks}"))
}

/// The frame sizes at which a path won: those where it won every comparison, then the others.
fn places(comparisons: &[Comparison], won: &[&Comparison]) -> String {
    let frames: BTreeSet<u32> = won.iter().map(|comparison| comparison.frame_bytes).collect();
    let of = |frame: u32| move |c: &&Comparison| c.frame_bytes == frame;
    let whole = |frame: &u32| {
        won.iter().copied().filter(of(*frame)).count()
            == comparisons.iter().filter(of(*frame)).count()
    };
    let (whole, part): (Vec<u32>, Vec<u32>) = frames.into_iter().partition(whole);
    let sizes = |frames: &[u32]| list(&frames.iter().map(u32::to_string).collect::<Vec<_>>());
    match (&whole[..], &part[..]) {
        (whole, []) => format!("at {} B", sizes(whole)),
        ([], part) => format!("partly at {} B", sizes(part)),
        (whole, part) => format!("at {} B, partly at {} B", sizes(whole), sizes(part)),
    }
}

/// How many times the next path's frames, over all wins.
fn margin(won: &[&Comparison]) -> Option<String> {
    let margins: Vec<(f64, bool)> = won
        .iter()
        .filter_map(|comparison| match comparison.outcome {
            Outcome::Won { ratio: Some(ratio), or_more, .. } => Some((ratio, or_more)),
            _ => None,
        })
        .collect();
    let least = margins.iter().map(|(ratio, _)| *ratio).min_by(f64::total_cmp)?;
    let most = margins.iter().map(|(ratio, _)| *ratio).max_by(f64::total_cmp)?;
    let (least, most) = (three(least), three(most));
    let range = if least == most { least } else { format!("{least} to {most}") };
    let or_more = if margins.iter().any(|(_, or_more)| *or_more) { " or more" } else { "" };
    Some(format!("{range} times the next path's{or_more}"))
}

/// A path's highest rate and what limits it.
fn peak(view: &View<'_>, path: PathKind) -> Option<String> {
    let grid: Vec<&Point> = view.grid().into_iter().filter(|point| point.path == path).collect();
    let best = grid.iter().max_by(|a, b| a.mpps.total_cmp(&b.mpps))?;
    let (at_least, mpps, frame, guests) =
        (at_least(best), three(best.mpps), best.frame_bytes, guests(best));
    Some(format!("{path} reaches {at_least}{mpps} Mpps ({frame} B, {guests}), {}", limits(&grid)))
}

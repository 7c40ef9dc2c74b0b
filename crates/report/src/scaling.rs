//! Scaling compared with published results: the shape of the curves, not absolute rates, since the
//! machines differ. Shown are the gain of a path with guests, the faster path, and by how much.

use super::format::three;
use super::published;
use super::results::{PathKind, Point, Results, Transfer};
use super::transfer_table::{Group, groups};
use super::view::{TrafficKind, TrafficView};

/// Maximum factor between two ratios that count as equal.
const EQUAL_FACTOR: f64 = 1.25;

/// Rate over guests, ours and the published one, as multiples of the first value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScalingCurve {
    /// The path.
    pub(super) path: PathKind,
    /// Guests, ours, published.
    pub(super) values: Vec<(u32, f64, f64)>,
}

/// Curves of one frame size, for paths with at least two published values.
pub(super) fn curves(view: &TrafficView<'_>, frame_bytes: u32) -> Vec<ScalingCurve> {
    let curve = |path| {
        let both = |point: &Point| {
            let published = published::forwarding(view.kind.pattern, path, frame_bytes, point.vms)?;
            Some((point.vms, point.mpps, published.mpps))
        };
        let values: Vec<_> = view.line(path, frame_bytes).into_iter().filter_map(both).collect();
        let &(_, ours, theirs) = values.first()?;
        let scaled = values.iter().map(|(vms, a, b)| (*vms, a / ours, b / theirs));
        // A table rounds small rates to 0, which has no multiples.
        let is_rate = values.iter().all(|(_, a, b)| *a > 0.0 && *b > 0.0);
        let usable = values.len() > 1 && is_rate;
        usable.then(|| ScalingCurve { path, values: scaled.collect() })
    };
    view.paths().into_iter().filter_map(curve).collect()
}

/// Comparison with the paper, one sentence for each finding.
pub fn sentences(results: &Results) -> Vec<String> {
    let mut all = Vec::new();
    for view in views(results) {
        for frame_bytes in ends(&view) {
            let curves = curves(&view, frame_bytes);
            all.extend(curves.iter().map(|curve| growth(&view.kind, frame_bytes, curve)));
            all.extend(between_paths(&view, frame_bytes));
        }
    }
    all.extend(left_out(results));
    for group in groups(&results.transfers) {
        all.extend(ahead(&group));
    }
    all
}

/// The number of points without a result, as a sentence; `None` if there are none.
fn left_out(results: &Results) -> Option<String> {
    let n = results.points.iter().filter(|point| !is_result(point)).count();
    (is_published(results) && n > 0).then(|| {
        format!(
            "Left out: {n} of {} points, in which frames were lost, other processes used the \
             CPUs, the CPUs moved, or the generator was the bottleneck.",
            results.points.len()
        )
    })
}

/// `true` if the experiment's paper is nfv-2017.
fn is_published(results: &Results) -> bool {
    let paper = results.experiment.as_ref().and_then(|it| it.paper.as_deref());
    paper == Some(published::FORWARDING)
}

/// `true` if a point's rate may be compared with another machine's.
fn is_result(point: &Point) -> bool {
    point.is_steady() && !point.is_lower_bound()
}

/// Valid points of an nfv-2017 experiment, by kind of traffic; empty for other experiments.
pub(super) fn views(results: &Results) -> Vec<TrafficView<'_>> {
    if !is_published(results) {
        return Vec::new();
    }
    TrafficView::each(results.points.iter().filter(|point| is_result(point)))
}

/// The smallest and the largest frame size.
pub(super) fn ends(view: &TrafficView<'_>) -> Vec<u32> {
    let frames = view.frames();
    let mut ends: Vec<u32> = frames.first().into_iter().chain(frames.last()).copied().collect();
    ends.dedup();
    ends
}

fn alike(ours: f64, theirs: f64) -> &'static str {
    let apart = (ours / theirs).max(theirs / ours);
    if apart <= EQUAL_FACTOR {
        "similar"
    } else if (ours < 1.0) != (theirs < 1.0) {
        "opposite"
    } else {
        "different"
    }
}

fn growth(kind: &TrafficKind, frame_bytes: u32, curve: &ScalingCurve) -> String {
    let [(first, ..), .., (last, ours, theirs)] = curve.values[..] else { return String::new() };
    format!(
        "{}, {frame_bytes} B, {}: from {first} to {last} guests {} times the frames here, {} times \
         published: {}.",
        kind.title(),
        curve.path,
        three(ours),
        three(theirs),
        alike(ours, theirs)
    )
}

/// Paths compared with the published slowest, at the most guests published for all of them.
fn between_paths(view: &TrafficView<'_>, frame_bytes: u32) -> Vec<String> {
    let of = |vms: u32| -> Vec<(PathKind, f64, f64)> {
        let both = |path| {
            let ours = view.at(path, frame_bytes, vms)?.mpps;
            let theirs = published::forwarding(view.kind.pattern, path, frame_bytes, vms)?.mpps;
            (ours > 0.0 && theirs > 0.0).then_some((path, ours, theirs))
        };
        let mut both: Vec<_> = view.paths().into_iter().filter_map(both).collect();
        both.sort_by(|a, b| a.2.total_cmp(&b.2));
        both
    };
    let Some(vms) = view.vms().into_iter().rev().find(|vms| of(*vms).len() > 1) else {
        return Vec::new();
    };
    let both = of(vms);
    let (slowest, ours_of_slowest, theirs_of_slowest) = both[0];
    let title = view.kind.title();
    let sentence = |(path, ours, theirs): &(PathKind, f64, f64)| {
        let (ours, theirs) = (ours / ours_of_slowest, theirs / theirs_of_slowest);
        format!(
            "{title}, {frame_bytes} B, {vms} guests: {path} carries {} times {slowest}'s frames \
             here, {} times published: {}.",
            three(ours),
            three(theirs),
            alike(ours, theirs)
        )
    };
    both[1..].iter().map(sentence).collect()
}

/// First published path of each traffic, compared with the last.
fn ahead(group: &Group<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for same in group.transfers.chunk_by(|a, b| a.what() == b.what()) {
        let published: Vec<&&Transfer> =
            same.iter().filter(|transfer| transfer.published.is_some()).collect();
        let [first, .., last] = published[..] else { continue };
        let figure = |transfer: &Transfer| match transfer.round_trip {
            Some(trip) => trip.p99_us,
            None => transfer.gbps_median(),
        };
        let theirs = |transfer: &Transfer| transfer.published.unwrap_or(f64::NAN);
        let (ours, theirs) = (figure(first) / figure(last), theirs(first) / theirs(last));
        let what = if first.round_trip.is_some() { "round trip (p99)" } else { "throughput" };
        all.push(format!(
            "{}, {}: {what} on {} is {} times that on {} here, {} times published: {}.",
            group.title(),
            first.what(),
            first.path,
            three(ours),
            last.path,
            three(theirs),
            alike(ours, theirs)
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::results::Pattern;
    use super::super::samples::{point, results, transfers};
    use super::*;

    #[test]
    fn shapes_are_multiples_of_their_first_value() {
        let line = |vms, mpps| point(Pattern::NorthSouth, PathKind::Vf, 64, vms, mpps);
        let points = [line(1, 10.0), line(2, 15.0), line(4, 20.0)];
        let view = TrafficView::each(&points).remove(0);
        let [curve] = &curves(&view, 64)[..] else { panic!("one path") };
        let published = |vms| {
            let found = published::forwarding(Pattern::NorthSouth, PathKind::Vf, 64, vms);
            found.expect("it is published").mpps
        };
        let theirs = published(4) / published(1);
        assert_eq!(curve.values[0], (1, 1.0, 1.0));
        assert_eq!(curve.values[2], (4, 2.0, theirs));
        let text = growth(&view.kind, 64, curve);
        let begins = "North/south, 64 B, vf: from 1 to 4 guests 2.00 times the frames here, ";
        assert!(text.starts_with(begins), "{text}");
        let expected = if 2.0 / theirs > EQUAL_FACTOR { ": different." } else { ": similar." };
        assert!(text.ends_with(expected), "{text}, published {theirs}");
    }

    #[test]
    fn paths_are_set_beside_the_published_slowest() {
        let at = |path, mpps| point(Pattern::EastWest, path, 1518, 4, mpps);
        let of = |vf, vhost| {
            let points = [at(PathKind::Vf, vf), at(PathKind::Vhost, vhost)];
            between_paths(&TrafficView::each(&points)[0], 1518).remove(0)
        };
        let start = "East/west, 1518 B, 4 guests: vhost carries 2.00 times vf's frames here, ";
        assert!(of(1.0, 2.0).starts_with(start), "{}", of(1.0, 2.0));
        assert!(of(2.0, 1.0).ends_with(": opposite."), "{}", of(2.0, 1.0));
    }

    #[test]
    fn what_is_no_result_is_left_out_and_counted() {
        let line = |vms, mpps| point(Pattern::NorthSouth, PathKind::Vf, 64, vms, mpps);
        let mut points = vec![line(1, 10.0), line(2, 15.0), line(4, 20.0), line(4, 1.0)];
        points[3].others_share = Some(0.3);
        let mut results = results(points);
        let experiment = crate::experiment::Experiment::shipped("nfv").unwrap();
        let experiment = crate::experiment::Experiment::parse(experiment, &[]).unwrap();
        results.experiment = Some(experiment);
        let said = sentences(&results);
        assert!(said[0].contains("from 1 to 4 guests 2.00 times the frames here"), "{said:#?}");
        assert!(said[1].starts_with("Left out: 1 of 4 points"), "{said:#?}");
        results.points.iter_mut().for_each(|point| point.lost_frames = 1);
        assert!(sentences(&results)[0].starts_with("Left out: 4 of 4 points"));
    }

    #[test]
    fn transfers_need_two_published_paths() {
        let mut results = results(Vec::new());
        results.transfers = transfers();
        assert!(sentences(&results).is_empty(), "one path is published");
        results.transfers.iter_mut().for_each(|transfer| transfer.published = Some(5.0));
        let sentences = sentences(&results);
        let begins = "ntttcp, 1 x 64 KiB: throughput on vf is 2.00 times that on virtio here, 1.00";
        assert!(sentences[0].starts_with(begins), "{sentences:#?}");
        assert!(sentences.iter().any(|text| text.contains("round trip (p99)")), "{sentences:#?}");
    }
}

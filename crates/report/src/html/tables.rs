//! The page's tables of points.

use super::super::format::{NONE, bounded, percent, three, whole};
use super::super::published::{self, PublishedRate};
use super::super::results::{PathKind, Point};
use super::super::svg::escape;
use super::super::view::TrafficView;

/// Heading, left-aligned text or not, and the cell text of a point.
struct PointColumn {
    name: &'static str,
    words: bool,
    text: fn(&Point) -> String,
}

const fn number(name: &'static str, text: fn(&Point) -> String) -> PointColumn {
    PointColumn { name, words: false, text }
}

const fn words(name: &'static str, text: fn(&Point) -> String) -> PointColumn {
    PointColumn { name, words: true, text }
}

/// Columns that identify a point.
const PLACE: [PointColumn; 3] = [
    number("Frame", |p| format!("{} B", p.frame_bytes)),
    number("Guests", |p| p.vms.to_string()),
    words("Path", |p| p.path.to_string()),
];

const RESULTS: [PointColumn; 10] = [
    number("Gbps", |p| bounded(p.gbps, p.is_lower_bound())),
    number("Mpps", |p| bounded(p.mpps, p.is_lower_bound())),
    number("Rx Mpps", |p| bounded(p.rx_mpps, p.is_lower_bound())),
    number("Cycles per delivered frame", |p| whole(p.switch_cycles_per_frame)),
    number("Frames per poll", |p| p.burst_mean.map_or(whole(None), three)),
    number("Switch, cores", |p| three(p.cpu.switch_cores())),
    number("Switch, busy", |p| match p.path {
        PathKind::Virtio => NONE.to_owned(),
        _ => percent(p.cpu.switch_busy_share),
    }),
    number("Guests, cores", |p| three(p.cpu.guests_cores())),
    words("Limited by", |p| p.bottleneck.to_string()),
    number("nfv-2017 Mpps", |p| paper(p).map_or(String::new(), |paper| three(paper.mpps))),
];

const GENERATOR: [PointColumn; 11] = [
    words("Load", |p| p.load.to_string()),
    number("Self-test Mpps", |p| three(p.generator_limit_mpps)),
    number("CPU distance, cycles", |p| match p.round_trip_cycles {
        Some(0.0) => "moved".to_owned(),
        cycles => whole(cycles),
    }),
    number("Offered Mpps", |p| three(p.offered_mpps)),
    number("Offered of self-test", |p| share(p.offered_mpps, p.generator_limit_mpps)),
    number("Delivered Mpps", |p| three(p.returned_mpps)),
    number("Lost frames", |p| p.lost_frames.to_string()),
    number("Generator, cores", |p| three(p.cpu.generator_cores())),
    number("Generator, busy", |p| percent(p.cpu.generator_share)),
    number("Seconds", |p| three(p.seconds)),
    words("Dropped by the switch", drops),
];

/// Table of one pattern.
pub(super) fn results(view: &TrafficView<'_>) -> String {
    let known = view.points.iter().any(|point| paper(point).is_some());
    let source = if known {
        "<p class=\"sub\">nfv-2017: published by Intel (335625-001) for the same pattern, frame size and number of VMs, on \
         two Xeon E5-2699 v4 and an XL710 40 GbE NIC; our vf is compared with its sriov. A different machine and real \
         hardware: for orientation only.</p>\n"
    } else {
        ""
    };
    let shown = if known { &RESULTS[..] } else { &RESULTS[..RESULTS.len() - 1] };
    table(&view.points, shown) + source
}

/// Capability, offered load and returned frames of the generator, for all patterns.
pub(super) fn generator(view: &TrafficView<'_>) -> String {
    format!("<h3>{}</h3>\n{}", view.kind.title(), table(&view.points, &GENERATOR))
}

fn table(points: &[&Point], columns: &[PointColumn]) -> String {
    let all = || PLACE.iter().chain(columns);
    let class = |column: &PointColumn| if column.words { " class=\"words\"" } else { "" };
    let head: String = all()
        .map(|column| format!("<th scope=\"col\"{}>{}</th>", class(column), column.name))
        .collect();
    let mut above = None;
    let mut rows = String::new();
    for point in points {
        let cells: String = all()
            .map(|column| format!("<td{}>{}</td>", class(column), escape(&(column.text)(point))))
            .collect();
        let first = above != Some(point.frame_bytes);
        above = Some(point.frame_bytes);
        let group = if first { " class=\"first\"" } else { "" };
        rows += &format!("<tr{group}>{cells}</tr>\n");
    }
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

fn paper(point: &Point) -> Option<PublishedRate> {
    published::forwarding(point.pattern, point.path, point.frame_bytes, point.vms)
}

fn share(part: f64, whole: f64) -> String {
    if whole > 0.0 { percent(part / whole) } else { NONE.to_owned() }
}

fn drops(point: &Point) -> String {
    let drops = point.drops.iter().filter(|(_, frames)| **frames > 0);
    let drops: Vec<String> = drops.map(|(reason, frames)| format!("{frames} {reason}")).collect();
    if drops.is_empty() { "none".to_owned() } else { drops.join(", ") }
}

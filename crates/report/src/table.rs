//! Results as a table for the terminal: one per pattern, at most 80 columns wide.
//!
//! Rows are frame sizes and guests, each path once: of several slots the median one by Mpps (the
//! lower of two). Paths of a configuration stand in consecutive rows, where three of them fit.

use super::format::{NONE, bounded, percent, three, whole};
use super::results::{GeneratorLoad, PathKind, Point};
use super::text_table::{Align, TextFormat};
use super::view::TrafficView;

const HEADER: [&str; 9] =
    ["frame", "VMs", "path", "Gbps", "Mpps", "cycles", "switch CPU", "guests CPU", "limit"];
/// Left-aligned columns.
const WORDS: [&str; 2] = ["path", "limit"];

const LEGEND: &str = "\
Gbps, Mpps: sums over the guests' transmit side; Gbps without the 4-byte FCS
cycles: the switch's busy cycles per delivered frame; switch CPU: cores (share
of polling cycles that moved frames); guests CPU: cores; limit: bottleneck,
on virtio the kernel is the switch. Of a point measured several times the row
is the median by Mpps (of two, the lower) of the undisturbed slots";
const LEGEND_BOUND: &str = "
> lower bound: the generator was the bottleneck, not the switch";

/// Every pattern's table under its heading; empty without points.
pub fn all(points: &[Point], format: TextFormat) -> String {
    let views = TrafficView::each(points);
    let tables: Vec<String> = views.iter().map(|view| one(view, format)).collect();
    if tables.is_empty() {
        return String::new();
    }
    let overload: String = points.iter().filter_map(overload).collect();
    let bound = if points.iter().any(Point::is_lower_bound) { LEGEND_BOUND } else { "" };
    let disturbed = disturbed(points);
    let meaning = PathKind::MEANING;
    format!("{}\n{LEGEND}\n{meaning}{bound}\n{disturbed}{overload}", tables.join("\n"))
}

/// The number of disturbed slots in a line; empty if there are none.
fn disturbed(points: &[Point]) -> String {
    match points.iter().filter(|point| point.is_disturbed()).count() {
        0 => String::new(),
        n => format!(
            "! others used the CPUs in {n} of {} slots: cycles contain what they took\n",
            points.len()
        ),
    }
}

/// Offered, delivered and lost frames of an overload; `None` for another load.
fn overload(point: &Point) -> Option<String> {
    let Point { pattern, path, vms, frame_bytes, offered_mpps, returned_mpps, .. } = point;
    let lost_mpps = (offered_mpps - returned_mpps).max(0.0);
    (point.load == GeneratorLoad::Overload && *offered_mpps > 0.0).then(|| {
        format!(
            "overload, {pattern} {path}, {frame_bytes} B, {vms} VMs:\n  \
             offered {} Mpps, delivered {}, lost {} ({})\n",
            three(*offered_mpps),
            three(*returned_mpps),
            three(lost_mpps),
            percent(lost_mpps / offered_mpps)
        )
    })
}

/// One pattern's heading and table.
fn one(view: &TrafficView<'_>, format: TextFormat) -> String {
    let mut above = None;
    let rows = view.grid().into_iter().map(|point| row(point, above.replace(point)).into());
    let header =
        HEADER.map(|name| (name, if WORDS.contains(&name) { Align::Left } else { Align::Right }));
    format!("{}\n{}", view.kind.title(), format.table(&header, rows.collect()))
}

/// Cells of one point; frame size and guests only if they differ from the row above.
fn row(point: &Point, above: Option<&Point>) -> [String; HEADER.len()] {
    let new_frame = above.is_none_or(|above| above.frame_bytes != point.frame_bytes);
    let new_vms = new_frame || above.is_none_or(|above| above.vms != point.vms);
    let when = |shown: bool, text: String| if shown { text } else { String::new() };
    let busy = percent(point.cpu.switch_busy_share).replace(' ', "");
    [
        when(new_frame, format!("{} B", point.frame_bytes)),
        when(new_vms, point.vms.to_string()),
        point.path.to_string(),
        bounded(point.gbps, point.is_lower_bound()),
        bounded(point.mpps, point.is_lower_bound()),
        whole(point.switch_cycles_per_frame),
        match point.path {
            // The kernel's switch has no core of its own: it runs in the sender's context.
            PathKind::Virtio => NONE.to_owned(),
            _ => format!("{} ({busy})", three(point.cpu.switch_cores())),
        },
        three(point.cpu.guests_cores()),
        point.bottleneck.to_string(),
    ]
}

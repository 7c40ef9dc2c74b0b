//! The report as one page: no scripts, no external resources, light and dark theme, printable.
//!
//! Model: the page is XHTML-like text (every element is closed), made by functions that each return
//! a whole element. All external text goes through [`escape`].

use super::by_band::{self, ConfigBands};
use super::format::{bounded, count, percent, three, whole};
use super::receive::Receive;
use super::results::{Pattern, Point, Results};
use super::svg::escape;
use super::verdict;
use super::view::{TrafficKind, TrafficView};
use crate::statistics::bands::Band;

mod copies;
mod facts;
mod plots;
mod scaling;
mod tables;
mod transfers;

const STYLE: &str = include_str!("style.css");

/// The page for one run.
pub fn page(results: &Results) -> String {
    let host = results.machine.get("hostname").and_then(serde_json::Value::as_str);
    let host = host.map_or(String::new(), |host| format!(" on {}", escape(host)));
    let views = TrafficView::each(&results.points);
    let patterns: String = views.iter().map(pattern).collect();
    let experiment = results.experiment.as_ref();
    let title = experiment.map_or("shunt lab", |experiment| &experiment.title);
    let others = results.transfers.len() + results.receives.len() + results.copies.len();
    let points = results.points.len() + others;
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>shunt lab{host}, {started}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}{host}</h1>\n{question}<p class=\"sub\">{started} · version {version} · {points}</p>\n</header>\n\
         {answers}{verdicts}{published}{notes}{patterns}{bands}{transfers}{copies}{receives}{measured}{machine}</main>\n</body>\n</html>\n",
        started = escape(&results.started.utc),
        version = escape(&results.version),
        title = escape(title),
        question = escape_paragraph(experiment.map_or("", |experiment| &experiment.question)),
        points = count(points, "point"),
        answers = answers(results),
        published = scaling::section(results),
        receives = receives(&results.receives),
        bands = bands(&results.points),
        transfers = transfers::all(&results.transfers),
        copies = copies::all(&results.copies),
        verdicts = verdicts(results),
        notes = notes(results),
        measured = facts::measured(results),
        machine = facts::machine(results),
    )
}

/// Sentences that summarize the run.
fn verdicts(results: &Results) -> String {
    let sentences = verdict::all(&results.points);
    if sentences.is_empty() && results.has_others() {
        return String::new();
    }
    if sentences.is_empty() {
        return "<p class=\"verdict\">No measurements.</p>\n".to_owned();
    }
    let item = |(kind, sentence): &(TrafficKind, String)| {
        let anchor = kind.id();
        format!("<p class=\"verdict\"><a href=\"#{anchor}\">{}</a></p>\n", escape(sentence))
    };
    let items: String = sentences.iter().map(item).collect();
    format!("<section class=\"verdicts\">\n<h2>Verdict</h2>\n{items}</section>\n")
}

fn notes(results: &Results) -> String {
    let notes: Vec<&String> = results.ended_early.iter().chain(&results.notes).collect();
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    format!("<section class=\"notes\">\n<h2>Notes</h2>\n<ul>\n{items}</ul>\n</section>\n")
}

/// The answer for the reader: the best path for each kind of traffic.
fn answers(results: &Results) -> String {
    let answers = verdict::answers(&results.points);
    if answers.is_empty() {
        return String::new();
    }
    let item = |(kind, answer): &(TrafficKind, String)| {
        let (anchor, title) = (kind.id(), kind.title());
        format!("<dt><a href=\"#{anchor}\">{title}</a></dt>\n<dd>{}</dd>\n", escape(answer))
    };
    let items: String = answers.iter().map(item).collect();
    format!(
        "<section class=\"answers\">\n<h2>Which interface for my traffic?</h2>\n\
         <dl>\n{items}</dl>\n<p class=\"sub\">On this machine, of these paths. For other hardware: \
         <code>shunt plan</code>.</p>\n</section>\n"
    )
}

fn escape_paragraph(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("<p>{}</p>\n", escape(text)),
    }
}

/// Cycles by CPU distance, for repeatedly measured configurations.
fn bands(points: &[Point]) -> String {
    let places = by_band::by_config(points);
    if places.is_empty() {
        return String::new();
    }
    let heads: String = Band::ALL.map(|band| format!("<th scope=\"col\">{band}</th>")).concat();
    let row = |place: &ConfigBands| {
        let ConfigBands { kind, path, frame_bytes, vms, bands } = place;
        let cells: String =
            bands.iter().map(|band| format!("<td>{}</td>", by_band::cell(band))).collect();
        let words =
            format!("{}, {path}, {frame_bytes} B, {}", kind.id(), count(*vms as usize, "guest"));
        format!("<tr><td class=\"words\">{words}</td>{cells}</tr>\n")
    };
    let rows: String = places.iter().map(row).collect();
    format!(
        "<section class=\"pattern\">\n<h2>By CPU distance</h2>\n<p class=\"sub\">Median \
         cycles per delivered frame, by the round trip of a cache line between the CPUs of \
         switch and guests; the number of slots in brackets. Bands with fewer than {} slots have \
         no median.</p>\n\
         <div class=\"wide\"><table>\n<thead><tr><th scope=\"col\" class=\"words\">Configuration</th>{heads}\
         </tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n</section>\n",
        by_band::SLOTS_MIN
    )
}

/// Received frames with a queue for each guest and without.
fn receives(receives: &[Receive]) -> String {
    if receives.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for receive in receives {
        for (path, side) in receive.sides() {
            let [least, median, most] = side.switch_cycles_per_frame.map(three);
            rows += &format!(
                "<tr><td>{}</td><td>{}</td><td class=\"words\">{path}</td><td>{}</td>\
                 <td>{median}</td><td>{least}-{most}</td><td>{}</td></tr>\n",
                receive.frame_bytes,
                receive.guests,
                three(side.mpps[1]),
                percent(side.lost_share)
            );
        }
    }
    let sentences: String =
        receives.iter().map(|receive| escape_paragraph(&receive.sentence())).collect();
    format!(
        "<section class=\"pattern\">\n<h2>Receiving</h2>\n{sentences}<div class=\"wide\"><table>\n\
         <thead><tr><th scope=\"col\">Frame</th><th scope=\"col\">Guests</th>\
         <th scope=\"col\" class=\"words\">Path</th>\
         <th scope=\"col\">Mpps</th><th scope=\"col\">Cycles per frame</th>\
         <th scope=\"col\">Min to max</th><th scope=\"col\">Lost</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n</section>\n"
    )
}

/// Section of one pattern: best values, plots, tables.
fn pattern(view: &TrafficView<'_>) -> String {
    let about = match view.kind.pattern {
        Pattern::NorthSouth => "From the external machine to a guest and back.",
        Pattern::EastWest => {
            "From guest to guest in a chain within one server; a frame counts once for each guest that sends it."
        }
    };
    format!(
        "<section class=\"pattern\">\n<h2 id=\"{id}\">{title}</h2>\n<p class=\"sub\">{about}</p>\n\
         {tiles}{plots}{table}</section>\n",
        id = view.kind.id(),
        title = view.kind.title(),
        tiles = tiles(view),
        plots = plots::all(view),
        table = tables::results(view),
    )
}

/// Best values in large type, each with its point.
fn tiles(view: &TrafficView<'_>) -> String {
    let grid = view.grid();
    let most = |value: fn(&Point) -> f64| {
        grid.iter().copied().max_by(|a, b| value(a).total_cmp(&value(b)))
    };
    let rates = [
        (
            most(|point| point.mpps),
            "Mpps",
            "highest frame rate seen",
            (|point| point.mpps) as fn(&Point) -> f64,
        ),
        (most(|point| point.gbps), "Gbps", "highest throughput seen", |point| point.gbps),
    ];
    let mut tiles: Vec<String> = rates
        .into_iter()
        .filter_map(|(point, unit, what, value)| {
            let point = point?;
            Some(tile(&bounded(value(point), point.is_lower_bound()), unit, what, point))
        })
        .collect();
    let cycles = |point: &Point| point.switch_cycles_per_frame;
    let known = grid.iter().copied().filter_map(|point| Some((cycles(point)?, point)));
    let cheapest = known.min_by(|(a, _), (b, _)| a.total_cmp(b));
    tiles.extend(cheapest.map(|(least, point)| {
        tile(&whole(Some(least)), "cycles", "cheapest frame in the switch", point)
    }));
    format!("<div class=\"tiles\">\n{}</div>\n", tiles.concat())
}

fn tile(figure: &str, unit: &str, what: &str, point: &Point) -> String {
    let Point { frame_bytes, path, .. } = point;
    let guests = count(point.vms as usize, "guest");
    let bound = if point.is_lower_bound() { ", lower bound" } else { "" };
    format!(
        "<div class=\"tile\"><span class=\"figure\">{} <small>{unit}</small></span>\
         <span class=\"what\">{what}{bound}</span><span class=\"where\">{frame_bytes} B, {guests}, {path}</span></div>\n",
        escape(figure)
    )
}

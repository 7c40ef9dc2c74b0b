//! The report as one page: no scripts, nothing loaded from elsewhere, light and dark, fit for print.
//!
//! Model: the page is XHTML-like text (every element is closed), made by functions that each return a whole element.
//! All text that comes from outside goes through [`escape`].

use super::figure::{count, rate, whole};
use super::model::{Pattern, Point, Results};
use super::svg::escape;
use super::verdict;
use super::view::View;

mod copies;
mod facts;
mod plots;
mod tables;
mod transfers;

const STYLE: &str = include_str!("style.css");

/// The page for one run.
pub fn page(results: &Results) -> String {
    let host = results.machine.get("hostname").and_then(serde_json::Value::as_str);
    let host = host.map_or(String::new(), |host| format!(" on {}", escape(host)));
    let views = View::each(&results.points);
    let patterns: String = views.iter().map(pattern).collect();
    let points = results.points.len() + results.transfers.len() + results.copies.len();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>shunt lab{host}, {started}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>shunt lab{host}</h1>\n<p class=\"sub\">{started} · version {version} · {points}</p>\n</header>\n\
         {verdicts}{notes}{patterns}{transfers}{copies}{measured}{machine}</main>\n\
         </body>\n</html>\n",
        started = escape(&results.started.utc),
        version = escape(&results.version),
        points = count(points, "point"),
        transfers = transfers::all(&results.transfers),
        copies = copies::all(&results.copies),
        verdicts = verdicts(results),
        notes = notes(&results.notes),
        measured = facts::measured(results),
        machine = facts::machine(results),
    )
}

/// The sentences that sum the run up.
fn verdicts(results: &Results) -> String {
    let sentences = verdict::all(&results.points);
    if sentences.is_empty() && (!results.transfers.is_empty() || !results.copies.is_empty()) {
        return String::new();
    }
    if sentences.is_empty() {
        return "<p class=\"verdict\">Nothing was measured.</p>\n".to_owned();
    }
    let item = |(pattern, sentence): &(Pattern, String)| {
        let anchor = pattern.as_str();
        format!("<p class=\"verdict\"><a href=\"#{anchor}\">{}</a></p>\n", escape(sentence))
    };
    let items: String = sentences.iter().map(item).collect();
    format!("<section class=\"verdicts\">\n<h2>Verdict</h2>\n{items}</section>\n")
}

fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    format!("<section class=\"notes\">\n<h2>Notes</h2>\n<ul>\n{items}</ul>\n</section>\n")
}

/// All of one pattern: its best figures, plots, and tables.
fn pattern(view: &View<'_>) -> String {
    let about = match view.pattern {
        Pattern::NorthSouth => "From the external machine into a guest, and from there back to it.",
        Pattern::EastWest => {
            "From guest to guest along a chain inside one server; a frame counts once for every guest that sends it."
        }
    };
    format!(
        "<section class=\"pattern\">\n<h2 id=\"{id}\">{title}</h2>\n<p class=\"sub\">{about}</p>\n\
         {tiles}{plots}{table}</section>\n",
        id = view.pattern.as_str(),
        title = view.pattern.title(),
        tiles = tiles(view),
        plots = plots::all(view),
        table = tables::results(view),
    )
}

/// The best figures in large type, each with the point it is from.
fn tiles(view: &View<'_>) -> String {
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
            Some(tile(&rate(point, value(point)), unit, what, point))
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

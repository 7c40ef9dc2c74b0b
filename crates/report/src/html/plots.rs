//! Plots of a pattern.
//!
//! With one path, a chart has a line per frame size. With several, each frame size has a chart with
//! a line per path, since the paths are compared.

use super::super::format::{bounded, count, whole};
use super::super::results::{PathKind, Point};
use super::super::svg::COLOURS;
use super::super::svg::bars::{BarChart, BarRow, Layer};
use super::super::svg::lines::{LineChart, LinePoint, Series};
use super::super::view::TrafficView;

const WIDE: f64 = 500.0;
const NARROW: f64 = 325.0;

/// A quantity over guests: title, unit, value of a point, and whether the generator limits it.
struct Quantity {
    title: &'static str,
    unit: &'static str,
    of: &'static str,
    value: fn(&Point) -> Option<f64>,
    is_rate: bool,
}

const QUANTITIES: [Quantity; 3] = [
    Quantity {
        title: "Frame rate",
        unit: "Mpps",
        of: "sum over the guests' transmit side",
        value: |point| Some(point.mpps),
        is_rate: true,
    },
    Quantity {
        title: "Throughput",
        unit: "Gbps",
        of: "sum over the guests' transmit side, without FCS",
        value: |point| Some(point.gbps),
        is_rate: true,
    },
    Quantity {
        title: "Switch cycles per frame",
        unit: "cycles",
        of: "busy cycles per frame",
        value: |point| point.switch_cycles_per_frame,
        is_rate: false,
    },
];

const LAYERS: [Layer; 6] = [
    Layer { name: "switch", class: "c0", in_legend: true },
    Layer { name: "switch, in the kernel", class: "c0 pale", in_legend: false },
    Layer { name: "guests", class: "c1", in_legend: true },
    Layer { name: "guests, in the kernel", class: "c1 pale", in_legend: false },
    Layer { name: "generator", class: "rest", in_legend: true },
    Layer { name: "generator, in the kernel", class: "rest pale", in_legend: false },
];

/// All plots of a pattern.
pub(super) fn all(view: &TrafficView<'_>) -> String {
    let paths: Vec<PathKind> = view.paths().into_iter().collect();
    let figures = if let [path] = paths[..] {
        let charts = QUANTITIES.iter().filter_map(|quantity| by_frame(view, path, quantity));
        let charts: String = charts.chain([cpu(view)]).map(|chart| figure(&chart)).collect();
        format!("<div class=\"charts\">\n{charts}</div>\n")
    } else {
        let rows: String = QUANTITIES.iter().map(|quantity| by_path(view, quantity)).collect();
        format!("{rows}<div class=\"charts\">\n{}</div>\n", figure(&cpu(view)))
    };
    let bound = view.points.iter().any(|point| point.is_lower_bound());
    let caption = "<p class=\"sub\">Hollow marks under an arrow are lower bounds: the generator \
                   was the bottleneck, not the switch.</p>\n";
    if bound { figures + caption } else { figures }
}

fn figure(chart: &str) -> String {
    format!("<figure>\n{chart}</figure>\n")
}

/// Chart with a line per frame size; `None` if no point has the quantity.
fn by_frame(view: &TrafficView<'_>, path: PathKind, quantity: &Quantity) -> Option<String> {
    let frames = view.frames().into_iter().enumerate();
    let series = frames
        .filter_map(|(place, frame)| {
            series(format!("{frame} B"), place, &view.line(path, frame), quantity)
        })
        .collect();
    chart(series, quantity, quantity.title, WIDE)
}

/// Charts per frame size, with a line per path.
fn by_path(view: &TrafficView<'_>, quantity: &Quantity) -> String {
    let one = |frame: u32| {
        let line = |path: PathKind| {
            // A path keeps its colour in every chart.
            let colour = PathKind::ALL.into_iter().position(|one| one == path)?;
            series(path.to_string(), colour, &view.line(path, frame), quantity)
        };
        let series = view.paths().into_iter().filter_map(line).collect();
        chart(series, quantity, &format!("{}, {frame} B", quantity.title), NARROW)
    };
    let charts: String =
        view.frames().into_iter().filter_map(one).map(|chart| figure(&chart)).collect();
    if charts.is_empty() {
        charts
    } else {
        format!("<div class=\"charts narrow\">\n{charts}</div>\n")
    }
}

fn chart(series: Vec<Series>, quantity: &Quantity, title: &str, width: f64) -> Option<String> {
    if series.is_empty() {
        return None;
    }
    let wide = format!("{}, {}", quantity.unit, quantity.of);
    let subtitle = if width == WIDE { &wide } else { quantity.unit };
    Some(LineChart { title, subtitle, width, series }.draw())
}

fn series(name: String, colour: usize, line: &[&Point], quantity: &Quantity) -> Option<Series> {
    let value = |point: &&Point| {
        let y = (quantity.value)(point)?;
        let text =
            if quantity.is_rate { bounded(y, point.is_lower_bound()) } else { whole(Some(y)) };
        let guests = count(point.vms as usize, "guest");
        let tip =
            format!("{} B, {guests}, {}: {text} {}", point.frame_bytes, point.path, quantity.unit);
        let lower_bound = quantity.is_rate && point.is_lower_bound();
        Some((LinePoint { x: point.vms, y, lower_bound, tip }, text))
    };
    let (values, texts): (Vec<LinePoint>, Vec<String>) = line.iter().filter_map(value).unzip();
    let label = format!("{name}  {}", texts.last()?);
    Some(Series { label, class: format!("c{}", colour % COLOURS), values })
}

/// CPU cores by consumer.
fn cpu(view: &TrafficView<'_>) -> String {
    let one_path = view.paths().len() == 1;
    let row = |point: &&Point| {
        let cpu = &point.cpu;
        let guests = count(point.vms as usize, "guest");
        BarRow {
            label: if one_path { guests } else { format!("{guests}, {}", point.path) },
            group: format!("{} B", point.frame_bytes),
            parts: vec![
                cpu.switch_user_cores,
                cpu.switch_system_cores,
                cpu.guests_user_cores,
                cpu.guests_system_cores,
                cpu.generator_user_cores,
                cpu.generator_system_cores,
            ],
        }
    };
    let chart = BarChart {
        title: "CPU by layer",
        subtitle: "cores in use, pale in the kernel; a polling thread always uses one",
        unit: "cores",
        width: if one_path { WIDE } else { 2.0 * WIDE },
        layers: &LAYERS,
        rows: view.grid().iter().map(row).collect(),
    };
    chart.draw()
}

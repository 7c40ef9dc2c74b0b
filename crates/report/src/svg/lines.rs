//! Lines over the number of guests, labelled at their ends.

use super::labels::spread;
use super::ticks::Ticks;
use super::{Anchor, Canvas, HEAD_PX, TEXT_PX, text_width};

const HEIGHT: f64 = 270.0;
const FOOT_PX: f64 = 40.0;
/// Distance between the plot's frame and its outermost points.
const INSET_PX: f64 = 18.0;
const LABEL_GAP_PX: f64 = 15.0;
/// Width of bold text relative to ordinary text.
const BOLD: f64 = 1.1;

/// A value at a number of guests.
pub(crate) struct LinePoint {
    /// Number of guests.
    pub(crate) x: u32,
    /// Value.
    pub(crate) y: f64,
    /// The value is a lower bound, drawn hollow under an arrow.
    pub(crate) lower_bound: bool,
    /// Text of the tooltip.
    pub(crate) tip: String,
}

/// A line.
pub(crate) struct Series {
    /// Label at its end.
    pub(crate) label: String,
    /// CSS class of its colour.
    pub(crate) class: String,
    /// Values in the order of guests.
    pub(crate) values: Vec<LinePoint>,
}

/// A line chart.
pub(crate) struct LineChart<'a> {
    /// Title.
    pub(crate) title: &'a str,
    /// Unit, and description of the values.
    pub(crate) subtitle: &'a str,
    /// Width of the drawing.
    pub(crate) width: f64,
    /// Lines.
    pub(crate) series: Vec<Series>,
}

/// Mapping of values to positions in the drawing.
struct PlotArea {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_first: f64,
    x_last: f64,
    y_end: f64,
}

impl PlotArea {
    fn at(&self, x: u32, y: f64) -> (f64, f64) {
        (self.x(x), self.bottom - y / self.y_end * (self.bottom - self.top))
    }

    fn x(&self, x: u32) -> f64 {
        let (left, right) = (self.left + INSET_PX, self.right - INSET_PX);
        let span = self.x_last - self.x_first;
        let share = if span > 0.0 { (f64::from(x) - self.x_first) / span } else { 0.5 };
        left + share * (right - left)
    }
}

impl LineChart<'_> {
    /// The chart as an SVG element.
    pub(crate) fn draw(&self) -> String {
        let mut canvas = Canvas::new(self.width, HEIGHT, self.title, self.subtitle);
        let values = || self.series.iter().flat_map(|series| &series.values);
        let ticks = Ticks::up_to(values().map(|value| value.y).fold(0.0, f64::max), 5);
        let mut xs: Vec<u32> = values().map(|value| value.x).collect();
        xs.sort_unstable();
        xs.dedup();
        let tick_width = ticks.each().map(|(_, text)| text_width(&text)).fold(0.0, f64::max);
        let label_width =
            self.series.iter().map(|series| text_width(&series.label)).fold(0.0, f64::max);
        let plane = PlotArea {
            left: tick_width + 8.0,
            right: self.width - label_width * BOLD - 4.0,
            top: HEAD_PX + 4.0,
            bottom: HEIGHT - FOOT_PX,
            x_first: xs.first().copied().map_or(0.0, f64::from),
            x_last: xs.last().copied().map_or(0.0, f64::from),
            y_end: ticks.end(),
        };
        axes(&mut canvas, &plane, &ticks, &xs);
        for series in &self.series {
            curve(&mut canvas, &plane, series);
        }
        end_labels(&mut canvas, &plane, &self.series);
        canvas.finish()
    }
}

fn axes(canvas: &mut Canvas, plane: &PlotArea, ticks: &Ticks, xs: &[u32]) {
    for (value, text) in ticks.each() {
        let y = plane.at(0, value).1;
        canvas.line((plane.left, y), (plane.right, y), if value > 0.0 { "grid" } else { "axis" });
        canvas.text((plane.left - 8.0, y + 4.0), Anchor::End, "muted", &text);
    }
    for &x in xs {
        let at = plane.x(x);
        canvas.line((at, plane.bottom), (at, plane.bottom + 4.0), "axis");
        canvas.text((at, plane.bottom + 17.0), Anchor::Middle, "muted", &x.to_string());
    }
    let middle = (plane.left + plane.right) / 2.0;
    canvas.text((middle, plane.bottom + 34.0), Anchor::Middle, "muted", "guests");
}

fn curve(canvas: &mut Canvas, plane: &PlotArea, series: &Series) {
    let places: Vec<(f64, f64)> =
        series.values.iter().map(|value| plane.at(value.x, value.y)).collect();
    canvas.polyline(&places, &format!("curve {}", series.class));
    for (value, &(x, y)) in series.values.iter().zip(&places) {
        let hollow = if value.lower_bound { " hollow" } else { "" };
        canvas.mark((x, y), &format!("mark {}{hollow}", series.class), &value.tip);
        if value.lower_bound {
            let class = format!("arrow {}", series.class);
            canvas.polyline(&[(x, y - 5.0), (x, y - 16.0)], &class);
            canvas.polyline(&[(x - 3.5, y - 12.0), (x, y - 16.5), (x + 3.5, y - 12.0)], &class);
        }
    }
}

/// Labels form a column right of the plot; a thin line leads to each label away from its point.
fn end_labels(canvas: &mut Canvas, plane: &PlotArea, series: &[Series]) {
    let ends: Vec<(&Series, (f64, f64))> = series
        .iter()
        .filter_map(|series| {
            let last = series.values.last()?;
            Some((series, plane.at(last.x, last.y)))
        })
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
    let placed = spread(&wanted, LABEL_GAP_PX, (plane.top, plane.bottom));
    for ((series, (x, y)), label_y) in ends.into_iter().zip(placed) {
        let far = (label_y - y).abs() > 2.0 || x < plane.right - INSET_PX - 1.0;
        if far {
            canvas.line(
                (x + 6.0, y),
                (plane.right - 3.0, label_y),
                &format!("leader {}", series.class),
            );
        }
        let at = (plane.right, label_y + TEXT_PX / 3.0);
        canvas.text(at, Anchor::Start, &format!("label {}", series.class), &series.label);
    }
}

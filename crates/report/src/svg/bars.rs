//! Horizontal bars of stacked parts, each with its sum at the end.

use super::ticks::Ticks;
use super::{Anchor, Canvas, HEAD_PX, text_width};

const ROW_PX: f64 = 21.0;
const BAR_PX: f64 = 14.0;
/// Gap between two groups of rows.
const GROUP_GAP_PX: f64 = 9.0;
const LEGEND_PX: f64 = 20.0;
const FOOT_PX: f64 = 40.0;
const SWATCH_PX: f64 = 10.0;

/// A part of every bar.
pub(crate) struct Layer {
    /// Name in the legend.
    pub(crate) name: &'static str,
    /// CSS classes of its colour.
    pub(crate) class: &'static str,
    /// The legend shows it; shades of a colour are explained once, in the subtitle.
    pub(crate) in_legend: bool,
}

/// A bar.
pub(crate) struct BarRow {
    /// Text before the bar.
    pub(crate) label: String,
    /// Group of the row; its name is shown before the first.
    pub(crate) group: String,
    /// Values, one for each layer.
    pub(crate) parts: Vec<f64>,
}

/// A bar chart.
pub(crate) struct BarChart<'a> {
    /// Title.
    pub(crate) title: &'a str,
    /// Unit, and description of the values.
    pub(crate) subtitle: &'a str,
    /// Unit of one value.
    pub(crate) unit: &'a str,
    /// Width of the drawing.
    pub(crate) width: f64,
    /// The parts of the bars.
    pub(crate) layers: &'a [Layer],
    /// Bars, sorted by group.
    pub(crate) rows: Vec<BarRow>,
}

impl BarChart<'_> {
    /// The chart as an SVG element.
    pub(crate) fn draw(&self) -> String {
        let top = HEAD_PX + LEGEND_PX * self.legend_lines().len() as f64;
        let bottom = top + self.row_tops().last().map_or(0.0, |last| last + ROW_PX) + 2.0;
        let mut canvas = Canvas::new(self.width, bottom + FOOT_PX, self.title, self.subtitle);
        self.legend(&mut canvas);
        let widest = |text: fn(&BarRow) -> &str| {
            self.rows.iter().map(|row| text_width(text(row))).fold(0.0, f64::max)
        };
        let group_width = widest(|row| &row.group) + 10.0;
        let left = group_width + widest(|row| &row.label) + 8.0;
        let right = self.width - text_width("00.00") - 6.0;
        let longest = self.rows.iter().map(|row| row.parts.iter().sum()).fold(0.0, f64::max);
        let ticks = Ticks::up_to(longest, 5);
        let scale = (right - left) / ticks.end();
        for (value, text) in ticks.each() {
            let x = left + value * scale;
            canvas.line((x, top), (x, bottom), if value > 0.0 { "grid" } else { "axis" });
            canvas.text((x, bottom + 15.0), Anchor::Middle, "muted", &text);
        }
        canvas.text(((left + right) / 2.0, bottom + 32.0), Anchor::Middle, "muted", self.unit);
        let mut group = None;
        for (row, row_top) in self.rows.iter().zip(self.row_tops()) {
            let text_y = top + row_top + 15.0;
            if group != Some(&row.group) {
                canvas.text((0.0, text_y), Anchor::Start, "strong", &row.group);
                group = Some(&row.group);
            }
            canvas.text((left - 8.0, text_y), Anchor::End, "muted", &row.label);
            self.bar(&mut canvas, row, (left, top + row_top + 4.0), scale);
        }
        canvas.finish()
    }

    /// Vertical position of each row in the plot.
    fn row_tops(&self) -> Vec<f64> {
        let mut y = 0.0;
        let mut tops = Vec::with_capacity(self.rows.len());
        for (place, row) in self.rows.iter().enumerate() {
            if place > 0 && self.rows[place - 1].group != row.group {
                y += GROUP_GAP_PX;
            }
            tops.push(y);
            y += ROW_PX;
        }
        tops
    }

    fn bar(&self, canvas: &mut Canvas, row: &BarRow, (left, top): (f64, f64), scale: f64) {
        let mut x = left;
        for (layer, part) in self.layers.iter().zip(&row.parts) {
            let width = part * scale;
            // Thinner parts would be only noise between their neighbours.
            if width >= 0.3 {
                let tip =
                    format!("{} {}: {}: {part:.2} {}", row.group, row.label, layer.name, self.unit);
                canvas.rect((x, top), (width, BAR_PX), layer.class, &tip);
            }
            x += width;
        }
        let sum: f64 = row.parts.iter().sum();
        canvas.text((x + 6.0, top + 11.0), Anchor::Start, "value", &format!("{sum:.2}"));
    }

    /// Layers in lines that fit the width, each with its horizontal position.
    fn legend_lines(&self) -> Vec<Vec<(f64, &Layer)>> {
        let mut lines: Vec<Vec<(f64, &Layer)>> = Vec::new();
        let mut x = 0.0;
        for layer in self.layers.iter().filter(|layer| layer.in_legend) {
            let width = SWATCH_PX + 6.0 + text_width(layer.name) + 10.0;
            match lines.last_mut() {
                Some(line) if x + width <= self.width + 10.0 => line.push((x, layer)),
                _ => {
                    x = 0.0;
                    lines.push(vec![(x, layer)]);
                }
            }
            x += width;
        }
        lines
    }

    fn legend(&self, canvas: &mut Canvas) {
        for (place, line) in self.legend_lines().into_iter().enumerate() {
            let y = HEAD_PX + place as f64 * LEGEND_PX;
            for (x, layer) in line {
                canvas.rect((x, y), (SWATCH_PX, SWATCH_PX), layer.class, layer.name);
                let at = (x + SWATCH_PX + 6.0, y + 9.5);
                canvas.text(at, Anchor::Start, "muted", layer.name);
            }
        }
    }
}

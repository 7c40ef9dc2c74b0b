//! Plots as inline SVG: one theme, two kinds of chart, no scripts.
//!
//! Model: a [`Canvas`] collects elements; [`lines`] and [`bars`] lay a chart out on it. Colours and
//! fonts are classes of the page's style sheet, so that a chart follows its light and dark theme.
//! Text is measured by a table of mean widths, rounded up, since the reader's font is unknown.
//!
//! Limits: six colours; values are not negative, and axes start at 0.

use std::fmt::Write;

pub(super) mod bars;
mod labels;
pub(super) mod lines;
mod ticks;

#[cfg(test)]
mod tests;

/// The colours that series may have: classes `c0` to `c5`.
pub(super) const COLOURS: usize = 6;

/// The height of ordinary text, in the units of the drawing.
const TEXT_PX: f64 = 12.0;
/// The height of a chart's head: title and subtitle.
const HEAD_PX: f64 = 46.0;

/// Alignment of text relative to its point.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing under construction.
struct Canvas {
    out: String,
}

impl Canvas {
    /// Opens a drawing under its title; `about` is its description for screen readers.
    fn new(width: f64, height: f64, title: &str, subtitle: &str) -> Canvas {
        let out = format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&format!("{title}: {subtitle}"))
        );
        let mut canvas = Canvas { out };
        canvas.text((0.0, 14.0), Anchor::Start, "title", title);
        canvas.text((0.0, 31.0), Anchor::Start, "muted", subtitle);
        canvas
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A line through all points.
    fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!("<polyline points=\"{}\" class=\"{class}\"/>", points.join(" ")));
    }

    /// A filled area with the tooltip `tip`.
    fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str, tip: &str) {
        let tip = escape(tip);
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\">\
             <title>{tip}</title></rect>"
        ));
    }

    /// A round mark with the tooltip `tip`.
    fn mark(&mut self, (x, y): (f64, f64), class: &str, tip: &str) {
        let tip = escape(tip);
        self.add(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"{class}\"><title>{tip}</title></circle>"
        ));
    }

    fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.out, "{element}");
    }
}

/// Escapes text for element content and attributes; characters invalid in XML become `?`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Upper bound of the width of ordinary text in common sans-serif fonts.
fn text_width(text: &str) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' => 0.32,
        ' ' | 'f' | 'r' | 't' | '(' | ')' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
        'A'..='Z' => 0.74,
        _ => 0.62,
    };
    text.chars().map(em).sum::<f64>() * TEXT_PX
}

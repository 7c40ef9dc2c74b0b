//! Scaling charts beside the published ones, as multiples of the first value.

use super::super::results::Results;
use super::super::scaling::{ScalingCurve, curves, ends, sentences, views};
use super::super::svg::escape;
use super::super::svg::lines::{LineChart, LinePoint, Series};

const WIDE: f64 = 500.0;

/// The section; empty without published values.
pub(super) fn section(results: &Results) -> String {
    let sentences = sentences(results);
    if sentences.is_empty() {
        return String::new();
    }
    let mut charts = String::new();
    for view in views(results) {
        for frame_bytes in ends(&view) {
            let title = format!("{}, {frame_bytes} B", view.kind.title());
            let curves = curves(&view, frame_bytes);
            charts += &chart(&title, &curves).unwrap_or_default();
        }
    }
    let item = |text: &String| format!("<li>{}</li>\n", escape(text));
    let items: String = sentences.iter().map(item).collect();
    let experiment = results.experiment.as_ref();
    let why: String = experiment.map_or(String::new(), |it| it.differs.iter().map(item).collect());
    let paper = experiment.and_then(|it| it.paper.as_deref()).unwrap_or("The paper");
    let why = match why.as_str() {
        "" => String::new(),
        why => format!("<h3>Reasons for differences</h3>\n<ul>\n{why}</ul>\n"),
    };
    format!(
        "<section class=\"notes\">\n<h2>Compared with {}</h2>\n<div class=\"charts\">\n{charts}</div>\n\
         <ul>\n{items}</ul>\n{why}</section>\n",
        escape(paper)
    )
}

fn chart(title: &str, curves: &[ScalingCurve]) -> Option<String> {
    let series = |(place, curve): (usize, &ScalingCurve)| {
        let line = |name: &str, class: String, value: fn(&(u32, f64, f64)) -> f64| {
            let label = format!("{}{name}", curve.path);
            let one = |it: &(u32, f64, f64)| LinePoint {
                x: it.0,
                y: value(it),
                lower_bound: false,
                tip: format!("{label}, {} guests: {:.2} times", it.0, value(it)),
            };
            let values = curve.values.iter().map(one).collect();
            Series { label: label.clone(), class, values }
        };
        let class = format!("c{place}");
        [
            line("", class.clone(), |it| it.1),
            line(", published", format!("{class} pale"), |it| it.2),
        ]
    };
    let series: Vec<Series> = curves.iter().enumerate().flat_map(series).collect();
    let subtitle = "frames a second, as multiples of those with the fewest guests";
    let chart = LineChart { title, subtitle, width: WIDE, series };
    (!chart.series.is_empty()).then(|| format!("<figure>\n{}</figure>\n", chart.draw()))
}

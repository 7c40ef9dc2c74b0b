//! The screen of `shunt top`: a line of state, totals, three panes and a line of keys.
//!
//! All text is ASCII, and colours repeat what the text says, for terminals without either.

use api::stats::ReasonEntry;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use report::wrap;

use super::app::{App, Dropped, Port};
use super::columns::{Column, scaled};
use crate::rates::LaneRates;

/// Lines that each pane gets before one gets more: ports, lanes, drops.
const FIRST_LINES: [usize; 3] = [6, 4, 6];
/// Lines beside the lines of panes: state, totals, three headers, keys.
const OTHER_LINES: usize = 6;
/// Load of a lane that is close to its limit.
const HIGH_LOAD: f64 = 0.9;
/// Least and greatest width of a lane's bar.
const BAR_WIDTHS: [usize; 2] = [10, 50];

/// Titles and widths of the columns of lanes, the bar apart.
const LANE_COLUMNS: [(&str, usize); 9] = [
    ("lane", 10),
    ("busy%", 6),
    ("idle%", 6),
    ("sleep%", 6),
    ("frames/s", 8),
    ("cyc/frame", 9),
    ("burst", 5),
    ("backlog%", 8),
    ("sleeps/s", 8),
];

/// Titles and widths of the columns of drops; the last takes the rest.
const DROP_COLUMNS: [(&str, usize); 4] =
    [("dropped because", 26), ("drop/s", 7), ("total", 12), ("most at port", 30)];

/// A text of a row with its style.
type Cell = (String, Style);

/// Draws the state on the whole terminal.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let ports = app.ports();
    let bodies = [
        port_lines(app, &ports, width),
        app.rates.lanes.iter().map(|lane| lane_line(app, lane, width)).collect(),
        drop_lines(app, &app.dropped(&ports), width),
    ];
    let headers = [port_header(app, width), lane_header(width), drop_header(width)];
    let mut lines = vec![state_line(app, ports.len(), width), total_line(app)];
    drop(ports);
    let wanted = [0, 1, 2].map(|pane| bodies[pane].len());
    let heights = heights(height.saturating_sub(OTHER_LINES), wanted, app.focus);
    for (pane, (header, body)) in headers.into_iter().zip(bodies).enumerate() {
        let offset = app.offsets[pane].min(body.len() - heights[pane]);
        app.offsets[pane] = offset;
        let position = match heights[pane] < body.len() {
            true => format!(" {}-{} of {}", offset + 1, offset + heights[pane], body.len()),
            false => String::new(),
        };
        lines.push(header_line(&header, &position, pane == app.focus, width));
        lines.extend(body.into_iter().skip(offset).take(heights[pane]));
    }
    lines.resize(height.saturating_sub(1), Line::default());
    for (y, line) in (area.y..).zip(&lines) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
    if area.height > 0 {
        let last = Rect { y: area.bottom() - 1, height: 1, ..area };
        frame.render_widget(key_line(app), last);
    }
}

/// Lines of each pane: first a few for each, then what is left, for the pane in focus before the
/// others.
fn heights(lines: usize, wanted: [usize; 3], focus: usize) -> [usize; 3] {
    let mut left = lines;
    let mut given = [0; 3];
    for limits in [FIRST_LINES, [usize::MAX; 3]] {
        for pane in [focus, (focus + 1) % 3, (focus + 2) % 3] {
            let more = wanted[pane].min(limits[pane]).saturating_sub(given[pane]).min(left);
            given[pane] += more;
            left -= more;
        }
    }
    given
}

/// A style with this colour if there are colours, and in bold.
fn marked(app: &App, color: Color) -> Style {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if app.has_colors { bold.fg(color) } else { bold }
}

/// A text in `width` columns. Of a longer one the end is kept, after `~`: names differ there.
fn fit(text: &str, width: usize, is_right: bool) -> String {
    let length = text.chars().count();
    if length > width {
        let end = text.chars().skip(length - width.saturating_sub(1));
        return "~".chars().take(width).chain(end).collect();
    }
    if is_right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

/// Texts with a column between them.
fn row(cells: impl IntoIterator<Item = Cell>) -> Line<'static> {
    let mut spans = Vec::new();
    for (text, style) in cells {
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

/// A header over the whole width, with the lines shown at the right if not all are. Of the pane in
/// focus it is reversed, of the others underlined.
fn header_line(header: &str, position: &str, has_focus: bool, width: usize) -> Line<'static> {
    let mark = if has_focus { Modifier::REVERSED } else { Modifier::UNDERLINED };
    let room = width.saturating_sub(position.len());
    let header: String = header.chars().take(room).collect();
    let style = Style::new().add_modifier(mark | Modifier::BOLD);
    Line::styled(format!("{header:<room$}{position}"), style)
}

fn state_line(app: &App, shown: usize, width: usize) -> Line<'static> {
    let all = app.rates.ports.len();
    let about = match (app.is_running, &app.paths) {
        (false, _) => "the daemon has ended; waiting for it".to_owned(),
        (true, None) => format!("{shown} of {all} ports, no answer from the API yet"),
        (true, Some(_)) => format!("{shown} of {all} ports"),
    };
    let style = if app.is_running { Style::new() } else { marked(app, Color::Red) };
    let room = width.saturating_sub(about.len() + 12);
    let place = fit(&app.place, app.place.chars().count().min(room), false);
    let gap = width.saturating_sub(about.len() + place.chars().count() + 11);
    Line::from(vec![
        Span::styled("shunt top", marked(app, Color::Cyan)),
        Span::raw(format!("  {place}{}", " ".repeat(gap))),
        Span::styled(about, style),
    ])
}

fn total_line(app: &App) -> Line<'static> {
    let total = &app.rates.total;
    let all = spaced(8.0 * (total.wire_bytes_per_s + total.local_bytes_per_s), "bit/s");
    let frames = spaced(total.wire_frames_per_s + total.local_frames_per_s, "pps");
    let lost = format!("lost {}/s", scaled(total.drops_per_s));
    let is_lossy = total.drops_per_s > 0.0;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![
        Span::styled(format!("{all}  {frames}"), bold),
        Span::raw("  "),
        Span::styled(lost, if is_lossy { marked(app, Color::Red) } else { bold }),
        Span::raw(format!("   wire {}", scaled(8.0 * total.wire_bytes_per_s))),
        Span::raw(format!("  between guests {}", scaled(8.0 * total.local_bytes_per_s))),
    ])
}

/// A figure with its unit, as `84.2 Gbit/s`.
fn spaced(value: f64, unit: &str) -> String {
    let text = scaled(value);
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    format!("{number} {}{unit}", &text[number.len()..])
}

/// Width of each column of ports; the name takes what the others leave.
fn port_widths(width: usize) -> Vec<(Column, usize)> {
    let columns = Column::that_fit(width);
    let used: usize = columns.iter().map(|column| column.width() + 1).sum();
    let rest = (width + 1).saturating_sub(used).min(40);
    let of = |column: &Column| match column {
        Column::Name => (*column, column.width() + rest),
        _ => (*column, column.width()),
    };
    columns.iter().map(of).collect()
}

fn port_header(app: &App, width: usize) -> String {
    let title = |(column, width): (Column, usize)| {
        let mark = if column == app.sort { "*" } else { "" };
        fit(&format!("{}{mark}", column.title()), width, !column.is_text())
    };
    port_widths(width).into_iter().map(title).collect::<Vec<_>>().join(" ")
}

fn port_lines(app: &App, ports: &[Port<'_>], width: usize) -> Vec<Line<'static>> {
    let widths = port_widths(width);
    let line = |port: &Port<'_>| {
        row(widths.iter().map(|(column, width)| {
            let style = match column {
                Column::Drops if port.rates.all_drops_per_s() > 0.0 => marked(app, Color::Red),
                Column::Why if !["", "-"].contains(&port.why) => marked(app, Color::Yellow),
                _ => Style::new(),
            };
            (fit(&column.cell(port), *width, !column.is_text()), style)
        }))
    };
    ports.iter().map(line).collect()
}

/// Width of a lane's bar; 0 if it does not fit.
fn bar_width(width: usize) -> usize {
    let used: usize = LANE_COLUMNS.iter().map(|(_, width)| width + 1).sum();
    let [least, most] = BAR_WIDTHS;
    let rest = width.saturating_sub(used).min(most);
    if rest < least { 0 } else { rest }
}

fn lane_header(width: usize) -> String {
    let title = |(i, (title, width)): (usize, &(&str, usize))| fit(title, *width, i > 0);
    let titles: Vec<String> = LANE_COLUMNS.iter().enumerate().map(title).collect();
    let bar = if bar_width(width) > 0 { " busy | idle ." } else { "" };
    titles.join(" ") + bar
}

fn lane_line(app: &App, lane: &LaneRates, width: usize) -> Line<'static> {
    let percent = |share: f64| format!("{:.1}", 100.0 * share.clamp(0.0, 1.0));
    let texts = [
        lane.lane.clone(),
        percent(lane.load),
        percent(lane.polling - lane.load),
        percent(1.0 - lane.polling),
        scaled(lane.frames_per_s),
        scaled(lane.cycles_per_frame),
        format!("{:.1}", lane.frames_per_burst),
        percent(lane.backlog),
        scaled(lane.sleeps_per_s),
    ];
    let is_high = lane.load >= HIGH_LOAD;
    let cells = texts.into_iter().zip(LANE_COLUMNS).enumerate();
    let mut line = row(cells.map(|(i, (text, (_, width)))| {
        let style = if i == 1 && is_high { marked(app, Color::Red) } else { Style::new() };
        (fit(&text, width, i > 0), style)
    }));
    let bar = bar_width(width).saturating_sub(2);
    if bar > 0 {
        let part = |share: f64| (share.clamp(0.0, 1.0) * bar as f64).round() as usize;
        let busy = part(lane.load);
        let idle = part(lane.polling).saturating_sub(busy);
        let color = if is_high { Color::Red } else { Color::Green };
        line.push_span(" [");
        line.push_span(Span::styled("|".repeat(busy), marked(app, color)));
        line.push_span(format!("{}{}]", ".".repeat(idle), " ".repeat(bar - busy - idle)));
    }
    line
}

/// Width of each column of drops.
fn drop_widths(width: usize) -> [usize; 4] {
    let mut widths = DROP_COLUMNS.map(|(_, width)| width);
    let used: usize = widths[..3].iter().map(|width| width + 1).sum();
    widths[3] = width.saturating_sub(used);
    widths
}

fn drop_header(width: usize) -> String {
    let widths = drop_widths(width);
    let title = |i: usize| fit(DROP_COLUMNS[i].0, widths[i], (1..3).contains(&i));
    [0, 1, 2, 3].map(title).join(" ")
}

/// Two lines or more for each reason: its figures, and its remedy.
fn drop_lines(app: &App, dropped: &[Dropped], width: usize) -> Vec<Line<'static>> {
    if dropped.is_empty() {
        return vec![Line::raw("none")];
    }
    let widths = drop_widths(width);
    let mut lines = Vec::new();
    for Dropped { reason, per_s, total, port } in dropped {
        let is_now = per_s.is_some_and(|rate| rate > 0.0);
        let style = if is_now { marked(app, Color::Red) } else { Style::new() };
        let rate = per_s.map_or("fault".to_owned(), scaled);
        let texts = [reason.clone(), rate, total.to_string(), port.clone()];
        let cells = texts.into_iter().enumerate();
        lines.push(row(cells.map(|(i, text)| {
            (fit(&text, widths[i], (1..3).contains(&i)), if i < 2 { style } else { Style::new() })
        })));
        let remedy = ReasonEntry::find(reason).map_or("", |entry| entry.remedy);
        let remedy = wrap(remedy, width.saturating_sub(2).max(1));
        lines.extend(remedy.iter().map(|part| Line::raw(format!("  {}", part.trim_end()))));
    }
    lines
}

fn key_line(app: &App) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if app.is_typing {
        let typed = Span::styled(format!("filter: {}_", app.filter), bold);
        return Line::from(vec![typed, Span::raw("   Enter keep   Esc clear")]);
    }
    let sort = app.sort.title();
    let filter = match app.filter.as_str() {
        "" => "filter".to_owned(),
        text => format!("filter: {text}"),
    };
    let order = if app.is_reversed { "reversed" } else { "reverse" };
    let keys = [
        ("q", "quit"),
        ("/", &*filter),
        ("s", &*format!("sort: {sort}")),
        ("r", order),
        ("u", if app.by_queue { "ports" } else { "queues" }),
        ("Tab", "pane"),
        ("arrows", "scroll"),
    ]
    .map(|(key, action)| [Span::styled(key.to_owned(), bold), Span::raw(format!(" {action}  "))]);
    Line::from(keys.concat())
}

//! Errors of the TOML grammar, in the words of someone who has to mend the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::error::{MAX_SHOWN, Report};
use super::fields::{Field, Kind, ROOT, Section};

/// Whether the tree is worth looking at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The grammar is right, or only single values are wrong.
    Sound,
    /// A line is broken, and what follows may be misunderstood; or so many values are wrong that it will do.
    Broken,
}

impl Outcome {
    pub(super) fn goes_on(self) -> bool {
        self == Outcome::Sound
    }
}

/// Reports wrong values, and the first broken line if there is one: the parser recovers from it, but what it says of
/// the lines after, and of values on that line, is mostly a consequence.
pub(super) fn report(report: &Report<'_>, tree: &DeTable<'_>, mistakes: &[Error]) -> Outcome {
    let place = |error: &Error| error.span().map_or(0, |span| span.start);
    let quote = |error: &Error| report.quote(error.span().unwrap_or_default());
    let mut sorted: Vec<&Error> = mistakes.iter().collect();
    sorted.sort_by_key(|error| place(error));
    let breaks = |error: &&&Error| wrong_value(error.message(), &quote(error)).is_none();
    let broken = sorted.iter().find(breaks).copied();
    let mut wrong = 0;
    let broken_on = broken.map_or(usize::MAX, |error| report.line(place(error)));
    for error in sorted {
        let at = place(error);
        if report.line(at) >= broken_on {
            break;
        }
        // Finding a value's path is a walk through the file, so it is not done for what will not be shown.
        if wrong == MAX_SHOWN {
            return Outcome::Broken;
        }
        if let Some(message) = wrong_value(error.message(), &quote(error)) {
            let (field, known) = find(tree, at).unwrap_or_default();
            let allowed = known.map(|known| format!("; write {}", known.kind));
            report.error(at, field, message + &allowed.unwrap_or_default());
            wrong += 1;
        }
    }
    let Some(error) = broken else {
        return Outcome::Sound;
    };
    report.error(place(error), String::new(), broken_line(error.message(), &quote(error)));
    Outcome::Broken
}

/// A mistake within one value, or `None`. The parser takes anything without quotes for a misspelt number, date or
/// boolean, by its first character.
fn wrong_value(message: &str, text: &str) -> Option<String> {
    let unquoted =
        ["string values must be quoted", "invalid datetime", "invalid float", "invalid boolean"];
    if message.starts_with("unexpected leading zero") {
        return Some("a number has no leading zeros".to_owned());
    }
    if !unquoted.iter().any(|start| message.starts_with(start)) {
        return None;
    }
    if text.is_empty() {
        return Some("there is no value after =".to_owned());
    }
    let lower = text.to_ascii_lowercase();
    if ["true", "false"].contains(&lower.as_str()) {
        return Some(format!("{text} is not {lower}: small letters only"));
    }
    Some(format!("{text} is not a value (a text stands in quotes)"))
}

fn broken_line(message: &str, text: &str) -> String {
    let told = [
        ("key with no value", "a name must be followed by = and a value, such as poll_us = 50"),
        ("unclosed table", "the header of a table ends with ], such as [lanes]"),
        (
            "unclosed array table",
            "the header of a table among several ends with ]], such as [[nic]]",
        ),
        ("unclosed array", "a list is not closed; it ends with ], such as cpus = [2, 3]"),
        (
            "missing comma between array elements",
            "a list is not closed with ], or lacks a comma, before this place",
        ),
        (
            "invalid basic string",
            "the text is not closed, or holds a character it may not; it ends with \" on its line",
        ),
        (
            "invalid literal string",
            "the text is not closed, or holds a character it may not; it ends with ' on its line",
        ),
        ("missing escaped value", "the text has an unknown escape; write \\\\ for a backslash"),
        (
            "unexpected key or value",
            "there is more than one value on the line; write one field a line, and text in quotes",
        ),
    ];
    if message == "duplicate key" {
        return match text {
            "nic" | "switch" | "adapter" | "vpf" => {
                format!("there are several tables {text}; write the header of each as [[{text}]]")
            }
            "vf" => {
                "there are several tables vf; write the header of each as [[nic.vf]]".to_owned()
            }
            _ => format!("{text} is written twice in its table; keep one of them"),
        };
    }
    match told.iter().find(|(start, _)| message.starts_with(start)) {
        Some((_, words)) => (*words).to_owned(),
        None if text.is_empty() => format!("this is not TOML: {message}"),
        None => format!("{text} is not TOML: {message}"),
    }
}

/// The path of the value at byte `at`, and its field if it is a known one.
fn find(tree: &DeTable<'_>, at: usize) -> Option<(String, Option<&'static Field>)> {
    find_in(tree, Some(&ROOT), "", at)
}

fn find_in(
    table: &DeTable<'_>,
    section: Option<&'static Section>,
    path: &str,
    at: usize,
) -> Option<(String, Option<&'static Field>)> {
    let dot = if path.is_empty() { "" } else { "." };
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        let field = section.and_then(|section| section.field(name));
        find_value(value, field, format!("{path}{dot}{name}"), at)
    })
}

fn find_value(
    value: &Spanned<DeValue<'_>>,
    field: Option<&'static Field>,
    path: String,
    at: usize,
) -> Option<(String, Option<&'static Field>)> {
    let within = match field.map(|field| &field.kind) {
        Some(Kind::Table(section) | Kind::Tables(section)) => Some(*section),
        _ => None,
    };
    match value.get_ref() {
        // The span of a table is that of its header, so tables are searched whatever theirs is.
        DeValue::Table(table) => find_in(table, within, &path, at),
        DeValue::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, item)| find_value(item, field, format!("{path}[{i}]"), at)),
        _ => (value.span().start <= at && at <= value.span().end).then_some((path, field)),
    }
}

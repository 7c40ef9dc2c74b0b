//! Explains TOML syntax errors to a user.

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::position::Position;
use crate::state::{MAX_PROBLEMS, Problem, cut, schema};

/// The errors, each with its offset. Reports all wrong values up to the first line with a syntax
/// error: after it the meaning is unreliable.
pub(super) fn problems(
    text: &str,
    tree: &DeTable<'_>,
    mistakes: &[Error],
) -> Vec<(usize, Problem)> {
    let place = |error: &Error| error.span().map_or(0, |span| span.start);
    let line = |error: &Error| Position::of(text, place(error)).line;
    let quote =
        |error: &Error| cut(text.get(error.span().unwrap_or_default()).unwrap_or_default().trim());
    let mut sorted: Vec<&Error> = mistakes.iter().collect();
    sorted.sort_by_key(|error| place(error));
    let breaks = |error: &&&Error| wrong_value(error.message(), &quote(error)).is_none();
    let broken = sorted.iter().find(breaks).copied();
    let broken_on = broken.map_or(usize::MAX, line);
    let mut all = Vec::new();
    // Finding a value's path walks the whole file, so skip it for problems that are not shown.
    for error in sorted.into_iter().take(MAX_PROBLEMS).take_while(|error| line(error) < broken_on) {
        if let Some(message) = wrong_value(error.message(), &quote(error)) {
            let field = find_in(tree, "", place(error)).unwrap_or_default();
            let allowed = schema::allowed_at("Configuration", &field);
            all.push((place(error), Problem::new(field, (), message, allowed)));
        }
    }
    if let Some(error) = broken {
        let text = broken_line(error.message(), &quote(error));
        let (message, remedy) = text.split_once("; ").unwrap_or((&text, "correct the line"));
        all.push((place(error), Problem::new("", (), message, remedy)));
    }
    all
}

/// An error within one value, or `None`. The parser takes any unquoted text for a misspelt number,
/// date or boolean, by its first character.
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
        return Some(format!("{text} is not {lower}: use lower case"));
    }
    Some(format!("{text} is not a value (put text in quotes)"))
}

fn broken_line(message: &str, text: &str) -> String {
    let told = [
        ("key with no value", "the name has no value; write = and a value, such as poll_us = 50"),
        ("unclosed table", "the header of a table is not closed; end it with ], such as [lanes]"),
        (
            "unclosed array table",
            "the header of a list entry is not closed; end it with ]], such as [[nic]]",
        ),
        ("unclosed array", "unterminated list; end it with ], such as cpus = [2, 3]"),
        (
            "missing comma between array elements",
            "a list lacks a comma or its closing ] before this position; add it",
        ),
        (
            "invalid basic string",
            "unterminated string or invalid character; end the string with \" on the same line",
        ),
        (
            "invalid literal string",
            "unterminated string or invalid character; end the string with ' on the same line",
        ),
        ("missing escaped value", "unknown escape in a string; write \\\\ for a backslash"),
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
        None => format!("\"{text}\" is not TOML: {message}"),
    }
}

/// Path of the value at an offset.
fn find_in(table: &DeTable<'_>, path: &str, at: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| find_value(value, schema::join(path, key.get_ref()), at))
}

fn find_value(value: &Spanned<DeValue<'_>>, path: String, at: usize) -> Option<String> {
    match value.get_ref() {
        // A table's span is only its header, so search all tables.
        DeValue::Table(table) => find_in(table, &path, at),
        DeValue::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, item)| find_value(item, format!("{path}[{i}]"), at)),
        _ => (value.span().start <= at && at <= value.span().end).then_some(path),
    }
}

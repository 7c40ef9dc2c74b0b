//! Values of the file with their places, and what became of a field.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeValue};

/// What a field turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given<T> {
    /// Not in the file, and need not be.
    Absent,
    /// Wrong, and reported.
    Bad,
    /// Right.
    Value(T),
}

impl<T> Given<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Given::Value(value) => Some(value),
            Given::Absent | Given::Bad => None,
        }
    }
}

/// A value of the file with its place.
pub(super) struct Item<'a> {
    pub(super) value: &'a DeValue<'a>,
    pub(super) span: Range<usize>,
    pub(super) path: String,
}

/// The items of a list, each with its own path.
pub(super) fn items_of<'a>(array: &'a DeArray<'a>, path: &str) -> Vec<Item<'a>> {
    let item = |(i, value): (usize, &'a Spanned<DeValue<'a>>)| Item {
        value: value.get_ref(),
        span: value.span(),
        path: format!("{path}[{i}]"),
    };
    array.iter().enumerate().map(item).collect()
}

/// The text of a value that is one.
pub(super) fn text_of<'a>(value: &'a DeValue<'a>) -> Option<&'a str> {
    match value {
        DeValue::String(text) => Some(text),
        _ => None,
    }
}

/// A value's type, as the end of "... is".
pub(super) fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

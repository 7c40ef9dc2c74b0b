//! From the path of a field, such as `adapter[2].attachment.socket`, to its place in the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where something is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The value, or the header of the nearest table around it that is there.
    pub(super) at: usize,
    /// The field's name, if the field itself is there and has one.
    pub(super) name_at: Option<usize>,
}

/// The place of a path, or of what it would be in; `None` where the file has nothing of it.
pub(super) fn locate(tree: &DeTable<'_>, path: &str) -> Option<Place> {
    let mut table = Some(tree);
    let mut place: Option<Place> = None;
    let around = |place: Option<Place>| place.map(|place| Place { name_at: None, ..place });
    for part in path.split('.') {
        let mut steps = part.split('[');
        let name = steps.next().unwrap_or_default();
        let found = table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name));
        let Some((key, mut value)) = found else {
            return around(place);
        };
        let mut name_at = Some(key.span().start);
        for step in steps {
            let Some(item) = item(value, step) else {
                return Some(Place { at: value.span().start, name_at: None });
            };
            (value, name_at) = (item, None);
        }
        place = Some(Place { at: value.span().start, name_at });
        table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        };
    }
    place
}

/// The item of a list; `step` is its number with the closing bracket.
fn item<'a>(value: &'a Spanned<DeValue<'a>>, step: &str) -> Option<&'a Spanned<DeValue<'a>>> {
    let index: usize = step.strip_suffix(']')?.parse().ok()?;
    match value.get_ref() {
        DeValue::Array(items) => items.get(index),
        _ => None,
    }
}

//! Maps the path of a field, such as `adapter[2].attachment.socket`, to its position in the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Byte offsets of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldPosition {
    /// Offset of the value, or of the header of the nearest enclosing table in the file.
    pub(super) at: usize,
    /// Offset of the field's name, if the field is in the file and has a name.
    pub(super) name_at: Option<usize>,
}

/// Position of a path, or of its nearest enclosing table; `None` if the file has neither.
pub(super) fn locate(tree: &DeTable<'_>, path: &str) -> Option<FieldPosition> {
    let mut table = Some(tree);
    let mut place: Option<FieldPosition> = None;
    let around =
        |place: Option<FieldPosition>| place.map(|place| FieldPosition { name_at: None, ..place });
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
                return Some(FieldPosition { at: value.span().start, name_at: None });
            };
            (value, name_at) = (item, None);
        }
        place = Some(FieldPosition { at: value.span().start, name_at });
        table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        };
    }
    place
}

/// Item of a list; `step` is its index with the closing bracket.
fn item<'a>(value: &'a Spanned<DeValue<'a>>, step: &str) -> Option<&'a Spanned<DeValue<'a>>> {
    let index: usize = step.strip_suffix(']')?.parse().ok()?;
    match value.get_ref() {
        DeValue::Array(items) => items.get(index),
        _ => None,
    }
}

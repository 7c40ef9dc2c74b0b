//! Tables declared by their columns, for terminals and for the page.

use super::svg::escape;
use super::text_table::{Align, TextFormat};

/// Heading, left-aligned text or not, and the cell text of a row.
pub(super) type Column<T> = (&'static str, bool, fn(&T) -> String);

/// Table for the terminal below its title; empty without rows. A first cell equal to the one above
/// is left blank.
pub(super) fn terminal<T>(
    format: TextFormat,
    title: &str,
    columns: &[Column<T>],
    rows: &[&T],
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let align = |words: bool| if words { Align::Left } else { Align::Right };
    let header: Vec<_> = columns.iter().map(|(name, words, _)| (*name, align(*words))).collect();
    let mut above = String::new();
    let row = |row: &&T| {
        let mut cells: Vec<String> = columns.iter().map(|(_, _, text)| text(row)).collect();
        let first = std::mem::replace(&mut above, cells[0].clone());
        if first == above {
            cells[0].clear();
        }
        cells
    };
    let table = format.table(&header, rows.iter().map(row).collect());
    format!("{title}\n{table}\n")
}

/// Table for the page; empty without rows. Rows with equal first cells form a group.
pub(super) fn html<T>(columns: &[Column<T>], rows: &[&T]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let class = |words: bool| if words { " class=\"words\"" } else { "" };
    let heads = columns
        .iter()
        .map(|(name, words, _)| format!("<th scope=\"col\"{}>{name}</th>", class(*words)));
    let head: String = heads.collect();
    let (mut lines, mut above) = (String::new(), None);
    for row in rows {
        let cell = |(_, words, text): &Column<T>| {
            format!("<td{}>{}</td>", class(*words), escape(&text(row)))
        };
        let cells: String = columns.iter().map(cell).collect();
        let first = columns.first().map(|(_, _, text)| text(row));
        let group = if first == above { "" } else { " class=\"first\"" };
        above = first;
        lines += &format!("<tr{group}>{cells}</tr>\n");
    }
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{lines}</tbody>\n</table></div>\n"
    )
}

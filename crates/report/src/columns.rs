//! Tables declared by their columns, for terminals and for the page.

use comfy_table::{CellAlignment, LineStyle, Table, presets};

use super::svg::escape;

/// Heading, left-aligned text or not, and the cell text of a row.
pub(super) type Column<T> = (&'static str, bool, fn(&T) -> String);

/// Table for the terminal below its title; empty without rows. A first cell equal to the one above
/// is left blank.
pub(super) fn terminal<T>(title: &str, columns: &[Column<T>], rows: &[&T]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    table.load_style(style).set_header(columns.iter().map(|(name, ..)| *name));
    let mut above = String::new();
    for row in rows {
        let mut cells: Vec<String> = columns.iter().map(|(_, _, text)| text(row)).collect();
        let first = std::mem::replace(&mut above, cells[0].clone());
        if first == above {
            cells[0].clear();
        }
        table.add_row(cells);
    }
    for (column, (_, words, _)) in table.column_iter_mut().zip(columns) {
        column.set_cell_alignment(if *words { CellAlignment::Left } else { CellAlignment::Right });
        column.set_padding((1, 0));
    }
    format!("{title}\n{}\n\n", table.trim_fmt())
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

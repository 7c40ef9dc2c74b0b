//! Tables for terminals and pipes: the one writer for all commands.
//!
//! A row of a table is a line of text. On a terminal that is too narrow, the first of these that
//! fits is written:
//! 1. the widest columns are wrapped, between words and after commas;
//! 2. the same without the columns that have no value in any row;
//! 3. each row as a block with a line for each column.
//!
//! A word is never split, so that addresses can be found with `grep`. A line is wider than the
//! terminal only if it is a single word.

/// Maximum width of a column whose cells are never wrapped, in columns of the terminal.
const WORD_COLUMNS: usize = 24;

/// Blanks between columns.
const GAP: usize = 2;

/// Cell without a value.
const NO_VALUE: &str = "-";

/// Form of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextFormat {
    /// Lines around the header and below the table, in box-drawing characters.
    pub has_lines: bool,
    /// Width of the terminal in columns; `None` for no limit.
    pub width: Option<u16>,
}

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column with its cells.
struct Column<'a> {
    heading: &'a str,
    align: Align,
    cells: Vec<String>,
}

impl TextFormat {
    /// Form for pipes and files: no lines, no limit.
    pub const PLAIN: TextFormat = TextFormat { has_lines: false, width: None };

    /// Form for a terminal that is wide enough.
    pub const LINES: TextFormat = TextFormat { has_lines: true, width: None };

    /// A table with these column headings. Control characters in cells become `?`.
    pub fn table(self, columns: &[(&str, Align)], rows: Vec<Vec<String>>) -> String {
        let rows_len = rows.len();
        let mut columns: Vec<Column<'_>> = columns
            .iter()
            .map(|(heading, align)| Column { heading, align: *align, cells: Vec::new() })
            .collect();
        for row in rows {
            for (column, cell) in columns.iter_mut().zip(row) {
                column.cells.push(printable(&cell));
            }
        }
        if let Some(widths) = self.widths(&columns) {
            return self.grid(&columns, &widths, rows_len);
        }
        if rows_len == 0 {
            return "none\n".to_owned();
        }
        columns.retain(|column| column.cells.iter().any(|cell| cell != NO_VALUE));
        match self.widths(&columns) {
            Some(widths) => self.grid(&columns, &widths, rows_len),
            None => self.blocks(&columns, rows_len),
        }
    }

    /// Headings with their values, one a line; long values are wrapped.
    pub fn fields(self, fields: &[(&str, &str)]) -> String {
        let headings = fields.iter().map(|(heading, _)| heading.chars().count()).max();
        let indent = headings.unwrap_or(0) + GAP;
        let mut text = String::new();
        for (heading, value) in fields {
            let value = printable(value);
            let width = self.width.map_or(usize::MAX, usize::from);
            let room = width.saturating_sub(indent);
            let (lines, indent) = match longest(pieces(&value)) <= room {
                true => (wrap(&value, room), indent),
                false => {
                    text += &format!("{heading}\n");
                    (wrap(&value, width), 0)
                }
            };
            for (i, line) in lines.iter().enumerate() {
                let before = if i == 0 && indent > 0 { heading } else { "" };
                text += format!("{before:<indent$}{line}").trim_end();
                text += "\n";
            }
        }
        text
    }

    /// Width of each column, or `None` if the words do not fit.
    fn widths(self, columns: &[Column<'_>]) -> Option<Vec<usize>> {
        let mut widths: Vec<usize> = columns.iter().map(Column::width).collect();
        let least: Vec<usize> = columns.iter().map(Column::least).collect();
        let most = self.width.map_or(usize::MAX, usize::from);
        while self.line_width(&widths) > most {
            let shrinkable = (0..widths.len()).filter(|&i| widths[i] > least[i]);
            let widest = shrinkable.max_by_key(|&i| widths[i])?;
            widths[widest] -= 1;
        }
        Some(widths)
    }

    fn line_width(self, widths: &[usize]) -> usize {
        usize::from(self.has_lines)
            + widths.iter().sum::<usize>()
            + GAP * widths.len().saturating_sub(1)
    }

    fn grid(self, columns: &[Column<'_>], widths: &[usize], rows: usize) -> String {
        let border = |line: &str| match self.has_lines {
            true => line.repeat(self.line_width(widths)) + "\n",
            false => String::new(),
        };
        let headings: Vec<&str> = columns.iter().map(|column| column.heading).collect();
        let mut text = border("─") + &self.row(columns, widths, &headings) + &border("═");
        for row in 0..rows {
            let cells: Vec<&str> =
                columns.iter().map(|column| column.cells[row].as_str()).collect();
            text += &self.row(columns, widths, &cells);
        }
        text + &border("─")
    }

    /// A row in as many lines as its tallest cell has.
    fn row(self, columns: &[Column<'_>], widths: &[usize], cells: &[&str]) -> String {
        let cells: Vec<Vec<String>> =
            cells.iter().zip(widths).map(|(cell, width)| wrap(cell, *width)).collect();
        let mut text = String::new();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut shown = String::new();
            for ((cell, &width), column) in cells.iter().zip(widths).zip(columns) {
                let gap = if shown.is_empty() { usize::from(self.has_lines) } else { GAP };
                let part = cell.get(line).map_or("", String::as_str);
                shown += &" ".repeat(gap);
                shown += &match column.align {
                    Align::Left => format!("{part:<width$}"),
                    Align::Right => format!("{part:>width$}"),
                };
            }
            text += shown.trim_end();
            text += "\n";
        }
        text
    }

    fn blocks(self, columns: &[Column<'_>], rows: usize) -> String {
        let between = match self.has_lines {
            true => "─".repeat(self.width.unwrap_or(1).into()) + "\n",
            false => "\n".to_owned(),
        };
        let block = |row: usize| {
            let field =
                |column: &Column<'_>| (column.heading.to_owned(), column.cells[row].clone());
            let fields: Vec<(String, String)> = columns.iter().map(field).collect();
            let fields: Vec<(&str, &str)> =
                fields.iter().map(|(heading, cell)| (&**heading, &**cell)).collect();
            self.fields(&fields)
        };
        (0..rows).map(block).collect::<Vec<_>>().join(&between)
    }
}

impl Column<'_> {
    /// Width without wrapping.
    fn width(&self) -> usize {
        longest(self.cells.iter().map(String::as_str).chain([self.heading]))
    }

    /// Smallest width that splits no word.
    fn least(&self) -> usize {
        let cells = longest(self.cells.iter().map(String::as_str));
        let cells = match cells <= WORD_COLUMNS {
            true => cells,
            false => longest(self.cells.iter().flat_map(|cell| pieces(cell))),
        };
        cells.max(longest(pieces(self.heading)))
    }
}

/// Width of the longest text.
fn longest<'t>(texts: impl IntoIterator<Item = &'t str>) -> usize {
    texts.into_iter().map(|text| text.trim_end().chars().count()).max().unwrap_or(0)
}

/// Parts of a text that stay whole: words with the blank after them, and parts up to a comma.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([' ', ','])
}

/// The text in lines of at most `width` columns, broken after blanks and commas; longer pieces have
/// a line of their own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in pieces(text) {
        let line = lines.last_mut().expect("there is one");
        let both = line.chars().count() + piece.trim_end().chars().count();
        if line.is_empty() || both <= width {
            *line += piece;
        } else {
            lines.push(piece.to_owned());
        }
    }
    lines.iter_mut().for_each(|line| line.truncate(line.trim_end().len()));
    lines
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, Align); 3] =
        [("name", Align::Left), ("frames", Align::Right), ("observation", Align::Left)];

    fn rows() -> Vec<Vec<String>> {
        let mac = "02:00:00:00:00:01".to_owned();
        let path = format!("/run/{}", "x".repeat(90));
        vec![
            vec![mac.clone(), "7".into(), format!("{} {mac}", "several words ".repeat(9))],
            vec!["has\u{1b}[2J".into(), "1234".into(), path],
        ]
    }

    /// Asserts that each line fits, or is a single word.
    fn fits(text: &str, width: usize) {
        for line in text.lines().filter(|line| line.chars().count() > width) {
            assert!(!line.trim().contains(' '), "wider than {width}: {line}\n{text}");
        }
    }

    #[test]
    fn a_row_of_a_pipe_is_one_line_of_ascii() {
        let text = TextFormat::PLAIN.table(&COLUMNS, rows());
        assert!(text.is_ascii(), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("02:00:00:00:00:01       7  several"), "{text}");
        assert!(lines[1].ends_with(" 02:00:00:00:00:01"), "{text}");
        assert!(lines[2].starts_with("has?[2J              1234  /run/xxx"), "{text}");
    }

    #[test]
    fn sentences_are_wrapped_to_the_terminal_and_words_are_kept() {
        let format = TextFormat { has_lines: true, width: Some(60) };
        let text = format.table(&COLUMNS, rows()[..1].to_vec());
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert_eq!(text.matches("02:00:00:00:00:01").count(), 2, "{text}");
        assert!(text.lines().count() > 5, "{text}");
        let text = format.table(&COLUMNS, rows());
        assert!(text.contains(&rows()[1][2]), "a path was split: {text}");
        fits(&text, 60);
    }

    #[test]
    fn a_sentence_is_broken_between_words_and_is_one_line_without_a_limit() {
        let sentence = "several words ".repeat(30);
        let lines = wrap(&sentence, 60);
        assert!(lines.len() > 6, "{lines:?}");
        assert!(lines.iter().all(|line| line.len() <= 60), "{lines:?}");
        assert_eq!(lines.join(" "), sentence.trim_end());
        assert_eq!(wrap(&sentence, usize::MAX), [sentence.trim_end()]);
        assert_eq!(wrap("", 60), [""]);
    }

    #[test]
    fn columns_without_a_value_are_left_out_of_a_narrow_table() {
        let format = |width| TextFormat { has_lines: true, width };
        let row = |third: &str| vec!["02:00:00:00:00:01".into(), "vf 0".into(), third.into()];
        let narrow = format(Some(30)).table(&COLUMNS, vec![row("-"), row("-")]);
        assert!(!narrow.contains("observation") && narrow.contains("frames"), "{narrow}");
        assert!(format(None).table(&COLUMNS, vec![row("-")]).contains("observation"));
        let first = narrow.lines().nth(3);
        assert_eq!(first, Some(" 02:00:00:00:00:01    vf 0"), "{narrow}");
        assert_eq!(narrow.lines().count(), 6, "{narrow}");
    }

    #[test]
    fn rows_of_words_that_do_not_fit_are_blocks() {
        let format = TextFormat { has_lines: true, width: Some(24) };
        let row = vec!["02:00:00:00:00:01".into(), "vf 0".into(), "a,b and c,d or e".into()];
        let text = format.table(&COLUMNS, vec![row.clone(), row]);
        let block = "name\n02:00:00:00:00:01\nframes       vf 0\nobservation  a,b and c,d\n             \
                     or e\n";
        assert_eq!(text, format!("{block}{}\n{block}", "─".repeat(24)));
        fits(&text, 24);
    }
}

//! Tables for terminals and pipes: the one writer for all commands.
//!
//! A row of a table is a line of text. Words are never split, so that addresses can be found with
//! `grep`. If the terminal is too narrow, columns of sentences (wider than [`WORD_COLUMNS`]) are
//! wrapped between words; a table of words only then exceeds the terminal.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, Width, presets,
};

/// Maximum width of a column that is never wrapped, in columns of the terminal.
const WORD_COLUMNS: usize = 24;

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

impl TextFormat {
    /// Form for pipes and files: no lines, no limit.
    pub const PLAIN: TextFormat = TextFormat { has_lines: false, width: None };

    /// Form for a terminal that is wide enough.
    pub const LINES: TextFormat = TextFormat { has_lines: true, width: None };

    /// A table with these column headings. Control characters in cells become `?`.
    pub fn table(self, columns: &[(&str, Align)], rows: Vec<Vec<String>>) -> String {
        let mut table = Table::new();
        let lines = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
        table.load_style(if self.has_lines { lines } else { presets::NOTHING });
        table.set_header(columns.iter().map(|(name, _)| *name));
        let mut widths: Vec<[usize; 2]> = columns.iter().map(|(name, _)| widths(name)).collect();
        for row in rows {
            let cells: Vec<String> = row.iter().map(|cell| printable(cell)).collect();
            for (widest, cell) in widths.iter_mut().zip(&cells) {
                let [all, word] = self::widths(cell);
                *widest = [widest[0].max(all), widest[1].max(word)];
            }
            table.add_row(cells);
        }
        if let Some(width) = self.width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for (i, column) in table.column_iter_mut().enumerate() {
            let align = match columns[i].1 {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            };
            let padding = match (self.has_lines, i) {
                (true, _) => 1,
                (false, 0) => 0,
                (false, _) => 2,
            };
            column.set_padding((padding, 0)).set_cell_alignment(align);
            let [all, word] = widths[i];
            column.set_constraint(if all <= WORD_COLUMNS {
                ColumnConstraint::ContentWidth
            } else {
                let word = u16::try_from(word).unwrap_or(u16::MAX);
                ColumnConstraint::LowerBoundary(Width::Fixed(word.saturating_add(padding)))
            });
        }
        table.trim_fmt() + "\n"
    }
}

/// Width of a text and of its longest word, in characters.
fn widths(text: &str) -> [usize; 2] {
    let word = text.split(' ').map(|word| word.chars().count()).max();
    [text.chars().count(), word.unwrap_or(0)]
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
    }

    #[test]
    fn a_table_of_words_may_exceed_the_terminal() {
        let format = TextFormat { has_lines: true, width: Some(20) };
        let row = vec!["02:00:00:00:00:01".into(), "vf 0".into(), "on".into()];
        let text = format.table(&COLUMNS, vec![row]);
        let has_all = |line: &&str| line.contains("02:00:00:00:00:01") && line.contains("vf 0  on");
        assert_eq!(text.lines().filter(has_all).count(), 1, "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}

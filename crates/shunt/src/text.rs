//! Text for the terminal, at most 80 columns wide.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, LineStyle, Table, presets};

/// Maximum width of text, in columns.
const WIDTH: u16 = 80;

/// A table with this header. Long cells are wrapped.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return "none\n".to_owned();
    }
    let mut table = Table::new();
    let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    table.load_style(style).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((1, 0));
    }
    table.trim_fmt() + "\n"
}

/// Wraps a sentence at 80 characters.
pub(crate) fn wrapped(sentence: &str) -> String {
    let mut text = String::new();
    let mut room = 0;
    for word in sentence.split_whitespace() {
        if room < word.len() + 1 {
            text += if text.is_empty() { "" } else { "\n" };
            room = usize::from(WIDTH);
        } else {
            text += " ";
        }
        text += word;
        room = room.saturating_sub(word.len() + 1);
    }
    text + "\n"
}

/// Writes to standard output. A reader that closes early (`shunt stats | head`) is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_the_terminal_whatever_is_in_them() {
        let long = "x".repeat(300);
        let text = table(["name", "what", "more"], vec![["a".into(), long.clone(), long]]);
        assert!(text.lines().count() > 5);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn sentences_fit_the_terminal() {
        let text = wrapped(&"several words ".repeat(30));
        assert!(text.lines().count() > 4);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.split_whitespace().count(), 60);
    }
}

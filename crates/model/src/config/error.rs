//! Errors of a file, each with its line.

use std::fmt;

use crate::state::{MAX_PROBLEMS, Problem};

/// A position in a file: line and column from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

impl Position {
    /// Position of a byte of a text.
    pub(super) fn of(text: &str, at: usize) -> Position {
        let before = &text[..text.floor_char_boundary(at)];
        let line = before.rsplit('\n').next().unwrap_or_default();
        // An editor does not count a byte-order mark as a character.
        let column = 1 + line.chars().filter(|c| *c != '\u{feff}').count();
        Position { line: 1 + before.matches('\n').count(), column }
    }
}

/// One error. Shown as `shunt.toml:14:7: nic[0].vf[2].mac: "02:00" is not allowed; write ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Position; `None` if unknown, or for the whole file.
    pub position: Option<Position>,
    /// The problem.
    pub problem: Problem,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", printable(&self.file))?;
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", printable(&self.problem.to_string()))
    }
}

impl std::error::Error for ConfigError {}

/// All errors of a file in line order, at least one; shown one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    shown: Vec<ConfigError>,
    more: usize,
}

impl ConfigErrors {
    /// Problems of a file with their positions, and the number of further ones.
    pub(super) fn of(
        file: &str,
        problems: Vec<(Option<Position>, Problem)>,
        more: usize,
    ) -> ConfigErrors {
        let more = more + problems.len().saturating_sub(MAX_PROBLEMS);
        let error = |(position, problem)| ConfigError { file: file.to_owned(), position, problem };
        let mut shown: Vec<ConfigError> =
            problems.into_iter().take(MAX_PROBLEMS).map(error).collect();
        shown.sort_by_key(|error| error.position);
        ConfigErrors { shown, more }
    }

    /// The only error of an unreadable file.
    pub(super) fn of_file(
        file: &str,
        error: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        ConfigErrors::of(file, vec![(None, Problem::new("", (), error, allowed))], 0)
    }

    /// Errors to show, at most 20.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.shown.iter()
    }

    /// Number of errors beyond those shown.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.shown.iter().enumerate() {
            let newline = if i > 0 { "\n" } else { "" };
            write!(f, "{newline}{error}")?;
        }
        if let (more @ 1.., Some(last)) = (self.more, self.shown.last()) {
            write!(
                f,
                "\n{}: and {more} more mistakes; correct these first",
                printable(&last.file)
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Escapes control characters, which must not reach a terminal.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

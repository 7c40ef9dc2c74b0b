//! Positions of errors in a file.

use crate::state::{MAX_PROBLEMS, Problem, Problems};
use crate::suggest::nearest;

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

/// Problems of a file in line order, and the number of further ones.
pub(super) fn of_lines(
    file: &str,
    problems: Vec<(Option<Position>, Problem)>,
    more: usize,
) -> Problems {
    let more = more + problems.len().saturating_sub(MAX_PROBLEMS);
    let placed = |(position, problem): (Option<Position>, Problem)| {
        let (line, column) = position.map_or((0, 0), |at| (at.line, at.column));
        Problem { file: file.to_owned(), line, column, ..problem }
    };
    let mut problems: Vec<Problem> = problems.into_iter().take(MAX_PROBLEMS).map(placed).collect();
    problems.sort_by_key(|problem| (problem.line, problem.column));
    Problems { problems, more }
}

/// The only problem of an unreadable file.
pub(super) fn of_file(
    file: &str,
    message: impl Into<String>,
    remedy: impl Into<String>,
) -> Problems {
    of_lines(file, vec![(None, Problem::new("", (), message, remedy.into()))], 0)
}

/// A mistake that the TOML parser reports, with its position.
pub fn of_toml(text: &str, error: &toml::de::Error) -> Problem {
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let meant = names.split_first().and_then(|(word, known)| nearest(word, known.iter().copied()));
    let remedy = meant.map_or("correct it".to_owned(), |meant| format!("did you mean {meant}?"));
    let at = error.span().map(|span| Position::of(text, span.start));
    let Position { line, column } = at.unwrap_or(Position { line: 0, column: 0 });
    Problem { line, column, ..Problem::new("", (), message.as_str(), remedy) }
}

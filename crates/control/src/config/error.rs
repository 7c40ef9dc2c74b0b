//! Errors of a configuration: one line each, collected while the file is walked.

use std::cell::{Cell, RefCell};
use std::fmt;

/// The most errors that are shown; the rest is counted.
pub(super) const MAX_SHOWN: usize = 20;

/// The most characters of a file's value that an error repeats.
const MAX_QUOTED_CHARS: usize = 60;

/// A place in a file, both numbers counted from 1; the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

/// One mistake. Shown as `shunt.toml:14:7: nic[0].vf[2].mac: "02:00" is not a MAC address; write ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as the caller named it.
    pub file: String,
    /// Where in it; `None` if the mistake is of the whole file.
    pub position: Option<Position>,
    /// The path of the field, such as `nic[0].vf[2].mac`; empty where no field is concerned.
    pub field: String,
    /// The value, what is wrong with it, and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", printable(&self.file))?;
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", printable(&self.field))?;
        }
        write!(f, " {}", printable(&self.message))
    }
}

impl std::error::Error for ConfigError {}

/// All mistakes of a file in the order of its lines, never none; shown one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    shown: Vec<ConfigError>,
    more: usize,
}

impl ConfigErrors {
    /// The one error of a file that could not be read at all.
    pub(super) fn of_file(file: &str, message: String) -> Self {
        let error =
            ConfigError { file: file.to_owned(), position: None, field: String::new(), message };
        ConfigErrors { shown: vec![error], more: 0 }
    }

    /// The errors that are shown, at most 20.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.shown.iter()
    }

    /// How many errors were found beyond those shown.
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
            write!(f, "\n{}: and {more} more errors; correct these first", printable(&last.file))?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The text under examination and the mistakes found so far.
pub(super) struct Report<'a> {
    file: &'a str,
    text: &'a str,
    /// The byte at which each line starts; a file of many mistakes is not to be counted through for each.
    line_starts: Vec<usize>,
    found: RefCell<Vec<Found>>,
    /// Mistakes that are known by their number alone.
    further: Cell<usize>,
}

struct Found {
    /// Byte in the text; `None` sorts before all.
    at: Option<usize>,
    field: String,
    message: String,
}

impl<'a> Report<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Report {
            file,
            text,
            line_starts: std::iter::once(0).chain(after_newlines).collect(),
            found: RefCell::default(),
            further: Cell::default(),
        }
    }

    /// Notes a mistake at a byte of the text.
    pub(super) fn error(&self, at: usize, field: String, message: String) {
        self.found.borrow_mut().push(Found { at: Some(at), field, message });
    }

    /// Notes a mistake of the whole file.
    pub(super) fn error_of_file(&self, field: &str, message: String) {
        self.found.borrow_mut().push(Found { at: None, field: field.to_owned(), message });
    }

    /// Notes mistakes of which nothing but their number is known.
    pub(super) fn not_shown(&self, number: usize) {
        self.further.set(self.further.get() + number);
    }

    /// How many mistakes have been noted so far.
    pub(super) fn errors(&self) -> usize {
        self.found.borrow().len()
    }

    /// What the file says at a span, cut to one line of readable length.
    pub(super) fn quote(&self, span: std::ops::Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default().trim();
        let line = text.lines().next().unwrap_or_default();
        let cut: String = line.chars().take(MAX_QUOTED_CHARS).collect();
        if cut.len() < text.len() { format!("{cut}...") } else { cut }
    }

    /// The line of a byte, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= at)
    }

    fn position(&self, at: usize) -> Position {
        let line = self.line(at);
        let start = self.line_starts[line - 1];
        let before = self.text.char_indices().skip_while(|(i, _)| *i < start);
        // A byte-order mark is no character to whoever looks at the file.
        let before = before.take_while(|(i, _)| *i < at).filter(|(_, c)| *c != '\u{feff}');
        Position { line, column: 1 + before.count() }
    }

    /// The mistakes in the order of the file; `None` if there were none. Of several on one value the first noted
    /// stays: a syntax error is noted before what the value it left behind would seem to mean.
    pub(super) fn finish(self) -> Option<ConfigErrors> {
        let mut found = self.found.take();
        found.sort_by_key(|one| one.at);
        found.dedup_by(|later, earlier| {
            later.at.is_some() && later.at == earlier.at && later.field == earlier.field
        });
        let more = found.len().saturating_sub(MAX_SHOWN) + self.further.get();
        let shown: Vec<ConfigError> = found
            .into_iter()
            .take(MAX_SHOWN)
            .map(|one| ConfigError {
                file: self.file.to_owned(),
                position: one.at.map(|at| self.position(at)),
                field: one.field,
                message: one.message,
            })
            .collect();
        (!shown.is_empty()).then_some(ConfigErrors { shown, more })
    }
}

/// A file is not trusted with the operator's terminal: control characters are shown escaped.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

//! Problems of a document: field, value, and allowed values.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Most problems kept; others are only counted.
pub const MAX_PROBLEMS: usize = 20;

/// Most characters of a value in a message.
const MAX_QUOTED_CHARS: usize = 60;

/// One mistake. Shown as `nic[0].vf[2].mac: "02:00" is not allowed; write ...`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Path of the field, such as `nic[0].vf[2].mac`; empty for the whole document.
    pub field: String,
    /// Value as JSON, cut to a readable length; may be empty.
    pub value: String,
    /// Error.
    pub error: String,
    /// Allowed values, or the remedy.
    pub allowed: String,
}

impl Problem {
    /// A problem of `field`.
    pub fn new(
        field: impl Into<String>,
        value: impl Into<Value>,
        error: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Problem {
        Problem {
            field: field.into(),
            value: quoted(&value.into()),
            error: error.into(),
            allowed: allowed.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        if !self.value.is_empty() {
            write!(f, "{} ", self.value)?;
        }
        f.write_str(&self.error)?;
        if self.allowed.is_empty() { Ok(()) } else { write!(f, "; {}", self.allowed) }
    }
}

/// All problems of a document in order, at least one; shown one per line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Problems {
    /// The first of them, at most [`MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// Number of further problems.
    pub more: usize,
}

impl Problems {
    /// Adds a problem, or counts it.
    pub fn push(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// These problems, followed by the others.
    pub fn and(mut self, others: Problems) -> Problems {
        others.problems.into_iter().for_each(|problem| self.push(problem));
        self.more += others.more;
        self
    }

    /// The value of `read` if neither side has a problem; otherwise all problems.
    pub(crate) fn beside<T>(self, read: Result<T, Problems>) -> Result<T, Problems> {
        match read {
            Ok(value) => self.or(value),
            Err(others) => Err(self.and(others)),
        }
    }

    /// `value` if there is no problem.
    pub fn or<T>(self, value: T) -> Result<T, Problems> {
        if self.problems.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Problems {
        Problems { problems: vec![problem], more: 0 }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let newline = if i > 0 { "\n" } else { "" };
            write!(f, "{newline}{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more mistakes; correct these first"),
        }
    }
}

impl std::error::Error for Problems {}

/// JSON on one line (which escapes control characters), cut.
fn quoted(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    // A large document need not be serialised for sixty characters.
    let text = match value {
        Value::Array(_) => "the list".to_owned(),
        Value::Object(_) => "the object".to_owned(),
        Value::String(text) if text.len() > 4 * MAX_QUOTED_CHARS => {
            let head: String = text.chars().take(MAX_QUOTED_CHARS + 1).collect();
            Value::String(head).to_string()
        }
        other => other.to_string(),
    };
    cut(&text)
}

/// The first line of a text, cut to a readable length.
pub(crate) fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(MAX_QUOTED_CHARS).collect();
    if cut.len() < text.len() { format!("{cut}...") } else { cut }
}

//! What is wrong with a document: field, value, and what is allowed.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// The most problems that are kept; the rest is counted.
pub const MAX_PROBLEMS: usize = 20;

/// The most characters of a value that a problem repeats.
const MAX_QUOTED_CHARS: usize = 60;

/// One mistake. Shown as `nic[0].vf[2].mac: "02:00" is not allowed; write ...`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The path of the field, such as `nic[0].vf[2].mac`; empty for the whole document.
    pub field: String,
    /// The value as JSON, cut to a readable length; empty where it does not help.
    pub value: String,
    /// What is wrong with it.
    pub error: String,
    /// What to write instead.
    pub allowed: String,
}

impl Problem {
    /// A mistake at `field`.
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

/// All mistakes of a document, in its order and never none; shown one a line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Problems {
    /// The first of them, at most [`MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// How many there are beyond those.
    pub more: usize,
}

impl Problems {
    /// Adds one, or counts it.
    pub fn push(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// These, and then the others.
    pub fn and(mut self, others: Problems) -> Problems {
        others.problems.into_iter().for_each(|problem| self.push(problem));
        self.more += others.more;
        self
    }

    /// The value read beside these, if neither has a mistake; else the mistakes of both.
    pub(crate) fn beside<T>(self, read: Result<T, Problems>) -> Result<T, Problems> {
        match read {
            Ok(value) => self.or(value),
            Err(others) => Err(self.and(others)),
        }
    }

    /// The document, if there is no mistake in it.
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
    // A large document is not to be written out for sixty characters of it.
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

//! Refused input: the object, its field, the value, the allowed values, and the remedy.
//!
//! Model: a check reports each mistake at a path such as `nic[0].vf[2].mac`. [`Problems::named`]
//! turns the path into the names of the object and its field. The text for people and the JSON for
//! programs, of the API and of every command, are made from this one structure.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::object_name;

/// Most problems kept; others are only counted.
pub const MAX_PROBLEMS: usize = 20;

/// Most characters of a value in a message.
const MAX_QUOTED_CHARS: usize = 60;

/// One mistake. Shown as `VF 2 of NIC nic0, mac: "02:00" is not allowed; write ...`, with
/// `shunt.toml:14:7: ` before it if it is in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Name of the file with the mistake, as the user gave it; absent for other input.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line in the file, from 1; 0 or absent if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line: usize,
    /// Character in the line, from 1; 0 or absent if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub column: usize,
    /// Object, such as `VF 2 of NIC nic0`; empty for the whole document or command line.
    pub object: String,
    /// Field of the object, such as `vlan.id`, or option of the command; may be empty.
    pub field: String,
    /// Value as JSON, cut to a readable length; empty if it does not help.
    pub value: String,
    /// Error, to be read after object, field and value.
    pub message: String,
    /// Allowed values; empty if the mistake is not a value.
    pub allowed: String,
    /// Remedy, in the imperative.
    pub remedy: String,
    /// Path in the document, such as `nic[0].vf[2].mac`: finds the line in a file.
    #[serde(skip)]
    pub path: String,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Remedy of a problem, and the values that it allows. A text `write X` allows X.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    allowed: String,
    text: String,
}

impl Remedy {
    /// A remedy with a list of allowed values.
    pub fn choose(text: impl Into<String>, allowed: impl Into<String>) -> Remedy {
        Remedy { allowed: allowed.into(), text: text.into() }
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Remedy {
        let values = text.strip_prefix("write ").or_else(|| Some(text.split_once("? Write ")?.1));
        // The values end where another remedy begins.
        let others =
            ["; ", ", or set ", ", or leave ", ", or delete ", ", or choose ", ", or add "];
        let end = |values: &str| others.iter().filter_map(|other| values.find(other)).min();
        let allowed = values.map(|values| &values[..end(values).unwrap_or(values.len())]);
        Remedy { allowed: allowed.unwrap_or_default().to_owned(), text }
    }
}

impl From<&str> for Remedy {
    fn from(text: &str) -> Remedy {
        text.to_owned().into()
    }
}

impl Problem {
    /// A problem at `path`, which [`Problems::named`] turns into names.
    pub fn new(
        path: impl Into<String>,
        value: impl Into<Value>,
        message: impl Into<String>,
        remedy: impl Into<Remedy>,
    ) -> Problem {
        let (path, remedy) = (path.into(), remedy.into());
        Problem {
            field: path.clone(),
            value: quoted(&value.into()),
            message: message.into(),
            allowed: remedy.allowed,
            remedy: remedy.text,
            path,
            ..Problem::default()
        }
    }

    /// A number outside of its range, both ends included.
    pub fn out_of_range(
        path: impl Into<String>,
        value: impl Into<Value>,
        least: impl fmt::Display,
        most: impl fmt::Display,
    ) -> Problem {
        let value = match value.into() {
            // 0.0 is written as 0.
            Value::Number(number) if number.is_f64() => {
                let whole = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 1e15);
                whole.map_or(Value::Number(number), |whole| (whole as i64).into())
            }
            other => other,
        };
        let remedy = format!("write a number, {least} to {most}");
        Problem::new(path, value, "is out of range", remedy)
    }

    /// A path that is wrong. It is shown whole: long paths differ at their ends.
    pub fn of_path(
        field: impl Into<String>,
        path: &Path,
        message: impl Into<String>,
        remedy: impl Into<Remedy>,
    ) -> Problem {
        let value = Value::from(path.to_string_lossy()).to_string();
        Problem { value, ..Problem::new(field, (), message, remedy) }
    }

    /// A value that is none of these.
    pub fn not_one_of<'a>(
        path: impl Into<String>,
        value: impl Into<Value>,
        message: impl Into<String>,
        allowed: impl IntoIterator<Item = &'a str>,
    ) -> Problem {
        let allowed = allowed.into_iter().collect::<Vec<_>>().join(", ");
        let remedy = match allowed.is_empty() {
            true => "leave it out: there are none".into(),
            false => Remedy::choose(format!("write one of {allowed}"), allowed),
        };
        Problem::new(path, value, message, remedy)
    }

    /// An error with its causes. The text of each is a message, or `message; remedy`.
    pub fn of_error(error: &(dyn std::error::Error + 'static)) -> Problem {
        let causes = std::iter::successors(Some(error), |error| error.source());
        let (mut messages, mut remedies) = (Vec::new(), Vec::new());
        for text in causes.map(ToString::to_string) {
            let (message, remedy) = text.split_once("; ").unwrap_or((&text, ""));
            messages.push(message.to_owned());
            remedies.extend((!remedy.is_empty()).then(|| remedy.to_owned()));
        }
        Problem::new("", (), messages.join(": "), Remedy::from(remedies.join("; ")))
    }

    /// The problem of that object, whose fields it names.
    #[must_use]
    pub fn of(mut self, object: impl Into<String>) -> Problem {
        self.object = object.into();
        self
    }

    /// Finds the path of the named object and field, the reverse of [`Problems::named`].
    pub(crate) fn find_path(&mut self, document: &Value) {
        self.path = object_name::to_path(document, &self.object, &self.field);
    }

    fn name(&mut self, document: &Value) {
        if self.object.is_empty() {
            (self.object, self.field) = object_name::of_path(document, &self.path);
        }
        self.message = object_name::in_text(document, &self.message);
        self.remedy = object_name::in_text(document, &self.remedy);
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { file, line, column, object, field, value, message, remedy, .. } = self;
        let mut text = match (object.is_empty(), field.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!("{field}: "),
            (false, false) => format!("{object}, {field}: "),
            (false, true) if value.is_empty() => format!("{object} "),
            (false, true) => format!("{object}: "),
        };
        if !value.is_empty() {
            text += &format!("{value} ");
        }
        text += message;
        if !remedy.is_empty() {
            text += &format!("; {remedy}");
        }
        if file.is_empty() {
            return f.write_str(&text);
        }
        write!(f, "{}:", printable(file))?;
        if *line > 0 {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", printable(&text))
    }
}

/// All problems of an input in order, at least one; shown one per line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Problems {
    /// The first of them, at most 20.
    #[serde(rename = "errors")]
    pub problems: Vec<Problem>,
    /// Number of further problems.
    #[serde(default)]
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
    ///
    /// # Errors
    /// These problems.
    pub fn or<T>(self, value: T) -> Result<T, Problems> {
        if self.problems.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The problems of this file.
    #[must_use]
    pub fn in_file(mut self, name: &str) -> Problems {
        self.problems.iter_mut().for_each(|problem| name.clone_into(&mut problem.file));
        self
    }

    /// The problems of that object, unless they have one.
    #[must_use]
    pub fn of(mut self, object: &str) -> Problems {
        for problem in self.problems.iter_mut().filter(|problem| problem.object.is_empty()) {
            object.clone_into(&mut problem.object);
        }
        self
    }

    /// The problems with objects and fields named instead of their positions in `document`.
    #[must_use]
    pub fn named(mut self, document: &Value) -> Problems {
        self.problems.iter_mut().for_each(|problem| problem.name(document));
        self
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
        let file = self.problems.last().map_or("", |last| &*last.file);
        let file = if file.is_empty() { String::new() } else { format!("{}: ", printable(file)) };
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n{file}and {more} more mistakes; correct these first"),
        }
    }
}

impl std::error::Error for Problems {}

/// Escapes unprintable characters, which must not reach a terminal; quotes and backslashes stay.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => shown.push(c), // printable, but not to escape_debug
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

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

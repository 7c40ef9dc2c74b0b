//! Errors of a command, as text or as JSON.

use std::error::Error;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use model::state::{Problem, Problems, Remedy};
use model::suggest::nearest;
use plan::path::PathError;
use report::ParseNameError;

/// Error in the command line, a file, or a request to the daemon: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) Problems);

impl UsageError {
    /// The error of an option with this value.
    pub(crate) fn option(
        option: &str,
        value: impl Into<serde_json::Value>,
        message: &str,
        remedy: impl Into<Remedy>,
    ) -> UsageError {
        UsageError(Problem::new(option, value, message, remedy).into())
    }

    /// A value of an option that is none of these.
    pub(crate) fn choose(
        option: &str,
        value: impl Into<serde_json::Value>,
        message: &str,
        allowed: &[&str],
    ) -> UsageError {
        let allowed = allowed.iter().copied();
        UsageError(Problem::not_one_of(option, value, message, allowed).into())
    }

    /// As [`choose`](Self::choose), with a suggestion if the value is a typing error of a known
    /// word.
    pub(crate) fn meant<'w>(
        option: &str,
        value: &str,
        message: &str,
        known: impl IntoIterator<Item = &'w str>,
        allowed: &[&str],
    ) -> UsageError {
        let UsageError(mut problems) = UsageError::choose(option, value, message, allowed);
        if let (Some(meant), [problem]) = (nearest(value, known), &mut problems.problems[..]) {
            problem.remedy = suggestion(meant, &problem.remedy);
        }
        UsageError(problems)
    }

    /// A number of an option out of its range, both ends included.
    pub(crate) fn out_of_range(
        option: &str,
        value: impl Into<serde_json::Value>,
        least: impl std::fmt::Display,
        most: impl std::fmt::Display,
    ) -> UsageError {
        UsageError(Problem::out_of_range(option, value, least, most).into())
    }
}

impl From<Problems> for UsageError {
    fn from(problems: Problems) -> UsageError {
        UsageError(problems)
    }
}

impl From<Problem> for UsageError {
    fn from(problem: Problem) -> UsageError {
        UsageError(problem.into())
    }
}

/// A remedy after a suggestion.
pub(crate) fn suggestion(meant: &str, remedy: &str) -> String {
    let mut rest = remedy.chars();
    let first = rest.next().map(|first| first.to_ascii_uppercase());
    format!("did you mean {meant}? {}{}", first.unwrap_or_default(), rest.as_str())
}

/// Values that a parser allows, by its error for a value.
fn allowed_by(why: &(dyn Error + 'static), value: &str) -> Option<Remedy> {
    let words = why.downcast_ref::<ParseNameError>().map(|error| &error.allowed);
    let words = words.or_else(|| why.downcast_ref::<PathError>().map(|error| &error.allowed));
    if let Some(words) = words {
        return Some(Remedy::choose(format!("write one of {words}"), words));
    }
    let text = why.to_string();
    let is_no_number = |error: &ParseIntError| *error.kind() == IntErrorKind::InvalidDigit;
    let is_negative = || value.parse::<i128>().is_ok_and(|number| number < 0);
    let number = if why.downcast_ref().is_some_and(is_no_number) {
        if is_negative() { "a whole number, 0 or more" } else { "a whole number" }.to_owned()
    } else if why.is::<ParseFloatError>() {
        "a number".to_owned()
    } else {
        match text.strip_prefix("expected ") {
            Some(expected) => expected.to_owned(),
            None => {
                // clap's own words for a number out of its range.
                let (least, most) = text.split_once(" is not in ")?.1.split_once("..=")?;
                format!("a whole number, {least} to {most}")
            }
        }
    };
    Some(Remedy::choose(format!("write {number}"), number))
}

/// Error of an option or command that clap rejects.
pub(crate) fn of_command_line(error: &clap::Error) -> Problem {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(all)) => all.join(", "),
        Some(ContextValue::StyledStrs(all)) => {
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
        Some(ContextValue::StyledStr(text)) => text.to_string(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    // clap names an option with its value, such as `--path <PATH>` and `--watch [<S>]`.
    let arguments = text(ContextKind::InvalidArg);
    let option = arguments.split(" <").next().unwrap_or_default();
    let option = option.split(" [<").next().unwrap_or_default().to_owned();
    let valid = text(ContextKind::ValidValue);
    let meant =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .map(text)
            .into_iter()
            .find(|meant| !meant.is_empty());
    let otherwise = match meant {
        Some(meant) => format!("did you mean {meant}?"),
        None => "see --help".to_owned(),
    };
    match error.kind() {
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_empty() => {
            Problem::new(option, (), "has no value", Remedy::choose("give one", valid))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue);
            let why = error.source();
            if !valid.is_empty() {
                return Problem::not_one_of(option, value, "is not allowed", valid.split(", "));
            }
            match why.map(|why| (why, allowed_by(why, &value))) {
                Some((_, Some(remedy))) => Problem::new(option, value, "is not allowed", remedy),
                Some((why, None)) => {
                    Problem::new(option, value, format!("is not allowed: {why}"), otherwise)
                }
                None => Problem::new(option, value, "is not allowed", otherwise),
            }
        }
        ErrorKind::UnknownArgument if option.starts_with('-') => {
            Problem::new(option, (), "unknown option", otherwise)
        }
        ErrorKind::UnknownArgument => {
            Problem::new("", option, "is one argument too many", otherwise)
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand);
            Problem::new("", name, "is no command", otherwise)
        }
        ErrorKind::MissingRequiredArgument => {
            let several = matches!(error.get(ContextKind::InvalidArg),
                Some(ContextValue::Strings(all)) if all.len() > 1);
            let (message, remedy) = match several {
                true => ("are missing", "give them; see --help"),
                false => ("is missing", "give it; see --help"),
            };
            Problem::new(arguments, (), message, remedy)
        }
        ErrorKind::ArgumentConflict => {
            let message = format!("excludes {}", text(ContextKind::PriorArg));
            Problem::new(option, (), message, "leave one of the two out")
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Problem::new("", (), "the command is missing", "see --help")
        }
        other => Problem::new(option, (), other.to_string(), "see --help"),
    }
}

//! Commands that manage a running daemon: clients of its API.
//!
//! Model: the flags of a command become a merge patch, the daemon validates and applies it, and its
//! answer is shown unchanged. The daemon alone knows ranges and rules; this module knows only their
//! command-line syntax.

pub(crate) mod adapter;
pub(crate) mod apply;
mod cells;
pub(crate) mod events;
pub(crate) mod nic;
mod patch;
mod rules;
pub(crate) mod switch;
mod tunnel;
pub(crate) mod upgrade;
pub(crate) mod vf;
pub(crate) mod vpf;

use std::path::PathBuf;

use anyhow::Result;
use api::{ApplyOutcome, Client, ClientError, Method, Reply};
use model::config::socket_path;
use serde_json::Value;

use crate::{UsageError, say};

/// Daemon to use, and output format of its answers.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// Run directory of the daemon (run_dir in its configuration).
    #[arg(long, value_name = "DIR", global = true, help_heading = "Daemon")]
    run_dir: Option<PathBuf>,
    /// Print the daemon's answer as JSON.
    #[arg(long, global = true, help_heading = "Daemon")]
    json: bool,
}

/// Options of a change.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Change {
    /// Change nothing; show what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Generation of the state that the change is based on, if it replaces a whole list: a
    /// concurrent change must not be overwritten.
    #[arg(skip)]
    expected: Option<u64>,
}

impl Change {
    fn of(self, generation: Option<u64>) -> Change {
        Change { expected: generation, ..self }
    }
}

impl Target {
    fn client(&self) -> Client {
        let run_dir = self.run_dir.clone().unwrap_or_else(model::config::default_run_dir);
        Client::new(&socket_path(&run_dir))
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        expected: Option<u64>,
    ) -> Result<Reply> {
        self.client().send(method, path, body, expected).map_err(told)
    }

    /// Gets the resource at a path.
    fn get(&self, path: &str) -> Result<Value> {
        Ok(self.send(Method::GET, path, None, None)?.body)
    }

    /// Prints an answer: as JSON, or as formatted by `text`.
    fn show(&self, answer: &Value, text: impl FnOnce(&Value) -> String) -> Result<()> {
        let text = if self.json { format!("{answer:#}\n") } else { text(answer) };
        Ok(say(&text)?)
    }

    /// Prints the resource at a path.
    fn show_at(&self, path: &str) -> Result<()> {
        let answer = self.get(path)?;
        let text = toml::to_string(&answer)?;
        self.show(&answer, |_| text)
    }

    /// Prints an object as a file for `shunt apply`, preceded by the output of `about`, which gets
    /// the resources in force.
    fn show_object(
        &self,
        kind: &str,
        path: &str,
        about: impl FnOnce(&Value) -> String,
    ) -> Result<()> {
        let document = serde_json::json!({ kind: [self.get(path)?] });
        let text = toml::to_string(&document)?;
        let actual = if self.json { Value::Null } else { self.get("/v1/actual")?["actual"].take() };
        self.show(&document, |_| about(&actual) + &text)
    }

    /// Makes a change, and prints the result; with `--dry-run` the plan.
    fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        how: &Change,
        done: &str,
    ) -> Result<()> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = if how.dry_run { format!("{path}{mark}dry_run=true") } else { path.to_owned() };
        let reply = self.send(method, &path, body, how.expected)?;
        if how.dry_run {
            let outcome: ApplyOutcome = serde_json::from_value(reply.body.clone())?;
            return self.show(&reply.body, |_| format!("{}\n", outcome.plan));
        }
        match reply.body {
            Value::Null => self.show(&serde_json::json!({}), |_| format!("{done}\n")),
            body => self.show(&body, |_| format!("{done}\n")),
        }
    }
}

/// A rejection of user input is a usage error; all other errors are failures.
fn told(error: ClientError) -> anyhow::Error {
    if error.is_mistake() { UsageError(error.to_string()).into() } else { error.into() }
}

/// Rejects an empty patch.
fn some(patch: patch::Patch) -> Result<Value, UsageError> {
    if patch.is_empty() {
        return Err(UsageError("no setting to change; see --help".into()));
    }
    Ok(patch.finish())
}

/// Checks that an object to be created does not exist: a PUT would replace all its settings.
fn must_be_new(target: &Target, path: &str) -> Result<()> {
    match target.client().send(Method::GET, path, None, None) {
        Ok(_) => {
            let name = path.rsplit('/').next().unwrap_or(path);
            Err(UsageError(format!("{name} exists; change it with set")).into())
        }
        Err(ClientError::Refused(refusal)) if refusal.status == 404 => Ok(()),
        Err(other) => Err(told(other)),
    }
}

/// Path to release an object, with the token of its owner.
fn released(path: String, owner: Option<u64>) -> String {
    match owner {
        Some(token) => format!("{path}?owner={token}"),
        None => path,
    }
}

/// Percent-encodes a name as a part of a path.
fn part(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            out.push(byte.into());
        } else {
            out += &format!("%{byte:02X}");
        }
    }
    // Two dots would be resolved as the parent.
    if matches!(&*out, "." | ".." | "") { format!("%2E{}", out.len()) } else { out }
}

/// `on` or `off`, the words of `ip link` and PowerShell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnOff {
    On,
    Off,
}

impl From<OnOff> for Value {
    fn from(word: OnOff) -> Value {
        Value::from(word == OnOff::On)
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(part("web-1.example_2"), "web-1.example_2");
        assert_eq!(part("a/b?c#d e%"), "a%2Fb%3Fc%23d%20e%25");
        for odd in ["", ".", ".."] {
            assert!(part(odd).starts_with("%2E"), "{odd}");
        }
    }
}

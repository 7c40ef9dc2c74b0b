//! Client of the daemon's API: common options, requests and output.

use anyhow::Result;
use api::{AnswerStream, ApplyOutcome, ClientError, Method, Reply};
use model::state::Problem;
use serde_json::Value;

use crate::error::UsageError;
use crate::flat::Fields;
use crate::run_dir::RunDirArg;
use crate::text::print;

/// Daemon to use, and output format of its answers.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    #[command(flatten)]
    pub(super) daemon: RunDirArg,
    /// Print the daemon's answer as JSON.
    #[arg(long, global = true, help_heading = "Daemon")]
    pub(super) json: bool,
}

/// Options of a change.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ChangeArgs {
    /// Change nothing; show what would be done.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Generation of the state that the change is based on, if it replaces a whole list: a
    /// concurrent change must not be overwritten.
    #[arg(skip)]
    pub(super) expected: Option<u64>,
}

impl ChangeArgs {
    pub(super) fn of(self, generation: Option<u64>) -> ChangeArgs {
        ChangeArgs { expected: generation, ..self }
    }
}

impl DaemonArgs {
    pub(super) fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        expected: Option<u64>,
    ) -> Result<Reply> {
        let client = self.daemon.client()?;
        let reply = client.send(method, path, body, expected).map_err(usage_or_failure)?;
        if let Some(warning) = &reply.warning {
            eprintln!("warning: {warning}");
        }
        Ok(reply)
    }

    /// Sends a request whose answer is a stream.
    pub(super) fn stream(&self, method: Method, path: &str, body: &Value) -> Result<AnswerStream> {
        let client = self.daemon.client()?;
        client.stream(method, path, Some(body)).map_err(usage_or_failure)
    }

    /// Gets the resource at a path.
    pub(super) fn get(&self, path: &str) -> Result<Value> {
        Ok(self.send(Method::GET, path, None, None)?.body)
    }

    /// Returns `true` if the daemon has a resource at a path.
    pub(super) fn has(&self, path: &str) -> Result<bool> {
        match self.daemon.client()?.send(Method::GET, path, None, None) {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(refusal)) if refusal.status == 404 => Ok(false),
            Err(other) => Err(usage_or_failure(other)),
        }
    }

    /// Prints an answer: as JSON, or as formatted by `text`.
    pub(super) fn show(&self, answer: &Value, text: impl FnOnce(&Value) -> String) -> Result<()> {
        let text = if self.json { format!("{answer:#}\n") } else { text(answer) };
        Ok(print(&text)?)
    }

    /// Prints a list: with `--json` as an array of flat objects with the fields that `fields`
    /// declares, or as formatted by `text`.
    pub(super) fn show_list(
        &self,
        fields: impl FnOnce() -> Fields,
        list: &[Value],
        text: impl FnOnce(&[Value]) -> String,
    ) -> Result<()> {
        let text = if self.json { format!("{:#}\n", fields().flat(list)) } else { text(list) };
        Ok(print(&text)?)
    }

    /// Prints the resource at a path.
    pub(super) fn show_at(&self, path: &str) -> Result<()> {
        let answer = self.get(path)?;
        let text = toml::to_string(&answer)?;
        self.show(&answer, |_| text)
    }

    /// Prints an object as a file for `shunt apply`, preceded by the output of `about`, which gets
    /// the resources in force.
    pub(super) fn show_object(
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
    pub(super) fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        how: &ChangeArgs,
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
fn usage_or_failure(error: ClientError) -> anyhow::Error {
    let is_mistake = error.is_mistake();
    match error {
        ClientError::Refused(refusal) if is_mistake => UsageError(refusal.body).into(),
        other => other.into(),
    }
}

/// Checks that an object to be created does not exist: a PUT would replace all its settings.
pub(super) fn must_be_new(target: &DaemonArgs, path: &str) -> Result<()> {
    if !target.has(path)? {
        return Ok(());
    }
    let (above, name) = path.rsplit_once('/').unwrap_or_default();
    let kind = match above {
        "/v1/nics" => "NIC",
        "/v1/switches" => "switch",
        _ => "adapter",
    };
    let problem = Problem::new("", (), "exists already", "change it with set");
    Err(UsageError(problem.of(format!("{kind} {name}")).into()).into())
}

/// Path to release an object, with the token of its owner.
pub(super) fn release_path(path: String, owner: Option<u64>) -> String {
    match owner {
        Some(token) => format!("{path}?owner={token}"),
        None => path,
    }
}

/// Percent-encodes a name as a part of a path.
pub(super) fn encode_segment(name: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::encode_segment;

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        assert_eq!(encode_segment("web-1.example_2"), "web-1.example_2");
        assert_eq!(encode_segment("a/b?c#d e%"), "a%2Fb%3Fc%23d%20e%25");
        for odd in ["", ".", ".."] {
            assert!(encode_segment(odd).starts_with("%2E"), "{odd}");
        }
    }
}

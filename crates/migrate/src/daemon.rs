//! Client of one of the two daemons of a migration.

use api::Method;
use api::{Client, ClientError, InForce, MoveStatus};
use model::state::{MoveRequest, MoveStep, Problem, Problems, State};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::MigrateError;
use super::printable::printable;

/// Time that daemons hold a migration without a message of `shunt migrate`, in seconds, apart from
/// the time for a guest to release a primary. Renewed four times as often.
pub(super) const HOLD_S: u32 = 60;
/// Hex digits of frames in one request, well below the limit of a body.
const DIGITS_MAX: usize = 600_000;
/// Frames in one request.
const FRAMES_MAX: usize = 4096;

/// Client of one of the two daemons.
#[derive(Debug)]
pub(super) struct DaemonClient<'a> {
    pub(super) client: &'a Client,
    /// `source` or `target`; empty if there is only one daemon.
    pub(super) name: &'static str,
    /// Id of the migration, if there is one.
    pub(super) id: &'a str,
    /// Time that the daemon holds the migration without a message, in seconds.
    pub(super) hold_s: u32,
}

/// Clients of the source's and the target's daemon.
pub(super) fn both<'a>(
    source: &'a Client,
    target: &'a Client,
    id: &'a str,
    hold_s: u32,
) -> (DaemonClient<'a>, DaemonClient<'a>) {
    let site = |client, name| DaemonClient { client, name, id, hold_s };
    (site(source, "source"), site(target, "target"))
}

impl DaemonClient<'_> {
    /// Fields common to all steps.
    fn body(&self, step: MoveStep) -> Value {
        json!({"id": self.id, "step": step, "hold_s": self.hold_s})
    }

    fn title(&self) -> String {
        match self.name {
            "" => "the daemon".to_owned(),
            name => format!("the {name} daemon"),
        }
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, MigrateError> {
        // Text of a daemon on another host is not trusted with this terminal; one error a line.
        let failed = |text: String| {
            let lines: Vec<String> = text.lines().map(printable).collect();
            MigrateError::new(format!("{}: {}", self.title(), lines.join("\n")))
        };
        let reply = self.client.send(method, path, body, None);
        let reply = reply.map_err(|error| {
            let is_mistake = error.is_mistake();
            match error {
                ClientError::Refused(refusal) if is_mistake => self.refused(refusal.body),
                other => failed(other.to_string()),
            }
        })?;
        serde_json::from_value(reply.body)
            .map_err(|error| failed(format!("unknown reply format (other version?): {error}")))
    }

    /// Problems that this daemon reports; printable, as the other text of a daemon.
    fn refused(&self, mut problems: Problems) -> MigrateError {
        for problem in &mut problems.problems {
            let Problem { object, field, value, message, allowed, remedy, .. } = problem;
            [&mut *object, field, value, message, allowed, remedy]
                .into_iter()
                .for_each(|part| *part = printable(part));
            *object = match (object.is_empty(), self.name) {
                (true, _) => self.title(),
                (false, "") => std::mem::take(object),
                (false, _) => format!("{object} of {}", self.title()),
            };
        }
        MigrateError::Refused(problems)
    }

    /// Desired state.
    pub(super) fn state(&self) -> Result<State, MigrateError> {
        self.send(Method::GET, "/v1/state", None)
    }

    /// State in force.
    pub(super) fn in_force(&self) -> Result<InForce, MigrateError> {
        self.send(Method::GET, "/v1/actual", None)
    }

    /// Changes fields of an adapter.
    pub(super) fn change(&self, adapter: &str, change: &Value) -> Result<(), MigrateError> {
        let path = format!("/v1/adapters/{adapter}");
        self.send::<Value>(Method::PATCH, &path, Some(change)).map(drop)
    }

    /// Version of the daemon.
    pub(super) fn version(&self) -> Result<String, MigrateError> {
        let document: Value = self.send(Method::GET, "/openapi.json", None)?;
        if !document["paths"]["/v1/adapters/{adapter}/move"].is_object() {
            let error = format!("the {} daemon does not support migration; update it", self.name);
            return Err(MigrateError::new(error));
        }
        Ok(document["info"]["version"].as_str().unwrap_or_default().to_owned())
    }

    /// Migration status of an adapter.
    pub(super) fn status(&self, adapter: &str) -> Result<MoveStatus, MigrateError> {
        self.send(Method::GET, &path(adapter), None)
    }

    /// Runs a step that needs no further fields.
    pub(super) fn step(&self, adapter: &str, step: MoveStep) -> Result<MoveStatus, MigrateError> {
        self.send(Method::POST, &path(adapter), Some(&self.body(step)))
    }

    /// Creates an adapter at the target, or only reports the path it would get (`dry`).
    pub(super) fn arrive(
        &self,
        request: &MoveRequest,
        dry: bool,
    ) -> Result<MoveStatus, MigrateError> {
        let adapter = request.adapter.as_ref().map_or("", |adapter| &adapter.name);
        let query = if dry { "?dry_run=true" } else { "" };
        let path = format!("{}{query}", path(adapter));
        self.send(Method::POST, &path, Some(&to_json(request)))
    }

    /// Fetches the frames kept at the source, starting at number `from`.
    pub(super) fn hand_over(&self, adapter: &str, from: u64) -> Result<MoveStatus, MigrateError> {
        let mut body = self.body(MoveStep::HandOver);
        body["from"] = from.into();
        self.send(Method::POST, &path(adapter), Some(&body))
    }

    /// Sends frames, in as many requests as needed; the first frame has number `from`.
    pub(super) fn frames(
        &self,
        adapter: &str,
        mut from: u64,
        frames: &[String],
    ) -> Result<(), MigrateError> {
        let mut rest = frames;
        while !rest.is_empty() {
            let mut digits = 0;
            let fits = |frame: &&String| {
                digits += frame.len();
                digits <= DIGITS_MAX
            };
            let some = rest.iter().take(FRAMES_MAX).take_while(fits).count().max(1);
            let mut body = self.body(MoveStep::Frames);
            (body["from"], body["frames"]) = (from.into(), rest[..some].into());
            self.send::<MoveStatus>(Method::POST, &path(adapter), Some(&body))?;
            from += some as u64;
            rest = &rest[some..];
        }
        Ok(())
    }
}

/// Names of adapters need no escaping in a path.
fn path(adapter: &str) -> String {
    format!("/v1/adapters/{adapter}/move")
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a request is JSON")
}

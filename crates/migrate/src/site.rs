//! A daemon, as far as a move must ask and tell it.

use api::Method;
use api::{Client, InForce, MoveStatus};
use model::state::{MoveRequest, MoveStep, State};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::vmm::printable;
use super::{Failed, HOLD_S};

/// Digits of frames in one request, well below what a body may have.
const DIGITS_MAX: usize = 600_000;
/// Frames in one request.
const FRAMES_MAX: usize = 4096;

/// One of the two daemons.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) client: &'a Client,
    /// `source` or `target`.
    pub(super) name: &'static str,
    /// The move.
    pub(super) id: &'a str,
}

/// The two daemons of a move, the source first.
pub(super) fn both<'a>(
    source: &'a Client,
    target: &'a Client,
    id: &'a str,
) -> (Site<'a>, Site<'a>) {
    let site = |client, name| Site { client, name, id };
    (site(source, "source"), site(target, "target"))
}

impl Site<'_> {
    /// What every step says.
    fn body(&self, step: MoveStep) -> Value {
        json!({"id": self.id, "step": step, "hold_s": HOLD_S})
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failed> {
        // A daemon on another host is not trusted with this one's terminal; its mistakes are one a
        // line.
        let failed = |text: String| {
            let lines: Vec<String> = text.lines().map(printable).collect();
            Failed::new(format!("the {} daemon: {}", self.name, lines.join("\n")))
        };
        let reply = self.client.send(method, path, body, None);
        let reply = reply.map_err(|error| Failed {
            is_mistake: error.is_mistake(),
            ..failed(error.to_string())
        })?;
        serde_json::from_value(reply.body).map_err(|error| {
            failed(format!("answers in another way than this program knows: {error}"))
        })
    }

    /// Its desired state.
    pub(super) fn state(&self) -> Result<State, Failed> {
        self.send(Method::GET, "/v1/state", None)
    }

    /// What is in force there.
    pub(super) fn in_force(&self) -> Result<InForce, Failed> {
        self.send(Method::GET, "/v1/actual", None)
    }

    /// Its version.
    pub(super) fn version(&self) -> Result<String, Failed> {
        let document: Value = self.send(Method::GET, "/openapi.json", None)?;
        if !document["paths"]["/v1/adapters/{adapter}/move"].is_object() {
            let error = format!("the {} daemon is older than moves; update it", self.name);
            return Err(Failed::new(error));
        }
        Ok(document["info"]["version"].as_str().unwrap_or_default().to_owned())
    }

    /// How an adapter stands.
    pub(super) fn status(&self, adapter: &str) -> Result<MoveStatus, Failed> {
        self.send(Method::GET, &path(adapter), None)
    }

    /// A step that needs no more to be said.
    pub(super) fn step(&self, adapter: &str, step: MoveStep) -> Result<MoveStatus, Failed> {
        self.send(Method::POST, &path(adapter), Some(&self.body(step)))
    }

    /// Has an adapter made, or only says what it would get.
    pub(super) fn arrive(&self, request: &MoveRequest, dry: bool) -> Result<MoveStatus, Failed> {
        let adapter = request.adapter.as_ref().map_or("", |adapter| &adapter.name);
        let query = if dry { "?dry_run=true" } else { "" };
        let path = format!("{}{query}", path(adapter));
        self.send(Method::POST, &path, Some(&to_json(request)))
    }

    /// What waits at the source, from frame number `from` on.
    pub(super) fn hand_over(&self, adapter: &str, from: u64) -> Result<MoveStatus, Failed> {
        let mut body = self.body(MoveStep::HandOver);
        body["from"] = from.into();
        self.send(Method::POST, &path(adapter), Some(&body))
    }

    /// Hands frames over, in as many requests as it takes; the first has the number `from`.
    pub(super) fn frames(
        &self,
        adapter: &str,
        mut from: u64,
        frames: &[String],
    ) -> Result<(), Failed> {
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

/// Names of adapters have no character that means something in a path.
fn path(adapter: &str) -> String {
    format!("/v1/adapters/{adapter}/move")
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a request is JSON")
}

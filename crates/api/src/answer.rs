//! What is answered when something is done, and how a request is read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::state::shape::check;
use model::state::{Actual, ActualVpf, Plan, Problem, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::fault::Fault;
use super::held;
use super::listen::Peer;
use super::manager::{Manager, vf_name};
use super::operation::{Act, Operation};
use super::resource::{Edit, Resource};
use super::whole::{self, Whole};
use crate::store::Owner;

/// What an apply did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// Whether nothing was changed because `dry_run` was asked for.
    pub dry_run: bool,
    /// The generation of the state in force.
    pub generation: u64,
    /// The steps.
    pub plan: Plan,
    /// Objects that the document does not name and that stay, such as `adapter web`.
    #[serde(default)]
    pub kept: Vec<String>,
    /// Adapters that the steps remove while a guest uses them.
    #[serde(default)]
    pub in_use: Vec<String>,
}

/// An order to have another process take over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Upgrade {
    /// The program, by its whole path; not there: the one that the daemon was started from, as it
    /// is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
}

/// What is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InForce {
    /// The generation of the desired state.
    pub generation: u64,
    /// NICs and adapters as they are.
    pub actual: Actual,
    /// Who has a VF, by `NIC/vfN`.
    pub owners: BTreeMap<String, Owner>,
    /// Virtual PFs as they are.
    #[serde(default)]
    pub vpfs: Vec<ActualVpf>,
}

/// A success.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    body: Bytes,
    /// Told as the ETag.
    generation: Option<u64>,
}

impl Answer {
    fn new(body: impl Serialize) -> Answer {
        let body = serde_json::to_vec(&body).expect("an answer is JSON");
        Answer { status: StatusCode::OK, body: body.into(), generation: None }
    }

    /// Bytes of JSON.
    pub(super) fn ready(body: Bytes) -> Answer {
        Answer { status: StatusCode::OK, body, generation: None }
    }

    fn of(self, generation: u64) -> Answer {
        Answer { generation: Some(generation), ..self }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let is_empty = self.body.is_empty();
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !is_empty {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(tag) = self.generation.map(|generation| format!("\"{generation}\"")) {
            headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("digits in quotes"));
        }
        response
    }
}

/// A request, as far as it has been read.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The keys in the path.
    pub(super) keys: Vec<String>,
    pub(super) dry_run: bool,
    pub(super) prune: bool,
    pub(super) owner: Option<u64>,
    pub(super) since: u64,
    /// The generation of If-Match.
    pub(super) expected: Option<u64>,
    pub(super) body: Value,
    /// Who asks on the UNIX socket.
    pub(super) peer: Option<Peer>,
}

impl Asked {
    /// Reads what stands after the question mark.
    pub(super) fn read_query(&mut self, operation: &Operation, query: &str) -> Result<(), Fault> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = |allowed: String| {
                let shown: String = pair.chars().take(80).flat_map(char::escape_debug).collect();
                Err(Fault::BadRequest { error: format!("?{shown} is not allowed"), allowed })
            };
            let known = operation.parameters.iter().find(|parameter| parameter.name == name);
            let number = value.parse::<u64>().ok().filter(|_| !value.starts_with('+'));
            match (known.map(|known| known.name), value, number) {
                (None, ..) => {
                    let names: Vec<_> = operation.parameters.iter().map(|one| one.name).collect();
                    return wrong(match names.is_empty() {
                        true => "leave it out".to_owned(),
                        false => format!("this path takes {}", names.join(", ")),
                    });
                }
                (Some("dry_run"), "true" | "false", _) => self.dry_run = value == "true",
                (Some("prune"), "true" | "false", _) => self.prune = value == "true",
                (Some("dry_run" | "prune"), ..) => return wrong("write true or false".into()),
                (Some("owner"), _, Some(number)) => self.owner = Some(number),
                (Some("since"), _, Some(number)) => self.since = number,
                _ => return wrong("write a whole number from 0".into()),
            }
        }
        Ok(())
    }
}

/// Carries an operation out. This may wait for the disk and for the data plane.
pub(super) fn carry_out(
    manager: &Mutex<Manager>,
    operation: &Operation,
    asked: Asked,
) -> Result<Answer, Fault> {
    let Ok(mut manager) = manager.lock() else {
        let why = "an earlier request ended in a fault of the program";
        return Err(Fault::Broken(why.into()));
    };
    let manager = &mut *manager;
    if manager.is_replaced() {
        return Err(Fault::Replaced);
    }
    match (operation.act, operation.resource) {
        (Act::Move, _) => {
            let status = manager.move_status(first(&asked.keys))?;
            Ok(Answer::new(status).of(manager.generation()))
        }
        (Act::MoveStep, _) => {
            check("MoveRequest", &asked.body, "").map_err(Fault::Wrong)?;
            let request = serde_json::from_value(asked.body).map_err(|error| {
                let error = format!("is no step: {error}");
                Fault::Wrong(Problem::new("", Value::Null, error, "correct it").into())
            })?;
            let name = first(&asked.keys);
            let status = match asked.dry_run {
                true => manager.move_preview(name, request, asked.expected)?,
                false => manager.move_step(name, request, asked.expected)?,
            };
            Ok(Answer::new(status).of(manager.generation()))
        }
        (Act::Get, Some(resource)) => {
            let part = resource.get(manager.state(), &asked.keys)?;
            Ok(Answer::new(part).of(manager.generation()))
        }
        (Act::List, Some(resource)) => {
            let list = resource.list(manager.state(), &asked.keys)?;
            Ok(Answer::new(list).of(manager.generation()))
        }
        (_, Some(resource)) => edit(manager, operation.act, resource, asked),
        (Act::PutState | Act::Apply, None) => {
            manager.expect(asked.expected)?;
            let whole = match operation.act {
                Act::PutState => whole::replacing(manager.state(), &asked.body, asked.prune)?,
                _ => whole::applied(manager.state(), &asked.body, asked.prune)?,
            };
            let done = bring(manager, operation.act, &whole, asked.dry_run);
            done.map_err(|fault| whole.in_clients_words(fault))
        }
        (Act::Actual, None) => Ok(Answer::new(in_force(manager)).of(manager.generation())),
        (Act::Events, None) => Ok(Answer::new(manager.events(asked.since))),
        (Act::Upgrade, None) => {
            let Peer(user) = asked.peer.ok_or(Fault::NotHere)?;
            let Upgrade { binary } = serde_json::from_value(asked.body).map_err(not_an_order)?;
            Ok(Answer::new(manager.upgrade(binary.map(PathBuf::from), Some(user))?))
        }
        (Act::Stats, None) => Ok(Answer::new(manager.stats()?)),
        _ => Ok(Answer::new(manager.state()).of(manager.generation())),
    }
}

/// Brings a whole document into force, or plans it.
fn bring(manager: &mut Manager, act: Act, whole: &Whole, dry_run: bool) -> Result<Answer, Fault> {
    let before = manager.actual();
    let plan = match dry_run {
        true => manager.plan(&whole.state)?,
        false => manager.apply(&whole.state, None)?.plan,
    };
    let (in_use, kept) = (whole::in_use(&before, &plan), whole.kept.clone());
    let generation = manager.generation();
    let answer = match act {
        Act::PutState if !dry_run => Answer::new(manager.state()),
        _ => Answer::new(Outcome { dry_run, generation, plan, kept, in_use }),
    };
    Ok(answer.of(generation))
}

/// The key of what the path names, which has one.
fn first(keys: &[String]) -> &str {
    keys.first().map_or("", String::as_str)
}

fn not_an_order(error: serde_json::Error) -> Fault {
    let error = format!("the body is no order to upgrade: {error}");
    Fault::BadRequest { error, allowed: r#"send {} or {"binary": "/path/to/shunt"}"#.to_owned() }
}

fn edit(
    manager: &mut Manager,
    act: Act,
    resource: &Resource,
    asked: Asked,
) -> Result<Answer, Fault> {
    manager.expect(asked.expected)?;
    let keys = &asked.keys;
    let was_there = resource.get(manager.state(), keys).is_ok();
    if let (Act::Delete, Some(token)) = (act, asked.owner) {
        let vf = resource.vf_of(manager, keys);
        let name = || keys.join("/");
        manager.check_owner(&vf.unwrap_or_else(name), token)?;
    }
    let edit = match act {
        Act::Delete => Edit::Delete,
        Act::Patch => Edit::Patch(asked.body.clone()),
        _ => Edit::Put(asked.body.clone()),
    };
    let to = resource.edit(manager.state(), keys, edit)?;
    let settings = if resource.schema == "Vf" { &asked.body } else { &Value::Null };
    let actual = manager.actual();
    held::check((manager.state(), &to), &actual, settings)?;
    if asked.dry_run {
        return dry_run(manager, &to, &asked);
    }
    let generation = manager.apply(&to, asked.expected)?.generation;
    let answer = if act == Act::Delete {
        Answer { status: StatusCode::NO_CONTENT, ..Answer::ready(Bytes::new()) }
    } else {
        let created = act == Act::Put && !was_there;
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        Answer { status, ..Answer::new(resource.get(manager.state(), keys)?) }
    };
    Ok(answer.of(generation))
}

fn dry_run(manager: &mut Manager, to: &State, asked: &Asked) -> Result<Answer, Fault> {
    manager.expect(asked.expected)?;
    let plan = manager.plan(to)?;
    let generation = manager.generation();
    let in_use = whole::in_use(&manager.actual(), &plan);
    let outcome = Outcome { dry_run: true, generation, plan, kept: Vec::new(), in_use };
    Ok(Answer::new(outcome).of(generation))
}

fn in_force(manager: &mut Manager) -> InForce {
    let actual = manager.actual();
    let mut owners = BTreeMap::new();
    for nic in &manager.state().nics {
        for index in 0..nic.total_vfs {
            let name = vf_name(&nic.name, index);
            if let Some(owner) = manager.owner(&name) {
                owners.insert(name, owner.clone());
            }
        }
    }
    let vpfs = manager.vpfs(&actual);
    InForce { generation: manager.generation(), actual, owners, vpfs }
}

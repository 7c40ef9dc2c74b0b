//! Reads requests, carries out operations, and builds their responses.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::state::schema::check;
use model::state::{Actual, ActualVpf, ChangePlan, Problem, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::error::ApiError;
use super::listen::Peer;
use super::manager::{Manager, vf_name};
use super::merge::{self, MergedState};
use super::metrics;
use super::operation::{Operation, OperationKind};
use super::resource::{Edit, Resource};
use super::vf_in_use;
use crate::store::Owner;

/// Result of an apply, or of its dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApplyOutcome {
    /// `true` if `dry_run` was requested, so nothing changed.
    pub dry_run: bool,
    /// The generation of the state in force.
    pub generation: u64,
    /// The steps.
    pub plan: ChangePlan,
    /// Objects that the document does not name and that are kept, such as `adapter web`.
    #[serde(default)]
    pub kept: Vec<String>,
    /// Adapters in use by a guest that the steps remove.
    #[serde(default)]
    pub in_use: Vec<String>,
}

/// Request for a hot restart of the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Path of the program; absent: the daemon's own executable, as it is on disk now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
}

/// State in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InForce {
    /// The generation of the desired state.
    pub generation: u64,
    /// NICs and adapters as they are.
    pub actual: Actual,
    /// Owner of each VF, by `NIC/vfN`.
    pub owners: BTreeMap<String, Owner>,
    /// Virtual PFs as they are.
    #[serde(default)]
    pub vpfs: Vec<ActualVpf>,
}

/// A successful response.
#[derive(Debug)]
pub(super) struct ApiResponse {
    status: StatusCode,
    body: Bytes,
    media_type: &'static str,
    /// Sent as the ETag.
    generation: Option<u64>,
    /// Sent as a Warning.
    warning: Option<String>,
}

impl ApiResponse {
    fn new(body: impl Serialize) -> ApiResponse {
        let body = serde_json::to_vec(&body).expect("an answer is JSON");
        ApiResponse::ready(body.into())
    }

    /// Response of JSON bytes.
    pub(super) fn ready(body: Bytes) -> ApiResponse {
        let (status, media_type) = (StatusCode::OK, "application/json");
        ApiResponse { status, body, media_type, generation: None, warning: None }
    }

    fn of(self, generation: u64) -> ApiResponse {
        ApiResponse { generation: Some(generation), ..self }
    }
}

impl IntoResponse for ApiResponse {
    fn into_response(self) -> Response {
        let is_empty = self.body.is_empty();
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !is_empty {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        }
        if let Some(tag) = self.generation.map(|generation| format!("\"{generation}\"")) {
            headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("digits in quotes"));
        }
        // 299: a persistent warning (RFC 7234, section 5.5.7).
        let warning =
            self.warning.map(|text| HeaderValue::try_from(format!("299 shunt \"{text}\"")));
        if let Some(Ok(warning)) = warning {
            headers.insert(header::WARNING, warning);
        }
        response
    }
}

/// An HTTP request as read so far.
#[derive(Debug, Default)]
pub(super) struct ApiRequest {
    /// Keys from the path.
    pub(super) keys: Vec<String>,
    pub(super) dry_run: bool,
    pub(super) prune: bool,
    pub(super) owner: Option<u64>,
    pub(super) since: u64,
    /// Generation from If-Match.
    pub(super) expected: Option<u64>,
    pub(super) body: Value,
    /// Peer credentials; UNIX socket only.
    pub(super) peer: Option<Peer>,
}

impl ApiRequest {
    /// Reads the query string.
    pub(super) fn read_query(
        &mut self,
        operation: &Operation,
        query: &str,
    ) -> Result<(), ApiError> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = |remedy: String| {
                let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
                let problem = Problem::new(format!("?{shown}"), value, "is not allowed", remedy);
                Err(ApiError::BadRequest(problem.into()))
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

/// Carries an operation out. May wait for the disk and the data plane.
pub(super) fn carry_out(
    manager: &Mutex<Manager>,
    operation: &Operation,
    asked: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let Ok(mut manager) = manager.lock() else {
        let why = "an earlier request hit a bug in the daemon";
        return Err(ApiError::Broken(why.into()));
    };
    let manager = &mut *manager;
    if manager.is_replaced() {
        return Err(ApiError::Replaced);
    }
    let changes = operation.changes() && operation.kind != OperationKind::Upgrade && !asked.dry_run;
    let mut response = carry_out_locked(manager, operation, asked)?;
    response.warning = manager.warning().filter(|_| changes).map(str::to_owned);
    Ok(response)
}

fn carry_out_locked(
    manager: &mut Manager,
    operation: &Operation,
    asked: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    match (operation.kind, operation.resource) {
        (OperationKind::Move, _) => {
            let status = manager.move_status(first(&asked.keys))?;
            Ok(ApiResponse::new(status).of(manager.generation()))
        }
        (OperationKind::MoveStep, _) => {
            check("MoveRequest", &asked.body, "").map_err(ApiError::Wrong)?;
            let request = serde_json::from_value(asked.body).map_err(|error| {
                let error = format!("is no step: {error}");
                ApiError::Wrong(Problem::new("", Value::Null, error, "correct it").into())
            })?;
            let name = first(&asked.keys);
            let status = match asked.dry_run {
                true => manager.move_preview(name, request, asked.expected)?,
                false => manager.move_step(name, request, asked.expected)?,
            };
            Ok(ApiResponse::new(status).of(manager.generation()))
        }
        (OperationKind::Fdb, Some(switch)) => {
            switch.get(manager.state(), &asked.keys)?; // it exists
            let entries = manager.fdb(first(&asked.keys));
            Ok(ApiResponse::new(entries).of(manager.generation()))
        }
        (OperationKind::Get, Some(resource)) => {
            let part = resource.get(manager.state(), &asked.keys);
            let part = part.map_err(|error| vf_in_use::explain(error, manager, &asked.keys))?;
            Ok(ApiResponse::new(part).of(manager.generation()))
        }
        (OperationKind::List, Some(resource)) => {
            let list = resource.list(manager.state(), &asked.keys)?;
            Ok(ApiResponse::new(list).of(manager.generation()))
        }
        (_, Some(resource)) => edit(manager, operation.kind, resource, asked),
        (OperationKind::PutState | OperationKind::Apply, None) => {
            manager.expect(asked.expected)?;
            let merged = match operation.kind {
                OperationKind::PutState => {
                    merge::replacing(manager.state(), &asked.body, asked.prune)?
                }
                _ => merge::applied(manager.state(), &asked.body, asked.prune)?,
            };
            bring(manager, operation.kind, &merged, asked.dry_run)
        }
        (OperationKind::Actual, None) => {
            Ok(ApiResponse::new(in_force(manager)).of(manager.generation()))
        }
        (OperationKind::Events, None) => Ok(ApiResponse::new(manager.events(asked.since))),
        (OperationKind::Upgrade, None) => {
            let Peer(user) = asked.peer.ok_or(ApiError::SocketOnly)?;
            let UpgradeRequest { binary } =
                serde_json::from_value(asked.body).map_err(not_an_order)?;
            Ok(ApiResponse::new(manager.upgrade(binary.map(PathBuf::from), Some(user))?))
        }
        (OperationKind::Stats, None) => Ok(ApiResponse::new(manager.stats()?)),
        (OperationKind::Metrics, None) => {
            let text = metrics::text(manager.stats()?, manager.actual());
            let media_type = metrics::MEDIA_TYPE;
            Ok(ApiResponse { media_type, ..ApiResponse::ready(text.into()) })
        }
        _ => Ok(ApiResponse::new(manager.state()).of(manager.generation())),
    }
}

/// Applies a merged document, or plans it.
fn bring(
    manager: &mut Manager,
    kind: OperationKind,
    merged: &MergedState,
    dry_run: bool,
) -> Result<ApiResponse, ApiError> {
    let before = manager.actual();
    let plan = match dry_run {
        true => manager.plan(&merged.state)?,
        false => manager.apply(&merged.state, None)?.plan,
    };
    let (in_use, kept) = (merge::in_use(&before, &plan), merged.kept.clone());
    let generation = manager.generation();
    let answer = match kind {
        OperationKind::PutState if !dry_run => ApiResponse::new(manager.state()),
        _ => ApiResponse::new(ApplyOutcome { dry_run, generation, plan, kept, in_use }),
    };
    Ok(answer.of(generation))
}

/// First key of the path; the route guarantees one.
fn first(keys: &[String]) -> &str {
    keys.first().map_or("", String::as_str)
}

fn not_an_order(error: serde_json::Error) -> ApiError {
    let message = format!("the body is no order to upgrade: {error}");
    let remedy = r#"send {} or {"binary": "/path/to/shunt"}"#;
    ApiError::BadRequest(Problem::new("", (), message, remedy).into())
}

fn edit(
    manager: &mut Manager,
    kind: OperationKind,
    resource: &Resource,
    asked: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    manager.expect(asked.expected)?;
    let keys = &asked.keys;
    let was_there = resource.get(manager.state(), keys).is_ok();
    if let (OperationKind::Delete, Some(token)) = (kind, asked.owner) {
        let vf = resource.vf_of(manager, keys);
        let name = || keys.join("/");
        manager.check_owner(&vf.unwrap_or_else(name), token)?;
    }
    let edit = match kind {
        OperationKind::Delete => Edit::Delete,
        OperationKind::Patch => Edit::Patch(asked.body.clone()),
        _ => Edit::Put(asked.body.clone()),
    };
    let to = resource.edit(manager.state(), keys, edit)?;
    let settings = if resource.schema == "Vf" { &asked.body } else { &Value::Null };
    let actual = manager.actual();
    vf_in_use::check((manager.state(), &to), &actual, settings)?;
    if asked.dry_run {
        return dry_run(manager, &to, &asked);
    }
    let generation = manager.apply(&to, asked.expected)?.generation;
    let answer = if kind == OperationKind::Delete {
        ApiResponse { status: StatusCode::NO_CONTENT, ..ApiResponse::ready(Bytes::new()) }
    } else {
        let created = kind == OperationKind::Put && !was_there;
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        ApiResponse { status, ..ApiResponse::new(resource.get(manager.state(), keys)?) }
    };
    Ok(answer.of(generation))
}

fn dry_run(manager: &mut Manager, to: &State, asked: &ApiRequest) -> Result<ApiResponse, ApiError> {
    manager.expect(asked.expected)?;
    let plan = manager.plan(to)?;
    let generation = manager.generation();
    let in_use = merge::in_use(&manager.actual(), &plan);
    let outcome = ApplyOutcome { dry_run: true, generation, plan, kept: Vec::new(), in_use };
    Ok(ApiResponse::new(outcome).of(generation))
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

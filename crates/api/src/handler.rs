//! Reads requests, carries out operations, and builds their responses.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::capture::CaptureStream;
use model::state::schema::check;
use model::state::{Actual, ActualVpf, ChangePlan, Problem, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::capture::CaptureBody;
use super::error::ApiError;
use super::events::EventList;
use super::listen::Peer;
use super::manager::{Manager, vf_name};
use super::merge::{self, MergedState};
use super::metrics;
use super::operation::{Operation, OperationKind, Parameter, ParameterKind};
use super::plan;
use super::resource::{Edit, Resource};
use super::vf_in_use;
use crate::clock;
use crate::reasons::Explanation;
use crate::stats::Stats;
use crate::store::Owner;

/// Media type of a capture.
pub(super) const CAPTURE_TYPE: &str = "application/x-pcapng";

/// Result of an apply, or of its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// Counters, state in force and recent events at one moment, for a client that shows rates.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    /// Time when the counters were read, in milliseconds since 1970.
    pub time_ms: u64,
    /// The same in microseconds of a clock that is never set.
    pub clock_us: u64,
    /// The counters.
    pub stats: Stats,
    /// The state in force.
    pub in_force: InForce,
    /// Events after number `since`.
    pub events: EventList,
}

/// A successful response.
#[derive(Debug)]
pub(super) struct ApiResponse {
    status: StatusCode,
    body: Bytes,
    /// Stream in place of the body.
    capture: Option<CaptureBody>,
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
        let (generation, warning) = (None, None);
        ApiResponse { status, body, capture: None, media_type, generation, warning }
    }

    /// Response that streams a capture.
    fn stream(capture: CaptureStream) -> ApiResponse {
        let capture = Some(CaptureBody::new(capture));
        ApiResponse { capture, media_type: CAPTURE_TYPE, ..ApiResponse::ready(Bytes::new()) }
    }

    fn of(self, generation: u64) -> ApiResponse {
        ApiResponse { generation: Some(generation), ..self }
    }
}

impl IntoResponse for ApiResponse {
    fn into_response(self) -> Response {
        let is_empty = self.body.is_empty() && self.capture.is_none();
        let body = self.capture.map_or_else(|| Body::from(self.body), Body::new);
        let mut response = Response::new(body);
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
    /// Other query parameters: numbers.
    pub(super) numbers: BTreeMap<&'static str, u64>,
    /// Other query parameters: names.
    pub(super) names: BTreeMap<&'static str, &'static str>,
    /// Generation from If-Match.
    pub(super) expected: Option<u64>,
    pub(super) body: Value,
    /// Format of metrics, from Accept.
    pub(super) format: metrics::Format,
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
            let refused = |remedy: String| {
                let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
                let problem = Problem::new(format!("?{shown}"), value, "is not allowed", remedy);
                ApiError::BadRequest(problem.into())
            };
            let known = operation.parameters.iter().find(|parameter| parameter.name == name);
            let Some(Parameter { name, kind, .. }) = known else {
                let names: Vec<_> = operation.parameters.iter().map(|one| one.name).collect();
                return Err(refused(match names.is_empty() {
                    true => "leave it out".to_owned(),
                    false => format!("this path takes {}", names.join(", ")),
                }));
            };
            self.set(name, kind, value).map_err(refused)?;
        }
        Ok(())
    }

    /// Takes the value of a parameter; the error says what to write.
    fn set(&mut self, name: &'static str, kind: &ParameterKind, value: &str) -> Result<(), String> {
        match kind {
            ParameterKind::Boolean => {
                let value = value.parse().map_err(|_| "write true or false".to_owned())?;
                match name {
                    "prune" => self.prune = value,
                    _ => self.dry_run = value,
                }
            }
            ParameterKind::Whole(range) => {
                let number = value.parse().ok().filter(|_| !value.starts_with('+'));
                let number = number.filter(|number| range.contains(number));
                let number = number.ok_or_else(|| match (range.start(), range.end()) {
                    (least, &u64::MAX) => format!("write a whole number from {least}"),
                    (least, most) => format!("write a whole number, {least} to {most}"),
                })?;
                match name {
                    "owner" => self.owner = Some(number),
                    "since" => self.since = number,
                    _ => drop(self.numbers.insert(name, number)),
                }
            }
            ParameterKind::Name(names) => {
                let names = names();
                let found = names.iter().find(|known| **known == value);
                let found = found.ok_or_else(|| format!("write one of {}", names.join(", ")))?;
                self.names.insert(name, found);
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
    if operation.kind == OperationKind::Plan {
        return Ok(ApiResponse::new(plan::answer(&asked)?));
    }
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
        (OperationKind::Trace, None) => {
            let request = serde_json::from_value(asked.body).map_err(no_trace)?;
            Ok(ApiResponse::new(manager.trace(&request)?))
        }
        (OperationKind::Capture, None) => {
            let request = serde_json::from_value(asked.body).map_err(no_capture)?;
            Ok(ApiResponse::stream(manager.capture(&request)?))
        }
        (OperationKind::Stats, None) => Ok(ApiResponse::new(manager.stats()?)),
        (OperationKind::Live, None) => {
            let (time_ms, clock_us) = (clock::unix_ms(), clock::monotonic_us());
            let stats = manager.stats()?;
            let (in_force, events) = (in_force(manager), manager.events(asked.since));
            let generation = manager.generation();
            Ok(ApiResponse::new(Live { time_ms, clock_us, stats, in_force, events }).of(generation))
        }
        (OperationKind::History, None) => Ok(ApiResponse::new(manager.history().readings())),
        (OperationKind::Reasons, None) => {
            Ok(ApiResponse::new(Explanation::all().collect::<Vec<_>>()))
        }
        (OperationKind::Metrics, None) => {
            let text =
                metrics::text(manager.stats()?, manager.actual(), manager.state(), asked.format);
            Ok(ApiResponse {
                media_type: asked.format.media_type(),
                ..ApiResponse::ready(text.into())
            })
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

fn no_trace(error: serde_json::Error) -> ApiError {
    let message = format!("the body is no request for a trace: {error}");
    let remedy = r#"send {"port": "web", "frames": ["HEX"]}"#;
    ApiError::BadRequest(Problem::new("", (), message, remedy).into())
}

fn no_capture(error: serde_json::Error) -> ApiError {
    let message = format!("the body is no request for a capture: {error}");
    let remedy = r#"send {"ports": ["web"]} or {"dropped": true}"#;
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
    let (to, was_there) = resource.edit(manager.state(), keys, edit)?;
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

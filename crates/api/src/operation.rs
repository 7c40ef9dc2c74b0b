//! Table of all API operations: the source of the router and of the OpenAPI document.

use std::ops::RangeInclusive;

use axum::http::Method;
use serde_json::{Value, json};

use super::plan::PARAMETERS;
use super::resource::{RESOURCES, Resource};

/// Kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationKind {
    State,
    PutState,
    Apply,
    Actual,
    List,
    Get,
    Put,
    Patch,
    Delete,
    Move,
    MoveStep,
    Events,
    Stats,
    Live,
    History,
    Reasons,
    Metrics,
    Fdb,
    Trace,
    Plan,
    Capture,
    Upgrade,
    OpenApi,
}

/// A query parameter.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: ParameterKind,
    pub(super) text: &'static str,
}

/// Allowed values of a query parameter.
pub(super) enum ParameterKind {
    /// `true` or `false`.
    Boolean,
    /// A whole number in a range.
    Whole(RangeInclusive<u64>),
    /// One of these names.
    Name(fn() -> Vec<&'static str>),
}

/// Any whole number.
const ANY: ParameterKind = ParameterKind::Whole(0..=u64::MAX);

static DRY_RUN: Parameter = Parameter {
    name: "dry_run",
    kind: ParameterKind::Boolean,
    text: "Change nothing; return the plan.",
};
static PRUNE: Parameter = Parameter {
    name: "prune",
    kind: ParameterKind::Boolean,
    text: "Remove the NICs, switches, adapters and virtual PFs that the document does not name.",
};
static OWNER: Parameter = Parameter {
    name: "owner",
    kind: ANY,
    text: "Token of the owner of the VF that this frees; rejected if the VF has another owner by now.",
};
static SINCE: Parameter =
    Parameter { name: "since", kind: ANY, text: "Only events with a higher number." };

/// A method on a path.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) kind: OperationKind,
    /// Kind of object, if the operation is about one.
    pub(super) resource: Option<&'static Resource>,
    /// Summary in the OpenAPI document.
    pub(super) summary: String,
    pub(super) parameters: Vec<&'static Parameter>,
    /// Schema of the request body.
    pub(super) body: Option<String>,
    /// Schema of the response body; `None` if it is empty.
    pub(super) answer: Option<Value>,
}

impl Operation {
    /// `true` if it may change the state.
    pub(super) fn changes(&self) -> bool {
        !matches!(self.method, Method::GET)
            && !matches!(self.kind, OperationKind::Trace | OperationKind::Capture)
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn plain(
    method: Method,
    path: &'static str,
    kind: OperationKind,
    summary: &str,
    answer: &str,
) -> Operation {
    Operation {
        method,
        path,
        kind,
        resource: None,
        summary: summary.to_owned(),
        parameters: Vec::new(),
        body: None,
        answer: Some(reference(answer)),
    }
}

/// A request whose answer is a list.
fn list(path: &'static str, kind: OperationKind, summary: &str, item: &str) -> Operation {
    let answer = Some(json!({"type": "array", "items": reference(item)}));
    Operation { answer, ..plain(Method::GET, path, kind, summary, item) }
}

/// All operations, in the order of the OpenAPI document.
pub(super) fn operations() -> Vec<Operation> {
    let (get, put, post) = (Method::GET, Method::PUT, Method::POST);
    let whole = Some("State".to_owned());
    let mut all = vec![
        plain(get.clone(), "/v1/state", OperationKind::State, "The desired state.", "State"),
        Operation {
            body: whole.clone(),
            parameters: vec![&DRY_RUN, &PRUNE],
            ..plain(
                put,
                "/v1/state",
                OperationKind::PutState,
                "Replace the desired state; 409 if that removes an object and prune is not true.",
                "State",
            )
        },
        Operation {
            body: whole,
            parameters: vec![&DRY_RUN, &PRUNE],
            ..plain(
                post,
                "/v1/apply",
                OperationKind::Apply,
                "Apply the objects of the document, and return the steps; without prune other objects stay.",
                "ApplyOutcome",
            )
        },
        plain(
            get.clone(),
            "/v1/actual",
            OperationKind::Actual,
            "State in force, with reasons.",
            "InForce",
        ),
        Operation {
            parameters: vec![&SINCE],
            ..plain(get.clone(), "/v1/events", OperationKind::Events, "Recent events.", "EventList")
        },
        plain(get.clone(), "/v1/stats", OperationKind::Stats, "Counters.", "Stats"),
        Operation {
            parameters: vec![&SINCE],
            ..plain(
                get.clone(),
                "/v1/live",
                OperationKind::Live,
                "Counters, state in force and recent events, read together.",
                "Live",
            )
        },
        list(
            "/v1/history",
            OperationKind::History,
            "Totals of the last hour, one reading a second.",
            "HistoryReading",
        ),
        list(
            "/v1/reasons",
            OperationKind::Reasons,
            "Drop reasons, ring faults and reasons for a path: meaning, cause and remedy.",
            "Explanation",
        ),
        Operation {
            answer: Some(json!({"type": "string"})),
            ..plain(
                get.clone(),
                "/metrics",
                OperationKind::Metrics,
                "Counters and states as OpenMetrics text.",
                "Stats",
            )
        },
        Operation {
            body: Some("UpgradeRequest".to_owned()),
            ..plain(
                Method::POST,
                "/v1/upgrade",
                OperationKind::Upgrade,
                "Hot-restart the daemon without losing a frame; on the UNIX socket only.",
                "Upgraded",
            )
        },
        Operation {
            answer: Some(json!({"type": "object"})),
            ..plain(get, "/openapi.json", OperationKind::OpenApi, "This document.", "State")
        },
    ];
    for resource in &RESOURCES {
        all.extend(of_resource(resource));
    }
    all.extend(of_moves());
    all.push(fdb());
    all.push(trace());
    all.push(plan());
    all.push(capture());
    all
}

/// A POST, so that it requires the token also with `public_read`: frames are not for everyone.
fn capture() -> Operation {
    let summary =
        "Stream of frames at ports, or of dropped frames, as pcapng, until the client ends.";
    let body = Some("CaptureRequest".to_owned());
    let answer = Some(json!({"type": "string", "format": "binary"}));
    let kind = OperationKind::Capture;
    Operation {
        body,
        answer,
        ..plain(Method::POST, "/v1/capture", kind, summary, "CaptureRequest")
    }
}

fn trace() -> Operation {
    let summary = "Stages that frames would take from a port now; changes nothing.";
    let body = Some("TraceRequest".to_owned());
    let kind = OperationKind::Trace;
    Operation { body, ..plain(Method::POST, "/v1/trace", kind, summary, "TraceAnswer") }
}

fn plan() -> Operation {
    let summary = "Predicted rates of chains of guests on each path, with the recommended paths.";
    Operation {
        parameters: PARAMETERS.iter().collect(),
        ..plain(Method::GET, "/v1/plan", OperationKind::Plan, summary, "PlanAnswer")
    }
}

fn fdb() -> Operation {
    let summary = "Addresses that the switch knows, learned and static.";
    Operation {
        resource: RESOURCES.iter().find(|resource| resource.schema == "Switch"),
        ..list("/v1/switches/{switch}/fdb", OperationKind::Fdb, summary, "FdbEntry")
    }
}

fn of_moves() -> [Operation; 2] {
    const PATH: &str = "/v1/adapters/{adapter}/move";
    let adapter = RESOURCES.iter().find(|resource| resource.schema == "Adapter");
    let of = |method, kind, summary| Operation {
        resource: adapter,
        ..plain(method, PATH, kind, summary, "MoveStatus")
    };
    let step = of(Method::POST, OperationKind::MoveStep, "Do a step of its guest's migration.");
    [
        of(Method::GET, OperationKind::Move, "Status of its guest's migration."),
        Operation { body: Some("MoveRequest".to_owned()), parameters: vec![&DRY_RUN], ..step },
    ]
}

fn of_resource(resource: &'static Resource) -> [Operation; 5] {
    let Resource { name, plural, schema, collection, item, .. } = *resource;
    let about = |operation: Operation| Operation { resource: Some(resource), ..operation };
    let of = |method, kind, summary: String| about(plain(method, item, kind, &summary, schema));
    let all = list(collection, OperationKind::List, &format!("All {plural}."), schema);
    let frees_a_vf = matches!(schema, "Vf" | "Adapter");
    let owner = frees_a_vf.then_some(&OWNER);
    let patched = if resource.has_defaults() {
        format!("Change some {name}; without an entry, begin with the defaults.")
    } else {
        format!("Change some settings of one {name}.")
    };
    [
        about(all),
        of(Method::GET, OperationKind::Get, format!("One {name}.")),
        Operation {
            body: Some(schema.to_owned()),
            parameters: vec![&DRY_RUN],
            ..of(Method::PUT, OperationKind::Put, format!("Create or replace one {name}."))
        },
        Operation {
            body: Some(format!("{schema}Patch")),
            parameters: vec![&DRY_RUN],
            ..of(Method::PATCH, OperationKind::Patch, patched)
        },
        Operation {
            parameters: [&DRY_RUN].into_iter().chain(owner).collect(),
            answer: None,
            ..of(Method::DELETE, OperationKind::Delete, format!("Remove one {name}."))
        },
    ]
}

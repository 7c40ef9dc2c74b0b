//! The one table of everything the API can be asked: from it come the router and the OpenAPI
//! document.

use axum::http::Method;
use serde_json::{Value, json};

use super::resource::{RESOURCES, Resource};

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
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
    Upgrade,
    OpenApi,
}

/// A parameter after the question mark.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// Its schema's type: `boolean`, or `integer` from 0.
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

static DRY_RUN: Parameter = Parameter {
    name: "dry_run",
    kind: "boolean",
    text: "Change nothing, and answer with the plan of what would be done.",
};
static PRUNE: Parameter = Parameter {
    name: "prune",
    kind: "boolean",
    text: "Remove the NICs, switches, adapters and virtual PFs that the document does not name.",
};
static OWNER: Parameter = Parameter {
    name: "owner",
    kind: "integer",
    text: "The token of the owner of the VF that this frees; refused if it has another one by now.",
};
static SINCE: Parameter =
    Parameter { name: "since", kind: "integer", text: "Only events with a greater number." };

/// A method on a path.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) act: Act,
    /// The kind of part that it is about.
    pub(super) resource: Option<&'static Resource>,
    /// For the document: what it does.
    pub(super) summary: String,
    pub(super) parameters: Vec<&'static Parameter>,
    /// The schema of its body.
    pub(super) body: Option<String>,
    /// The schema of its answer; none for an empty one.
    pub(super) answer: Option<Value>,
}

impl Operation {
    /// Whether it may change the state.
    pub(super) fn changes(&self) -> bool {
        !matches!(self.method, Method::GET)
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn plain(method: Method, path: &'static str, act: Act, summary: &str, answer: &str) -> Operation {
    Operation {
        method,
        path,
        act,
        resource: None,
        summary: summary.to_owned(),
        parameters: Vec::new(),
        body: None,
        answer: Some(reference(answer)),
    }
}

/// Everything, in the order of the document.
pub(super) fn operations() -> Vec<Operation> {
    let (get, put, post) = (Method::GET, Method::PUT, Method::POST);
    let whole = Some("State".to_owned());
    let mut all = vec![
        plain(get.clone(), "/v1/state", Act::State, "The desired state.", "State"),
        Operation {
            body: whole.clone(),
            parameters: vec![&DRY_RUN, &PRUNE],
            ..plain(
                put,
                "/v1/state",
                Act::PutState,
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
                Act::Apply,
                "Bring what the document names into force, and tell the steps; other objects stay without prune.",
                "Outcome",
            )
        },
        plain(get.clone(), "/v1/actual", Act::Actual, "What is in force, and why.", "InForce"),
        Operation {
            parameters: vec![&SINCE],
            ..plain(get.clone(), "/v1/events", Act::Events, "What happened lately.", "EventList")
        },
        plain(get.clone(), "/v1/stats", Act::Stats, "What was counted.", "Stats"),
        Operation {
            body: Some("Upgrade".to_owned()),
            ..plain(
                Method::POST,
                "/v1/upgrade",
                Act::Upgrade,
                "Have another process take over without losing a frame; on the UNIX socket only.",
                "Upgraded",
            )
        },
        Operation {
            answer: Some(json!({"type": "object"})),
            ..plain(get, "/openapi.json", Act::OpenApi, "This document.", "State")
        },
    ];
    for resource in &RESOURCES {
        all.extend(of_resource(resource));
    }
    all.extend(of_moves());
    all
}

fn of_moves() -> [Operation; 2] {
    const PATH: &str = "/v1/adapters/{adapter}/move";
    let adapter = RESOURCES.iter().find(|resource| resource.schema == "Adapter");
    let of = |method, act, summary| Operation {
        resource: adapter,
        ..plain(method, PATH, act, summary, "MoveStatus")
    };
    let step = of(Method::POST, Act::MoveStep, "Do a step of the move of its guest.");
    [
        of(Method::GET, Act::Move, "How the move of its guest stands."),
        Operation { body: Some("MoveRequest".to_owned()), parameters: vec![&DRY_RUN], ..step },
    ]
}

fn of_resource(resource: &'static Resource) -> [Operation; 5] {
    let Resource { name, plural, schema, collection, item, .. } = *resource;
    let about = |operation: Operation| Operation { resource: Some(resource), ..operation };
    let of = |method, act, summary: String| about(plain(method, item, act, &summary, schema));
    let list = json!({"type": "array", "items": reference(schema)});
    let all = plain(Method::GET, collection, Act::List, &format!("All {plural}."), schema);
    let frees_a_vf = matches!(schema, "Vf" | "Adapter");
    let owner = frees_a_vf.then_some(&OWNER);
    let patched = if resource.has_defaults() {
        format!("Change some {name}; what has none yet begins with the defaults.")
    } else {
        format!("Change some settings of one {name}.")
    };
    [
        about(Operation { answer: Some(list), ..all }),
        of(Method::GET, Act::Get, format!("One {name}.")),
        Operation {
            body: Some(schema.to_owned()),
            parameters: vec![&DRY_RUN],
            ..of(Method::PUT, Act::Put, format!("Create or replace one {name}."))
        },
        Operation {
            body: Some(format!("{schema}Patch")),
            parameters: vec![&DRY_RUN],
            ..of(Method::PATCH, Act::Patch, patched)
        },
        Operation {
            parameters: [&DRY_RUN].into_iter().chain(owner).collect(),
            answer: None,
            ..of(Method::DELETE, Act::Delete, format!("Remove one {name}."))
        },
    ]
}

//! The OpenAPI document, from the table of operations and the schemas that check documents.

use model::state::schema::{self, add_schemas};
use serde_json::{Map, Value, json};

use super::events::EventList;
use super::handler::{ApplyOutcome, CAPTURE_TYPE, InForce, Live, UpgradeRequest};
use super::manager::MoveStatus;
use super::manager::Upgraded;
use super::operation::{Operation, OperationKind, ParameterKind, operations};
use super::plan::PlanAnswer;
use super::resource::RESOURCES;
use crate::capture::CaptureRequest;
use crate::fdb::FdbEntry;
use crate::history::HistoryReading;
use crate::reasons::Explanation;
use crate::stats::Stats;
use crate::trace::{TraceAnswer, TraceRequest};

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = of_operation(&operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Shunt",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Desired state and state in force of NICs, switches and adapters.",
            "license": {"name": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/", "description": "The socket api.sock in the daemon's run directory."}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Over TCP only."},
            },
        },
    })
}

/// Schemas of all requests and answers, by name: `components.schemas`.
pub fn schemas() -> Map<String, Value> {
    let mut all = schema::schemas().clone();
    // Parts of other schemas, and settings of the configuration file only.
    for name in [
        "PortSettings",
        "RuleMatch",
        "Configuration",
        "DaemonSettings",
        "ApiSettings",
        "Lanes",
        "Limits",
    ] {
        all.remove(name);
    }
    for resource in &RESOURCES {
        all.insert(format!("{}Patch", resource.schema), patch_of(&all[resource.schema]));
    }
    add_schemas::<model::state::Problems>(&mut all);
    add_schemas::<ApplyOutcome>(&mut all);
    add_schemas::<UpgradeRequest>(&mut all);
    add_schemas::<Upgraded>(&mut all);
    add_schemas::<InForce>(&mut all);
    add_schemas::<EventList>(&mut all);
    add_schemas::<MoveStatus>(&mut all);
    add_schemas::<Stats>(&mut all);
    add_schemas::<Live>(&mut all);
    add_schemas::<HistoryReading>(&mut all);
    add_schemas::<Explanation>(&mut all);
    add_schemas::<FdbEntry>(&mut all);
    add_schemas::<TraceRequest>(&mut all);
    add_schemas::<TraceAnswer>(&mut all);
    add_schemas::<PlanAnswer>(&mut all);
    add_schemas::<CaptureRequest>(&mut all);
    all
}

/// A merge patch: every field may be absent, or null to reset it to its default.
fn patch_of(schema: &Value) -> Value {
    let mut patch = schema.clone();
    let Some(fields) = patch.as_object_mut() else {
        return patch;
    };
    fields.remove("required");
    fields.insert("description".into(), "A merge patch (RFC 7396); null resets a setting.".into());
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        let takes_null =
            property["type"].as_array().is_some_and(|any| any.contains(&json!("null")))
                || property["oneOf"].is_array();
        if !takes_null {
            *property = json!({"oneOf": [{"type": "null"}, property]});
        }
    }
    patch
}

fn of_operation(operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    if let Some(resource) = operation.resource {
        let levels = resource.levels.iter().map(|level| level.parameter);
        let in_path = |name: &&str| operation.path.contains(&format!("{{{name}}}"));
        parameters.extend(levels.filter(in_path).map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        }));
    }
    parameters.extend(operation.parameters.iter().map(|parameter| {
        let schema = match &parameter.kind {
            ParameterKind::Boolean => json!({"type": "boolean"}),
            ParameterKind::Whole(range) => {
                json!({"type": "integer", "minimum": range.start(), "maximum": range.end()})
            }
            ParameterKind::Name(names) => json!({"type": "string", "enum": names()}),
        };
        json!({"name": parameter.name, "in": "query", "description": parameter.text, "schema": schema})
    }));
    if operation.changes() {
        parameters.push(json!({
            "name": "If-Match", "in": "header", "schema": {"type": "string", "pattern": "^(\"[0-9]{1,19}\"|\\*)$"},
            "description": "The ETag of the state that the client knows; 412 if it has changed since.",
        }));
    }
    let mut value = json!({
        "summary": operation.summary,
        "operationId": id(operation),
        "parameters": parameters,
        "responses": answers(operation),
    });
    if let Some(body) = &operation.body {
        let schema = json!({"$ref": format!("#/components/schemas/{body}")});
        value["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    value
}

/// Operation ID, such as `put_v1_nics_nic`.
fn id(operation: &Operation) -> String {
    let path = operation.path.replace(['{', '}'], "").replace(['/', '.'], "_");
    format!("{}{path}", operation.method.as_str().to_ascii_lowercase())
}

fn answers(operation: &Operation) -> Value {
    let json_of = |text: &str, schema: &Value| json!({"description": text, "content": {"application/json": {"schema": schema}}});
    let error = json!({"$ref": "#/components/schemas/Problems"});
    let outcome = json!({"$ref": "#/components/schemas/ApplyOutcome"});
    let mut answers = Map::new();
    let dry = operation.parameters.iter().any(|parameter| parameter.name == "dry_run");
    match &operation.answer {
        Some(schema) if dry && *schema != outcome => {
            let either = json!({"anyOf": [schema, outcome]});
            answers.insert("200".into(), json_of("Done; with dry_run, the plan.", &either));
        }
        Some(schema) if operation.kind == OperationKind::Metrics => {
            let content = json!({
                "text/plain": {"schema": schema}, "application/openmetrics-text": {"schema": schema},
            });
            answers.insert("200".into(), json!({"description": "Done.", "content": content}));
        }
        Some(schema) if operation.kind == OperationKind::Capture => {
            let content = json!({CAPTURE_TYPE: {"schema": schema}});
            answers.insert("200".into(), json!({"description": "The stream.", "content": content}));
        }
        Some(schema) => drop(answers.insert("200".into(), json_of("Done.", schema))),
        None => {
            answers.insert("200".into(), json_of("With dry_run: the plan.", &outcome));
            answers.insert("204".into(), json!({"description": "Done."}));
        }
    }
    if operation.method == axum::http::Method::PUT && operation.resource.is_some() {
        let schema = operation.answer.clone().unwrap_or_default();
        answers.insert("201".into(), json_of("Created.", &schema));
    }
    let forbidden = match operation.kind {
        OperationKind::Upgrade => {
            "Not available over TCP; only root and the daemon's user may name another program."
        }
        _ => "The Host or the Origin is not the daemon's.",
    };
    let mut errors = vec![
        ("400", "The request is malformed."),
        ("401", "The token is missing or wrong."),
        ("403", forbidden),
        ("421", "Another process has taken over: try again."),
        ("500", "The state could not be stored."),
    ];
    if operation.resource.is_some() {
        errors.push(("404", "No such object."));
    }
    if operation.kind == OperationKind::Trace {
        errors.push(("404", "No such port."));
        errors.push(("422", "A value is wrong."));
        errors.push(("503", "No memory is left."));
    }
    if operation.kind == OperationKind::Capture {
        errors.push(("404", "No such port."));
        errors.push(("422", "A value is wrong."));
        errors.push(("503", "Too many captures run, or no memory is left."));
    }
    if matches!(operation.kind, OperationKind::Stats | OperationKind::Metrics | OperationKind::Live)
    {
        errors.push(("503", "The counters cannot be read."));
    }
    if operation.body.is_some() {
        errors.push(("408", "The body took too long."));
        errors.push(("413", "The body is too large."));
        errors.push(("415", "The body is not JSON."));
    }
    if operation.changes() {
        errors.push(("409", "No transition to this state."));
        errors.push(("412", "The state has changed meanwhile."));
        errors.push(("422", "A value is wrong."));
    }
    answers.extend(errors.into_iter().map(|(status, text)| (status.into(), json_of(text, &error))));
    Value::Object(answers)
}

//! The OpenAPI document: complete, closed, and what is served.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::openapi;
use super::super::operation::operations;
use super::{Site, null};

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_is_used() {
    let document = openapi();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in &found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        let used = format!("#/components/schemas/{name}");
        assert!(found.contains(&used), "{name} is used nowhere");
    }
}

#[test]
fn the_document_is_served_and_names_every_operation_once() {
    let site = Site::new();
    let served = site.get("/openapi.json");
    assert_eq!(served, openapi());
    let mut ids = BTreeSet::new();
    for operation in operations() {
        let method = operation.method.as_str().to_lowercase();
        let described = &served["paths"][operation.path][&method];
        assert!(described["summary"].as_str().is_some_and(|text| text.ends_with('.')));
        assert!(ids.insert(described["operationId"].to_string()), "{described}");
        // Every parameter in the path is described.
        let named = operation.path.matches('{').count();
        let parameters = described["parameters"].as_array().unwrap();
        assert_eq!(parameters.iter().filter(|one| one["in"] == "path").count(), named);
    }
}

/// Every operation that is described is served: with a path of nothing it is 2xx or 4xx, but not
/// unknown.
#[test]
fn every_operation_is_there() {
    let site = Site::new();
    // The client reads JSON only.
    for operation in operations().into_iter().filter(|it| it.path != "/metrics") {
        let path = operation.path.replace(['{', '}'], "");
        let answer = site.send(operation.method.as_str(), &path, serde_json::json!({}));
        match answer {
            Ok(reply) => assert!(reply.status < 300),
            Err(super::ClientError::Refused(refusal)) => {
                let told = &refusal.first().message;
                assert!((400..500).contains(&refusal.status), "{path}: {refusal:?}");
                assert!(!told.contains("such path") && refusal.status != 405, "{path}: {told}");
            }
            Err(other) => panic!("{path}: {other}"),
        }
    }
    site.does("GET", "/v1/state", null());
}

#[test]
fn every_field_says_what_it_is() {
    let document = openapi();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let fields = schema["properties"].as_object().into_iter().flatten();
        for (field, property) in fields {
            let mut said = property.to_string().contains("\"description\":");
            said |= property.to_string().contains("$ref");
            assert!(said, "{name}.{field}: {property}");
        }
    }
}

//! Checks the form of a document against the schema that is derived from the types and served by
//! the API.
//!
//! serde stops at the first mistake without its position. This module walks the JSON value along
//! the schema and reports every mistake with path, value and allowed values; afterwards serde
//! cannot fail. It supports the keywords in the schemas of this crate: `$ref`, `oneOf` with null or
//! with kinds of attachments, `type`, `enum`, `format`, `minimum`, `maximum`, `maxItems`,
//! `required` and closed objects.
//!
//! Limits: the depth of the schema, which has no cycles.

use std::sync::OnceLock;

use crate::suggest::nearest;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::daemon::Configuration;
use super::problem::{Problem, Problems, Remedy};
use super::{Attachment, AttachmentKind, MoveRequest, State, text};

/// Schemas of a document and of a migration step, with everything in them, by name: OpenAPI's
/// `components.schemas`.
pub fn schemas() -> &'static Map<String, Value> {
    static SCHEMAS: OnceLock<Map<String, Value>> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let mut all = Map::new();
        add_schemas::<Configuration>(&mut all);
        add_schemas::<State>(&mut all);
        add_schemas::<MoveRequest>(&mut all);
        all
    })
}

/// Adds the schemas of a type and of everything in it.
pub fn add_schemas<T: ToSchema>(all: &mut Map<String, Value>) {
    let mut found = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut found);
    for (name, schema) in found {
        let mut schema = serde_json::to_value(schema).expect("a schema is JSON");
        patterns(&mut schema);
        all.insert(name, schema);
    }
    let parts: Vec<(String, Vec<Value>)> = all
        .iter()
        .filter_map(|(name, schema)| Some((name.clone(), schema["allOf"].as_array()?.clone())))
        .collect();
    for (name, parts) in parts {
        let whole = whole(all, parts);
        all[&name] = whole;
    }
}

/// Adds the pattern of the format to each text.
fn patterns(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let format = fields.get("format").and_then(Value::as_str).and_then(text::format);
            if let Some(format) = format {
                fields.insert("pattern".into(), format.pattern.into());
            }
            fields.values_mut().for_each(patterns);
        }
        Value::Array(items) => items.iter_mut().for_each(patterns),
        _ => {}
    }
}

/// Name of the schema that this one refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str().map(|path| path.rsplit('/').next().unwrap_or(path))
}

/// Merges the parts of a struct with flattened fields into one object.
fn whole(all: &Map<String, Value>, parts: Vec<Value>) -> Value {
    let mut whole = json!({"type": "object", "properties": {}, "required": [],
        "additionalProperties": false});
    for part in parts {
        let part = reference(&part).map_or(&part, |name| &all[name]);
        for (name, schema) in part["properties"].as_object().into_iter().flatten() {
            whole["properties"][name] = schema.clone();
        }
        if let Some(text) = part.get("description") {
            whole["description"] = text.clone();
        }
        if let (Value::Array(all), Value::Array(more)) = (&mut whole["required"], &part["required"])
        {
            all.extend(more.iter().cloned());
        }
    }
    whole
}

/// Checks `value` against the schema `name`; `path` is for the problems.
pub fn check(name: &str, value: &Value, path: &str) -> Result<(), Problems> {
    let mut problems = Problems::default();
    walk(&schemas()[name], value, &mut path.to_owned(), &mut problems);
    problems.or(())
}

/// Checks a value at `path`, which is the same again afterwards.
fn walk(schema: &Value, value: &Value, path: &mut String, problems: &mut Problems) {
    if let Some(name) = reference(schema) {
        return walk(&schemas()[name], value, path, problems);
    }
    if let Some(either) = schema["oneOf"].as_array() {
        if either[0]["format"] == "attachment" {
            return attachment(either, value, path, problems);
        }
        let rest = either.iter().find(|one| one["type"] != "null");
        return match rest {
            Some(rest) if !value.is_null() => walk(rest, value, path, problems),
            _ => {}
        };
    }
    if value.is_null() && has_type(schema, "null") {
        return;
    }
    match value {
        Value::Object(fields) if has_type(schema, "object") => {
            members(schema, fields, "unknown field", path, problems)
        }
        Value::Array(items) if has_type(schema, "array") => list(schema, items, path, problems),
        Value::String(text) if has_type(schema, "string") && text_fits(schema, text) => {}
        Value::Number(number) if has_type(schema, "integer") && number_fits(schema, number) => {}
        Value::Bool(_) if has_type(schema, "boolean") => {}
        _ => problems.push(unfit(path, value, schema)),
    }
}

/// Checks an object with the fields of its kind, or its short form. `either` has the schemas of the
/// text and of each kind's object.
fn attachment(either: &[Value], value: &Value, path: &mut String, problems: &mut Problems) {
    let expanded = value.as_str().and_then(Attachment::table_of);
    let value = expanded.as_ref().unwrap_or(value);
    let Some(fields) = value.as_object() else {
        return problems.push(unfit(path, value, &either[0]));
    };
    let kind = fields.get("kind").and_then(Value::as_str);
    let kind = kind.unwrap_or(AttachmentKind::default().word());
    let of_kind = either.iter().find(|one| one["properties"]["kind"]["enum"][0] == kind);
    match (of_kind, fields.get("kind")) {
        (Some(schema), None | Some(Value::String(_))) => {
            let error = format!("unknown field of kind {kind}");
            members(schema, fields, &error, path, problems);
        }
        (_, Some(value)) => {
            let words: Vec<&str> = AttachmentKind::ALL.iter().map(|kind| kind.word()).collect();
            problems.push(unfit(
                &join(path, "kind"),
                value,
                &json!({"type": "string", "enum": words}),
            ));
        }
        (None, None) => unreachable!("the usual kind has a schema"),
    }
}

fn has_type(schema: &Value, name: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == name,
        Value::Array(any) => any.iter().any(|one| one == name),
        _ => false,
    }
}

fn text_fits(schema: &Value, text: &str) -> bool {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().any(|word| word == text);
    }
    if schema["maxLength"].as_u64().is_some_and(|most| text.chars().count() as u64 > most) {
        return false;
    }
    let format = schema["format"].as_str().and_then(text::format);
    format.is_none_or(|format| (format.takes)(text))
}

fn number_fits(schema: &Value, number: &serde_json::Number) -> bool {
    let (least, most) = range(schema);
    number.as_u64().is_some_and(|number| (least..=most).contains(&number))
}

/// Numbers in the schemas are integers and not negative.
fn range(schema: &Value) -> (u64, u64) {
    let number = |key: &str| schema[key].as_f64().map(|number| number as u64);
    (number("minimum").unwrap_or(0), number("maximum").unwrap_or(u64::MAX))
}

/// Checks `fields` against those of the schema; `error` is for unknown ones.
fn members(
    schema: &Value,
    fields: &Map<String, Value>,
    error: &str,
    path: &mut String,
    problems: &mut Problems,
) {
    if let open @ Value::Object(_) = &schema["additionalProperties"] {
        are_few(fields.len(), &schema["maxProperties"], path, problems);
        return fields.iter().for_each(|(name, value)| {
            let name = name.escape_debug().to_string();
            below(path, &name, |path| walk(open, value, path, problems));
        });
    }
    let none = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&none);
    for (name, value) in fields {
        match known.get(name) {
            Some(schema) => below(path, name, |path| walk(schema, value, path, problems)),
            None => problems.push(unknown(&join(path, name), (name, error), known)),
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for name in required.filter(|name| !fields.contains_key(*name)) {
        let allowed = known.get(name).map_or(String::new(), allowed);
        problems.push(Problem::new(join(path, name), Value::Null, "is missing", allowed));
    }
}

/// Problem of a missing field.
pub(super) fn missing(schema: &str, name: &str, path: &str) -> Problem {
    let allowed = allowed(&schemas()[schema]["properties"][name]);
    Problem::new(join(path, name), Value::Null, "is missing", allowed)
}

fn unknown(path: &str, (name, error): (&str, &str), known: &Map<String, Value>) -> Problem {
    let names = || known.keys().map(String::as_str);
    let all = names().collect::<Vec<_>>().join(", ");
    let text = match nearest(name, names()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("expected one of {all}"),
    };
    let remedy = Remedy::choose(text, all);
    // Like a value, a name may have any length and content.
    let path = if path.len() > 200 { "the document" } else { path };
    Problem::new(path.escape_debug().to_string(), Value::Null, error, remedy)
}

fn list(schema: &Value, items: &[Value], path: &mut String, problems: &mut Problems) {
    if !are_few(items.len(), &schema["maxItems"], path, problems) {
        return;
    }
    if items.is_empty() && schema["minItems"].as_u64().is_some_and(|least| least > 0) {
        let allowed = "write at least one entry, or leave it out";
        problems.push(Problem::new(path.clone(), Value::Null, "has no entry", allowed));
    }
    let length = path.len();
    for (i, item) in items.iter().enumerate() {
        path.push_str(&format!("[{i}]"));
        walk(&schema["items"], item, path, problems);
        path.truncate(length);
    }
}

/// Calls `check` with the path of a field of the object at `path`.
fn below(path: &mut String, name: &str, check: impl FnOnce(&mut String)) {
    let length = path.len();
    if length > 0 {
        path.push('.');
    }
    path.push_str(name);
    check(path);
    path.truncate(length);
}

/// Checks the number of entries against the schema.
fn are_few(entries: usize, most: &Value, path: &str, problems: &mut Problems) -> bool {
    let too_many = most.as_u64().filter(|most| entries as u64 > *most);
    if let Some(most) = too_many {
        let error = format!("has {entries} entries");
        problems.push(Problem::new(path, Value::Null, error, format!("write at most {most}")));
    }
    too_many.is_none()
}

/// Path of a field of the object at `path`.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn error(schema: &Value, value: &Value) -> String {
    let error = match value {
        Value::String(text) if schema["format"] == "path" && text.len() > text::SOCKET_PATH_MAX => {
            return format!("is {} bytes long", text.len());
        }
        Value::Null => "is null",
        Value::String(_) if has_type(schema, "string") => "is not allowed",
        Value::Number(number) if has_type(schema, "integer") && !number.is_f64() => {
            "is out of range"
        }
        Value::String(_) => "is a text",
        Value::Number(number) if number.is_f64() => "is not a whole number",
        Value::Number(_) => "is a number",
        Value::Bool(_) => "is true or false",
        Value::Array(_) => "is a list",
        Value::Object(_) => "is an object",
    };
    error.to_owned()
}

/// Problem of a value that the schema does not allow.
fn unfit(path: &str, value: &Value, schema: &Value) -> Problem {
    // The content of a list or an object would not help.
    let shown = if value.is_array() || value.is_object() { Value::Null } else { value.clone() };
    Problem::new(path, shown, error(schema, value), allowed_instead(schema, value))
}

/// Remedy for a wrong value, with a suggestion if it is a typing error.
fn allowed_instead(schema: &Value, value: &Value) -> String {
    let allowed = allowed(schema);
    let words = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match value.as_str().and_then(|text| nearest(text, words)) {
        Some(meant) => format!("did you mean \"{meant}\"? W{}", &allowed[1..]),
        None => allowed,
    }
}

/// Remedy for a schema of an object.
const OBJECT: &str = "write an object with its fields";

/// Remedy at a path such as `nic[0].mac` below a schema; empty for an unknown path.
pub fn allowed_at(schema: &str, path: &str) -> String {
    match schema_at(&schemas()[schema], path) {
        Value::Null => String::new(),
        found => allowed(found),
    }
}

/// Schema at a path such as `nic[0].mac` below a schema; null for an unknown path.
pub fn schema_at<'s>(schema: &'s Value, path: &str) -> &'s Value {
    fn resolved(schema: &Value) -> &Value {
        match reference(schema) {
            Some(name) => &schemas()[name],
            None => match schema["oneOf"].as_array() {
                Some(either) if either[0]["format"] != "attachment" => {
                    either.iter().find(|one| one["type"] != "null").map_or(schema, resolved)
                }
                _ => schema,
            },
        }
    }
    let mut found = schema;
    for part in path.split('.') {
        let name = part.split('[').next().unwrap_or_default();
        found = resolved(found);
        // The kind of attachment is unknown here; at most one kind has the field.
        let kinds = found["oneOf"].as_array().into_iter().flatten();
        let object = kinds.chain([found]).find(|one| one["properties"].get(name).is_some());
        found = object.map_or(&Value::Null, |object| &object["properties"][name]);
        for _ in part.matches('[') {
            found = &resolved(found)["items"];
        }
    }
    found
}

/// Allowed values of a schema, as a sentence.
pub fn allowed(schema: &Value) -> String {
    if let Some(name) = reference(schema) {
        return allowed(&schemas()[name]);
    }
    if let Some(either) = schema["oneOf"].as_array() {
        // The first schema of an attachment is the text, whose remedy covers the table too.
        return either.iter().find(|one| one["type"] != "null").map_or(String::new(), allowed);
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return format!("write {}", words.join(" or "));
    }
    if let Some(format) = schema["format"].as_str().and_then(text::format) {
        return format!("write {}", format.allowed);
    }
    match range(schema) {
        (only, most) if has_type(schema, "integer") && only == most => format!("write {only}"),
        (least, most) if has_type(schema, "integer") => {
            format!("write a whole number, {least} to {most}")
        }
        _ if has_type(schema, "boolean") => "write true or false".to_owned(),
        _ if has_type(schema, "array") => match allowed(&schema["items"]) {
            objects if objects == OBJECT => "write a list of objects".to_owned(),
            item => format!("write a list, each entry {}", item.trim_start_matches("write ")),
        },
        _ if has_type(schema, "object") => OBJECT.to_owned(),
        _ => match schema["maxLength"].as_u64() {
            Some(most) => format!("write a text of at most {most} characters"),
            None => "write a text".to_owned(),
        },
    }
}

//! Configuration files and documents: TOML, JSON, and valid documents with values replaced.

use model::config::Config;
use model::state::{Facts, Problems, State, allocate};
use serde_json::{Value, json};

use crate::Reached;
use crate::input::Input;

/// Most mistakes that are reported one by one, and a line on the others.
const LINES_MAX: usize = 21;

/// `data` is a file or document of any content, or changes to a valid one.
pub(crate) fn documents(data: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let Some((&kind, content)) = data.split_first() else { return reached };
    match kind % 3 {
        0 => toml(content, &mut reached),
        1 => match model::json::parse(content) {
            Ok(value) => {
                // The same as without the check for repeated keys.
                assert_eq!(serde_json::from_slice::<Value>(content).ok(), Some(value.clone()));
                reached.add("JSON", 1);
                document(&value, &mut reached);
            }
            Err(error) => assert!(!error.problem("the body ").to_string().is_empty()),
        },
        _ => {
            let value = changed(&mut Input::new(content));
            document(&value, &mut reached);
        }
    }
    reached
}

fn toml(content: &[u8], reached: &mut Reached) {
    let text = String::from_utf8_lossy(content);
    match Config::parse("fuzz.toml", &text) {
        Ok(config) => {
            reached.add("files", 1);
            accepted(&config.state, reached);
        }
        Err(problems) => rejected(&problems, reached),
    }
}

fn document(value: &Value, reached: &mut Reached) {
    match State::parse(value) {
        Ok(state) => {
            reached.add("documents", 1);
            accepted(&state, reached);
        }
        Err(problems) => rejected(&problems, reached),
    }
}

fn rejected(problems: &Problems, reached: &mut Reached) {
    let text = problems.to_string();
    assert!((1..=LINES_MAX).contains(&text.lines().count()), "{text}");
    reached.add("rejected", 1);
}

/// A valid state is the same after it was written and read; tables can be made of it, or it is
/// rejected with reasons.
fn accepted(state: &State, reached: &mut Reached) {
    assert_eq!(state.check(), Ok(()));
    let written = state.to_document();
    assert_eq!(State::parse(&written).as_ref(), Ok(state), "{written}");
    let given = allocate(state, &Facts::default());
    match api::compile::compile(state, &given, &api::compile::LiveLinks::default(), None) {
        Ok(_) => reached.add("compiled", 1),
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
}

/// A valid document with some values replaced, added or removed.
pub(crate) fn changed(input: &mut Input<'_>) -> Value {
    change(model::testing::document(), input, &FIELDS, &TEXTS)
}

/// Replaces, adds or removes some values; `fields` and `texts` are some that make sense.
pub(crate) fn change(
    mut value: Value,
    input: &mut Input<'_>,
    fields: &[&str],
    texts: &[&str],
) -> Value {
    for _ in 0..input.below(8) {
        let paths = paths(&value, String::new());
        let path = paths[input.u16() as usize % paths.len()].clone();
        let Some((parent, name)) = path.rsplit_once('/') else { continue };
        let replacement = replacement(input, &value, texts);
        match (value.pointer_mut(parent), input.below(6)) {
            (Some(Value::Object(object)), 0) => drop(object.remove(name)),
            (Some(Value::Array(items)), 1) => items.push(replacement),
            (Some(Value::Object(object)), 2) => {
                drop(object.insert(input.pick(fields).to_owned(), replacement));
            }
            (Some(Value::Object(object)), _) => drop(object.insert(name.to_owned(), replacement)),
            (Some(Value::Array(items)), _) => {
                if let Some(item) = name.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                    *item = replacement;
                }
            }
            _ => {}
        }
    }
    value
}

/// Some fields of each kind of object.
const FIELDS: [&str; 32] = [
    "name",
    "nic",
    "switch",
    "adapter",
    "vpf",
    "vf",
    "pf",
    "mode",
    "mac",
    "vlan",
    "trunk",
    "qos",
    "mirror",
    "acl",
    "isolated",
    "path",
    "attachment",
    "uplink",
    "queues",
    "groups",
    "macs",
    "trust",
    "spoof_check",
    "min_tx_mbps",
    "max_tx_mbps",
    "promiscuous",
    "link_state",
    "mtu",
    "tunnel",
    "offload",
    "storm_limit",
    "profile",
];

fn paths(value: &Value, at: String) -> Vec<String> {
    let mut all = vec![at.clone()];
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                all.extend(paths(value, format!("{at}/{name}")));
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                all.extend(paths(item, format!("{at}/{i}")));
            }
        }
        _ => {}
    }
    all
}

/// Some texts of documents.
const TEXTS: [&str; 14] = [
    "nic0",
    "sw0",
    "web",
    "db",
    "uplink",
    "pf",
    "vf",
    "auto",
    "synthetic",
    "802.1ad",
    "02:00:00:00:01:01",
    "tap:t0",
    "1-5",
    "deny",
];

fn replacement(input: &mut Input<'_>, document: &Value, texts: &[&str]) -> Value {
    match input.below(10) {
        0 => Value::Null,
        1 => json!(input.flag()),
        2 => json!(input.byte()),
        3 => json!(input.u64()),
        4 => json!(f64::from(input.u16()) / 8.0),
        5 => json!([]),
        6 => json!({}),
        7 => json!(String::from_utf8_lossy(input.bytes(12))),
        8 => json!(input.pick(texts)),
        // A part of the same document.
        _ => {
            let paths = paths(document, String::new());
            document
                .pointer(&paths[input.u16() as usize % paths.len()])
                .cloned()
                .unwrap_or_default()
        }
    }
}

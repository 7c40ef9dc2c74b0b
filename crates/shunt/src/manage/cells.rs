//! Values of documents as cells of tables.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::state::Attachment;
use serde_json::Value;

pub(super) use crate::text::cell;

/// A condition of a rule, as `--add` takes it: `protocol=udp`.
pub(super) fn condition(name: &str, value: &Value) -> String {
    format!("{name}={}", cell(value))
}

/// Rates as one cell: `100-1000`, where no limit is a dash.
pub(super) fn rates(part: &Value) -> String {
    let number = |name: &str| part[name].as_u64().unwrap_or(0);
    match (number("min_tx_mbps"), number("max_tx_mbps")) {
        (0, 0) => "-".to_owned(),
        (min, 0) => format!("{min}-"),
        (min, max) => format!("{min}-{max}"),
    }
}

/// An attachment in its short form; a dash for none.
pub(super) fn attachment(value: &Value) -> String {
    let read = serde_json::from_value::<Attachment>(value.clone());
    read.map_or_else(|_| cell(&Value::Null), |attachment| cell(&attachment.to_string().into()))
}

/// Device of a port and its state: `xdp:eth1 (gone)`; the state up is omitted.
pub(super) fn with_state(short: String, device: &Value) -> String {
    match device["state"].as_str() {
        None | Some("up") => short,
        Some(_) => format!("{short} ({})", cell(&device["state"])),
    }
}

/// Facts about a device in force, as comments of a file.
pub(super) fn told_of(port: &str, device: &Value) -> String {
    let Some(state) = device["state"].as_str() else {
        return String::new();
    };
    let since = device["since_ms"].as_u64().map_or(Duration::ZERO, Duration::from_millis);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since_s = now.saturating_sub(since).as_secs();
    let why = device["reason"].as_str().map_or_else(String::new, |why| format!(": {why}"));
    let told = format!("{state} since {since_s} s{why}");
    let notes = entries(&device["notes"]).filter_map(Value::as_str);
    let line = |text: &str| format!("# {port}: {}\n", text.replace(char::is_control, " "));
    std::iter::once(&*told).chain(notes).map(line).collect()
}

/// Warns of a missing device, and tells what it differs in.
pub(super) fn warn_of_device(of: &str, device: &Value) {
    if device["state"] == "gone" {
        let reason = cell(&device["reason"]);
        eprintln!("warning: {of} has no device until it appears: {reason}");
    }
    for note in entries(&device["notes"]) {
        eprintln!("note: {of}: {}", cell(note));
    }
}

/// Entry of a list whose field has that value.
pub(super) fn find<'a>(list: &'a Value, field: &str, value: &Value) -> &'a Value {
    let found = list.as_array().into_iter().flatten().find(|one| one[field] == *value);
    found.unwrap_or(&Value::Null)
}

/// Desired settings of an object, with its state in force as `actual`.
pub(super) fn with_actual(wanted: &Value, in_force: &Value) -> Value {
    let mut joined = wanted.clone();
    joined["actual"] = in_force.clone();
    if let Some(fields) = joined["actual"].as_object_mut() {
        fields.remove("name");
    }
    joined
}

/// Entries of a list.
pub(super) fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_words() {
        let cells = json!([null, true, false, "a\u{1b}b", 7, [], ["1", "2-3"], "a \"b\""]);
        let cells: Vec<String> = entries(&cells).map(cell).collect();
        assert_eq!(cells, ["-", "on", "off", "a\\u{1b}b", "7", "-", "1,2-3", "a \"b\""]);
        let socket = json!({"kind": "vhost-user", "socket": "/run/a"});
        let short = [&socket, &json!("tap:web0"), &json!(null)].map(attachment);
        assert_eq!(short, ["vhost-user:/run/a", "tap:web0", "-"]);
        let gone = json!({"state": "gone", "since_ms": 0, "reason": "no\tsuch", "notes": ["slow"]});
        let state = |device| with_state("tap:web0".to_owned(), device);
        let states = [&json!(null), &json!({"state": "up"}), &gone].map(state);
        assert_eq!(states, ["tap:web0", "tap:web0", "tap:web0 (gone)"]);
        let told = told_of("uplink", &gone);
        assert!(told.starts_with("# uplink: gone since "), "{told}");
        assert!(told.ends_with(" s: no such\n# uplink: slow\n"), "{told}");
        assert_eq!(told_of("uplink", &json!(null)), "");
        let of = |min, max| rates(&json!({"min_tx_mbps": min, "max_tx_mbps": max}));
        assert_eq!([of(0, 0), of(5, 0), of(0, 9), of(5, 9)], ["-", "5-", "0-9", "5-9"]);
    }
}

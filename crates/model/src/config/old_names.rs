//! Field names of version 0.1 in TOML files.

use serde_json::{Map, Value, json};

use crate::state::{Problem, Problems};

/// Renamed fields of a function, with the same value.
const RENAMED: [(&str, &str); 2] = [("weight", "tx_weight"), ("storm_limit", "storm_limit_pps")];
/// Fields of a function that are now fields of its attachment.
const ATTACHMENT: [&str; 10] = [
    "socket",
    "mode",
    "queue_pairs",
    "mtu",
    "mergeable",
    "indirect",
    "event_index",
    "in_order",
    "packed",
    "offload",
];

/// Renames old fields of PFs and VFs, and reports each with its new form.
pub(super) fn rename(file: &mut Value) -> Problems {
    let mut problems = Problems::default();
    let nics = file.get_mut("nic").and_then(Value::as_array_mut).into_iter().flatten();
    for (i, nic) in nics.enumerate() {
        if let Some(pf) = nic.get_mut("pf").and_then(Value::as_object_mut) {
            function(pf, &format!("nic[{i}].pf"), &mut problems);
        }
        let vfs = nic.get_mut("vf").and_then(Value::as_array_mut).into_iter().flatten();
        for (j, vf) in vfs.enumerate() {
            if let Some(vf) = vf.as_object_mut() {
                function(vf, &format!("nic[{i}].vf[{j}]"), &mut problems);
            }
        }
    }
    problems
}

fn function(fields: &mut Map<String, Value>, at: &str, problems: &mut Problems) {
    let mut now = |fields: &mut Map<String, Value>, old: &str, name: &str, value: Value| {
        let error = match (old, name) {
            ("weight" | "trunk" | "storm_limit", _) => format!("was renamed to {name}"),
            ("vlan", _) => "is a table now".to_owned(),
            _ => format!("is now part of {name}"),
        };
        let written = toml::Value::try_from(&value).map_or(String::new(), |it| it.to_string());
        let allowed = format!("write {name} = {written}");
        problems.push(Problem::new(format!("{at}.{old}"), (), error, allowed));
        fields.insert(name.to_owned(), value);
    };
    for (old, name) in RENAMED {
        if let Some(value) = fields.remove(old) {
            now(fields, old, name, value);
        }
    }
    if let Some(trunk) = fields.remove("trunk") {
        now(fields, "trunk", "trunks", ranges(trunk));
    }
    let id = fields.get("vlan").filter(|vlan| vlan.is_number()).cloned();
    let (qos, proto) = (fields.remove("vlan_qos"), fields.remove("vlan_protocol"));
    let old =
        [("vlan", id.is_some()), ("vlan_qos", qos.is_some()), ("vlan_protocol", proto.is_some())];
    if let Some((old, _)) = old.into_iter().find(|(_, is_given)| *is_given) {
        let mut vlan = json!({});
        let proto = proto.map(|proto| match proto.as_str() {
            Some(text) => text.to_ascii_lowercase().into(),
            None => proto,
        });
        for (name, value) in [("id", id), ("qos", qos), ("proto", proto)] {
            if let Some(value) = value {
                vlan[name] = value;
            }
        }
        now(fields, old, "vlan", vlan);
    }
    let own: Map<String, Value> = ATTACHMENT
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), fields.remove(name)?)))
        .collect();
    let old = ATTACHMENT.into_iter().find(|name| own.contains_key(*name));
    if let Some(old) = old {
        let value = match (own.len(), own.get("socket").and_then(Value::as_str)) {
            (1, Some(socket)) => format!("vhost-user:{socket}").into(),
            _ => Value::Object(own),
        };
        now(fields, old, "attachment", value);
    }
}

/// Converts VLAN numbers to ranges.
fn ranges(trunk: Value) -> Value {
    let Some(vlans) = trunk.as_array() else { return trunk };
    let mut vlans: Vec<u64> = vlans.iter().filter_map(Value::as_u64).collect();
    vlans.sort_unstable();
    vlans.dedup();
    let runs = vlans.chunk_by(|one, next| one + 1 == *next);
    let range = |run: &[u64]| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(range).collect()
}

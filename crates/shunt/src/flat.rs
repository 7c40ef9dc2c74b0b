//! Lists as JSON: arrays of flat objects.
//!
//! A field is a scalar or an array of scalars. A field of a nested object is joined with its
//! parent's name, such as `vlan_id`; nested lists of objects are left out, and empty arrays, which
//! may be such lists. All entries of a list have the same fields; null is a field without a value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Objects as an array of flat objects.
pub(crate) fn flat(list: &[Value]) -> Value {
    let mut entries: Vec<Map<String, Value>> = Vec::new();
    let mut objects = BTreeSet::new();
    for entry in list {
        let mut fields = Map::new();
        add(&mut fields, &mut objects, "", entry);
        entries.push(fields);
    }
    let names: BTreeSet<String> = entries.iter().flat_map(|entry| entry.keys().cloned()).collect();
    for entry in &mut entries {
        // An object that is null in one entry has null fields there.
        entry.retain(|name, _| !objects.contains(name));
        for name in names.difference(&objects) {
            entry.entry(name).or_insert(Value::Null);
        }
    }
    entries.into_iter().map(Value::Object).collect()
}

/// Adds the scalars below a value with this name, and the names of its objects.
fn add(fields: &mut Map<String, Value>, objects: &mut BTreeSet<String>, name: &str, value: &Value) {
    match value {
        Value::Array(items) if items.is_empty() || items.iter().any(Value::is_object) => {}
        Value::Object(below) => {
            objects.insert(name.to_owned());
            for (field, value) in below {
                let gap = if name.is_empty() { "" } else { "_" };
                add(fields, objects, &format!("{name}{gap}{field}"), value);
            }
        }
        scalar => drop(fields.insert(name.to_owned(), scalar.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_flat_and_have_the_same_fields() {
        let list = [
            json!({"name": "a", "vlan": {"id": 5, "qos": 0}, "macs": ["m"], "vf": [{"index": 0}],
                "actual": {"vf": 3, "vf_reason": "x"}}),
            json!({"name": "b", "vlan": null, "macs": [], "path": null, "actual": {"vf": null}}),
        ];
        let expected = json!([
            {"name": "a", "vlan_id": 5, "vlan_qos": 0, "macs": ["m"], "path": null, "actual_vf": 3,
                "actual_vf_reason": "x"},
            {"name": "b", "vlan_id": null, "vlan_qos": null, "macs": null, "path": null,
                "actual_vf": null, "actual_vf_reason": null},
        ]);
        assert_eq!(flat(&list), expected);
        assert_eq!(flat(&[]), json!([]));
    }
}

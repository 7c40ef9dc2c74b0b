//! Lists as JSON: arrays of flat objects, whose fields are declared.
//!
//! Most fields come from the schemas of the API. A field is a scalar or an array of scalars. A
//! field of a nested object is joined with its parent's name, such as `vlan_id`; lists of objects
//! are left out. Each object of a list has all declared fields, whatever the daemon answers: null
//! or an empty array is a field without a value. docs/commands.md lists them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Declared fields of a list's objects: path such as `vlan.id`, and `true` for an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fields(BTreeMap<String, bool>);

impl Fields {
    /// Fields of the objects with this schema.
    pub(crate) fn of(schema: &str) -> Fields {
        Fields(BTreeMap::new()).with("", schema)
    }

    /// Adds the fields of an object below the field `name`, without the object's own name.
    pub(crate) fn with(mut self, name: &str, schema: &str) -> Fields {
        let all = api::schemas();
        let mut below = BTreeMap::new();
        leaves(&all, &all[schema], "", &mut below);
        if !name.is_empty() {
            below.remove("name");
        }
        self.0.extend(below.into_iter().map(|(path, is_array)| (join(name, &path), is_array)));
        self
    }

    /// Adds fields that the command itself sets.
    pub(crate) fn and<const N: usize>(mut self, names: [&str; N]) -> Fields {
        self.0.extend(names.map(|name| (name.to_owned(), false)));
        self
    }

    /// Adds a field with an array.
    pub(crate) fn and_array(mut self, name: &str) -> Fields {
        self.0.insert(name.to_owned(), true);
        self
    }

    /// Names of the fields, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// `true` for a field with an array.
    pub(crate) fn is_array(&self, name: &str) -> bool {
        self.0.get(name) == Some(&true)
    }

    /// Objects as an array of flat objects with these fields.
    pub(crate) fn flat(&self, list: &[Value]) -> Value {
        let object = |entry: &Value| -> Map<String, Value> {
            let field = |(path, is_array): (&String, &bool)| {
                let value = path.split('.').fold(entry, |value, name| &value[name]);
                let value = if *is_array { array(value) } else { value.clone() };
                (path.replace('.', "_"), value)
            };
            self.0.iter().map(field).collect()
        };
        list.iter().map(object).collect()
    }
}

/// Value of a field with an array; labels are texts such as `pod=web-0`.
fn array(value: &Value) -> Value {
    match value {
        Value::Object(labels) => {
            let text = |(name, value): (&String, &Value)| {
                format!("{name}={}", value.as_str().unwrap_or_default())
            };
            labels.iter().map(text).collect()
        }
        Value::Null => Value::Array(Vec::new()),
        array => array.clone(),
    }
}

/// Adds the paths of a schema's scalars and arrays of scalars.
fn leaves(
    all: &Map<String, Value>,
    schema: &Value,
    path: &str,
    found: &mut BTreeMap<String, bool>,
) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return leaves(all, &all[name], path, found);
    }
    if let Some(either) = schema["oneOf"].as_array() {
        for schema in either {
            leaves(all, schema, path, found);
        }
        // An attachment is an object in each answer; its short form is for input.
        let below = format!("{path}.");
        if found.keys().any(|one| one.starts_with(&below)) {
            found.remove(path);
        }
        return;
    }
    let is = |name: &str| {
        let types =
            schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), |all| all);
        types.iter().any(|one| one == name)
    };
    match schema["properties"].as_object() {
        Some(fields) => {
            for (name, schema) in fields {
                leaves(all, schema, &join(path, name), found);
            }
        }
        None if is("array") => {
            let mut items = BTreeMap::new();
            leaves(all, &schema["items"], "", &mut items);
            if items.keys().all(String::is_empty) {
                found.insert(path.to_owned(), true);
            }
        }
        None if schema["type"] == "null" => {}
        None => drop(found.insert(path.to_owned(), is("object"))),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_have_all_declared_fields_whatever_the_data() {
        let fields = Fields::of("Vf").with("owner", "Owner").and(["enabled"]).and_array("extra");
        let full = json!({"index": 1, "vlan": {"id": 5, "qos": 0}, "macs": ["m"], "enabled": true,
            "attachment": {"kind": "tap", "interface": "a"}, "owner": {"holder": "web"}, "new": 1});
        let flat = |list: &[Value]| fields.flat(list).as_array().expect("a list").clone();
        let both = flat(&[full.clone(), json!({})]);
        let keys = |object: &Value| -> Vec<String> {
            object.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(keys(&both[0]), keys(&both[1]));
        assert_eq!(flat(&[full]), both[..1], "its fields depend on other entries");
        let [of_full, of_empty] = &both[..] else { unreachable!("two entries") };
        let given = json!([5, ["m"], true, "tap", "a", null, "web", []]);
        let names = [
            "vlan_id",
            "macs",
            "enabled",
            "attachment_kind",
            "attachment_interface",
            "attachment_socket",
            "owner_holder",
            "extra",
        ];
        assert_eq!(Value::from(names.map(|name| of_full[name].clone()).to_vec()), given);
        let nothing = json!([null, [], null, null, null, null, null, []]);
        assert_eq!(Value::from(names.map(|name| of_empty[name].clone()).to_vec()), nothing);
        for absent in ["attachment", "vlan", "owner", "new"] {
            assert!(of_full.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn labels_are_an_array_and_lists_of_objects_are_left_out() {
        let nic = json!({"name": "nic0", "owner": {"pod": "web-0"}, "vf": [{"index": 0}]});
        let flat = Fields::of("Nic").with("actual", "ActualNic").flat(&[nic]);
        assert_eq!(flat[0]["owner"], json!(["pod=web-0"]));
        assert!(flat[0].get("vf").is_none() && flat[0].get("actual_vfs").is_none());
        assert!(
            flat[0].get("actual_name").is_none() && flat[0].get("actual_uplink_state").is_some()
        );
    }
}

//! Objects of the document with a path of their own: NICs, VFs, switches, their ports and tunnels,
//! adapters, and virtual PFs.
//!
//! A change of an object is a change of the whole document, and is checked as such. So an object
//! cannot get a value that the document may not have.

use model::state::{Problem, State, kind_of_list};
use model::suggest::nearest;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::manager::{Manager, vf_name};

/// A list on the path to an object, and the field that identifies its entries.
pub(super) struct Level {
    list: &'static str,
    key: &'static str,
    /// Path parameter with the key.
    pub(super) parameter: &'static str,
}

/// A kind of object.
pub(super) struct Resource {
    /// Singular, as in "there is no ...".
    pub(super) name: &'static str,
    /// Plural, as in "all ...".
    pub(super) plural: &'static str,
    /// Name of its schema.
    pub(super) schema: &'static str,
    /// Path of the collection.
    pub(super) collection: &'static str,
    /// Path of one object.
    pub(super) item: &'static str,
    pub(super) levels: &'static [Level],
}

const fn level(list: &'static str, key: &'static str, parameter: &'static str) -> Level {
    Level { list, key, parameter }
}

const NIC: Level = level("nic", "name", "nic");
const SWITCH: Level = level("switch", "name", "switch");

/// All kinds.
pub(super) static RESOURCES: [Resource; 7] = [
    Resource {
        name: "NIC",
        plural: "NICs",
        schema: "Nic",
        collection: "/v1/nics",
        item: "/v1/nics/{nic}",
        levels: &[NIC],
    },
    Resource {
        name: "settings of a VF",
        plural: "VFs with settings of a NIC",
        schema: "Vf",
        collection: "/v1/nics/{nic}/vfs",
        item: "/v1/nics/{nic}/vfs/{index}",
        levels: &[NIC, level("vf", "index", "index")],
    },
    Resource {
        name: "switch",
        plural: "switches",
        schema: "Switch",
        collection: "/v1/switches",
        item: "/v1/switches/{switch}",
        levels: &[SWITCH],
    },
    Resource {
        name: "settings of a port",
        plural: "ports with settings of a switch",
        schema: "SwitchPort",
        collection: "/v1/switches/{switch}/ports",
        item: "/v1/switches/{switch}/ports/{adapter}",
        levels: &[SWITCH, level("port", "adapter", "adapter")],
    },
    Resource {
        name: "tunnel",
        plural: "tunnels of a switch",
        schema: "Vxlan",
        collection: "/v1/switches/{switch}/tunnels",
        item: "/v1/switches/{switch}/tunnels/{tunnel}",
        levels: &[SWITCH, level("vxlan", "name", "tunnel")],
    },
    Resource {
        name: "adapter",
        plural: "adapters",
        schema: "Adapter",
        collection: "/v1/adapters",
        item: "/v1/adapters/{adapter}",
        levels: &[level("adapter", "name", "adapter")],
    },
    Resource {
        name: "virtual PF",
        plural: "virtual PFs",
        schema: "Vpf",
        collection: "/v1/vpfs",
        item: "/v1/vpfs/{vpf}",
        levels: &[level("vpf", "name", "vpf")],
    },
];

/// Change of an object.
pub(super) enum Edit {
    /// Creates or replaces it.
    Put(Value),
    /// Applies a merge patch (RFC 7396); a VF or port without settings begins with the defaults.
    Patch(Value),
    /// Removes it.
    Delete,
}

impl Resource {
    /// `true` if a patch may begin with the defaults: the object exists without an entry.
    pub(super) fn has_defaults(&self) -> bool {
        self.levels.len() > 1
    }

    /// The whole list.
    pub(super) fn list(&self, state: &State, keys: &[String]) -> Result<Value, ApiError> {
        let mut document = state.to_document();
        Ok(std::mem::take(self.find_list(&mut document, keys)?))
    }

    /// One object.
    pub(super) fn get(&self, state: &State, keys: &[String]) -> Result<Value, ApiError> {
        // Of a large document only the object on the path; the error of an absent one names others.
        let top = self.levels.first().zip(keys.first());
        let object =
            top.and_then(|(level, key)| Some((level.list, state.object(level.list, key)?)));
        let mut document = match object {
            Some((list, object)) => json!({list: [object]}),
            None => state.to_document(),
        };
        let list = self.find_list(&mut document, keys)?;
        let at = self.position(list, keys).ok_or_else(|| self.absent_from(list, keys))?;
        Ok(std::mem::take(&mut list[at]))
    }

    /// The state with the edit applied, and whether the object had an entry before.
    pub(super) fn edit(
        &self,
        state: &State,
        keys: &[String],
        edit: Edit,
    ) -> Result<(State, bool), ApiError> {
        let mut document = state.to_document();
        let list = self.find_list(&mut document, keys)?;
        let at = self.position(list, keys);
        let was_there = at.is_some();
        let items = list.as_array_mut().ok_or_else(|| self.absent(keys))?;
        let at = match (edit, at) {
            (Edit::Delete, None) => return Err(self.absent_from(list, keys)),
            (Edit::Delete, Some(at)) => {
                self.check_unused(state, keys)?;
                items.remove(at);
                None // what is wrong now is wrong elsewhere
            }
            (Edit::Patch(_), None) if !self.has_defaults() => {
                return Err(self.absent_from(list, keys));
            }
            (Edit::Put(value), at) => self.place(items, at, self.with_key(keys, value)?),
            (Edit::Patch(patch), Some(at)) => {
                let mut value = items[at].take();
                merge(&mut value, self.with_key(keys, patch)?);
                self.place(items, Some(at), value)
            }
            (Edit::Patch(patch), None) => {
                let mut value = Value::Object(Map::new());
                merge(&mut value, self.with_key(keys, patch)?);
                self.place(items, None, value)
            }
        };
        match (at, self.schema, keys) {
            (None, "Adapter", [adapter]) => remove_port(&mut document, None, adapter),
            (None, "Vxlan", [switch, tunnel]) => remove_port(&mut document, Some(switch), tunnel),
            _ => {}
        }
        let to = State::parse(&document).map_err(ApiError::Wrong)?;
        Ok((to, was_there))
    }

    /// Checks that no other object names this one.
    fn check_unused(&self, state: &State, keys: &[String]) -> Result<(), ApiError> {
        let users = match (self.schema, keys) {
            ("Nic", [nic]) => state.users_of_nic(nic),
            ("Switch", [switch]) => state.users_of_switch(switch),
            ("Adapter", [adapter]) => state.users_of_adapter(adapter),
            ("Vxlan", [switch, tunnel]) => state.static_addresses(switch, tunnel),
            _ => Vec::new(),
        };
        if users.is_empty() {
            return Ok(());
        }
        let message = match self.schema {
            "Nic" | "Switch" => format!("still has {}", users.join(", ")),
            _ => format!("is still used by {}", users.join(", ")),
        };
        let problem = Problem::new("", (), message, "delete or change them first");
        Err(ApiError::Impossible(problem.of(self.object(keys)).into()))
    }

    /// Name of the object, such as `VF 2 of NIC nic0`.
    fn object(&self, keys: &[String]) -> String {
        let named = self.levels.iter().zip(keys).rev().map(|(level, key)| {
            let shown: String = key.chars().take(80).flat_map(char::escape_debug).collect();
            format!("{} {shown}", kind_of_list(level.list).map_or("", |(kind, _)| kind))
        });
        named.collect::<Vec<_>>().join(" of ")
    }

    fn place(&self, items: &mut Vec<Value>, at: Option<usize>, value: Value) -> Option<usize> {
        match at {
            Some(at) => items[at] = value,
            None => items.push(value),
        }
        at.or(items.len().checked_sub(1))
    }

    /// The key is in the path. The body may omit it, but must not differ.
    fn with_key(&self, keys: &[String], mut value: Value) -> Result<Value, ApiError> {
        let (Some(level), Some(wanted)) = (self.levels.last(), keys.get(self.levels.len() - 1))
        else {
            return Err(self.absent(keys));
        };
        // A VF's key is a number; otherwise the check of the document reports it.
        let wanted = match wanted.parse::<u64>() {
            Ok(number) if level.key == "index" => Value::from(number),
            _ => Value::from(wanted.as_str()),
        };
        if let Some(fields) = value.as_object_mut() {
            match fields.get(level.key) {
                Some(given) if *given != wanted => {
                    let allowed = format!("leave it out, or write {wanted} as in the path");
                    let message = "is not what the path names";
                    let problem = Problem::new(level.key, given.clone(), message, allowed);
                    let problem = problem.of(self.object(keys));
                    return Err(ApiError::Wrong(problem.into()));
                }
                _ => drop(fields.insert(level.key.to_owned(), wanted)),
            }
        }
        Ok(value)
    }

    /// The list with the object; it exists if its parents exist.
    fn find_list<'d>(
        &self,
        document: &'d mut Value,
        keys: &[String],
    ) -> Result<&'d mut Value, ApiError> {
        let mut here = document;
        for (i, level) in self.levels.iter().enumerate() {
            here = here.get_mut(level.list).ok_or_else(|| self.absent(keys))?;
            if i + 1 < self.levels.len() {
                let above = RESOURCES
                    .iter()
                    .find(|one| one.levels.len() == 1 && one.levels[0].list == level.list);
                let at = position(here, level, keys.get(i)).ok_or_else(|| match above {
                    Some(above) => above.absent_from(here, &keys[..=i]),
                    None => self.absent(keys),
                })?;
                here = &mut here[at];
            }
        }
        Ok(here)
    }

    fn position(&self, list: &Value, keys: &[String]) -> Option<usize> {
        position(list, self.levels.last()?, keys.get(self.levels.len() - 1))
    }

    fn absent(&self, keys: &[String]) -> ApiError {
        self.absent_from(&Value::Null, keys)
    }

    /// The error of an object that is not in its list.
    fn absent_from(&self, list: &Value, keys: &[String]) -> ApiError {
        let remedy = match (self.schema, self.levels, keys) {
            ("Vpf", ..) => "see shunt vpf".to_owned(),
            (_, [only], _) => format!("see shunt {} list", only.parameter),
            (_, [above, ..], [parent, ..]) => {
                format!("see shunt {} show {parent}", above.parameter)
            }
            _ => "see /openapi.json".to_owned(),
        };
        let names = list.as_array().into_iter().flatten();
        let level = self.levels.last().zip(keys.get(self.levels.len() - 1));
        let meant = level.and_then(|(level, key)| {
            nearest(key, names.filter_map(|item| item[level.key].as_str()))
        });
        let remedy = match meant {
            Some(meant) => format!("did you mean {meant}? S{}", &remedy[1..]),
            None => remedy,
        };
        ApiError::absent(&self.object(keys), &remedy)
    }

    /// VF that removing the object would free, as `NIC/vfN`.
    pub(super) fn vf_of(&self, manager: &mut Manager, keys: &[String]) -> Option<String> {
        match (self.schema, keys) {
            ("Vf", [nic, index]) => Some(vf_name(nic, index)),
            ("Adapter", [name]) => {
                let actual = manager.actual();
                let vf = actual.adapters.iter().find(|one| one.name == *name)?.vf?;
                let adapter = manager.state().adapter(name)?;
                Some(vf_name(&manager.state().nic_of(adapter)?.name, vf))
            }
            _ => None,
        }
    }
}

/// Removes the settings of an adapter's port together with the adapter. Other references to it (a
/// mirror, a static entry) stay.
fn remove_port(document: &mut Value, of: Option<&String>, name: &str) {
    let switches = document["switch"].as_array_mut().into_iter().flatten();
    let switches =
        switches.filter(|switch| of.is_none_or(|of| switch["name"].as_str() == Some(of)));
    for ports in switches.filter_map(|switch| switch["port"].as_array_mut()) {
        ports.retain(|port| port["adapter"] != name);
    }
}

fn position(list: &Value, level: &Level, key: Option<&String>) -> Option<usize> {
    let is_it = |item: &Value| match &item[level.key] {
        Value::String(text) => Some(text) == key,
        Value::Number(number) => Some(&number.to_string()) == key,
        _ => false,
    };
    list.as_array()?.iter().position(is_it)
}

/// Merge patch of RFC 7396, section 2, with [`forget_other_kind`].
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            let field = fields.entry(name).or_insert(Value::Null);
            forget_other_kind(field, &value);
            merge(field, value);
        }
    }
}

/// A new `kind` drops the fields of the old one.
fn forget_other_kind(field: &mut Value, patch: &Value) {
    let kind = |value: &Value| value.get("kind").and_then(Value::as_str).map(str::to_owned);
    if let (Some(old), Some(new)) = (kind(field), kind(patch))
        && old != new
    {
        *field = Value::Null;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn merge_patches_are_those_of_the_rfc() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, patch.clone());
            assert_eq!(merged, expected, "{target} {patch}");
        }
    }
}

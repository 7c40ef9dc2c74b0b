//! Names of the objects of a document, for messages: `nic[0].vf[2].mac` is the `mac` of
//! `VF 2 of NIC nic0`.

use serde_json::Value;

use super::problem::cut;
use super::schema::join;

/// Lists of objects on the top level of a document.
const TOP: [&str; 4] = ["nic", "switch", "adapter", "vpf"];

/// Object and field of a path in the document. An index in a list of plain values is left out.
pub(crate) fn of_path(document: &Value, path: &str) -> (String, String) {
    let (mut object, mut field) = (String::new(), String::new());
    let mut here = document;
    for part in path.split('.') {
        let mut steps = part.split('[');
        let name = steps.next().unwrap_or_default();
        here = &here[name];
        let mut is_object = false;
        for step in steps {
            let at: usize = step.trim_end_matches(']').parse().unwrap_or(usize::MAX);
            here = &here[at];
            if let Some(word) = word(name, here, at) {
                let of = if object.is_empty() { String::new() } else { format!(" of {object}") };
                (object, field, is_object) = (word + &of, String::new(), true);
            }
        }
        if !is_object {
            field += &format!("{}{name}", if field.is_empty() { "" } else { "." });
        }
    }
    (object, field)
}

/// Path of the field of an object; empty if the document does not have the object.
pub(super) fn to_path(document: &Value, object: &str, field: &str) -> String {
    if object.is_empty() {
        return field.to_owned();
    }
    let mut below = vec![(String::new(), document)];
    while let Some((path, value)) = below.pop() {
        if !path.is_empty() && of_path(document, &path) == (object.to_owned(), String::new()) {
            return join(&path, field);
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            let path = join(&path, name);
            let items = value.as_array().into_iter().flatten().enumerate();
            below.extend(items.map(|(at, item)| (format!("{path}[{at}]"), item)));
        }
    }
    String::new()
}

/// Kind of the objects in a list of a document, and the field that names each.
pub fn kind_of_list(list: &str) -> Option<(&'static str, &'static str)> {
    Some(match list {
        "nic" => ("NIC", "name"),
        "switch" => ("switch", "name"),
        "adapter" => ("adapter", "name"),
        "vpf" => ("virtual PF", "name"),
        "vf" => ("VF", "index"),
        "representor" => ("representor", "function"),
        "port" => ("port", "adapter"),
        "vxlan" => ("tunnel", "name"),
        "static" => ("static address", "mac"),
        _ => return None,
    })
}

/// Kind and name of an entry of a list; `None` for a list of plain values.
fn word(list: &str, entry: &Value, at: usize) -> Option<String> {
    if matches!(list, "acl" | "rule") {
        return Some(format!("rule {}", at.saturating_add(1)));
    }
    let (kind, key) = kind_of_list(list)?;
    Some(match &entry[key] {
        Value::String(name) => format!("{kind} {}", cut(&name.escape_debug().to_string())),
        Value::Number(number) => format!("{kind} {number}"),
        _ if list == "vf" => format!("{kind} {at}"),
        _ => format!("{kind} without {key}"),
    })
}

/// The text with every path such as `adapter[2].mac` replaced by `mac of adapter web`.
pub(super) fn in_text(document: &Value, text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, end)) = next_path(rest) {
        let (object, field) = of_path(document, &rest[start..end]);
        told += &rest[..start];
        told += &if field.is_empty() { object } else { format!("{field} of {object}") };
        rest = &rest[end..];
    }
    told + rest
}

/// Start and end of the first path in a text.
fn next_path(text: &str) -> Option<(usize, usize)> {
    let starts = TOP.iter().flat_map(|list| {
        text.match_indices(list).filter(|(at, _)| {
            let indexed = text[at + list.len()..].strip_prefix('[');
            let is_index =
                indexed.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            let follows_word = text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '.');
            is_index && !follows_word
        })
    });
    let (start, _) = starts.min_by_key(|(at, _)| *at)?;
    let is_path = |c: char| c.is_ascii_alphanumeric() || "[]._".contains(c);
    let length = text[start..].find(|c: char| !is_path(c)).unwrap_or(text.len() - start);
    let path = text[start..start + length].trim_end_matches('.');
    Some((start, start + path.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_named_instead_of_their_positions() {
        let document = json!({
            "nic": [{"name": "nic0", "vf": [{"index": 7}], "rule": [{}]}, {}],
            "switch": [{"name": "sw0", "port": [{"adapter": "web", "acl": [{}, {}]}],
                "vxlan": [{"name": "blue"}], "static": [{"mac": "02:00:00:00:00:01"}]}],
            "adapter": [{"name": "web"}], "vpf": [{"name": "pf0", "vf": [{}, {}]}],
        });
        for (path, object, field) in [
            ("", "", ""),
            ("version", "", "version"),
            ("lanes.cpus[1]", "", "lanes.cpus"),
            ("nic[0].pf.mac", "NIC nic0", "pf.mac"),
            ("nic[0].vf[0].vlan.id", "VF 7 of NIC nic0", "vlan.id"),
            ("nic[0].rule[0].to", "rule 1 of NIC nic0", "to"),
            ("nic[1].name", "NIC without name", "name"),
            ("switch[0].port[0].acl[1].to_ip", "rule 2 of port web of switch sw0", "to_ip"),
            ("switch[0].vxlan[0].peers[3]", "tunnel blue of switch sw0", "peers"),
            ("switch[0].static[0].port", "static address 02:00:00:00:00:01 of switch sw0", "port"),
            ("adapter[0]", "adapter web", ""),
            ("adapter[0].attachment.socket", "adapter web", "attachment.socket"),
            ("vpf[0].vf[1].adapter", "VF 1 of virtual PF pf0", "adapter"),
        ] {
            assert_eq!(of_path(&document, path), (object.into(), field.into()), "{path}");
            let found = to_path(&document, object, field);
            assert_eq!(of_path(&document, &found), (object.into(), field.into()), "{path}");
        }
        let text = "is the socket of adapter[0].attachment already, and in nic[0].vf[0].";
        let told = "is the socket of attachment of adapter web already, and in VF 7 of NIC nic0.";
        assert_eq!(in_text(&document, text), told);
        assert_eq!(
            in_text(&document, "a subnic[0] and nic[x] stay"),
            "a subnic[0] and nic[x] stay"
        );
    }
}

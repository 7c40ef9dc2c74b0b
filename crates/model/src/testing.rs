//! Documents for tests.

use serde_json::{Value, json};

use crate::state::State;

/// A NIC with four VFs, three of them enabled, an iov switch on it, and two adapters there.
pub fn document() -> Value {
    json!({
        "version": 1,
        "nic": [{
            "name": "nic0", "total_vfs": 4, "num_vfs": 3,
            "uplink": {"socket": "/run/shunt/wire.sock"},
            "vf": [{"index": 0, "mac": "02:00:00:00:00:f0", "vlan": {"id": 9}, "trust": true}],
        }],
        "switch": [{
            "name": "sw0", "nic": "nic0", "iov": true,
            "port": [{"adapter": "db", "dhcp_guard": true, "acl": [
                {"action": "deny", "protocol": 17, "to_port": "67-68"},
            ]}],
            "static": [{"mac": "02:00:00:00:00:0a", "port": "uplink"}],
        }],
        "adapter": [adapter("web", 1, 50), adapter("db", 2, 0)],
    })
}

/// An adapter on `sw0` with this last byte of its address and this weight.
pub fn adapter(name: &str, byte: u8, iov_weight: u8) -> Value {
    json!({
        "name": name, "switch": "sw0", "mac": format!("02:00:00:00:01:{byte:02x}"),
        "iov_weight": iov_weight, "attachment": {"socket": format!("/run/shunt/{name}.sock")},
    })
}

/// The state of a document.
///
/// # Panics
/// It is wrong.
pub fn state(document: &Value) -> State {
    State::parse(document).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The document with the value at a JSON pointer replaced, or put there; null takes it away.
pub fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    match document.pointer_mut(parent).expect("a parent") {
        Value::Object(fields) if value.is_null() => drop(fields.remove(name)),
        Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
        Value::Array(items) if name == "-" => items.push(value),
        other => panic!("{parent} is {other}"),
    }
    document
}

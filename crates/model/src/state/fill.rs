//! Fills in the values of a document that follow from others.
//!
//! A VF without an index gets its position in the list. A NIC has as many VFs as its entries and
//! `num_vfs` need, by default all enabled. A VF with an attachment becomes an adapter with the VF's
//! settings and the VF's index. The adapter's name consists of the NIC's name and the VF's index,
//! so it stays when entries move.

use serde_json::{Map, Value, json};

use super::problem::Problems;
use super::schema;

/// A document of valid form, filled in.
pub(super) struct Filled {
    /// The whole document.
    pub(super) document: Value,
    /// Original position of each adapter: `adapter[2]`, or `nic[0].vf[1]`.
    pub(super) adapters: Vec<String>,
}

/// Fills in a document of valid form.
///
/// # Errors
/// A VF has an attachment and no MAC address.
pub(super) fn fill(document: &Value) -> Result<Filled, Problems> {
    let mut document = document.clone();
    let mut adapters = Vec::new();
    for (i, nic) in items(&mut document, "nic").enumerate() {
        fill_nic(nic);
        take_adapters(nic, &format!("nic[{i}]"), &mut adapters);
    }
    let mut problems = Problems::default();
    for (at, _) in adapters.iter().filter(|(_, adapter)| adapter["mac"].is_null()) {
        problems.push(schema::missing("Adapter", "mac", at));
    }
    let (mut at, mut all): (Vec<String>, Vec<Value>) = adapters.into_iter().unzip();
    let written: Vec<Value> = items(&mut document, "adapter").map(Value::take).collect();
    at.extend((0..written.len()).map(|i| format!("adapter[{i}]")));
    all.extend(written);
    if !all.is_empty() {
        document["adapter"] = all.into();
    }
    problems.or(Filled { document, adapters: at })
}

fn items<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

fn fill_nic(nic: &mut Value) {
    let mut needed = 0;
    for (i, vf) in items(nic, "vf").enumerate() {
        let index = set(vf, "index", json!(i)).as_u64().unwrap_or(0);
        needed = needed.max(index + 1);
    }
    needed = needed.max(nic["num_vfs"].as_u64().unwrap_or(0));
    let total = set(nic, "total_vfs", json!(needed)).as_u64().unwrap_or(0);
    if nic["kind"] == "pci" && total < needed {
        // The card decides how many it can have.
        nic["total_vfs"] = json!(needed);
    }
    let total = nic["total_vfs"].clone();
    set(nic, "num_vfs", total);
    if let Some(pf) = nic.get_mut("pf").filter(|pf| pf.is_object()) {
        set(pf, "trust", json!(true));
    }
}

/// The field's value, or `value` if it is absent.
fn set<'a>(object: &'a mut Value, name: &str, value: Value) -> &'a Value {
    let field = &mut object[name];
    if field.is_null() {
        *field = value;
    }
    field
}

/// Moves the VFs with an attachment out of a NIC, as adapters with their original positions.
fn take_adapters(nic: &mut Value, at: &str, adapters: &mut Vec<(String, Value)>) {
    let name = nic["name"].as_str().unwrap_or_default().to_owned();
    let Some(vfs) = nic.get_mut("vf").and_then(Value::as_array_mut) else { return };
    let all = std::mem::take(vfs);
    for (i, vf) in all.into_iter().enumerate() {
        match vf {
            Value::Object(fields) if fields.get("attachment").is_some_and(|it| !it.is_null()) => {
                adapters.push((format!("{at}.vf[{i}]"), adapter(&name, fields)));
            }
            other => vfs.push(other),
        }
    }
}

fn adapter(nic: &str, mut fields: Map<String, Value>) -> Value {
    let index = fields.remove("index").unwrap_or_default();
    fields.insert("name".into(), adapter_name(nic, index.as_u64().unwrap_or(0)).into());
    fields.insert("nic".into(), nic.into());
    fields.insert("vf".into(), index);
    // Without a switch it can only have its VF.
    fields.insert("iov_weight".into(), 100.into());
    fields.insert("vmq_weight".into(), 0.into());
    fields.into()
}

/// Name of the adapter of a VF with an attachment.
pub(super) fn adapter_name(nic: &str, index: u64) -> String {
    // A NIC's name may begin with `-`, an adapter's may not; no NIC's name has a capital.
    let before = if nic.starts_with('-') { "N" } else { "" };
    format!("{before}{nic}-vf{index}")
}

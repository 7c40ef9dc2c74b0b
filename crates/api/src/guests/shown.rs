//! Responses about a guest's PF and VFs.

use model::state::{ActualVpfVf, GuestSetting, MacText, Vpf, VpfModel};
use serde_json::{Map, Value, json};

use super::grants::may;
use super::protocol::{LINE_MAX, VERSION};

/// Response to `hello`: the PF with its address, and the guest's rights.
pub(crate) fn hello(vpf: &Vpf, mac: Option<MacText>) -> Value {
    let mac = mac.map(|mac| mac.to_string());
    let grants = vpf.control.as_ref().map(|control| {
        let all = || (0..vpf.vfs.len() as u16).collect();
        json!({
            "settings": control.settings,
            "vfs": control.vfs.clone().unwrap_or_else(all),
            "mac_prefixes": control.mac_prefixes,
            "vlans": control.vlans,
            "vlan_protos": control.vlan_protos,
            "max_tx_rate": control.max_tx_mbps,
            "min_tx_rate": control.min_tx_mbps,
        })
    });
    json!({
        "version": VERSION,
        "daemon": concat!("shunt ", env!("CARGO_PKG_VERSION")),
        "max_line": LINE_MAX,
        "pf": {"name": vpf.name, "model": vpf.model, "mac": mac, "num_vfs": vpf.vfs.len()},
        "grants": grants,
    })
}

/// Response to `list`: VFs in the terms of `ip link`.
pub(crate) fn list(vpf: &Vpf, vfs: &[ActualVpfVf]) -> Value {
    json!({ "vfs": vfs.iter().map(|vf| entry(vpf, vf)).collect::<Vec<Value>>() })
}

fn entry(vpf: &Vpf, vf: &ActualVpfVf) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
    put("vf", vf.index.into());
    let Some(settings) = &vf.settings else {
        put("backend", "vhost-vdpa".into());
        return Value::Object(entry);
    };
    let vlan = settings.vlan;
    put("backend", "shunt".into());
    put("mac", settings.mac.to_string().into());
    put("vlan", vlan.map_or(0, |vlan| vlan.id).into());
    put("qos", vlan.map_or(0, |vlan| vlan.qos).into());
    put("proto", json!(vlan.map(|vlan| vlan.proto).unwrap_or_default()));
    put("max_tx_rate", settings.max_tx_mbps.into());
    put("min_tx_rate", settings.min_tx_mbps.into());
    put("spoofchk", settings.spoof_check.into());
    put("trust", settings.trust.into());
    put("state", json!(settings.link_state));
    put("guest", json!(vf.guest));
    let control = vpf.control.as_ref().filter(|_| vpf.model == VpfModel::Virtio);
    let may = |setting: &GuestSetting| control.is_some_and(|it| may(it, vf.index, *setting));
    let granted: Vec<GuestSetting> = GuestSetting::ALL.into_iter().filter(may).collect();
    put("may_set", json!(granted));
    put("set_here", json!(vf.set_by_guest));
    Value::Object(entry)
}

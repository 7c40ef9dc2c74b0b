//! VFs that a guest has enabled at its PF, according to QEMU: `sriov_numvfs` in the guest.
//!
//! The daemon notices a VF only when a driver uses its socket. QEMU also knows VFs without a driver
//! ([`enabled_vf`]).

use std::path::Path;
use std::time::Duration;

use host::qmp::pci::{BRIDGES_MAX, enabled_vf};
use host::qmp::{Qmp, QmpError};
use serde_json::Value;

use super::super::cells::entries;

/// Longest wait for an answer of QEMU.
const PATIENCE: Duration = Duration::from_secs(10);

/// PCI addresses of the VFs that are enabled at virtual PF `vpf`; `None` if this QEMU has none of
/// that name.
///
/// # Errors
/// No answer at the socket, or not QMP.
pub(super) fn enabled(qmp: &Path, vpf: &str) -> Result<Option<Vec<String>>, QmpError> {
    let buses = Qmp::connect(qmp, PATIENCE)?.execute("query-pci", Value::Null)?;
    let id = format!("vpf-{vpf}");
    Ok(entries(&buses).find_map(|bus| behind(&bus["devices"], &id, 0)))
}

/// Enabled VFs among devices on the same bus as that PF.
fn behind(devices: &Value, pf: &str, depth: usize) -> Option<Vec<String>> {
    if entries(devices).any(|device| device["qdev_id"] == *pf) {
        return Some(entries(devices).filter_map(enabled_vf).collect());
    }
    let mut bridges = entries(devices).map(|device| &device["pci_bridge"]["devices"]);
    bridges.find_map(|behind_it| {
        (depth < BRIDGES_MAX).then(|| behind(behind_it, pf, depth + 1)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    fn vf(function: u64, address: i64) -> Value {
        json!({
            "bus": 1, "slot": 0, "function": function, "qdev_id": "",
            "id": {"vendor": 65535, "device": 65535},
            "regions": [{"bar": 1, "address": address, "type": "memory"}],
        })
    }

    fn port(devices: Value) -> Value {
        json!({"qdev_id": "port", "id": {"vendor": 6966, "device": 12}, "pci_bridge": {"devices": devices}})
    }

    fn pf(id: &str) -> Value {
        json!({"bus": 1, "slot": 0, "function": 0, "qdev_id": id, "id": {"vendor": 6900, "device": 4161},
            "regions": [{"bar": 1, "address": 4096, "type": "memory"}]})
    }

    /// A QEMU with two virtual PFs, of which the second has two VFs enabled; it serves one client.
    fn qemu(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let devices = json!([
            port(json!([pf("vpf-other"), vf(1, 4096), vf(2, 4096), vf(3, 4096)])),
            port(json!([pf("vpf-vm"), vf(1, 4_267_708_416), vf(2, -1), vf(11, 1)])),
        ]);
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let greeting = json!({"QMP": {"version": {"qemu": {}}, "capabilities": []}});
            writeln!(stream, "{greeting}").unwrap();
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let Ok(line) = line else { return };
                let asked: Value = serde_json::from_str(&line).unwrap();
                let answer = match asked["execute"] == "query-pci" {
                    true => json!([{"bus": 0, "devices": devices}]),
                    false => json!({}),
                };
                writeln!(stream, "{}", json!({"return": answer, "id": asked["id"]})).unwrap();
            }
        });
        path
    }

    #[test]
    fn vfs_count_at_their_own_pf_and_when_they_are_enabled() {
        for (name, found) in
            [("vm", Some(vec!["01:00.1".to_owned(), "01:00.b".to_owned()])), ("nobody", None)]
        {
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(enabled(&qemu(dir.path()), name).unwrap(), found);
        }
        assert!(enabled(Path::new("/nowhere/qmp"), "vm").is_err());
    }

    #[test]
    fn what_has_no_end_is_not_followed_to_it() {
        let deep = (0..100).fold(json!([pf("vpf-vm")]), |inner, _| json!([port(inner)]));
        assert_eq!(behind(&deep, "vpf-vm", 0), None);
        assert_eq!(behind(&json!([{"regions": 5}]), "vpf-vm", 0), None);
    }
}

//! Guest properties that matter to a migration, as QEMU reports them.
//!
//! Tested with QEMU 11.1: a migration with enabled VFs is reported as completed, and the VFs are
//! dead at the target. So enabled VFs are looked for before anything is changed ([`enabled_vf`]).

use host::qmp::QmpError;
use host::qmp::pci::{BRIDGES_MAX, enabled_vf};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::qemu::{Qemu, list, text};

/// Guest properties that matter to a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// Name that QEMU was started with; empty if none.
    pub name: String,
    /// QEMU's version, such as `11.1.3`.
    pub qemu: String,
    /// QEMU's run state, such as `running` or `paused`.
    pub status: String,
    /// QEMU's UNIX sockets: chardev id and path.
    pub sockets: Vec<(String, String)>,
    /// Enabled VFs, by PCI address.
    pub vfs: Vec<String>,
    /// Writable disks.
    pub disks: Vec<String>,
}

impl Qemu {
    /// Queries the guest.
    ///
    /// # Errors
    /// QEMU has exited, or does not know a command.
    pub(super) fn inspect(&mut self) -> Result<GuestInfo, QmpError> {
        let version = self.ask("query-version")?;
        let number = |part: &str| version["qemu"][part].as_u64().unwrap_or_default();
        let mut found = GuestInfo {
            name: self.name()?,
            qemu: format!("{}.{}.{}", number("major"), number("minor"), number("micro")),
            status: self.status()?,
            vfs: self.functions()?,
            ..GuestInfo::default()
        };
        for chardev in list(&self.ask("query-chardev")?) {
            let path = socket(&text(&chardev["filename"]));
            found.sockets.extend(path.map(|path| (text(&chardev["label"]), path)));
        }
        for drive in list(&self.ask("query-block")?) {
            let inserted = &drive["inserted"];
            if inserted.is_object() && inserted["ro"] != true {
                let id = if drive["qdev"].is_string() { &drive["qdev"] } else { &drive["device"] };
                found.disks.push(text(id));
            }
        }
        Ok(found)
    }

    /// Enabled VFs, by PCI address.
    ///
    /// # Errors
    /// QEMU has exited.
    pub(super) fn functions(&mut self) -> Result<Vec<String>, QmpError> {
        let mut found = Vec::new();
        for bus in list(&self.ask("query-pci")?) {
            vfs(&bus["devices"], &mut found, 0);
        }
        Ok(found)
    }
}

/// Extracts the path of a chardev's `filename`, such as
/// `disconnected:unix:/run/web.sock,server=on`.
fn socket(filename: &str) -> Option<String> {
    let path = filename.split_once("unix:")?.1;
    let path = path.split(',').next().unwrap_or_default();
    path.starts_with('/').then(|| path.to_owned())
}

/// Collects enabled VFs among these devices and behind bridges.
fn vfs(devices: &Value, found: &mut Vec<String>, depth: usize) {
    for device in list(devices) {
        found.extend(enabled_vf(device));
        if depth < BRIDGES_MAX {
            vfs(&device["pci_bridge"]["devices"], found, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sockets_are_found_in_what_qemu_calls_them() {
        for (filename, path) in [
            ("unix:/run/web.sock", Some("/run/web.sock")),
            ("unix:/run/web.sock,server=on", Some("/run/web.sock")),
            ("disconnected:unix:/run/web.sock,server=on", Some("/run/web.sock")),
            ("unix:", None),
            ("stdio", None),
            ("pty:/dev/pts/1", None),
        ] {
            assert_eq!(socket(filename).as_deref(), path, "{filename}");
        }
    }

    #[test]
    fn vfs_count_when_they_are_enabled() {
        let vf = |function: u64, address: i64| {
            json!({
                "bus": 1, "slot": 0, "function": function, "qdev_id": "",
                "id": {"vendor": 65535, "device": 65535},
                "regions": [{"bar": 1, "address": address, "type": "memory"}],
            })
        };
        let pf = json!({
            "bus": 1, "slot": 0, "function": 0, "id": {"vendor": 6900, "device": 4161},
            "regions": [{"bar": 1, "address": 4096, "type": "memory"}],
        });
        let bridge = |devices: Vec<Value>| json!([{"id": {"vendor": 6966, "device": 12}, "pci_bridge": {"devices": devices}}]);
        let found = |devices: Value| {
            let mut found = Vec::new();
            vfs(&devices, &mut found, 0);
            found
        };
        assert!(found(bridge(vec![pf.clone(), vf(1, -1), vf(2, -1)])).is_empty());
        let two = found(bridge(vec![pf, vf(1, 4_267_708_416), vf(2, -1), vf(11, 1)]));
        assert_eq!(two, ["01:00.1", "01:00.b"]);
        assert!(found(json!(null)).is_empty() && found(json!([{"regions": 5}])).is_empty());
    }
}

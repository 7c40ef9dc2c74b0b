//! QEMU, as far as a migration must know and drive it.
//!
//! What was tried with QEMU 11.1 and is relied on here:
//! - `query-pci` lists all VFs that a PF could have, whose vendor reads 0xffff; the registers of those that the guest has
//!   enabled are mapped, of the others not (`address` -1). A migration with VFs enabled is reported as completed, and the
//!   VFs are dead at the target. So they are looked for before anything is done.
//! - with `pause-before-switchover` the guest stands still in `pre-switchover`, its rings stopped, until
//!   `migrate-continue`: that is when its addresses move.
//! - with `return-path` the source knows whether the target has taken the guest, and goes on with it if not.

use std::path::Path;
use std::time::Duration;

use host::qmp::{Qmp, QmpError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How long each command may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One QEMU.
#[derive(Debug)]
pub(super) struct Vmm {
    qmp: Qmp,
}

/// What a guest has that matters to a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspected {
    /// The name that its QEMU was started with; empty if none.
    pub name: String,
    /// QEMU's version, such as `11.1.3`.
    pub qemu: String,
    /// Whether it runs, is paused, or what else QEMU calls it.
    pub status: String,
    /// The UNIX sockets that QEMU has, each with its chardev's id.
    pub sockets: Vec<(String, String)>,
    /// The VFs that the guest has enabled, by PCI address.
    pub vfs: Vec<String>,
    /// Disks that it may write to.
    pub disks: Vec<String>,
}

/// How a migration stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// QEMU's word for it.
    pub(super) status: String,
    /// Why it failed, if QEMU says.
    pub(super) error: String,
    pub(super) downtime_ms: Option<u64>,
    pub(super) total_ms: Option<u64>,
    pub(super) ram_bytes: Option<u64>,
}

impl Vmm {
    /// Connects.
    ///
    /// # Errors
    /// As [`Qmp::connect`].
    pub(super) fn connect(path: &Path) -> Result<Vmm, QmpError> {
        Ok(Vmm { qmp: Qmp::connect(path, PATIENCE)? })
    }

    fn ask(&mut self, command: &str) -> Result<Value, QmpError> {
        self.qmp.execute(command, Value::Null)
    }

    /// What the guest has.
    ///
    /// # Errors
    /// QEMU is gone, or knows one of the commands not.
    pub(super) fn inspect(&mut self) -> Result<Inspected, QmpError> {
        let version = self.ask("query-version")?;
        let number = |part: &str| version["qemu"][part].as_u64().unwrap_or_default();
        let mut found = Inspected {
            name: text(&self.ask("query-name")?["name"]),
            qemu: format!("{}.{}.{}", number("major"), number("minor"), number("micro")),
            status: self.status()?,
            ..Inspected::default()
        };
        for chardev in list(&self.ask("query-chardev")?) {
            let path = socket(&text(&chardev["filename"]));
            found.sockets.extend(path.map(|path| (text(&chardev["label"]), path)));
        }
        for bus in list(&self.ask("query-pci")?) {
            vfs(&bus["devices"], &mut found.vfs, 0);
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

    /// Why QEMU would refuse to migrate the guest.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn blockers(&mut self) -> Result<Vec<String>, QmpError> {
        let told = self.ask("query-migrate")?;
        let reasons = list(&told["blocked-reasons"]).map(text);
        let mut all: Vec<String> = reasons.map(|why| format!("QEMU says: {why}")).collect();
        let status = text(&told["status"]);
        if !["", "none", "completed", "failed", "cancelled"].contains(&status.as_str()) {
            all.push(format!("a migration of the guest is {status} already; cancel it first"));
        }
        Ok(all)
    }

    /// QEMU's word for what the guest does: `running`, `paused`, `inmigrate`.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn status(&mut self) -> Result<String, QmpError> {
        Ok(text(&self.ask("query-status")?["status"]))
    }

    /// Has it wait for a guest at `uri`; no error if it does already.
    ///
    /// # Errors
    /// It cannot listen there, or was not started with `-incoming`.
    pub(super) fn listen(&mut self, uri: &str) -> Result<(), QmpError> {
        match self.qmp.execute("migrate-incoming", json!({"uri": uri})) {
            Err(QmpError::Refused { text, .. }) if text.contains("already been started") => Ok(()),
            other => other.map(drop),
        }
    }

    /// Begins a migration to `uri`.
    ///
    /// # Errors
    /// QEMU refuses: a device that blocks it, a uri that makes no sense.
    pub(super) fn start(
        &mut self,
        uri: &str,
        bandwidth: Option<u64>,
        downtime_ms: Option<u64>,
    ) -> Result<(), QmpError> {
        let on = |name: &str| json!({"capability": name, "state": true});
        let wanted = ["events", "pause-before-switchover", "return-path"];
        let wanted: Vec<Value> = wanted.iter().map(|name| on(name)).collect();
        self.qmp.execute("migrate-set-capabilities", json!({"capabilities": wanted}))?;
        let mut parameters = json!({});
        if let Some(bandwidth) = bandwidth {
            parameters["max-bandwidth"] = bandwidth.into();
        }
        if let Some(downtime_ms) = downtime_ms {
            parameters["downtime-limit"] = downtime_ms.into();
        }
        self.qmp.execute("migrate-set-parameters", parameters)?;
        self.qmp.execute("migrate", json!({"uri": uri})).map(drop)
    }

    /// How the migration stands, after an event or `wait` at the latest.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn progress(&mut self, wait: Duration) -> Result<Progress, QmpError> {
        while let Some(event) = self.qmp.next_event(wait)? {
            if event.name == "MIGRATION" {
                break;
            }
        }
        let told = self.ask("query-migrate")?;
        Ok(Progress {
            status: text(&told["status"]),
            error: text(&told["error-desc"]),
            downtime_ms: told["downtime"].as_u64(),
            total_ms: told["total-time"].as_u64(),
            ram_bytes: told["ram"]["transferred"].as_u64(),
        })
    }

    /// Lets a migration that waits in `pre-switchover` go on.
    ///
    /// # Errors
    /// It does not wait there, or QEMU is gone.
    pub(super) fn switch_over(&mut self) -> Result<(), QmpError> {
        self.qmp.execute("migrate-continue", json!({"state": "pre-switchover"})).map(drop)
    }

    /// Gives a migration up; the guest goes on where it was.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn cancel(&mut self) -> Result<(), QmpError> {
        self.ask("migrate_cancel").map(drop)
    }

    /// Lets a guest run that stands still.
    ///
    /// # Errors
    /// QEMU refuses, or is gone.
    pub(super) fn go_on(&mut self) -> Result<(), QmpError> {
        self.ask("cont").map(drop)
    }

    /// Stops the guest.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn stop(&mut self) -> Result<(), QmpError> {
        self.ask("stop").map(drop)
    }

    /// Ends QEMU, and with it the guest.
    ///
    /// # Errors
    /// QEMU is gone already.
    pub(super) fn quit(&mut self) -> Result<(), QmpError> {
        self.ask("quit").map(drop)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The path in a chardev's `filename`, such as `disconnected:unix:/run/web.sock,server=on`.
fn socket(filename: &str) -> Option<String> {
    let path = filename.split_once("unix:")?.1;
    let path = path.split(',').next().unwrap_or_default();
    path.starts_with('/').then(|| path.to_owned())
}

/// Collects VFs that are enabled among these devices and behind bridges.
fn vfs(devices: &Value, found: &mut Vec<String>, depth: usize) {
    const DEPTH_MAX: usize = 8; // QEMU's word is not trusted to have an end
    /// What the vendor and device of a VF read as (PCIe 5.0, section 9.3.4.1).
    const NOBODY: u64 = 0xffff;
    for device in list(devices) {
        let is_vf = device["id"]["vendor"] == NOBODY && device["id"]["device"] == NOBODY;
        let is_mapped = |region: &Value| region["address"].as_i64().is_some_and(|at| at != -1);
        if is_vf && list(&device["regions"]).any(is_mapped) {
            let number = |field: &str| device[field].as_u64().unwrap_or_default();
            let address =
                format!("{:02x}:{:02x}.{:x}", number("bus"), number("slot"), number("function"));
            found.push(address);
        }
        if depth < DEPTH_MAX {
            vfs(&device["pci_bridge"]["devices"], found, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
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

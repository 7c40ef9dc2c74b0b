//! QEMU, as a migration drives it.
//!
//! Tested with QEMU 11.1, and relied on here:
//! - with `pause-before-switchover` the guest is stopped in `pre-switchover`, rings included, until
//!   `migrate-continue`; its addresses move in between.
//! - with `return-path` the source knows if the target has taken the guest, and resumes it if not.

use std::path::Path;
use std::time::{Duration, Instant};

use host::qmp::{Qmp, QmpError, QmpEvent};
use model::state::Problem;
use serde_json::{Map, Value, json};

use super::error::MigrateError;
use super::printable::printable;

/// Timeout of each command.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Poll interval of QEMU.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// Poll interval for QEMU's exit.
const EXIT_POLL: Duration = Duration::from_millis(50);
/// Capability that makes QEMU wait before the switch-over.
const PAUSE_CAPABILITY: &str = "pause-before-switchover";
/// Capabilities enabled for a migration.
const CAPABILITIES: [&str; 3] = ["events", PAUSE_CAPABILITY, "return-path"];
/// One QEMU.
#[derive(Debug)]
pub(super) struct Qemu {
    qmp: Qmp,
    /// Capabilities and parameters before [`Qemu::start`] changed them.
    before: Option<(Value, Value)>,
}

/// Location of a guest, from the migration status of the source's QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestLocation {
    /// At the source: not switched over, or returned.
    Source,
    /// At the target.
    Target,
    /// Switched over, without an answer of the target yet.
    Unknown,
}

/// Progress of a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MigrationProgress {
    /// Status in QEMU's words.
    pub(super) status: String,
    /// Cause of failure; empty if QEMU gives none.
    pub(super) error: String,
    pub(super) downtime_ms: Option<u64>,
    pub(super) total_ms: Option<u64>,
    pub(super) ram_bytes: Option<u64>,
}

impl MigrationProgress {
    /// Location of the guest; an unknown status means unknown.
    pub(super) fn guest(&self) -> GuestLocation {
        match self.status.as_str() {
            "" | "none" | "setup" | "wait-unplug" | "active" | "pre-switchover" => {
                GuestLocation::Source
            }
            "failed" | "cancelled" => GuestLocation::Source,
            "completed" => GuestLocation::Target,
            _ => GuestLocation::Unknown,
        }
    }

    /// Returns `true` if no migration is running.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "" | "none" | "failed" | "cancelled" | "completed")
    }
}

impl Qemu {
    /// Connects.
    ///
    /// # Errors
    /// As [`Qmp::connect`].
    pub(super) fn connect(path: &Path) -> Result<Qemu, QmpError> {
        Ok(Qemu { qmp: Qmp::connect(path, TIMEOUT)?, before: None })
    }

    pub(super) fn ask(&mut self, command: &str) -> Result<Value, QmpError> {
        self.execute(command, Value::Null)
    }

    pub(super) fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.qmp.execute(command, arguments)
    }

    pub(super) fn next_event(&mut self, wait: Duration) -> Result<Option<QmpEvent>, QmpError> {
        self.qmp.next_event(wait)
    }

    /// Reasons for which QEMU would refuse to migrate the guest.
    ///
    /// # Errors
    /// QEMU has exited.
    pub(super) fn blockers(&mut self) -> Result<Vec<Problem>, QmpError> {
        let told = self.ask("query-migrate")?;
        let reasons = list(&told["blocked-reasons"]).map(text);
        let blocked = |why: String| {
            let message = format!("cannot be migrated, says QEMU: {why}");
            Problem::new("", (), message, "remove the device, or wait")
        };
        let mut all: Vec<Problem> = reasons.map(blocked).collect();
        let status = text(&told["status"]);
        if !["", "none", "completed", "failed", "cancelled"].contains(&status.as_str()) {
            let message = format!("has a migration already, which is {status}");
            all.push(Problem::new("", (), message, "cancel it first"));
        }
        Ok(all)
    }

    /// Name that QEMU was started with; empty if none.
    ///
    /// # Errors
    /// QEMU has exited.
    pub(super) fn name(&mut self) -> Result<String, QmpError> {
        Ok(text(&self.ask("query-name")?["name"]))
    }

    /// Run state in QEMU's words: `running`, `paused`, `inmigrate`.
    ///
    /// # Errors
    /// QEMU has exited.
    pub(super) fn status(&mut self) -> Result<String, QmpError> {
        Ok(text(&self.ask("query-status")?["status"]))
    }

    /// Makes QEMU wait for a guest at `uri`; no error if it does already.
    ///
    /// # Errors
    /// QEMU cannot listen there, or was not started with `-incoming`.
    pub(super) fn listen(&mut self, uri: &str) -> Result<(), QmpError> {
        match self.qmp.execute("migrate-incoming", json!({"uri": uri})) {
            Err(QmpError::Refused { text, .. }) if text.contains("already been started") => Ok(()),
            other => other.map(drop),
        }
    }

    /// Begins a migration to `uri`.
    ///
    /// # Errors
    /// QEMU rejects it: a device blocks migration, or the URI is invalid.
    pub(super) fn start(
        &mut self,
        uri: &str,
        bandwidth: Option<u64>,
        downtime_ms: Option<u64>,
    ) -> Result<(), QmpError> {
        let before =
            (self.ask("query-migrate-capabilities")?, self.ask("query-migrate-parameters")?);
        self.before = Some(before);
        let on = |name: &&str| json!({"capability": name, "state": true});
        self.set_capabilities(CAPABILITIES.iter().map(on).collect())?;
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

    fn set_capabilities(&mut self, all: Vec<Value>) -> Result<(), QmpError> {
        self.qmp.execute("migrate-set-capabilities", json!({"capabilities": all})).map(drop)
    }

    /// Restores the settings that [`Qemu::start`] changed. A process that did not start the
    /// migration only clears the pause, which the next migration does not expect.
    ///
    /// # Errors
    /// QEMU rejects it, or has exited.
    pub(super) fn restore(&mut self) -> Result<(), QmpError> {
        let Some((capabilities, parameters)) = self.before.take() else {
            return self
                .set_capabilities(vec![json!({"capability": PAUSE_CAPABILITY, "state": false})]);
        };
        let is_ours = |one: &&Value| CAPABILITIES.iter().any(|name| one["capability"] == *name);
        self.set_capabilities(list(&capabilities).filter(is_ours).cloned().collect())?;
        let known = ["max-bandwidth", "downtime-limit"].into_iter();
        let known = known.filter(|name| parameters[name].is_u64());
        let old: Map<String, Value> =
            known.map(|name| (name.to_owned(), parameters[name].clone())).collect();
        self.qmp.execute("migrate-set-parameters", Value::Object(old)).map(drop)
    }

    /// Progress of the migration, after an event or after `wait` at the latest.
    ///
    /// # Errors
    /// QEMU has exited.
    pub(super) fn progress(&mut self, wait: Duration) -> Result<MigrationProgress, QmpError> {
        // One deadline for all events: a stream of other events must not delay the query.
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.qmp.next_event(left)? {
                Some(event) if event.name != "MIGRATION" && !left.is_zero() => {}
                _ => break,
            }
        }
        let told = self.ask("query-migrate")?;
        Ok(MigrationProgress {
            status: text(&told["status"]),
            error: text(&told["error-desc"]),
            downtime_ms: told["downtime"].as_u64(),
            total_ms: told["total-time"].as_u64(),
            ram_bytes: told["ram"]["transferred"].as_u64(),
        })
    }

    /// Continues a migration that waits in `pre-switchover`.
    ///
    /// # Errors
    /// It does not wait there, or QEMU has exited.
    pub(super) fn switch_over(&mut self) -> Result<(), QmpError> {
        self.qmp.execute("migrate-continue", json!({"state": "pre-switchover"})).map(drop)
    }

    /// Cancels a migration; the guest continues at the source.
    ///
    /// # Errors
    /// QEMU has exited.
    pub(super) fn cancel(&mut self) -> Result<(), QmpError> {
        self.ask("migrate_cancel").map(drop)
    }

    /// Resumes a stopped guest.
    ///
    /// # Errors
    /// QEMU rejects it, or has exited.
    pub(super) fn cont(&mut self) -> Result<(), QmpError> {
        self.ask("cont").map(drop)
    }

    /// Ends QEMU, and the guest with it.
    ///
    /// # Errors
    /// QEMU has exited already.
    pub(super) fn quit(&mut self) -> Result<(), QmpError> {
        self.ask("quit").map(drop)
    }
}

/// Ends the QEMU at this socket, or finds that there is none. The socket serves one client, so this
/// process must hold no other connection to it.
///
/// # Errors
/// QEMU does not answer, or does not exit: its guest may run.
pub(super) fn end(path: &Path) -> Result<(), MigrateError> {
    let begun = Instant::now();
    let mut qemu = match Qemu::connect(path) {
        Err(error) if error.is_absence() => return Ok(()),
        other => other?,
    };
    match qemu.quit() {
        Ok(()) | Err(QmpError::Closed(_)) => drop(qemu),
        Err(error) => return Err(error.into()),
    }
    while !Qemu::connect(path).is_err_and(|error| error.is_absence()) {
        if begun.elapsed() > TIMEOUT {
            let path = path.display();
            let text =
                format!("the QEMU at {path} was told to quit, and is still running; kill it");
            return Err(MigrateError::new(text));
        }
        std::thread::sleep(EXIT_POLL);
    }
    Ok(())
}

/// A text of QEMU, made printable.
pub(super) fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_guest_is_follows_from_its_migration() {
        let guest = |status: &str| {
            MigrationProgress { status: status.into(), ..MigrationProgress::default() }.guest()
        };
        for status in ["", "none", "setup", "wait-unplug", "active", "pre-switchover", "failed"] {
            assert_eq!(guest(status), GuestLocation::Source, "{status}");
        }
        assert_eq!(guest("completed"), GuestLocation::Target);
        for status in ["device", "cancelling", "postcopy-active", "postcopy-paused", "colo", "new"]
        {
            assert_eq!(guest(status), GuestLocation::Unknown, "{status}");
        }
    }
}

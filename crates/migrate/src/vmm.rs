//! QEMU, as far as a migration must know and drive it.
//!
//! What was tried with QEMU 11.1 and is relied on here:
//! - with `pause-before-switchover` the guest stands still in `pre-switchover`, its rings stopped,
//!   until `migrate-continue`: that is when its addresses move.
//! - with `return-path` the source knows whether the target has taken the guest, and goes on with
//!   it if not.

use std::path::Path;
use std::time::{Duration, Instant};

use host::qmp::{Qmp, QmpError};
use serde_json::{Map, Value, json};

use super::Failed;

/// How long each command may take.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// How often it is looked whether a QEMU has ended.
const ENDING: Duration = Duration::from_millis(50);
/// The capability with which QEMU waits before it lets the guest go.
const PAUSE: &str = "pause-before-switchover";
/// What is set for a move.
const CAPABILITIES: [&str; 3] = ["events", PAUSE, "return-path"];
/// The longest text of QEMU's that is shown, in characters.
const SHOWN_MAX: usize = 1000;

/// One QEMU.
#[derive(Debug)]
pub(super) struct Vmm {
    qmp: Qmp,
    /// The capabilities and parameters that it had before [`Vmm::start`] changed them.
    before: Option<(Value, Value)>,
}

/// Where a guest is, as the state of its migration says at the QEMU that it was to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// It has not been let go, or has come back.
    Source,
    /// The target has taken it.
    Target,
    /// It was let go, and the target has not answered yet.
    Open,
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

impl Progress {
    /// Where the guest is. What is not known leaves it open.
    pub(super) fn guest(&self) -> Whereabouts {
        match self.status.as_str() {
            "" | "none" | "setup" | "wait-unplug" | "active" | "pre-switchover" => {
                Whereabouts::Source
            }
            "failed" | "cancelled" => Whereabouts::Source,
            "completed" => Whereabouts::Target,
            _ => Whereabouts::Open,
        }
    }

    /// Whether nothing goes on.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "" | "none" | "failed" | "cancelled" | "completed")
    }
}

impl Vmm {
    /// Connects.
    ///
    /// # Errors
    /// As [`Qmp::connect`].
    pub(super) fn connect(path: &Path) -> Result<Vmm, QmpError> {
        Ok(Vmm { qmp: Qmp::connect(path, PATIENCE)?, before: None })
    }

    pub(super) fn ask(&mut self, command: &str) -> Result<Value, QmpError> {
        self.qmp.execute(command, Value::Null)
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

    /// The name that it was started with; empty if none.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn name(&mut self) -> Result<String, QmpError> {
        Ok(text(&self.ask("query-name")?["name"]))
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

    /// Sets what [`Vmm::start`] changed as it was. Who did not start the migration knows of nothing
    /// but the pause, which whoever migrates the guest next does not expect.
    ///
    /// # Errors
    /// QEMU refuses, or is gone.
    pub(super) fn restore(&mut self) -> Result<(), QmpError> {
        let Some((capabilities, parameters)) = self.before.take() else {
            return self.set_capabilities(vec![json!({"capability": PAUSE, "state": false})]);
        };
        let is_ours = |one: &&Value| CAPABILITIES.iter().any(|name| one["capability"] == *name);
        self.set_capabilities(list(&capabilities).filter(is_ours).cloned().collect())?;
        let known = ["max-bandwidth", "downtime-limit"].into_iter();
        let known = known.filter(|name| parameters[name].is_u64());
        let old: Map<String, Value> =
            known.map(|name| (name.to_owned(), parameters[name].clone())).collect();
        self.qmp.execute("migrate-set-parameters", Value::Object(old)).map(drop)
    }

    /// How the migration stands, after an event or `wait` at the latest.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn progress(&mut self, wait: Duration) -> Result<Progress, QmpError> {
        // One end for all events: who talks without end is asked all the same.
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.qmp.next_event(left)? {
                Some(event) if event.name != "MIGRATION" && !left.is_zero() => {}
                _ => break,
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

    /// Ends QEMU, and with it the guest.
    ///
    /// # Errors
    /// QEMU is gone already.
    pub(super) fn quit(&mut self) -> Result<(), QmpError> {
        self.ask("quit").map(drop)
    }
}

/// Ends the QEMU at this socket, or sees that there is none. A socket serves one client: nobody
/// else of this program may be one.
///
/// # Errors
/// It does not answer, or is still there: its guest may run.
pub(super) fn end(path: &Path) -> Result<(), Failed> {
    let begun = Instant::now();
    let mut vmm = match Vmm::connect(path) {
        Err(error) if error.is_absence() => return Ok(()),
        other => other?,
    };
    match vmm.quit() {
        Ok(()) | Err(QmpError::Closed(_)) => drop(vmm),
        Err(error) => return Err(error.into()),
    }
    while !Vmm::connect(path).is_err_and(|error| error.is_absence()) {
        if begun.elapsed() > PATIENCE {
            let path = path.display();
            let text = format!("the QEMU at {path} was told to end, and is still there; kill it");
            return Err(Failed::new(text));
        }
        std::thread::sleep(ENDING);
    }
    Ok(())
}

/// A text of QEMU's as it may be shown.
pub(super) fn text(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}

/// A VMM, or a daemon on another host, is not trusted with the operator's terminal: what is not
/// printable is escaped, and what is too long cut.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(SHOWN_MAX) {
        match c {
            '"' | '\'' | '\\' => shown.push(c), // printable, but not to escape_debug
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_guest_is_follows_from_its_migration() {
        let guest =
            |status: &str| Progress { status: status.into(), ..Progress::default() }.guest();
        for status in ["", "none", "setup", "wait-unplug", "active", "pre-switchover", "failed"] {
            assert_eq!(guest(status), Whereabouts::Source, "{status}");
        }
        assert_eq!(guest("completed"), Whereabouts::Target);
        for status in ["device", "cancelling", "postcopy-active", "postcopy-paused", "colo", "new"]
        {
            assert_eq!(guest(status), Whereabouts::Open, "{status}");
        }
    }

    #[test]
    fn what_others_say_cannot_write_to_the_terminal() {
        let said = "QEMU's \"disk\"\n\u{1b}]0;moved\u{7} C:\\x \u{202e}\u{9b}31m é";
        assert_eq!(
            printable(said),
            "QEMU's \"disk\"\\n\\u{1b}]0;moved\\u{7} C:\\x \\u{202e}\\u{9b}31m é"
        );
        assert_eq!(printable(&"x".repeat(5000)).len(), SHOWN_MAX);
    }
}

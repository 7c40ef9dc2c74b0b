//! QEMU's guest agent: a program in a guest that does what is asked by a socket of its VMM.
//!
//! Model: messages are those of [`crate::qmp`], without a greeting. Whether anybody in the guest
//! listens shows only in an answer; `guest-sync` with a number of ours tells it from what was said
//! to somebody before. All that comes is the guest's word, and what it did must be seen elsewhere.
//!
//! Limits: those of [`crate::qmp`]; what a command writes is not asked for.
//!
//! Source: QEMU, `qga/qapi-schema.json`.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::qmp::{Qmp, QmpError};

/// How often it is asked whether a command has ended.
const POLL: Duration = Duration::from_millis(50);

/// A connection.
#[derive(Debug)]
pub struct Agent {
    qmp: Qmp,
    patience: Duration,
}

impl Agent {
    /// Connects, and sees that somebody answers; each command may take `patience`.
    ///
    /// # Errors
    /// Nobody listens, or the guest does not answer.
    pub fn connect(path: &Path, patience: Duration) -> Result<Agent, QmpError> {
        Ok(Agent { qmp: Qmp::synchronised(path, patience)?, patience })
    }

    /// Has the guest's shell run a script, as its superuser, and waits for its end: its exit
    /// status, or -1 if a signal ended it.
    ///
    /// # Errors
    /// The guest refuses, is gone, or is not done in time.
    pub fn shell(&mut self, script: &str) -> Result<i64, QmpError> {
        let begun = Instant::now();
        let order = json!({"path": "/bin/sh", "arg": ["-c", script]});
        let pid = self.qmp.execute("guest-exec", order)?["pid"].clone();
        loop {
            let status = self.qmp.execute("guest-exec-status", json!({"pid": pid}))?;
            if status["exited"] == true {
                return Ok(status["exitcode"].as_i64().unwrap_or(-1));
            }
            if begun.elapsed() > self.patience {
                let what = "guest-exec".to_owned();
                return Err(QmpError::Late { what, waited: self.patience });
            }
            std::thread::sleep(POLL);
        }
    }
}

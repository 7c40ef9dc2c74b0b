//! QEMU's guest agent: a program in a guest that runs commands from its VMM's socket.
//!
//! Model: messages are those of [`crate::qmp`], without a greeting. Only an answer shows that an
//! agent runs; `guest-sync` with a number of ours separates it from answers to an earlier client.
//! Every answer is untrusted; check the effect of a command elsewhere.
//!
//! Limits: those of [`crate::qmp`]; the output of a command is not read.
//!
//! Source: QEMU, `qga/qapi-schema.json`.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::qmp::{Qmp, QmpError};

/// Interval between queries for the end of a command.
const POLL: Duration = Duration::from_millis(50);

/// A connection.
#[derive(Debug)]
pub struct Agent {
    qmp: Qmp,
    timeout: Duration,
}

impl Agent {
    /// Connects, and checks that an agent answers; each command may take `timeout`.
    ///
    /// # Errors
    /// Nothing listens, or the guest does not answer.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Agent, QmpError> {
        Ok(Agent { qmp: Qmp::connect_agent(path, timeout)?, timeout })
    }

    /// Runs a script in the guest's shell as root and waits for its end. Returns its exit status,
    /// or -1 if a signal ended it.
    ///
    /// # Errors
    /// The guest refuses, is gone, or does not finish in time.
    pub fn shell(&mut self, script: &str) -> Result<i64, QmpError> {
        let begun = Instant::now();
        let order = json!({"path": "/bin/sh", "arg": ["-c", script]});
        let pid = self.qmp.execute("guest-exec", order)?["pid"].clone();
        loop {
            let status = self.qmp.execute("guest-exec-status", json!({"pid": pid}))?;
            if status["exited"] == true {
                return Ok(status["exitcode"].as_i64().unwrap_or(-1));
            }
            if begun.elapsed() > self.timeout {
                let what = "guest-exec".to_owned();
                return Err(QmpError::Late { what, waited: self.timeout });
            }
            std::thread::sleep(POLL);
        }
    }
}

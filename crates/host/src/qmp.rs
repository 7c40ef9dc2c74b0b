//! QEMU's machine protocol (QMP) over a UNIX socket: one command, one answer, with events in
//! between.
//!
//! Model: messages are JSON objects, one a line. The server greets, and the client ends the
//! negotiation with `qmp_capabilities`. From then on each command has an answer (`return` or
//! `error`) with its `id`. An object with `event` may come at any time and is kept for
//! [`Qmp::next_event`]. The peer is untrusted: its messages and their number are limited, and every
//! wait has a timeout.
//!
//! Limits: messages of 4 MiB, after which the connection ends; 256 events of 1 MiB in total (older
//! ones are dropped and counted); one command at a time.
//!
//! Source: QEMU, `docs/interop/qmp-spec.rst`.

pub mod pci;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest message accepted, in bytes. A parsed message may take 16 times as much memory; QEMU's
/// longest, its schema, has some 300 KiB.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Most events kept until the caller takes them.
pub const EVENTS_MAX: usize = 256;
/// Most bytes of messages whose events are kept.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// Reasons that a QMP command failed.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// Nothing listens on the socket.
    #[error("no QEMU answers at {}; start it with -qmp unix:{},server=on,wait=off", .path.display(), .path.display())]
    NoServer {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The other end does not speak QMP.
    #[error("the listener at {} is not a QMP server: {why}; give QEMU's -qmp socket", .path.display())]
    NotQmp {
        /// The socket.
        path: PathBuf,
        /// Its message.
        why: String,
    },
    /// A message exceeds the limit. The connection is closed.
    #[error("the peer at {} sent {MESSAGE_BYTES_MAX} bytes without an end of line, the limit, and was disconnected; \
             name the socket of QEMU (-qmp) or of its guest agent, or restart the agent in the guest", .path.display())]
    TooLong {
        /// The socket.
        path: PathBuf,
    },
    /// An answer did not come in time.
    #[error("{what} was not answered within {} ms; QEMU hangs, or another client has its socket", .waited.as_millis())]
    Late {
        /// The command.
        what: String,
        /// Timeout that passed.
        waited: Duration,
    },
    /// QEMU closed the connection.
    #[error("QEMU closed the connection during {0}; it has exited, or crashed")]
    Closed(String),
    /// The connection failed.
    #[error("the connection to QEMU failed during {what}")]
    Io {
        /// The command.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// QEMU returned an error.
    #[error("QEMU refuses {command}: {text} ({class})")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's class of the error, such as `GenericError`.
        class: String,
        /// QEMU's error text.
        text: String,
    },
}

impl QmpError {
    /// Returns `true` if nothing listens on the socket. A QEMU that hangs, or serves another
    /// client, does listen.
    pub fn is_absence(&self) -> bool {
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        matches!(self, QmpError::NoServer { source, .. } if kinds.contains(&source.kind()))
    }

    /// Returns `true` if QEMU answered with an error, and the connection still works.
    pub fn is_refusal(&self) -> bool {
        matches!(self, QmpError::Refused { .. })
    }
}

/// An asynchronous event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QmpEvent {
    /// Its name, such as `MIGRATION`.
    pub name: String,
    /// Data of the event; null if there is none.
    pub data: Value,
}

/// A connection.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    path: PathBuf,
    /// Bytes received that are not a whole line yet.
    input: Vec<u8>,
    /// Leading bytes of `input` that contain no end of line.
    searched: usize,
    /// Events with the bytes of their messages.
    events: VecDeque<(QmpEvent, usize)>,
    event_bytes: usize,
    lost: u64,
    last_id: u64,
    /// Timeout of each command.
    timeout: Duration,
}

impl Qmp {
    /// Connects and negotiates; each command may take `timeout`.
    ///
    /// # Errors
    /// Nothing listens, the peer is not a QMP server, or it is silent.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Qmp, QmpError> {
        let mut qmp = Qmp::open(path, timeout)?;
        let (greeting, _) = qmp.message("the greeting", Instant::now() + timeout)?;
        if greeting.pointer("/QMP/version").is_none() {
            return Err(qmp.no_qmp("it greets in another way"));
        }
        qmp.execute("qmp_capabilities", Value::Null)?;
        Ok(qmp)
    }

    /// Connects to a guest agent, which does not greet: a number of ours separates its answers from
    /// those to an earlier client.
    ///
    /// # Errors
    /// Nothing listens, or the agent does not answer.
    pub(crate) fn connect_agent(path: &Path, timeout: Duration) -> Result<Qmp, QmpError> {
        const SYNC: &str = "guest-sync";
        let mut qmp = Qmp::open(path, timeout)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mark = u64::from(now.unwrap_or_default().subsec_nanos()) + 1;
        // A byte that is not JSON makes the agent discard a partial message.
        let message = json!({"execute": SYNC, "arguments": {"id": mark}});
        qmp.say(SYNC, &[b"\xff", format!("{message}\n").as_bytes()].concat())?;
        let until = Instant::now() + timeout;
        loop {
            match qmp.message(SYNC, until).map(|(answer, _)| answer) {
                Ok(answer) if answer["return"] == mark => return Ok(qmp),
                Ok(_) | Err(QmpError::NotQmp { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn open(path: &Path, timeout: Duration) -> Result<Qmp, QmpError> {
        let no_server = |source| QmpError::NoServer { path: path.to_owned(), source };
        Ok(Qmp {
            stream: UnixStream::connect(path).map_err(no_server)?,
            path: path.to_owned(),
            input: Vec::new(),
            searched: 0,
            events: VecDeque::new(),
            event_bytes: 0,
            lost: 0,
            last_id: 0,
            timeout,
        })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a command with its arguments, or null for none, and returns its result.
    ///
    /// # Errors
    /// QEMU refuses, is gone, or does not answer in time. After any other error than a refusal the
    /// connection is unusable.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.last_id += 1;
        let id = Value::from(self.last_id);
        let mut message = json!({"execute": command, "id": id});
        if !arguments.is_null() {
            message["arguments"] = arguments;
        }
        self.say(command, format!("{message}\n").as_bytes())?;
        let until = Instant::now() + self.timeout;
        loop {
            let (mut answer, bytes) = self.message(command, until)?;
            if self.keep_event(&mut answer, bytes) {
                continue;
            }
            // A late answer to a command that timed out.
            if answer.get("id").is_some_and(|of| *of != id) {
                continue;
            }
            if let Some(error) = answer.get("error") {
                let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
                let (class, text) = (text("class"), text("desc"));
                return Err(QmpError::Refused { command: command.to_owned(), class, text });
            }
            match answer.get_mut("return") {
                Some(value) => return Ok(value.take()),
                None => return Err(self.no_qmp("an answer has neither return nor error")),
            }
        }
    }

    fn say(&mut self, command: &str, bytes: &[u8]) -> Result<(), QmpError> {
        let failed = |source| QmpError::Io { what: command.to_owned(), source };
        self.stream.set_write_timeout(Some(self.timeout)).map_err(failed)?;
        self.stream.write_all(bytes).map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe => QmpError::Closed(command.to_owned()),
            _ => failed(source),
        })
    }

    /// The next event, waiting for at most `wait`.
    ///
    /// # Errors
    /// QEMU is gone, or its message is not QMP.
    pub fn next_event(&mut self, wait: Duration) -> Result<Option<QmpEvent>, QmpError> {
        let until = Instant::now() + wait;
        loop {
            if let Some((event, bytes)) = self.events.pop_front() {
                self.event_bytes -= bytes;
                return Ok(Some(event));
            }
            match self.message("an event", until) {
                Ok((mut message, bytes)) => drop(self.keep_event(&mut message, bytes)),
                Err(QmpError::Late { .. }) => return Ok(None),
                Err(other) => return Err(other),
            }
        }
    }

    /// Number of events dropped for lack of space.
    pub fn events_lost(&self) -> u64 {
        self.lost
    }

    /// Stores the event of a message of `bytes` bytes, dropping older events if needed; false if
    /// the message is not an event.
    fn keep_event(&mut self, message: &mut Value, bytes: usize) -> bool {
        let Some(name) = message.get("event").and_then(Value::as_str) else { return false };
        let name = name.to_owned();
        let data = message.get_mut("data").map(Value::take).unwrap_or_default();
        self.events.push_back((QmpEvent { name, data }, bytes));
        self.event_bytes += bytes;
        while self.events.len() > EVENTS_MAX || self.event_bytes > EVENT_BYTES_MAX {
            let Some((_, bytes)) = self.events.pop_front() else { break };
            self.event_bytes -= bytes;
            self.lost += 1;
        }
        true
    }

    fn no_qmp(&self, why: &str) -> QmpError {
        QmpError::NotQmp { path: self.path.clone(), why: why.to_owned() }
    }

    /// The next line, which must be a JSON object, and its length in bytes; waits until `until`.
    fn message(&mut self, what: &str, until: Instant) -> Result<(Value, usize), QmpError> {
        let begun = Instant::now();
        loop {
            if let Some(end) = self.input[self.searched..].iter().position(|byte| *byte == b'\n') {
                let end = self.searched + end;
                let message = serde_json::from_slice::<Value>(&self.input[..end]);
                self.input.drain(..=end);
                self.searched = 0;
                return match message {
                    Ok(message) if message.is_object() => Ok((message, end)),
                    _ => Err(self.no_qmp("it says what is no JSON object")),
                };
            }
            self.searched = self.input.len();
            if self.input.len() > MESSAGE_BYTES_MAX {
                // Later calls find the connection closed, and not the same bytes.
                let _ = self.stream.shutdown(Shutdown::Both);
                self.input = Vec::new();
                self.searched = 0;
                return Err(QmpError::TooLong { path: self.path.clone() });
            }
            self.read(what, begun, until)?;
        }
    }

    fn read(&mut self, what: &str, begun: Instant, until: Instant) -> Result<(), QmpError> {
        let failed = |source| QmpError::Io { what: what.to_owned(), source };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(QmpError::Late { what: what.to_owned(), waited: until - begun });
        }
        self.stream.set_read_timeout(Some(left)).map_err(failed)?;
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(QmpError::Closed(what.to_owned())),
            Ok(n) => {
                self.input.extend_from_slice(&bytes[..n]);
                Ok(())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()), // the clock is asked next
                io::ErrorKind::Interrupted => Ok(()),
                io::ErrorKind::ConnectionReset => Err(QmpError::Closed(what.to_owned())),
                _ => Err(failed(error)),
            },
        }
    }
}

//! One vhost-user socket and the front-end on it.
//!
//! A front-end is as hostile as its guest: a broken message ends its connection and nothing else,
//! half a message waits without holding up anybody, and what it may log is limited.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::epoll;
use vhost_user::{Backend, Connector, Listener, Receiver, SocketError};

use super::device::GuestDevice;
use super::offer::offer;
use crate::config::{self, SocketMode};

/// Messages served a turn, so that no front-end keeps the others waiting.
const MESSAGES_A_TURN: usize = 32;
/// Log lines that one socket may cause a second.
const LINES_A_SECOND: u32 = 10;

/// Who begins.
#[derive(Debug)]
enum Way {
    Server(Listener),
    Client(Connector),
}

/// A socket, and the session on it while there is one.
#[derive(Debug)]
pub(super) struct Attachment {
    way: Way,
    backend: Backend,
    device: GuestDevice,
    stream: Option<UnixStream>,
    receiver: Receiver,
    token: u64,
    quiet: Quiet,
}

impl Attachment {
    /// Opens the socket: in server mode it listens from now on.
    pub(super) fn open(config: &config::Attachment, device: GuestDevice) -> Result<Attachment> {
        let backend = Backend::new(offer(config, device.has_mac()))?;
        let way = match config.mode {
            SocketMode::Server => Way::Server(Listener::bind(&config.socket)?),
            SocketMode::Client => Way::Client(Connector::new(&config.socket)),
        };
        let (receiver, quiet) = (Receiver::new(), Quiet::default());
        Ok(Attachment { way, backend, device, stream: None, receiver, token: 0, quiet })
    }

    /// Enters the socket into `epoll` under `token`.
    pub(super) fn watch(&mut self, epoll: BorrowedFd<'_>, token: u64) -> Result<()> {
        self.token = token;
        if let Way::Server(listener) = &self.way {
            let data = epoll::EventData::new_u64(token);
            epoll::add(epoll, listener, data, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// How long until the next attempt to connect; `None` if none is to be made.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        match (&self.way, &self.stream) {
            (Way::Client(connector), None) => Some(connector.wait(now)),
            _ => None,
        }
    }

    /// In client mode, connects when an attempt is due.
    pub(super) fn connect_if_due(&mut self, epoll: BorrowedFd<'_>, now: Instant) {
        let Way::Client(connector) = &mut self.way else {
            return;
        };
        if self.stream.is_some() {
            return;
        }
        match connector.poll(now) {
            Ok(Some(stream)) => self.begin(epoll, stream),
            Ok(None) => {}
            Err(error) => {
                let text = format!("{}: {error}", self.device.label());
                self.quiet.warn(&text);
            }
        }
    }

    /// Whether a guest's rings run.
    pub(super) fn is_attached(&self) -> bool {
        self.device.is_attached()
    }

    /// Serves what came: a connection, or messages.
    pub(super) fn serve(&mut self, epoll: BorrowedFd<'_>) {
        if let Way::Server(listener) = &self.way {
            match listener.accept() {
                // One front-end at a time; the listener's queue would otherwise stay readable.
                Ok(Some(stream)) if self.stream.is_none() => self.begin(epoll, stream),
                Ok(Some(_)) => {
                    let label = self.device.label();
                    self.quiet.warn(&format!("{label}: a second front-end was turned away"));
                }
                Ok(None) => {}
                Err(error) => {
                    let label = self.device.label();
                    self.quiet.warn(&format!("{label}: cannot accept: {error}"));
                }
            }
        }
        for _ in 0..MESSAGES_A_TURN {
            match self.serve_one() {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return self.end(epoll, &why),
            }
        }
    }

    fn begin(&mut self, epoll: BorrowedFd<'_>, stream: UnixStream) {
        let data = epoll::EventData::new_u64(self.token);
        if let Err(error) = epoll::add(epoll, &stream, data, epoll::EventFlags::IN) {
            let label = self.device.label();
            return self.quiet.warn(&format!("{label}: cannot watch the connection: {error}"));
        }
        self.quiet.info(&format!("{}: front-end connected", self.device.label()));
        self.stream = Some(stream);
        self.receiver = Receiver::new();
    }

    /// Serves one message; false when there is none.
    fn serve_one(&mut self) -> Result<bool, String> {
        let Some(stream) = &self.stream else {
            return Ok(false);
        };
        let message = match self.receiver.poll(stream) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(false),
            Err(SocketError::Closed) => return Err("front-end left".into()),
            Err(error) => return Err(format!("connection closed: {error}")),
        };
        let reply = self.backend.handle(message, &mut self.device);
        if let Some(refusal) = self.backend.take_refusal() {
            self.quiet.warn(&format!("{}: {refusal}", self.device.label()));
        }
        let reply = reply.map_err(|error| format!("connection closed: {error}"))?;
        if let Some(reply) = reply {
            vhost_user::socket::send(stream, &reply)
                .map_err(|error| format!("connection closed: {error}"))?;
        }
        Ok(true)
    }

    fn end(&mut self, epoll: BorrowedFd<'_>, why: &str) {
        self.quiet.info(&format!("{}: {why}", self.device.label()));
        if let Some(stream) = self.stream.take() {
            let _ = epoll::delete(epoll, &stream); // closing it would do as well
        }
        self.backend.disconnect(&mut self.device);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.backend.disconnect(&mut self.device);
    }
}

/// Lets a limited number of lines through a second, and says how many it held back.
#[derive(Debug, Default)]
struct Quiet {
    since: Option<Instant>,
    lines: u32,
    held: u64,
}

impl Quiet {
    fn info(&mut self, line: &str) {
        if self.lets_through() {
            tracing::info!("{line}");
        }
    }

    fn warn(&mut self, line: &str) {
        if self.lets_through() {
            tracing::warn!("{line}");
        }
    }

    fn lets_through(&mut self) -> bool {
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            if self.held > 0 {
                tracing::warn!("{} lines like the last one were held back", self.held);
            }
            *self = Quiet { since: Some(now), lines: 0, held: 0 };
        }
        self.lines += 1;
        let through = self.lines <= LINES_A_SECOND;
        self.held += u64::from(!through);
        through
    }
}

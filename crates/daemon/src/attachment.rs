//! One vhost-user socket and the front-end on it.
//!
//! A front-end is as hostile as its guest: a broken message ends its connection and nothing else,
//! half a message waits without holding up anybody, and what it may log is limited.

mod door;
mod handover;

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::log_limiter::{LogLimiter, RepeatFilter};
use model::state::{GuestState, SocketMode, VhostUser};
use rustix::event::epoll;
use vhost_user::{
    Backend, Closer, Connector, Device, Listener, Load, Message, Receiver, Request, SocketError,
};

use super::device::{GuestDevice, Identity};
use super::offer::offer;
use super::port_events::PortEvents;
use super::vmq::Vmq;
use door::BAN;

pub(super) use handover::{inherit_listener, listening};

/// Messages served a turn, so that no front-end keeps the others waiting.
const MESSAGES_A_TURN: usize = 32;
/// Time between two looks whether a question that is held can be answered.
const HELD_LOOK: Duration = Duration::from_millis(1);
/// In the device status: the driver is ready. Virtio 1.2, section 2.1.
const DRIVER_OK: u8 = 4;

/// Who begins.
#[derive(Debug)]
pub(super) enum Way {
    Server(Arc<Listener>),
    Client(Connector),
}

impl Way {
    /// Opens the socket: in server mode it listens from now on.
    pub(super) fn open(spec: &VhostUser) -> Result<Way> {
        let socket = Path::new(&spec.socket);
        Ok(match spec.mode {
            SocketMode::Server => Way::Server(Arc::new(Listener::bind(socket)?)),
            SocketMode::Client => Way::Client(Connector::new(socket)),
        })
    }
}

/// A socket, and the session on it while there is one.
#[derive(Debug)]
pub(super) struct Attachment {
    way: Way,
    backend: Backend,
    device: GuestDevice,
    stream: Option<UnixStream>,
    receiver: Receiver,
    /// The configuration space as the front-end knows it.
    told: Vec<u8>,
    /// A question whose answer is not known yet; nothing behind it is received.
    held: Option<Message>,
    /// Why the session, which another process had, cannot be gone on with: it is to be ended.
    unfit: Option<String>,
    /// When the last session began.
    begun: Option<Instant>,
    /// Until when nobody may attach.
    banned: Option<Instant>,
    token: u64,
    quiet: LogLimiter,
    /// In client mode, why the last attempts to connect failed.
    failures: RepeatFilter,
    /// Who closes what front-ends send, and their connections.
    closer: Closer,
    /// Whether connections are left waiting, until what former ones left is closed.
    is_deaf: bool,
    /// Whether the connection is not in `epoll`.
    is_muted: bool,
    events: PortEvents,
}

impl Attachment {
    /// A socket that nobody is connected to.
    pub(super) fn new(
        spec: &VhostUser,
        way: Way,
        device: GuestDevice,
        events: PortEvents,
    ) -> Result<Attachment> {
        let backend = Backend::new(offer(spec, device.has_mac()))?;
        let closer = device.closer().clone();
        Ok(Attachment {
            way,
            backend,
            device,
            stream: None,
            receiver: Receiver::with(&closer),
            told: Vec::new(),
            held: None,
            unfit: None,
            begun: None,
            banned: None,
            token: 0,
            quiet: LogLimiter::default(),
            failures: RepeatFilter::default(),
            closer,
            is_deaf: false,
            is_muted: false,
            events,
        })
    }

    /// Another hold on the same socket: it stays open when this attachment is closed.
    pub(super) fn way(&self) -> Way {
        match &self.way {
            Way::Server(listener) => Way::Server(listener.clone()),
            Way::Client(connector) => Way::Client(Connector::new(connector.path())),
        }
    }

    /// Gives the device other addresses.
    pub(super) fn set_identity(&mut self, identity: Identity) {
        self.device.set_identity(identity);
    }

    /// Gives the device the MTU of its representor, or takes that away.
    pub(super) fn set_mtu(&mut self, mtu: Option<u32>) {
        self.device.set_representor_mtu(mtu);
    }

    /// The device behind it.
    pub(super) fn device(&self) -> &GuestDevice {
        &self.device
    }

    /// The queue of the uplink's interface that its last receive ring may have.
    pub(super) fn vmq(&mut self) -> &mut Vmq {
        self.device.vmq()
    }

    /// Ends the session, and takes the socket out of `epoll`.
    pub(super) fn close(mut self, epoll: BorrowedFd<'_>) {
        if self.stream.is_some() {
            self.end(epoll, "connection closed: the adapter was removed, or has another socket");
        }
        if let Way::Server(listener) = &self.way {
            let _ = epoll::delete(epoll, &**listener); // another hold may keep it open
        }
    }

    /// The socket is this process's from now on, if another one listened on it.
    pub(super) fn adopt(&self) {
        if let Way::Server(listener) = &self.way {
            listener.adopt();
        }
    }

    /// Enters the socket into `epoll` under `token`.
    pub(super) fn watch(&mut self, epoll: BorrowedFd<'_>, token: u64) -> Result<()> {
        self.token = token;
        if let Way::Server(listener) = &self.way {
            let data = epoll::EventData::new_u64(token);
            epoll::add(epoll, &**listener, data, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Time until the next attempt to connect, or to answer; `None` if none is to be made.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        match (&self.way, &self.stream) {
            (_, Some(_)) if self.held.is_some() => Some(HELD_LOOK),
            (Way::Client(connector), None) => Some(connector.wait(now).max(self.pause(now))),
            _ => None,
        }
    }

    /// Shows out a front-end that held up a lane, or this thread. It was not written to since.
    pub(super) fn end_if_stalled(&mut self, epoll: BorrowedFd<'_>) {
        if self.device.is_stalled() {
            self.end(epoll, "connection closed: its call or err eventfd blocks and is full");
        }
    }

    /// Its label, if its device's state goes through a pipe just now.
    pub(super) fn moves_state(&mut self, now: Instant) -> Option<String> {
        self.device.is_under_way(now).then(|| self.device.label().to_owned())
    }

    /// Tells the operator that interrupts of the front-end are too slow for lanes.
    pub(super) fn tell_moved_notifies(&mut self) {
        if self.device.take_moved_notifies() {
            self.events.moved_notifies();
            let label = self.device.label();
            self.quiet.warn(&format!(
                "{label}: writes to its call eventfd took more than 1 ms in a second; its interrupts \
                 are sent off the lanes until they have been fast for 60 s (who else watches that \
                 eventfd?)"
            ));
        }
    }

    /// Tells the front-end, if it wants to know, that the guest has to read its configuration anew:
    /// its link went up or down.
    pub(super) fn tell_changes(&mut self) {
        if self.stream.is_none() {
            return;
        }
        let config = self.device.config();
        if config == self.told {
            return;
        }
        self.told = config;
        let Some((channel, message)) = self.backend.config_change() else { return };
        if let Err(error) = vhost_user::socket::send(channel, &message) {
            let label = self.device.label();
            self.quiet.warn(&format!("{label}: its front-end is told no changes: {error}"));
            self.backend.close_channel();
        }
    }

    /// In client mode, connects when an attempt is due.
    pub(super) fn connect_if_due(&mut self, epoll: BorrowedFd<'_>, now: Instant) {
        if self.stream.is_some() || self.is_busy() || !self.pause(now).is_zero() {
            return;
        }
        let Way::Client(connector) = &mut self.way else {
            return;
        };
        if !connector.wait(now).is_zero() {
            return;
        }
        let label = self.device.label();
        match connector.poll(now) {
            Ok(Some(stream)) => {
                self.failures.forget();
                self.begin(epoll, stream);
            }
            // Usual before a VMM starts, and so said as a word, not as a warning.
            Ok(None) => {
                let path = connector.path().display();
                let line = format!("{label}: nobody listens on {path}; trying again and again");
                if self.failures.is_new(&line, now) {
                    self.quiet.info(&line);
                }
            }
            Err(error) => {
                let error = anyhow::Error::from(error); // with its causes
                let line = format!("{label}: {error:#}; trying again and again");
                if self.failures.is_new(&line, now) {
                    self.quiet.warn(&line);
                }
            }
        }
    }

    /// Whether a guest's rings run.
    pub(super) fn is_attached(&self) -> bool {
        self.device.is_attached()
    }

    /// How far the guest is.
    pub(super) fn guest(&self) -> GuestState {
        match self.stream {
            None => GuestState::Absent,
            Some(_) if self.device.is_attached() => GuestState::Running,
            Some(_) if self.backend.status() & DRIVER_OK != 0 => GuestState::Driver,
            Some(_) => GuestState::Connected,
        }
    }

    /// Answers a question that was held, if it can be.
    pub(super) fn serve_held(&mut self, epoll: BorrowedFd<'_>) {
        if self.held.is_some() {
            self.serve_messages(epoll);
        }
    }

    /// Serves what came: messages, or a connection.
    pub(super) fn serve(&mut self, epoll: BorrowedFd<'_>) {
        self.serve_messages(epoll);
        self.accept(epoll);
    }

    fn serve_messages(&mut self, epoll: BorrowedFd<'_>) {
        for _ in 0..MESSAGES_A_TURN {
            match self.serve_one() {
                Ok(true) => {}
                Ok(false) => {
                    let must_wait = self.held.is_some() || self.closer.load() == Load::Busy;
                    return self.mute(epoll, must_wait);
                }
                Err(why) => return self.end(epoll, &why),
            }
        }
    }

    fn begin(&mut self, epoll: BorrowedFd<'_>, stream: UnixStream) {
        let data = epoll::EventData::new_u64(self.token);
        if let Err(error) = epoll::add(epoll, &stream, data, epoll::EventFlags::IN) {
            self.hang_up(stream);
            let label = self.device.label();
            return self.quiet.warn(&format!("{label}: cannot watch the connection: {error}"));
        }
        self.quiet.info(&format!("{}: front-end connected", self.device.label()));
        self.stream = Some(stream);
        self.receiver = Receiver::with(&self.closer);
        self.held = None;
        self.is_muted = false;
        self.told = self.device.config();
        self.begun = Some(Instant::now());
    }

    /// Serves one message; false when there is none.
    fn serve_one(&mut self) -> Result<bool, String> {
        let Some(stream) = &self.stream else {
            return Ok(false);
        };
        match self.closer.load() {
            Load::Light => {}
            Load::Busy => return Ok(false),
            Load::Stuck => {
                return Err("connection closed: descriptors that it sent do not close".into());
            }
        }
        let message = match self.held.take() {
            Some(message) => message,
            None => match self.receiver.poll(stream) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(false),
                Err(SocketError::Closed) => return Err("front-end left".into()),
                Err(error) => return Err(format!("connection closed: {error}")),
            },
        };
        let asks = message.request == Request::CheckDeviceState.code();
        if asks && self.device.is_transferring(Instant::now()) {
            self.held = Some(message);
            return Ok(false);
        }
        let reply = self.backend.handle(message, &mut self.device);
        self.events.guest(self.device.is_attached());
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

    /// Says that a migration of the guest is not whole, if it is so.
    pub(super) fn tell_unlogged(&mut self) {
        if let Some(times) = self.device.unlogged() {
            let label = self.device.label();
            self.quiet.warn(&format!(
                "{label}: {times} writes were to memory that the front-end's log has no bit for; \
                 cancel its guest's migration, or begin it anew"
            ));
        }
    }

    fn end(&mut self, epoll: BorrowedFd<'_>, why: &str) {
        self.quiet.info(&format!("{}: {why}", self.device.label()));
        if let Some(stream) = self.stream.take() {
            let _ = epoll::delete(epoll, &stream); // closing it would do as well, in its own time
            self.hang_up(stream);
        }
        self.backend.disconnect(&mut self.device);
        self.events.guest(self.device.is_attached());
        self.tell_unlogged();
        if self.device.end_session() {
            self.banned = Some(Instant::now() + BAN);
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Not hung up on: another process may have taken it over.
        self.stream.take().into_iter().for_each(|stream| self.closer.close(stream));
        self.backend.disconnect(&mut self.device);
    }
}

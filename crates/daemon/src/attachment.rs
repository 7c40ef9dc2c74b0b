//! One vhost-user socket and the front-end on it.
//!
//! A front-end is as hostile as its guest. A broken message ends its connection only, half a
//! message blocks nothing else, and its log lines are limited.

mod admission;
mod endpoint;
mod handover;

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::log_limiter::{LogLimiter, RepeatFilter};
use engine::limits::{LIMITS, Limit};
use model::state::{GuestState, VhostUser};
use rustix::event::epoll;
use vhost_user::{
    Backend, BackendDevice, Closer, CloserLoad, Connector, Message, Reason, Receiver, Request,
    SocketError,
};

use super::device::{GuestDevice, Identity};
use super::limits::LargestSession;
use super::offer::offer;
use super::port_events::PortEvents;
use super::vmq::Vmq;
pub(super) use endpoint::SocketEndpoint;
pub(super) use handover::{inherit_listener, listening};

/// Messages served per turn, so that no front-end starves the others.
const MESSAGES_PER_TURN: usize = 32;
/// Poll interval for a request whose answer is pending.
const PENDING_POLL: Duration = Duration::from_millis(1);
/// Attach ban after a front-end that blocked a lane. It can block for at most 22 ms
/// ([`host::watchdog`]), and so for less than 0.5 % of the time.
const BAN: Duration = Duration::from_secs(5);
/// Device status bit: the driver is ready. Virtio 1.2, section 2.1.
const DRIVER_OK: u8 = 4;

/// A socket, and its session if there is one.
#[derive(Debug)]
pub(super) struct Attachment {
    endpoint: SocketEndpoint,
    backend: Backend,
    device: GuestDevice,
    stream: Option<UnixStream>,
    receiver: Receiver,
    /// Configuration space as last sent to the front-end.
    config_sent: Vec<u8>,
    /// Request whose answer is pending; nothing after it is received.
    pending: Option<Message>,
    /// Error that prevents resuming the previous process's session, which must be ended.
    resume_error: Option<String>,
    /// Start of the last session.
    session_start: Option<Instant>,
    /// End of the attach ban.
    banned: Option<Instant>,
    token: u64,
    limiter: LogLimiter,
    /// Last connection errors, in client mode.
    failures: RepeatFilter,
    /// Closes descriptors and connections of front-ends.
    closer: Closer,
    /// Accepting is paused until the descriptors of earlier front-ends are closed.
    is_accept_paused: bool,
    /// The connection is not in `epoll`.
    is_receive_paused: bool,
    events: PortEvents,
}

impl Attachment {
    /// A socket without a connection.
    pub(super) fn new(
        spec: &VhostUser,
        endpoint: SocketEndpoint,
        device: GuestDevice,
        events: PortEvents,
    ) -> Result<Attachment> {
        let backend = Backend::new(offer(spec, device.has_mac()))?;
        let closer = device.closer().clone();
        Ok(Attachment {
            endpoint,
            backend,
            device,
            stream: None,
            receiver: Receiver::with(&closer),
            config_sent: Vec::new(),
            pending: None,
            resume_error: None,
            session_start: None,
            banned: None,
            token: 0,
            limiter: LogLimiter::default(),
            failures: RepeatFilter::default(),
            closer,
            is_accept_paused: false,
            is_receive_paused: false,
            events,
        })
    }

    /// Another handle of the socket; it stays open when this attachment is closed.
    pub(super) fn endpoint(&self) -> SocketEndpoint {
        match &self.endpoint {
            SocketEndpoint::Server(listener) => SocketEndpoint::Server(listener.clone()),
            SocketEndpoint::Client(connector) => {
                SocketEndpoint::Client(Connector::new(connector.path()))
            }
        }
    }

    /// Changes the addresses of the device.
    pub(super) fn set_identity(&mut self, identity: Identity) {
        self.device.set_identity(identity);
    }

    /// Sets or clears the MTU that follows the representor.
    pub(super) fn set_mtu(&mut self, mtu: Option<u32>) {
        self.device.set_representor_mtu(mtu);
    }

    /// The device.
    pub(super) fn device(&self) -> &GuestDevice {
        &self.device
    }

    /// The uplink queue that may fill the last receive ring.
    pub(super) fn vmq(&mut self) -> &mut Vmq {
        self.device.vmq()
    }

    /// Ends the session, and removes the socket from `epoll`.
    pub(super) fn close(mut self, epoll: BorrowedFd<'_>) {
        if self.stream.is_some() {
            self.end(epoll, "connection closed: the adapter was removed, or has another socket");
        }
        if let SocketEndpoint::Server(listener) = &self.endpoint {
            let _ = epoll::delete(epoll, &**listener); // another handle may keep it open
        }
    }

    /// Takes ownership of a socket inherited from the previous process.
    pub(super) fn adopt(&self) {
        if let SocketEndpoint::Server(listener) = &self.endpoint {
            listener.adopt();
        }
    }

    /// Adds the socket to `epoll` under `token`.
    pub(super) fn watch(&mut self, epoll: BorrowedFd<'_>, token: u64) -> Result<()> {
        self.token = token;
        if let SocketEndpoint::Server(listener) = &self.endpoint {
            let data = epoll::EventData::new_u64(token);
            epoll::add(epoll, &**listener, data, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Time until the next attempt to connect or to answer; `None` if none is due.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        match (&self.endpoint, &self.stream) {
            (_, Some(_)) if self.pending.is_some() => Some(PENDING_POLL),
            (SocketEndpoint::Client(connector), None) => {
                Some(connector.wait(now).max(self.remaining_wait(now)))
            }
            _ => None,
        }
    }

    /// Ends the session of a front-end whose descriptor blocked a lane or this thread.
    pub(super) fn end_if_stalled(&mut self, epoll: BorrowedFd<'_>) {
        if self.device.is_stalled() {
            self.end(epoll, "connection closed: its call or err eventfd blocks and is full");
        }
    }

    /// Reports limits that were met outside of a message.
    pub(super) fn report_limits(&mut self) {
        if self.closer.take_unstarted() > 0 {
            self.events.met(Limit::Threads, "its files cannot be closed now");
        }
        if let Some(obstacle) = self.device.vmq().take_limit() {
            self.events.met(Limit::PinnedMemory, &obstacle);
        }
    }

    /// Adds the use of resources that have a limit for each session.
    pub(super) fn measure(&self, largest: &mut LargestSession) {
        largest.regions = largest.regions.max(self.device.regions());
        largest.calls = largest.calls.max(self.closer.waiting());
        largest.pinned_bytes = largest.pinned_bytes.max(self.device.pinned_bytes());
    }

    /// Label of the device, if its state is being transferred through a pipe.
    pub(super) fn transferring_label(&mut self, now: Instant) -> Option<String> {
        self.device.is_under_way(now).then(|| self.device.label().to_owned())
    }

    /// Logs that the front-end's interrupts are too slow for lanes.
    pub(super) fn report_moved_notifies(&mut self) {
        if self.device.take_moved_notifies() {
            self.events.moved_notifies();
            let label = self.device.label();
            self.limiter.warn(&format!(
                "{label}: writes to its call eventfd took more than 1 ms in a second; its interrupts \
                 are sent off the lanes until they have been fast for 60 s (does another process read \
                 that eventfd?)"
            ));
        }
    }

    /// Notifies the front-end of a changed configuration (link state, MTU), if it supports that.
    pub(super) fn notify_config(&mut self) {
        if self.stream.is_none() {
            return;
        }
        let config = self.device.config();
        if config == self.config_sent {
            return;
        }
        self.config_sent = config;
        let Some((channel, message)) = self.backend.config_change() else { return };
        if let Err(error) = vhost_user::socket::send(channel, &message) {
            let label = self.device.label();
            self.limiter.warn(&format!("{label}: cannot notify its front-end: {error}"));
            self.backend.close_channel();
        }
    }

    /// In client mode, connects when an attempt is due.
    pub(super) fn connect_if_due(&mut self, epoll: BorrowedFd<'_>, now: Instant) {
        if self.stream.is_some() || self.is_busy() || !self.remaining_wait(now).is_zero() {
            return;
        }
        let SocketEndpoint::Client(connector) = &mut self.endpoint else {
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
            // Normal before a VMM starts, so not a warning.
            Ok(None) => {
                let path = connector.path().display();
                let line = format!("{label}: nothing listens on {path}; retrying");
                if self.failures.is_new(&line, now) {
                    self.limiter.info(&line);
                }
            }
            Err(error) => {
                let error = anyhow::Error::from(error); // with its causes
                let line = format!("{label}: {error:#}; retrying");
                if self.failures.is_new(&line, now) {
                    self.limiter.warn(&line);
                }
            }
        }
    }

    /// Returns `true` if the guest's rings run.
    pub(super) fn is_attached(&self) -> bool {
        self.device.is_attached()
    }

    /// State of the guest.
    pub(super) fn guest(&self) -> GuestState {
        match self.stream {
            None => GuestState::Absent,
            Some(_) if self.device.is_attached() => GuestState::Running,
            Some(_) if self.backend.status() & DRIVER_OK != 0 => GuestState::Driver,
            Some(_) => GuestState::Connected,
        }
    }

    /// Answers a pending request, if it can be answered now.
    pub(super) fn serve_pending(&mut self, epoll: BorrowedFd<'_>) {
        if self.pending.is_some() {
            self.serve_messages(epoll);
        }
    }

    /// Serves pending messages, or a connection.
    pub(super) fn serve(&mut self, epoll: BorrowedFd<'_>) {
        self.serve_messages(epoll);
        self.accept(epoll);
    }

    fn serve_messages(&mut self, epoll: BorrowedFd<'_>) {
        for _ in 0..MESSAGES_PER_TURN {
            match self.serve_one() {
                Ok(true) => {}
                Ok(false) => {
                    let must_wait =
                        self.pending.is_some() || self.closer.load() == CloserLoad::Busy;
                    return self.pause_receive(epoll, must_wait);
                }
                Err(why) => return self.end(epoll, &why),
            }
        }
    }

    fn begin(&mut self, epoll: BorrowedFd<'_>, stream: UnixStream) {
        let data = epoll::EventData::new_u64(self.token);
        if let Err(error) = epoll::add(epoll, &stream, data, epoll::EventFlags::IN) {
            self.shut_down(stream);
            let label = self.device.label();
            return self.limiter.warn(&format!("{label}: cannot watch the connection: {error}"));
        }
        self.limiter.info(&format!("{}: front-end connected", self.device.label()));
        self.stream = Some(stream);
        self.receiver = Receiver::with(&self.closer);
        self.pending = None;
        self.is_receive_paused = false;
        self.config_sent = self.device.config();
        self.session_start = Some(Instant::now());
    }

    /// Serves one message; returns `false` when there is none.
    fn serve_one(&mut self) -> Result<bool, String> {
        let Some(stream) = &self.stream else {
            return Ok(false);
        };
        match self.closer.load() {
            CloserLoad::Light => {}
            CloserLoad::Busy => return Ok(false),
            CloserLoad::Stuck => {
                let why = "connection closed: descriptors that it sent cannot be closed";
                self.events.met(Limit::SessionCalls, why);
                return Err(why.into());
            }
        }
        let message = match self.pending.take() {
            Some(message) => message,
            None => match self.receiver.poll(stream) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(false),
                Err(SocketError::Closed) => return Err("front-end disconnected".into()),
                Err(error) => {
                    let why = format!("connection closed: {error}");
                    if matches!(error, SocketError::FdsTruncated) {
                        self.events.met(Limit::Descriptors, &why);
                    }
                    return Err(why);
                }
            },
        };
        let is_check = message.request == Request::CheckDeviceState.code();
        if is_check && self.device.is_transferring(Instant::now()) {
            self.pending = Some(message);
            return Ok(false);
        }
        let reply = self.backend.handle(message, &mut self.device);
        self.events.guest(self.device.is_attached());
        let refusal = self.backend.take_refusal();
        if let Some(error) = refusal.as_ref().or(reply.as_ref().err()) {
            let limit = limit_of(&error.reason);
            limit.into_iter().for_each(|limit| self.events.met(limit, &error.to_string()));
        }
        if let Some(refusal) = refusal {
            self.limiter.warn(&format!("{}: {refusal}", self.device.label()));
        }
        let reply = reply.map_err(|error| format!("connection closed: {error}"))?;
        if let Some(reply) = reply {
            vhost_user::socket::send(stream, &reply)
                .map_err(|error| format!("connection closed: {error}"))?;
        }
        Ok(true)
    }

    /// Logs that a live migration of the guest is incomplete, if it is.
    pub(super) fn report_unlogged(&mut self) {
        if let Some(times) = self.device.unlogged() {
            let label = self.device.label();
            self.limiter.warn(&format!(
                "{label}: {times} writes were to memory that the front-end's log does not cover; \
                 cancel its guest's migration, or restart it"
            ));
        }
    }

    fn end(&mut self, epoll: BorrowedFd<'_>, why: &str) {
        // QEMU drops regions without a file, and leaves before it sends the table of the others.
        let hint = match self.backend.features() != 0 && !self.device.has_memory() {
            true => {
                ": it has shared no memory; QEMU needs -object memory-backend-memfd,share=on \
                 and libvirt <memoryBacking> with <access mode='shared'/>"
            }
            false => "",
        };
        self.limiter.info(&format!("{}: {why}{hint}", self.device.label()));
        if let Some(stream) = self.stream.take() {
            let _ = epoll::delete(epoll, &stream); // closing would remove it too, but later
            self.shut_down(stream);
        }
        self.backend.disconnect(&mut self.device);
        self.events.guest(self.device.is_attached());
        self.report_unlogged();
        if self.device.end_session() {
            self.banned = Some(Instant::now() + BAN);
        }
    }
}

/// The limit that made a request fail, if one did.
fn limit_of(reason: &Reason) -> Option<Limit> {
    match reason {
        Reason::NoSlotLeft { .. } => Some(Limit::SessionRegions),
        Reason::Device(refused) => {
            let entry = LIMITS.iter().find(|entry| refused.limit == Some(entry.name))?;
            Some(entry.limit)
        }
        _ => None,
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // No shutdown: another process may have adopted the connection.
        self.stream.take().into_iter().for_each(|stream| self.closer.close(stream));
        self.backend.disconnect(&mut self.device);
    }
}

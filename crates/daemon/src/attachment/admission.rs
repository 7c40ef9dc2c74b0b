//! Admission of front-ends, and the end of connections.

use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use api::peer::has_hung_up;
use engine::limits::Limit;
use rustix::event::epoll;
use rustix::io::Errno;
use vhost_user::CloserLoad;

use super::{Attachment, SocketEndpoint};

/// Minimum interval between session starts in client mode: a peer that accepts and hangs up at once
/// must not keep this thread busy.
const SESSION_MIN: Duration = Duration::from_millis(20);

impl Attachment {
    /// Remaining time of [`SESSION_MIN`] or [`BAN`].
    pub(super) fn remaining_wait(&self, now: Instant) -> Duration {
        let ends = [self.session_start.map(|start| start + SESSION_MIN), self.banned];
        let left = ends.into_iter().flatten().map(|end| end.saturating_duration_since(now));
        left.max().unwrap_or_default()
    }

    pub(super) fn is_banned(&self) -> bool {
        self.banned.is_some_and(|end| Instant::now() < end)
    }

    /// In server mode, accepts a front-end, or rejects it: one at a time.
    pub(super) fn accept(&mut self, epoll: BorrowedFd<'_>) {
        if self.is_busy() {
            return self.set_accepting(epoll, false);
        }
        let SocketEndpoint::Server(listener) = &self.endpoint else {
            return;
        };
        match listener.accept() {
            Ok(Some(stream)) => {
                if self.stream.as_ref().is_some_and(has_hung_up) {
                    self.end(epoll, "front-end disconnected");
                }
                let why = match (&self.stream, self.is_banned()) {
                    (Some(_), _) => "a second front-end was rejected",
                    (None, true) => {
                        "a front-end was rejected: banned for 5 s after one that blocked"
                    }
                    (None, false) => return self.begin(epoll, stream),
                };
                self.shut_down(stream);
                let line = format!("{}: {why}", self.device.label());
                if self.failures.is_new(&line, Instant::now()) {
                    self.limiter.warn(&line); // a VMM that reconnects would fill the log
                }
            }
            Ok(None) => {}
            Err(error) => {
                let errno = Errno::from_io_error(&error);
                if matches!(errno, Some(Errno::MFILE | Errno::NFILE)) {
                    self.events.met(Limit::Descriptors, "a front-end cannot be accepted");
                }
                let label = self.device.label();
                self.limiter.warn(&format!("{label}: cannot accept: {error}"));
            }
        }
    }

    /// Shuts a connection down now, and closes it later: descriptors may be queued in it.
    pub(super) fn shut_down(&self, stream: UnixStream) {
        // Shutdown tells the front-end at once, even if another process holds the socket.
        let _ = stream.shutdown(Shutdown::Both);
        self.closer.close(stream);
    }

    /// Returns `true` while descriptors of front-ends remain to be closed.
    pub(super) fn is_busy(&self) -> bool {
        self.closer.load() != CloserLoad::Light
    }

    /// Resumes accepting, once descriptors of earlier front-ends are closed.
    pub(in super::super) fn resume_accepting(&mut self, epoll: BorrowedFd<'_>) {
        if self.is_accept_paused && !self.is_busy() {
            self.set_accepting(epoll, true);
        }
        if self.is_receive_paused
            && self.pending.is_none()
            && self.closer.load() != CloserLoad::Busy
        {
            self.pause_receive(epoll, false);
        }
    }

    /// Removes the connection from `epoll`, or adds it again: pending input must not wake this
    /// thread while it is not received.
    pub(super) fn pause_receive(&mut self, epoll: BorrowedFd<'_>, pause: bool) {
        let Some(stream) = self.stream.as_ref().filter(|_| self.is_receive_paused != pause) else {
            return;
        };
        let data = epoll::EventData::new_u64(self.token);
        let done = match pause {
            true => epoll::delete(epoll, stream),
            false => epoll::add(epoll, stream, data, epoll::EventFlags::IN),
        };
        match done {
            Ok(()) => self.is_receive_paused = pause,
            Err(error) => self.end(epoll, &format!("connection closed: cannot watch it: {error}")),
        }
    }

    fn set_accepting(&mut self, epoll: BorrowedFd<'_>, accept: bool) {
        let SocketEndpoint::Server(listener) = &self.endpoint else { return };
        let flags = if accept { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(self.token);
        match epoll::modify(epoll, &**listener, data, flags) {
            Ok(()) => self.is_accept_paused = !accept,
            Err(error) => {
                let label = self.device.label();
                self.limiter.warn(&format!("{label}: cannot watch the socket: {error}"));
            }
        }
    }
}

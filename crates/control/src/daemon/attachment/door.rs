//! Who may come in, and how connections end.

use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::{Attachment, Way};
use crate::peer::has_hung_up;

/// In client mode, the time from one session's beginning to the next one's: a peer that accepts and
/// hangs up at once must not keep us busy.
const SESSION_MIN: Duration = Duration::from_millis(20);
/// How long nobody may attach after a front-end that held up a lane. It could for 22 ms at most
/// ([`host::brief`]), and so for less than half a per cent of the time.
pub(super) const BAN: Duration = Duration::from_secs(5);

/// Descriptors of its front-ends that may wait to be closed, before nobody may attach. Each session leaves one, that
/// of its connection.
const CLOSING_MAX: usize = 64;

impl Attachment {
    /// What is left of [`SESSION_MIN`], or of [`BAN`].
    pub(super) fn pause(&self, now: Instant) -> Duration {
        let ends = [self.begun.map(|begun| begun + SESSION_MIN), self.banned];
        let left = ends.into_iter().flatten().map(|end| end.saturating_duration_since(now));
        left.max().unwrap_or_default()
    }

    pub(super) fn is_banned(&self) -> bool {
        self.banned.is_some_and(|end| Instant::now() < end)
    }

    /// In server mode, accepts a front-end, or turns it away: one at a time.
    pub(super) fn accept(&mut self, epoll: BorrowedFd<'_>) {
        if self.is_abused() {
            return self.listen(epoll, false);
        }
        let Way::Server(listener) = &self.way else {
            return;
        };
        match listener.accept() {
            Ok(Some(stream)) => {
                if self.stream.as_ref().is_some_and(has_hung_up) {
                    self.end(epoll, "front-end left");
                }
                let why = match (&self.stream, self.is_banned()) {
                    (Some(_), _) => "a second front-end was turned away",
                    (None, true) => "a front-end was turned away so soon after one that blocked",
                    (None, false) => return self.begin(epoll, stream),
                };
                self.hang_up(stream);
                self.quiet.warn(&format!("{}: {why}", self.device.label()));
            }
            Ok(None) => {}
            Err(error) => {
                let label = self.device.label();
                self.quiet.warn(&format!("{label}: cannot accept: {error}"));
            }
        }
    }

    /// Ends a connection now, and closes it in its own time: descriptors may wait in it.
    pub(super) fn hang_up(&self, stream: UnixStream) {
        // The front-end is to know now, whoever else may hold the socket for a while.
        let _ = stream.shutdown(Shutdown::Both);
        self.closer.close(stream);
    }

    /// Whether too much that front-ends sent does not close.
    pub(super) fn is_abused(&self) -> bool {
        self.closer.waiting() > CLOSING_MAX
    }

    /// Accepts connections again, once what former ones left is closed.
    pub(in super::super) fn listen_again(&mut self, epoll: BorrowedFd<'_>) {
        if self.is_deaf && !self.is_abused() {
            self.listen(epoll, true);
        }
    }

    fn listen(&mut self, epoll: BorrowedFd<'_>, listen: bool) {
        let Way::Server(listener) = &self.way else { return };
        let flags = if listen { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(self.token);
        match epoll::modify(epoll, &**listener, data, flags) {
            Ok(()) => self.is_deaf = !listen,
            Err(error) => {
                let label = self.device.label();
                self.quiet.warn(&format!("{label}: cannot watch the socket: {error}"));
            }
        }
    }
}

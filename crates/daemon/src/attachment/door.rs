//! Who may come in, and how connections end.

use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use api::peer::has_hung_up;
use rustix::event::epoll;
use vhost_user::Load;
use vhost_user::foreign::WAITING_MAX;

use super::{Attachment, Way};

/// In client mode, the time from one session's beginning to the next one's: a peer that accepts and
/// hangs up at once must not keep us busy.
const SESSION_MIN: Duration = Duration::from_millis(20);
/// How long nobody may attach after a front-end that held up a lane. It could for 22 ms at most
/// ([`host::brief`]), and so for less than half a per cent of the time.
pub(super) const BAN: Duration = Duration::from_secs(5);

/// Open files of a session, those of rings apart: the listener, the connection, regions of memory,
/// a message's, the dirty log, records in flight and their file, the channel, a device's state.
const SESSION_FILES: u64 = 2 + guestmem::REGIONS_MAX as u64 + 8 + 5;
/// Eventfds of a queue pair: kick, call and err of two rings.
const PAIR_FILES: u64 = 6;

impl Attachment {
    /// Open files that its front-ends can make this process hold.
    pub(in super::super) fn files_max(&self) -> u64 {
        let pairs = u64::from(self.backend.config().queue_pairs_max);
        SESSION_FILES + WAITING_MAX as u64 + PAIR_FILES * pairs
    }

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
        if self.is_busy() {
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

    /// Whether what front-ends sent is not closed yet.
    pub(super) fn is_busy(&self) -> bool {
        self.closer.load() != Load::Light
    }

    /// Accepts connections again, once what former ones left is closed.
    pub(in super::super) fn listen_again(&mut self, epoll: BorrowedFd<'_>) {
        if self.is_deaf && !self.is_busy() {
            self.listen(epoll, true);
        }
        if self.is_muted && self.held.is_none() && self.closer.load() != Load::Busy {
            self.mute(epoll, false);
        }
    }

    /// Takes the connection out of `epoll`, or enters it again: what is not to be received yet must
    /// not wake this thread.
    pub(super) fn mute(&mut self, epoll: BorrowedFd<'_>, mute: bool) {
        let Some(stream) = self.stream.as_ref().filter(|_| self.is_muted != mute) else { return };
        let data = epoll::EventData::new_u64(self.token);
        let done = match mute {
            true => epoll::delete(epoll, stream),
            false => epoll::add(epoll, stream, data, epoll::EventFlags::IN),
        };
        match done {
            Ok(()) => self.is_muted = mute,
            Err(error) => self.end(epoll, &format!("connection closed: cannot watch it: {error}")),
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

//! The current connection of a stream-socket port, and frames from it.
//!
//! Model: control sets a connection, and the half that finds its end removes it. Each connection
//! has a number; a half with an older number switches to the new connection. Halves and control
//! share an epoll instance, which becomes readable when the peer sends, or accepts more.
//!
//! Descriptors may be queued in a connection, and closing them may block on the peer: so no lane
//! closes a connection. Each stays open until control finds that no half uses it
//! ([`StreamConnection::close_unused`]). A peer that sends descriptors is disconnected, and control
//! closes them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use guestmem::io;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use vhost_user::{Closer, CloserLoad, ForeignFd};

use crate::burst::{BURST, NetHeader};
use crate::kernel::{RxBuffer, RxSource, is_readable};

/// Maximum bytes that wait for a peer that does not read, frames with their lengths.
pub const OUT_BYTES: usize = 512 << 10;
/// Bytes of the length before a frame.
pub(super) const PREFIX: u32 = 4;
/// Longest frame that QEMU sends (`NET_BUFSIZE`).
const FRAME_MAX: u32 = 4096 + 65536;
/// Bytes of the receive buffer: several of the longest frames.
pub(super) const IN_BYTES: u64 = 512 << 10;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connection of a port.
#[derive(Debug)]
pub(super) struct StreamConnection {
    epoll: OwnedFd,
    /// Number of the current or last connection; 0: there was none yet.
    number: AtomicU64,
    connection: Mutex<Option<Arc<ForeignFd>>>,
    out: Mutex<SendBuffer>,
    /// Set while bytes wait in `out` for the peer to read.
    waits: AtomicBool,
    /// Current and former connections that a half may still use; lanes do not touch this.
    held: Mutex<Vec<Arc<ForeignFd>>>,
    /// Received descriptors, for control to close.
    strays: Mutex<Vec<ForeignFd>>,
    closer: Closer,
}

/// Bytes to send.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    number: u64,
    connection: Option<Arc<ForeignFd>>,
    /// Frames with their lengths.
    bytes: Vec<u8>,
    /// Number of these bytes already sent.
    sent: usize,
}

impl StreamConnection {
    pub(super) fn new() -> Result<StreamConnection, Errno> {
        Ok(StreamConnection {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            number: AtomicU64::new(0),
            connection: Mutex::new(None),
            out: Mutex::new(SendBuffer::default()),
            waits: AtomicBool::new(false),
            held: Mutex::default(),
            strays: Mutex::default(),
            closer: Closer::default(),
        })
    }

    fn connection(&self) -> MutexGuard<'_, Option<Arc<ForeignFd>>> {
        lock(&self.connection)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection().is_some()
    }

    /// Closes connections that no half uses, in the closer's thread; for control.
    pub(super) fn close_unused(&self) {
        drop(std::mem::take(&mut *lock(&self.strays)));
        if !self.is_connected() {
            lock(&self.out).connection = None; // without frames a lane would never drop it
        }
        lock(&self.held).retain(|peer| Arc::strong_count(peer) > 1);
    }

    /// Returns `true` if a peer may connect: the descriptors of former peers are closed.
    pub(super) fn may_connect(&self) -> bool {
        self.closer.load() == CloserLoad::Light
    }

    /// Sets a new connection; for control.
    pub(super) fn connect(&self, peer: impl Into<OwnedFd>) {
        let mut connection = self.connection();
        let peer = Arc::new(ForeignFd::new(peer, &self.closer));
        lock(&self.held).push(peer.clone());
        if epoll::add(&self.epoll, &peer, EventData::new_u64(0), EventFlags::IN).is_err() {
            return; // no memory: closed, and the peer may retry
        }
        *connection = Some(peer);
        self.number.fetch_add(1, Ordering::Release);
    }

    /// Current connection, if there is one.
    pub(super) fn peer(&self) -> Option<Arc<ForeignFd>> {
        self.connection().clone()
    }

    /// Bytes that the peer has not taken yet.
    pub(super) fn unsent(&self) -> Vec<u8> {
        let out = self.out();
        out.bytes[out.sent..].to_vec()
    }

    /// Restores unsent bytes of the previous process. They wait until a lane polls, because that
    /// process may still have to send them itself.
    pub(super) fn restore_unsent(&self, unsent: &[u8]) {
        let mut out = self.out();
        out.bytes.extend_from_slice(unsent);
        if let Some(peer) = out.connection.clone().filter(|_| !unsent.is_empty()) {
            self.set_waits(&peer, true);
        }
    }

    /// Sets whether bytes wait; then the epoll instance also reports when the peer accepts more.
    fn set_waits(&self, peer: &ForeignFd, waits: bool) {
        if self.waits.swap(waits, Ordering::Relaxed) != waits {
            let flags = if waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // An ended connection is no longer registered.
            let _ = epoll::modify(&self.epoll, peer, EventData::new_u64(0), flags);
        }
    }

    /// Current connection and its number.
    fn current(&self) -> (u64, Option<Arc<ForeignFd>>) {
        let connection = self.connection();
        (self.number.load(Ordering::Relaxed), connection.clone())
    }

    /// Ends the connection with this number, if it is the current one.
    pub(super) fn end(&self, number: u64) {
        let mut connection = self.connection();
        if self.number.load(Ordering::Relaxed) != number {
            return;
        }
        if let Some(peer) = connection.take() {
            // Tells the peer now: the other half may hold the connection for a while.
            let _ = epoll::delete(&self.epoll, &peer);
            let _ = rustix::net::shutdown(&peer, Shutdown::Both);
        }
    }

    /// Send buffer of the current connection.
    pub(super) fn out(&self) -> MutexGuard<'_, SendBuffer> {
        let mut out = lock(&self.out);
        if out.number != self.number.load(Ordering::Acquire) {
            (out.number, out.connection) = self.current();
            out.bytes.clear();
            out.sent = 0;
            self.waits.store(false, Ordering::Relaxed); // nothing waits on a new connection
        }
        out
    }

    /// Sends as many waiting bytes as the socket accepts.
    pub(super) fn flush(&self, out: &mut SendBuffer) {
        let Some(peer) = out.connection.clone() else {
            return;
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut waits = false;
        while out.sent < out.bytes.len() {
            match rustix::net::send(&peer, &out.bytes[out.sent..], flags) {
                Ok(n) => out.sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    waits = true;
                    break;
                }
                Err(_) => {
                    self.end(out.number);
                    out.connection = None;
                    out.sent = out.bytes.len();
                }
            }
        }
        if !waits {
            out.bytes.clear();
            out.sent = 0;
        }
        self.set_waits(&peer, waits);
    }

    /// Sends waiting bytes, unless the receive half is sending.
    fn flush_waiting(&self) {
        match self.out.try_lock() {
            Ok(mut out) => self.flush(&mut out),
            Err(TryLockError::Poisoned(out)) => self.flush(&mut out.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

impl SendBuffer {
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Appends a frame of `len` bytes with `write`; returns `false` if there is no room.
    pub(super) fn push(&mut self, len: u32, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let need = (PREFIX + len) as usize;
        if self.bytes.len() - self.sent + need > OUT_BYTES {
            return false;
        }
        if self.bytes.len() + need > OUT_BYTES {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(&len.to_be_bytes());
        write(&mut self.bytes);
        true
    }
}

/// Frames from the peer.
#[derive(Debug)]
pub(super) struct FromStream {
    stream: Arc<StreamConnection>,
    number: u64,
    connection: Option<Arc<ForeignFd>>,
    /// Offset of the next frame's length, and end of the received bytes.
    at: u64,
    end: u64,
    /// Set if a complete frame is left.
    more: bool,
}

impl FromStream {
    /// Begins with bytes received by the previous process.
    pub(super) fn within(
        stream: Arc<StreamConnection>,
        rx_buffer: &RxBuffer,
        received: &[u8],
    ) -> FromStream {
        let (number, connection) = stream.current();
        let end = rx_buffer.room(0, received.len() as u32).write_bytes(received).into();
        FromStream { stream, number, connection, at: 0, end, more: end > 0 }
    }

    /// Length of the next frame, if it is complete; an error if the length is impossible.
    fn next(&self, rx_buffer: &RxBuffer) -> Result<Option<u32>, Errno> {
        if self.end - self.at < u64::from(PREFIX) {
            return Ok(None);
        }
        let len = u32::from_be_bytes(rx_buffer.room(self.at, PREFIX).read(0));
        match len {
            0..=FRAME_MAX if u64::from(PREFIX + len) <= self.end - self.at => Ok(Some(len)),
            0..=FRAME_MAX => Ok(None),
            _ => Err(Errno::PROTO),
        }
    }

    /// Takes complete frames; returns `true` if more are left.
    fn parse(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        while let Some(len) = self.next(rx_buffer)? {
            if rx_buffer.len() == BURST {
                return Ok(true);
            }
            rx_buffer.take(self.at + u64::from(PREFIX), len, NetHeader::PLAIN);
            self.at += u64::from(PREFIX + len);
        }
        Ok(false)
    }

    /// Receives more bytes behind the previous ones.
    fn fill(&mut self, rx_buffer: &RxBuffer) -> Result<bool, Errno> {
        let Some(peer) = &self.connection else {
            return Ok(false);
        };
        let rest = (self.end - self.at) as u32;
        // At most a partial frame is left, shorter than the longest one.
        if rest == 0 || IN_BYTES - self.end < u64::from(PREFIX + FRAME_MAX) {
            rx_buffer.room(0, rest).copy_from(rx_buffer.room(self.at, rest), rest);
            (self.at, self.end) = (0, u64::from(rest));
        }
        let room = rx_buffer.room(self.end, (IN_BYTES - self.end) as u32);
        match io::receive(peer.as_fd(), room) {
            Ok(came) if came.fds_truncated || !came.fds.is_empty() => {
                let fds = came.fds.into_iter().map(|fd| ForeignFd::new(fd, &self.stream.closer));
                lock(&self.stream.strays).extend(fds);
                Err(Errno::PROTO)
            }
            Ok(came) if came.bytes == 0 => Err(Errno::PIPE),
            Ok(came) => {
                self.end += came.bytes as u64;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn frames(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        let more = self.parse(rx_buffer)?;
        if rx_buffer.len() > 0 || !self.fill(rx_buffer)? {
            return Ok(more);
        }
        self.parse(rx_buffer)
    }
}

impl RxSource for FromStream {
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        if self.number != self.stream.number.load(Ordering::Acquire) {
            (self.number, self.connection) = self.stream.current();
            (self.at, self.end) = (0, 0);
        }
        if self.stream.waits.load(Ordering::Relaxed) {
            self.stream.flush_waiting();
        }
        self.more = self.frames(rx_buffer).unwrap_or_else(|_| {
            self.stream.end(self.number);
            self.connection = None;
            (self.at, self.end) = (0, 0);
            false
        });
        Ok(self.more)
    }

    fn enable_notification(&mut self) -> bool {
        self.more || is_readable(self.stream.epoll.as_fd())
    }

    fn kick(&self) -> BorrowedFd<'_> {
        self.stream.epoll.as_fd()
    }

    fn handover_state(&self, rx_buffer: &RxBuffer) -> Vec<u8> {
        if self.number != self.stream.number.load(Ordering::Acquire) {
            return Vec::new(); // of a former connection
        }
        let mut bytes = vec![0; (self.end - self.at) as usize];
        rx_buffer.room(self.at, bytes.len() as u32).read_bytes(&mut bytes);
        bytes
    }
}

//! The connection that there is, and frames from it.
//!
//! Model: control puts a connection in; a half that finds it at its end takes it out. Each gets the
//! next number, and a half whose number is another takes up the new one. Halves and control share
//! an epoll, which becomes readable when the peer sends, or can be sent what waited for it.
//!
//! Descriptors may wait in a connection, and closing them may wait for the peer: so no lane closes
//! one. Each connection stays open until control finds that no half has it ([`Line::let_go`]). A
//! peer that sends descriptors is cut off, and they are left to control.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use guestmem::io;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use vhost_user::{Closer, ForeignFd, Load};

use crate::Offload;
use crate::burst::BURST;
use crate::device::{RxBuffer, Source, is_readable};

/// Bytes that wait for a peer that does not read, frames with their lengths.
pub const OUT_BYTES: usize = 512 << 10;
/// Bytes in front of a frame.
pub(super) const PREFIX: u32 = 4;
/// Longest frame that QEMU sends (`NET_BUFSIZE`).
const FRAME_MAX: u32 = 4096 + 65536;
/// Where frames are received: several of the longest.
pub(super) const IN_BYTES: u64 = 512 << 10;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port's connection.
#[derive(Debug)]
pub(super) struct Line {
    epoll: OwnedFd,
    /// Of the connection that there is or was last; 0: there was none yet.
    number: AtomicU64,
    connection: Mutex<Option<Arc<ForeignFd>>>,
    out: Mutex<Out>,
    /// Whether something waits in `out` until the peer reads.
    waits: AtomicBool,
    /// Connections that are or were in, until no half has them; lanes do not touch this.
    held: Mutex<Vec<Arc<ForeignFd>>>,
    /// Descriptors that came, until control finds them.
    strays: Mutex<Vec<ForeignFd>>,
    closer: Closer,
}

/// What is to be sent.
#[derive(Debug, Default)]
pub(super) struct Out {
    number: u64,
    connection: Option<Arc<ForeignFd>>,
    /// Frames with their lengths.
    bytes: Vec<u8>,
    /// How much of that was sent.
    sent: usize,
}

impl Line {
    pub(super) fn new() -> Result<Line, Errno> {
        Ok(Line {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            number: AtomicU64::new(0),
            connection: Mutex::new(None),
            out: Mutex::new(Out::default()),
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

    /// Closes, in the closer's thread, what no half has any more; for control.
    pub(super) fn let_go(&self) {
        drop(std::mem::take(&mut *lock(&self.strays)));
        if !self.is_connected() {
            lock(&self.out).connection = None; // no frame may come that would have a lane do so
        }
        lock(&self.held).retain(|peer| Arc::strong_count(peer) > 1);
    }

    /// Whether a peer may come: not while what former ones sent is not closed.
    pub(super) fn may_connect(&self) -> bool {
        self.closer.load() == Load::Light
    }

    /// Puts in a connection; for control.
    pub(super) fn connect(&self, peer: impl Into<OwnedFd>) {
        let mut connection = self.connection();
        let peer = Arc::new(ForeignFd::new(peer, &self.closer));
        lock(&self.held).push(peer.clone());
        if epoll::add(&self.epoll, &peer, EventData::new_u64(0), EventFlags::IN).is_err() {
            return; // no memory: it is closed, and the peer may try again
        }
        *connection = Some(peer);
        self.number.fetch_add(1, Ordering::Release);
    }

    /// The connection, if there is one.
    pub(super) fn peer(&self) -> Option<Arc<ForeignFd>> {
        self.connection().clone()
    }

    /// What the peer did not take yet.
    pub(super) fn unsent(&self) -> Vec<u8> {
        let out = self.out();
        out.bytes[out.sent..].to_vec()
    }

    /// Has what another process had not sent yet wait until a lane looks: that process may still
    /// have to send it itself.
    pub(super) fn go_on(&self, unsent: &[u8]) {
        let mut out = self.out();
        out.bytes.extend_from_slice(unsent);
        if let Some(peer) = out.connection.clone().filter(|_| !unsent.is_empty()) {
            self.set_waits(&peer, true);
        }
    }

    /// Notes whether something waits for the peer, which then is looked at when it has read.
    fn set_waits(&self, peer: &ForeignFd, waits: bool) {
        if self.waits.swap(waits, Ordering::Relaxed) != waits {
            let flags = if waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // A connection that has ended is not there any more.
            let _ = epoll::modify(&self.epoll, peer, EventData::new_u64(0), flags);
        }
    }

    /// The connection, and its number.
    fn current(&self) -> (u64, Option<Arc<ForeignFd>>) {
        let connection = self.connection();
        (self.number.load(Ordering::Relaxed), connection.clone())
    }

    /// Takes out the connection of this number, if there is none since.
    pub(super) fn end(&self, number: u64) {
        let mut connection = self.connection();
        if self.number.load(Ordering::Relaxed) != number {
            return;
        }
        if let Some(peer) = connection.take() {
            // The other half may hold it for a while yet; the peer is to know now.
            let _ = epoll::delete(&self.epoll, &peer);
            let _ = rustix::net::shutdown(&peer, Shutdown::Both);
        }
    }

    /// What is to be sent, on the connection that there is.
    pub(super) fn out(&self) -> MutexGuard<'_, Out> {
        let mut out = lock(&self.out);
        if out.number != self.number.load(Ordering::Acquire) {
            (out.number, out.connection) = self.current();
            out.bytes.clear();
            out.sent = 0;
            self.waits.store(false, Ordering::Relaxed); // a new connection is not waited for
        }
        out
    }

    /// Sends what the socket takes of what waits.
    pub(super) fn flush(&self, out: &mut Out) {
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

    /// Sends what waited, unless somebody is at it.
    fn flush_waiting(&self) {
        match self.out.try_lock() {
            Ok(mut out) => self.flush(&mut out),
            Err(TryLockError::Poisoned(out)) => self.flush(&mut out.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

impl Out {
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Takes a frame of `len` bytes, which `write` puts behind the others; says whether there was
    /// room.
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
    line: Arc<Line>,
    number: u64,
    connection: Option<Arc<ForeignFd>>,
    /// Where the next frame's length begins in the memory, and where what was received ends.
    at: u64,
    end: u64,
    /// Whether a frame is there that was not taken.
    more: bool,
}

impl FromStream {
    /// With bytes that were received before, and of which no frame was taken.
    pub(super) fn within(line: Arc<Line>, rx_buffer: &RxBuffer, received: &[u8]) -> FromStream {
        let (number, connection) = line.current();
        let end = rx_buffer.room(0, received.len() as u32).write_bytes(received).into();
        FromStream { line, number, connection, at: 0, end, more: end > 0 }
    }

    /// The length of the next frame, if it is there as a whole; an error if there is no such frame.
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

    /// Takes the frames that are there as a whole; says whether there are more.
    fn parse(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        while let Some(len) = self.next(rx_buffer)? {
            if rx_buffer.len() == BURST {
                return Ok(true);
            }
            rx_buffer.take(self.at + u64::from(PREFIX), len, Offload::PLAIN);
            self.at += u64::from(PREFIX + len);
        }
        Ok(false)
    }

    /// Receives what there is behind what was.
    fn fill(&mut self, rx_buffer: &RxBuffer) -> Result<bool, Errno> {
        let Some(peer) = &self.connection else {
            return Ok(false);
        };
        let rest = (self.end - self.at) as u32;
        // Less than the longest frame is left of what was received, for that was not whole.
        if rest == 0 || IN_BYTES - self.end < u64::from(PREFIX + FRAME_MAX) {
            rx_buffer.room(0, rest).copy_from(rx_buffer.room(self.at, rest), rest);
            (self.at, self.end) = (0, u64::from(rest));
        }
        let room = rx_buffer.room(self.end, (IN_BYTES - self.end) as u32);
        match io::receive(peer.as_fd(), room) {
            Ok(came) if came.is_cut || !came.fds.is_empty() => {
                let fds = came.fds.into_iter().map(|fd| ForeignFd::new(fd, &self.line.closer));
                lock(&self.line.strays).extend(fds);
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

impl Source for FromStream {
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        if self.number != self.line.number.load(Ordering::Acquire) {
            (self.number, self.connection) = self.line.current();
            (self.at, self.end) = (0, 0);
        }
        if self.line.waits.load(Ordering::Relaxed) {
            self.line.flush_waiting();
        }
        self.more = self.frames(rx_buffer).unwrap_or_else(|_| {
            self.line.end(self.number);
            self.connection = None;
            (self.at, self.end) = (0, 0);
            false
        });
        Ok(self.more)
    }

    fn enable_notification(&mut self) -> bool {
        self.more || is_readable(self.line.epoll.as_fd())
    }

    fn kick(&self) -> BorrowedFd<'_> {
        self.line.epoll.as_fd()
    }

    fn remains(&self, rx_buffer: &RxBuffer) -> Vec<u8> {
        if self.number != self.line.number.load(Ordering::Acquire) {
            return Vec::new(); // of a connection that is no more
        }
        let mut bytes = vec![0; (self.end - self.at) as usize];
        rx_buffer.room(self.at, bytes.len() as u32).read_bytes(&mut bytes);
        bytes
    }
}

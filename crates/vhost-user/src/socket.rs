//! Receives and sends messages over a Unix stream socket.
//!
//! [`Receiver`] collects a message over as many calls as the peer takes to send it. It never reads
//! past the end of a message, so descriptors always belong to their own message. Calls wait only
//! with a deadline; they use `MSG_DONTWAIT`, so the socket's own mode does not matter. Received
//! descriptors are close-on-exec and owned, so every error closes them.
//!
//! Specification: vhost-user.rst, "Communication".

use std::io::IoSlice;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::foreign::{self, Closer, ForeignFd};
use crate::message::{FDS_MAX, HEADER_SIZE, Message, MessageHeader, MessageHeaderError};

/// Reasons that a message could not be received or sent. The connection is then unusable.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The peer closed the connection between two messages: the regular end.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed the connection within a message.
    #[error("the peer closed the connection after {got} of {want} bytes of a message")]
    ClosedWithin {
        /// Bytes received.
        got: usize,
        /// Bytes of the message, or of its header while that is not complete.
        want: usize,
    },
    /// The header is invalid.
    #[error("the peer sent an invalid message")]
    Header(#[from] MessageHeaderError),
    /// More descriptors than a message may have.
    #[error("the peer sent more than {FDS_MAX} file descriptors with one message")]
    TooManyFds,
    /// The kernel could not pass all descriptors.
    #[error(
        "file descriptors of a message were lost: this process reached its limit of open files \
         (raise it with `ulimit -n`)"
    )]
    FdsTruncated,
    /// More bytes than the message has.
    #[error("{bytes} bytes exceed the length of the message")]
    TooLong {
        /// Bytes received.
        bytes: usize,
    },
    /// The peer does not read, so a message could not be sent in full.
    #[error("the peer does not read its messages: its socket buffer is full")]
    PeerStuck,
    /// The deadline passed.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The socket failed.
    #[error("the socket failed")]
    Io(#[source] std::io::Error),
}

impl From<Errno> for SocketError {
    fn from(errno: Errno) -> Self {
        match errno {
            // A peer that died with unread data shows as a reset, not as an end of file.
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Io(other.into()),
        }
    }
}

/// Collects one message at a time from a socket.
///
/// After an error the connection must be closed: the start of the next message is unknown.
#[derive(Debug)]
pub struct Receiver {
    /// Header and payload received so far; its length is the number of bytes wanted.
    bytes: Vec<u8>,
    filled: usize,
    header: Option<MessageHeader>,
    fds: Vec<ForeignFd>,
    closer: Closer,
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}

impl Receiver {
    /// A receiver at the start of a message.
    pub fn new() -> Self {
        Self::with(&Closer::default())
    }

    /// A receiver whose descriptors `closer` closes.
    pub fn with(closer: &Closer) -> Self {
        let bytes = vec![0; HEADER_SIZE];
        Self { bytes, filled: 0, header: None, fds: Vec::new(), closer: closer.clone() }
    }

    /// Returns `true` if only a part of a message was received.
    pub fn is_partial(&self) -> bool {
        self.filled > 0
    }

    /// Returns `true` if the next [`poll`](Self::poll) returns a message without receiving
    /// anything.
    pub fn is_whole(&self) -> bool {
        self.header.is_some() && self.filled == self.bytes.len()
    }

    /// Reads from the socket, and returns the message once it is complete. Never blocks: `None`
    /// means that the rest has not arrived. Call it until `None`, since one call returns one
    /// message.
    ///
    /// # Errors
    /// [`SocketError`]; all descriptors received for the message are closed.
    pub fn poll(&mut self, stream: &UnixStream) -> Result<Option<Message>, SocketError> {
        let result = self.advance(stream);
        if result.is_err() {
            *self = Self::with(&self.closer);
        }
        result
    }

    /// Like [`poll`](Self::poll), but waits until `deadline` for a complete message.
    ///
    /// # Errors
    /// As `poll`, and [`SocketError::TimedOut`].
    pub fn receive(
        &mut self,
        stream: &UnixStream,
        deadline: Instant,
    ) -> Result<Message, SocketError> {
        loop {
            if let Some(message) = self.poll(stream)? {
                return Ok(message);
            }
            wait(stream, PollFlags::IN, deadline)?;
        }
    }

    /// Bytes and descriptors of an incomplete message.
    pub fn partial(&self) -> (&[u8], &[ForeignFd]) {
        let Receiver { bytes, filled, header: _, fds, closer: _ } = self;
        (&bytes[..*filled], fds)
    }

    /// A receiver that continues in the middle of another one's message.
    ///
    /// # Errors
    /// [`SocketError`] if the bytes are not the beginning of a message.
    pub fn within(
        received: &[u8],
        fds: Vec<OwnedFd>,
        closer: &Closer,
    ) -> Result<Self, SocketError> {
        let mut receiver = Self::with(closer);
        let fds = fds.into_iter().map(|fd| ForeignFd::new(fd, closer)).collect();
        let head = received.len().min(HEADER_SIZE);
        receiver.bytes[..head].copy_from_slice(&received[..head]);
        (receiver.filled, receiver.fds) = (head, fds);
        if head == HEADER_SIZE {
            receiver.read_header()?;
            let rest = &received[head..];
            let room = receiver.bytes.get_mut(head..received.len());
            let room = room.ok_or(SocketError::TooLong { bytes: received.len() })?;
            room.copy_from_slice(rest);
            receiver.filled = received.len();
        }
        Ok(receiver)
    }

    fn advance(&mut self, stream: &UnixStream) -> Result<Option<Message>, SocketError> {
        // Each turn receives at least one byte of at most 4108, so the loop is bounded.
        loop {
            if self.filled == self.bytes.len() {
                match self.header {
                    Some(header) => return Ok(Some(self.take(header))),
                    None => self.read_header()?,
                }
                continue;
            }
            if !self.read_some(stream)? {
                return Ok(None);
            }
        }
    }

    fn read_header(&mut self) -> Result<(), SocketError> {
        let mut bytes = [0; HEADER_SIZE];
        bytes.copy_from_slice(&self.bytes);
        let header = MessageHeader::parse(&bytes)?;
        self.bytes.resize(HEADER_SIZE + header.size, 0);
        self.header = Some(header);
        Ok(())
    }

    fn take(&mut self, header: MessageHeader) -> Message {
        let mut done = mem::replace(self, Self::with(&self.closer));
        done.bytes.drain(..HEADER_SIZE);
        Message { request: header.request, flags: header.flags, payload: done.bytes, fds: done.fds }
    }

    /// Receives some bytes; false if none are available.
    fn read_some(&mut self, stream: &UnixStream) -> Result<bool, SocketError> {
        let room = &mut self.bytes[self.filled..];
        let received = match foreign::receive(stream.as_fd(), room, &self.closer) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(false),
            // Nothing was received; the next turn tries again.
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        self.fds.extend(received.fds);
        if received.fds_truncated {
            return Err(SocketError::FdsTruncated);
        }
        if self.fds.len() > FDS_MAX {
            return Err(SocketError::TooManyFds);
        }
        if received.bytes == 0 {
            return Err(match self.filled {
                0 => SocketError::Closed,
                got => SocketError::ClosedWithin { got, want: self.bytes.len() },
            });
        }
        self.filled += received.bytes;
        Ok(true)
    }
}

/// Sends one message without waiting, for a back-end's replies.
///
/// A reply is small and a front-end waits for it. A front-end that leaves so many unread that the
/// socket's buffer is full is broken or hostile, and must not delay the thread.
///
/// # Errors
/// [`SocketError::PeerStuck`] if the message does not fit into the socket's buffer in full.
pub fn send(stream: impl AsFd, message: &Message) -> Result<(), SocketError> {
    let fds: Vec<_> = message.fds.iter().map(AsFd::as_fd).collect();
    let bytes = message.to_bytes();
    match send_some(stream.as_fd(), &bytes, &fds)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(SocketError::PeerStuck),
    }
}

/// Sends one message and waits until `deadline` for space in the socket's buffer. The descriptors
/// `fds` are sent with it and stay the caller's; those in the message are not sent.
///
/// # Errors
/// [`SocketError::TimedOut`], [`SocketError::Closed`], or the socket's error.
pub fn send_before(
    stream: &UnixStream,
    message: &Message,
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(), SocketError> {
    let bytes = message.to_bytes();
    let mut sent = 0;
    while sent < bytes.len() {
        // Descriptors are sent once, with the first byte.
        let fds = if sent == 0 { fds } else { &[] };
        match send_some(stream.as_fd(), &bytes[sent..], fds)? {
            0 => wait(stream, PollFlags::OUT, deadline)?,
            some => sent += some,
        }
    }
    Ok(())
}

/// Sends as much as the socket accepts; 0 if its buffer is full.
fn send_some(
    stream: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<usize, SocketError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if fds.len() > FDS_MAX || !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds))
    {
        return Err(SocketError::TooManyFds);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until the socket is ready for `events`, or failed; the next call on it returns the error.
pub(crate) fn wait(
    stream: &UnixStream,
    events: PollFlags,
    deadline: Instant,
) -> Result<(), SocketError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SocketError::TimedOut);
        }
        match rustix::event::poll(&mut [PollFd::new(stream, events)], Some(&timespec(left))) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    // A wait beyond the clock's range becomes the longest one.
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

#[cfg(test)]
mod tests;

//! Messages with file descriptors between two daemons of one user.
//!
//! A message is a header (magic, bytes of text, number of descriptors), then one byte for each
//! batch of descriptors, which are attached to it, then the text. Every wait has a deadline, and is
//! cut short when the daemon is to stop.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::format::Fd;

const MAGIC: [u8; 8] = *b"SHUNTUP\n";
const HEAD: usize = 16;
/// Descriptors attached to one byte; the kernel's limit is 253.
const BATCH: usize = 250;
/// Maximum text, in bytes: ten times the tables of the largest daemon.
const TEXT_MAX: usize = 256 << 20;
/// Maximum number of descriptors.
const FDS_MAX: usize = 1 << 20;

/// Error of the handover channel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("the other process closed the connection")]
    Ended,
    #[error("the other process did not answer in time")]
    Late,
    #[error("this daemon is stopping")]
    Stopping,
    #[error("invalid handover message")]
    Strange,
    #[error("invalid handover message: {0}")]
    Text(serde_json::Error),
    #[error("descriptors were lost; raise the limit of open files (ulimit -n)")]
    Descriptors,
    #[error("socket error")]
    Socket(#[source] std::io::Error),
}

impl From<Errno> for ChannelError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => ChannelError::Ended,
            Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS => ChannelError::Descriptors,
            other => ChannelError::Socket(other.into()),
        }
    }
}

/// Descriptors to send with a message.
#[derive(Default)]
pub(crate) struct OutgoingFds(Vec<Arc<dyn AsFd + Send + Sync>>);

impl OutgoingFds {
    /// Adds a duplicate of a descriptor.
    pub(crate) fn put(&mut self, fd: BorrowedFd<'_>) -> std::io::Result<Fd> {
        Ok(self.put_shared(Arc::new(fd.try_clone_to_owned()?)))
    }

    /// Adds a shared descriptor.
    pub(crate) fn put_shared(&mut self, fd: Arc<impl AsFd + Send + Sync + 'static>) -> Fd {
        self.0.push(fd);
        Fd(self.0.len() as u32 - 1)
    }
}

/// Descriptors received with a message; those not taken are closed.
#[derive(Debug, Default)]
pub(crate) struct ReceivedFds(Vec<Option<OwnedFd>>);

impl ReceivedFds {
    /// Takes a descriptor out, once.
    pub(crate) fn take(&mut self, fd: Fd) -> Option<OwnedFd> {
        self.0.get_mut(fd.0 as usize)?.take()
    }
}

/// Deadline of an operation, and what cuts it short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline<'a> {
    pub(crate) until: Instant,
    /// Readable when the daemon is to stop.
    pub(crate) stop: Option<BorrowedFd<'a>>,
}

/// One end of the channel.
#[derive(Debug)]
pub(crate) struct Channel(pub(crate) UnixStream);

impl Channel {
    /// Sends a message.
    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        outgoing: &OutgoingFds,
        deadline: Deadline<'_>,
    ) -> Result<(), ChannelError> {
        let text = serde_json::to_vec(message).map_err(ChannelError::Text)?;
        let mut head = MAGIC.to_vec();
        head.extend((text.len() as u32).to_le_bytes());
        head.extend((outgoing.0.len() as u32).to_le_bytes());
        self.send_all(&head, deadline)?;
        for batch in outgoing.0.chunks(BATCH) {
            let fds: Vec<BorrowedFd<'_>> = batch.iter().map(|fd| fd.as_fd()).collect();
            while self.send_some(&[0], &fds)? == 0 {
                self.wait(PollFlags::OUT, deadline)?;
            }
        }
        self.send_all(&text, deadline)
    }

    /// Waits for a message.
    pub(crate) fn receive<T: DeserializeOwned>(
        &self,
        deadline: Deadline<'_>,
    ) -> Result<(T, ReceivedFds), ChannelError> {
        let mut head = [0; HEAD];
        let mut fds = Vec::new();
        self.receive_all(&mut head, &mut fds, deadline)?;
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes) as usize
        };
        let (len, count) = (number(8), number(12));
        if head[..8] != MAGIC || len > TEXT_MAX || count > FDS_MAX {
            return Err(ChannelError::Strange);
        }
        for _ in 0..count.div_ceil(BATCH) {
            self.receive_all(&mut [0], &mut fds, deadline)?;
        }
        let mut text = vec![0; len];
        self.receive_all(&mut text, &mut fds, deadline)?;
        if fds.len() != count {
            return Err(ChannelError::Descriptors);
        }
        let message = serde_json::from_slice(&text).map_err(ChannelError::Text)?;
        Ok((message, ReceivedFds(fds.into_iter().map(Some).collect())))
    }

    fn send_all(&self, bytes: &[u8], deadline: Deadline<'_>) -> Result<(), ChannelError> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.send_some(&bytes[sent..], &[])? {
                0 => self.wait(PollFlags::OUT, deadline)?,
                some => sent += some,
            }
        }
        Ok(())
    }

    /// Sends as much as fits; returns 0 if nothing fits now.
    fn send_some(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(ChannelError::Descriptors);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    fn receive_all(
        &self,
        bytes: &mut [u8],
        fds: &mut Vec<OwnedFd>,
        deadline: Deadline<'_>,
    ) -> Result<(), ChannelError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes[filled..])];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = rustix::net::recvmsg(&self.0, &mut slices, &mut control, flags);
            match received {
                Ok(received) => {
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(some) = message {
                            fds.extend(some);
                        }
                    }
                    if received.bytes == 0 {
                        return Err(ChannelError::Ended);
                    }
                    filled += received.bytes;
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags, deadline: Deadline<'_>) -> Result<(), ChannelError> {
        let left = deadline.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ChannelError::Late);
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
        let socket = PollFd::new(&self.0, events);
        let mut fds = [socket.clone(), socket];
        let mut n = 1;
        if let Some(stop) = deadline.stop {
            fds[1] = PollFd::from_borrowed_fd(stop, PollFlags::IN);
            n = 2;
        }
        match rustix::event::poll(&mut fds[..n], Some(&left)) {
            Ok(_) if n == 2 && !fds[1].revents().is_empty() => Err(ChannelError::Stopping),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;

    fn soon<'a>() -> Deadline<'a> {
        Deadline { until: Instant::now() + Duration::from_secs(5), stop: None }
    }

    fn pair() -> (Channel, Channel) {
        let (a, b) = UnixStream::pair().unwrap();
        (Channel(a), Channel(b))
    }

    #[test]
    fn a_message_comes_with_all_its_descriptors_in_order() {
        let (here, there) = pair();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut outgoing = OutgoingFds::default();
        let null = std::fs::File::open("/dev/null").unwrap();
        let shared: Arc<OwnedFd> = Arc::new(null.into());
        for _ in 0..2 * BATCH {
            outgoing.put_shared(shared.clone());
        }
        let place = outgoing.put(writer.as_fd()).unwrap();
        drop(writer);
        let text: Vec<String> = (0..50_000).map(|i| i.to_string()).collect();
        let sender = std::thread::spawn(move || here.send(&text, &outgoing, soon()).unwrap());
        let (heard, mut received) = there.receive::<Vec<String>>(soon()).unwrap();
        sender.join().unwrap();
        assert_eq!(heard[49_999], "49999");
        assert_eq!(received.0.len(), 2 * BATCH + 1);
        std::fs::File::from(received.take(place).unwrap()).write_all(b"x").unwrap();
        assert!(received.take(place).is_none(), "once");
        assert!(received.take(Fd(9999)).is_none());
        drop(received);
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        assert_eq!(all, "x", "the sender's are closed");
    }

    #[test]
    fn every_wait_has_an_end() {
        let (here, there) = pair();
        let short = Deadline { until: Instant::now() + Duration::from_millis(10), stop: None };
        assert!(matches!(there.receive::<String>(short), Err(ChannelError::Late)));
        let (stop, stopper) = UnixStream::pair().unwrap();
        (&stopper).write_all(&[0]).unwrap();
        let deadline = Deadline { stop: Some(stop.as_fd()), ..soon() };
        assert!(matches!(there.receive::<String>(deadline), Err(ChannelError::Stopping)));
        here.send(&"word", &OutgoingFds::default(), soon()).unwrap();
        drop(here);
        assert_eq!(there.receive::<String>(soon()).unwrap().0, "word");
        assert!(matches!(there.receive::<String>(soon()), Err(ChannelError::Ended)));
    }

    #[test]
    fn what_is_no_message_is_told_from_one() {
        let (here, there) = pair();
        (&here.0).write_all(b"Usage: something else").unwrap();
        assert!(matches!(there.receive::<String>(soon()), Err(ChannelError::Strange)));
        let (here, there) = pair();
        here.send(&7, &OutgoingFds::default(), soon()).unwrap();
        assert!(matches!(there.receive::<String>(soon()), Err(ChannelError::Text(_))));
    }
}

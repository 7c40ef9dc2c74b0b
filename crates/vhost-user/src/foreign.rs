//! Descriptors and memory shared by a peer, and calls on them that may wait.
//!
//! # Problem
//! A call on a peer's file can wait for that peer. Closing waits for the server of a user-space
//! file system, for the reader of a lingering TCP socket, for the holder of a pipe's mutex, or of
//! an epoll instance that watches the file. Opening, reading and writing a pipe wait for its mutex.
//! Dropping the last reference to a memfd, or to its mapping, frees its pages: 0.1 s for each GiB.
//! A peer can send such a file with any message, or inside a socket that holds it unread. A thread
//! that makes these calls must not be one that others depend on.
//!
//! # Model
//! A [`Closer`] makes them in order, in a thread that starts with the first call and ends 0.1 s
//! after the last. Each session, and each socket that untrusted peers connect to, has its own. A
//! [`ForeignFd`] is closed there wherever it is dropped; [`Closer::free`] drops any value there;
//! [`Closer::call`] makes a call whose result is polled later, with a [`DEADLINE`].
//! [`Closer::load`] tells a session's owner to stop receiving, or to end it.
//!
//! The type of a file must be found without a call to its file system. The kernel itself provides a
//! file's name in `/proc/self/fd`, and `F_GET_SEALS` identifies tmpfs (including memfds) and
//! hugetlbfs.
//!
//! # Limits
//! * A process does not end while one of its threads waits in `close` for a program that does not
//!   answer.
//! * At the limit of open files, the kernel closes descriptors that it cannot pass in the receiving
//!   thread.
//! * No lane may drop the last reference to a [`ForeignFd`]: a thread started there shares the
//!   lane's CPU, and has its sandbox. It makes that one call only.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown,
};

/// Longest time of one call; after it the result is abandoned, and its session may be ended.
pub const DEADLINE: Duration = Duration::from_secs(1);
/// Most pending calls of one peer that is still served. A session has some 900 descriptors at most
/// (128 queue pairs).
pub const WAITING_MAX: usize = 64;
/// Time that an idle thread waits for the next call.
const LINGER: Duration = Duration::from_millis(100);
/// Most descriptors that the kernel passes in one message (unix(7)).
const SCM_MAX_FD: usize = 253;
/// Most descriptors of a connection that are open without being in use: those of pending calls, and
/// those of the message that ends it.
pub const UNUSED_MAX: usize = WAITING_MAX + SCM_MAX_FD;

/// Makes calls that may wait, in order, in a thread of its own. Clones share the thread.
#[derive(Clone, Default)]
pub struct Closer(Arc<CloserState>);

#[derive(Default)]
struct CloserState {
    calls: Mutex<Calls>,
    news: Condvar,
}

type Call = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Calls {
    left: VecDeque<Call>,
    /// `true` while there is a thread that will take one more call.
    runs: bool,
    in_hand: bool,
    /// Time since which more than [`WAITING_MAX`] calls have been pending, if they are.
    since: Option<Instant>,
    /// Threads that could not be started.
    unstarted: u64,
}

/// Load that a peer puts on its closer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloserLoad {
    /// At most [`WAITING_MAX`] calls are pending.
    Light,
    /// More are pending: receive nothing from the peer until they are made.
    Busy,
    /// More are pending, and the first takes longer than [`DEADLINE`]: the peer abuses it.
    Stuck,
}

impl Closer {
    /// Closes a descriptor.
    pub fn close(&self, fd: impl Into<OwnedFd>) {
        self.free(fd.into());
    }

    /// Drops a value that takes time to free.
    pub fn free(&self, value: impl Send + 'static) {
        self.push(Box::new(move || drop(value)));
    }

    /// Makes a call. Dropping the [`Pending`] result does not end the call.
    pub fn call<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> Pending<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.push(Box::new(move || {
            let _ = sender.send(call()); // an error is a session that has ended
        }));
        Pending { receiver, end: Instant::now() + DEADLINE }
    }

    /// Number of pending calls.
    pub fn waiting(&self) -> usize {
        let calls = self.lock();
        calls.left.len() + usize::from(calls.in_hand)
    }

    /// The peer's load, which tells if it may send more.
    pub fn load(&self) -> CloserLoad {
        let calls = self.lock();
        match calls.left.len() + usize::from(calls.in_hand) {
            0..=WAITING_MAX => CloserLoad::Light,
            _ if calls.since.is_some_and(|since| since.elapsed() > DEADLINE) => CloserLoad::Stuck,
            _ => CloserLoad::Busy,
        }
    }

    fn push(&self, call: Call) {
        let thread = std::thread::Builder::new().name("closer".into());
        if host::sandbox::is_lane() {
            // The thread has the sandbox of lanes: it may close, but not make others' calls.
            let _ = thread.spawn(call);
            return;
        }
        let mut calls = self.lock();
        calls.left.push_back(call);
        if calls.left.len() + usize::from(calls.in_hand) > WAITING_MAX {
            calls.since.get_or_insert_with(Instant::now);
        }
        if calls.runs {
            return self.0.news.notify_one();
        }
        let closer = self.clone();
        // If no thread can be started, the next call tries again.
        calls.runs = thread.spawn(move || closer.run()).is_ok();
        calls.unstarted += u64::from(!calls.runs);
    }

    /// Number of threads that could not be started since the last call.
    pub fn take_unstarted(&self) -> u64 {
        std::mem::take(&mut self.lock().unstarted)
    }

    fn run(&self) {
        while let Some(call) = self.next() {
            call();
        }
    }

    fn next(&self) -> Option<Call> {
        let mut calls = self.lock();
        calls.in_hand = false;
        if calls.left.is_empty() {
            let none = |calls: &mut Calls| calls.left.is_empty();
            let waited = self.0.news.wait_timeout_while(calls, LINGER, none);
            calls = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let next = calls.left.pop_front();
        calls.in_hand = next.is_some();
        calls.runs = calls.in_hand;
        if calls.left.len() + usize::from(calls.in_hand) <= WAITING_MAX {
            calls.since = None;
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer").field("waiting", &self.waiting()).finish()
    }
}

/// Result of a call that may still be pending.
#[derive(Debug)]
pub struct Pending<T> {
    receiver: Receiver<T>,
    end: Instant,
}

/// The call has not returned within [`DEADLINE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {} s", DEADLINE.as_secs())]
pub struct TooLate;

impl<T> Pending<T> {
    /// The result, if it is available; `None` while the call is pending.
    ///
    /// # Errors
    /// [`TooLate`].
    pub fn poll(&self, now: Instant) -> Result<Option<T>, TooLate> {
        match self.receiver.try_recv() {
            Ok(result) => Ok(Some(result)),
            Err(TryRecvError::Empty) if now < self.end => Ok(None),
            Err(_) => Err(TooLate),
        }
    }
}

/// A descriptor from a peer, or of a connection with one: closed by a [`Closer`] wherever it is
/// dropped.
#[derive(Debug)]
pub struct ForeignFd {
    /// Present until it is dropped.
    fd: Option<OwnedFd>,
    /// `None`: a closer of its own.
    closer: Option<Closer>,
}

impl ForeignFd {
    /// A descriptor with its closer.
    pub fn new(fd: impl Into<OwnedFd>, closer: &Closer) -> Self {
        Self { fd: Some(fd.into()), closer: Some(closer.clone()) }
    }

    /// The descriptor alone, which is closed wherever it is dropped.
    pub(crate) fn into_owned(mut self) -> OwnedFd {
        self.fd.take().expect("present until it is dropped")
    }

    /// The kernel's name for it, such as `anon_inode:[eventfd]`; a path if it has one.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn kind(&self) -> Result<String, Errno> {
        let link = format!("/proc/self/fd/{}", self.as_fd().as_raw_fd());
        Ok(rustix::fs::readlink(link, Vec::new())?.to_string_lossy().into_owned())
    }
}

impl<T: Into<OwnedFd>> From<T> for ForeignFd {
    fn from(fd: T) -> Self {
        Self { fd: Some(fd.into()), closer: None }
    }
}

impl AsFd for ForeignFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until it is dropped").as_fd()
    }
}

impl Drop for ForeignFd {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.closer.take().unwrap_or_default().close(fd);
        }
    }
}

/// The kernel's name for an eventfd. Nothing else has that name: all paths begin with a slash or a
/// bracket.
pub(crate) const EVENTFD: &str = "anon_inode:[eventfd]";

/// Prefix of the kernel's name for an unnamed pipe.
pub(crate) const PIPE: &str = "pipe:[";

/// Bytes from a socket, with their descriptors.
pub(crate) struct Received {
    pub(crate) bytes: usize,
    pub(crate) fds: Vec<ForeignFd>,
    /// `true` if this process had no room for some of the descriptors.
    pub(crate) fds_truncated: bool,
}

/// Receives from a stream socket, without waiting.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    closer: &Closer,
) -> Result<Received, Errno> {
    // Space for all possible descriptors: the kernel closes those that do not fit in this thread.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SCM_MAX_FD))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let slices = &mut [IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(socket, slices, &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights.map(|fd| ForeignFd::new(fd, closer)));
        }
    }
    let fds_truncated = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(Received { bytes: received.bytes, fds, fds_truncated })
}

/// Receives bytes from a stream socket whose peer must send no descriptors, without waiting.
///
/// # Errors
/// As recvmsg(2); `InvalidData` if descriptors came: close the connection then.
pub fn receive_bytes(socket: impl AsFd, bytes: &mut [u8], closer: &Closer) -> io::Result<usize> {
    let received = receive(socket.as_fd(), bytes, closer)?;
    match received.fds.is_empty() && !received.fds_truncated {
        true => Ok(received.bytes),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, STRAY)),
    }
}

/// Error of a connection that received descriptors.
const STRAY: &str = "the peer sent file descriptors, and only bytes are expected here";

/// A connection for bytes without descriptors; no call on it waits, nor does its drop.
#[derive(Debug)]
pub struct ByteStream {
    socket: ForeignFd,
    closer: Closer,
}

impl ByteStream {
    /// Wraps a connected stream socket, which `closer` closes.
    pub fn new(socket: impl Into<OwnedFd>, closer: &Closer) -> Self {
        Self { socket: ForeignFd::new(socket, closer), closer: closer.clone() }
    }
}

impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for ByteStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        receive_bytes(&self.socket, bytes, &self.closer)
    }
}

impl Write for ByteStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.socket, bytes, flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ByteStream {
    fn drop(&mut self) {
        // Tells the peer now, not after the closer's other calls.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::testing::{drain, lingering};

    /// Lets a lingering socket close, and waits until all pending calls are made.
    fn let_close(peer: TcpStream, closer: &Closer) {
        let reads = std::thread::spawn(move || drain(peer));
        while closer.waiting() > 0 {
            std::thread::yield_now();
        }
        reads.join().unwrap();
    }

    #[test]
    fn a_slow_close_delays_no_other_thread() {
        let (fd, peer) = lingering();
        let closer = Closer::default();
        drop(ForeignFd::new(fd, &closer));
        drop(ForeignFd::new(std::fs::File::open("/dev/null").unwrap(), &closer));
        assert_eq!(closer.waiting(), 2);
        let_close(peer, &closer);
    }

    #[test]
    fn nor_for_what_waits_unread_in_a_socket() {
        let (fd, peer) = lingering();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let message = crate::Message::request(crate::Request::SetLogFd, &[0u8; 0]);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        crate::socket::send_before(&theirs, &message, &[fd.as_fd()], end).unwrap();
        drop((fd, theirs));
        let closer = Closer::default();
        drop(ForeignFd::new(ours, &closer));
        assert_eq!(closer.waiting(), 1);
        let_close(peer, &closer);
    }

    #[test]
    fn everything_is_closed_by_the_thread_which_ends() {
        let closer = Closer::default();
        let weak = Arc::downgrade(&closer.0);
        // A pipe's mutex, an epoll instance that watches an eventfd, and pages to free can all make
        // it wait.
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let memory = rustix::fs::memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        let (read, write) = std::io::pipe().unwrap();
        let (slow, peer) = lingering();
        drop(ForeignFd::new(slow, &closer));
        for (fd, waiting) in [event, memory, read.into(), write.into()].into_iter().zip(2..) {
            drop(ForeignFd::new(fd, &closer));
            assert_eq!(closer.waiting(), waiting);
        }
        let_close(peer, &closer);
        drop(closer);
        let end = Instant::now() + Duration::from_secs(60);
        while weak.strong_count() > 0 {
            assert!(Instant::now() < end, "the thread does not end");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_call_that_waits_is_too_late_and_its_peer_is_told_to_stop() {
        let closer = Closer::default();
        let (held, wait) = mpsc::channel::<()>();
        let pending = closer.call(move || wait.recv().is_err());
        let behind = closer.call(|| 7);
        let now = Instant::now();
        assert_eq!(pending.poll(now), Ok(None));
        assert_eq!(pending.poll(now + 2 * DEADLINE), Err(TooLate));
        assert_eq!(closer.load(), CloserLoad::Light);
        (0..WAITING_MAX).for_each(|_| closer.free(()));
        assert_ne!(closer.load(), CloserLoad::Light);
        while closer.load() == CloserLoad::Busy {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(closer.load(), CloserLoad::Stuck);
        drop(held);
        while closer.waiting() > 0 {
            std::thread::yield_now();
        }
        assert_eq!((pending.poll(now), behind.poll(now)), (Ok(Some(true)), Ok(Some(7))));
        assert_eq!(closer.load(), CloserLoad::Light);
    }

    #[test]
    fn descriptors_among_bytes_are_an_error_and_closed_elsewhere() {
        let (slow, peer) = lingering();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let message = crate::Message::request(crate::Request::SetLogFd, &[0u8; 0]);
        let end = Instant::now() + Duration::from_secs(60);
        let closer = Closer::default();
        let mut stream = ByteStream::new(ours, &closer);
        crate::socket::send_before(&theirs, &message, &[], end).unwrap();
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), message.to_bytes().len());
        crate::socket::send_before(&theirs, &message, &[slow.as_fd()], end).unwrap();
        drop(slow);
        let error = stream.read(&mut [0; 64]).unwrap_err();
        assert_eq!(error.to_string(), STRAY);
        assert_eq!(closer.waiting(), 1);
        drop(stream);
        assert_eq!((&theirs).read(&mut [0; 8]).unwrap(), 0, "it is hung up on at once");
        let_close(peer, &closer);
    }
}

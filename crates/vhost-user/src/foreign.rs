//! Descriptors that a peer sent, and how they are closed.
//!
//! # Why
//! Closing a file may mean to wait for somebody: a file of a file system in user space for the program that serves
//! it, a TCP socket for its peer, if its owner wanted that. A peer can send such a file beside any message, or in
//! a socket in which it waits unread, and whoever closes it must not be a thread that others need.
//!
//! # Model
//! A [`ForeignFd`] closes at once what nobody waits for: memory, eventfds, pipes. All else it leaves to its
//! [`Closer`]: a thread that is begun when there is something to close and ends when nothing is left. How much it has
//! to do, and so whether its peer abuses it, is [told](Closer::waiting).
//!
//! What a file is must be learned without asking it: `fstat` and `fstatfs` may wait for the same program. Seals are
//! known of tmpfs (memfds among it) and hugetlbfs only, and the kernel itself answers what `/proc/self/fd` calls a file.
//!
//! # Limits
//! A process does not end while one of its threads waits in `close` for a program that does not answer.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

/// Closes descriptors in a thread of its own, one after the other. Its clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Closer(Arc<Mutex<Closing>>);

#[derive(Debug, Default)]
struct Closing {
    left: VecDeque<OwnedFd>,
    /// Whether a thread is at it, and whether it has one more in its hand.
    runs: bool,
    in_hand: bool,
}

impl Closer {
    /// Has a descriptor closed.
    pub fn close(&self, fd: impl Into<OwnedFd>) {
        let mut closing = self.lock();
        closing.left.push_back(fd.into());
        if !closing.runs {
            let closer = self.clone();
            let thread = std::thread::Builder::new().name("closer".into());
            // Where no thread can be had, the next descriptor's closes this one.
            closing.runs = thread.spawn(move || closer.run()).is_ok();
        }
    }

    /// Descriptors that are not closed yet.
    pub fn waiting(&self) -> usize {
        let closing = self.lock();
        closing.left.len() + usize::from(closing.in_hand)
    }

    fn run(&self) {
        while let Some(fd) = self.next() {
            drop(fd);
        }
    }

    fn next(&self) -> Option<OwnedFd> {
        let mut closing = self.lock();
        let next = closing.left.pop_front();
        closing.in_hand = next.is_some();
        closing.runs = closing.in_hand;
        next
    }

    fn lock(&self) -> MutexGuard<'_, Closing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A descriptor that a peer sent, and nobody waits for when it is dropped.
#[derive(Debug)]
pub struct ForeignFd {
    /// Present until it is dropped.
    fd: Option<OwnedFd>,
    /// Who closes it; `None`: a closer of its own.
    closer: Option<Closer>,
}

impl ForeignFd {
    /// A descriptor that came, and who closes it.
    pub fn new(fd: OwnedFd, closer: &Closer) -> Self {
        Self { fd: Some(fd), closer: Some(closer.clone()) }
    }

    /// The descriptor alone, which is closed wherever it is dropped.
    pub fn into_owned(mut self) -> OwnedFd {
        self.fd.take().expect("present until it is dropped")
    }

    /// What the kernel calls it, such as `anon_inode:[eventfd]`; a path if it has one.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn kind(&self) -> Result<String, Errno> {
        kind(self.as_fd())
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
        let Some(fd) = self.fd.take() else { return };
        if !closes_at_once(fd.as_fd()) {
            self.closer.take().unwrap_or_default().close(fd);
        }
    }
}

/// What the kernel calls an eventfd. Nothing else has that name: all paths begin with a slash or a bracket.
pub(crate) const EVENTFD: &str = "anon_inode:[eventfd]";

/// How the name of a pipe begins that is not in any directory.
pub(crate) const PIPE: &str = "pipe:[";

fn kind(fd: BorrowedFd<'_>) -> Result<String, Errno> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::readlink(link, Vec::new())?.to_string_lossy().into_owned())
}

/// Whether nobody is asked when this is closed.
fn closes_at_once(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok()
        || kind(fd).is_ok_and(|kind| kind == EVENTFD || kind.starts_with(PIPE))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::fs::MemfdFlags;

    use super::*;

    /// A socket that closes only when its peer has read what is left, and the peer.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 1 << 16]).is_ok() {}
        let long = Some(Duration::from_secs(3600));
        rustix::net::sockopt::set_socket_linger(&socket, long).unwrap();
        (socket.into(), peer)
    }

    /// Lets a lingering socket close, and waits until all is closed.
    fn let_close(mut peer: TcpStream, closer: &Closer) {
        let reads = std::thread::spawn(move || while peer.read(&mut [0; 1 << 16]).unwrap() > 0 {});
        while closer.waiting() > 0 {
            std::thread::yield_now();
        }
        reads.join().unwrap();
    }

    #[test]
    fn nobody_waits_for_what_does_not_close() {
        let (fd, peer) = lingering();
        let closer = Closer::default();
        drop(ForeignFd::new(fd, &closer));
        drop(ForeignFd::new(std::fs::File::open("/dev/null").unwrap().into(), &closer));
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
        drop(ForeignFd::new(ours.into(), &closer));
        assert_eq!(closer.waiting(), 1);
        let_close(peer, &closer);
    }

    #[test]
    fn what_closes_at_once_needs_no_thread() {
        let closer = Closer::default();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let memory = rustix::fs::memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        let (read, write) = std::io::pipe().unwrap();
        let (weak, strong) = (Arc::downgrade(&closer.0), closer.clone());
        for fd in [event, memory, read.into(), write.into()] {
            assert!(closes_at_once(fd.as_fd()), "{:?}", kind(fd.as_fd()));
            drop(ForeignFd::new(fd, &closer));
        }
        drop((closer, strong));
        assert_eq!(weak.strong_count(), 0, "a thread was begun");
    }
}

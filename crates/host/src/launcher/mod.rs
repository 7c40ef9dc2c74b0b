//! The launcher: a small process that keeps the rights which the daemon gives up.
//!
//! # Model
//! [`start`] runs this program once more, as the launcher, with one end of a socket pair. The
//! daemon then drops its own rights. What needs rights is a [`Request`], made by [`ask`]: the
//! launcher does it and returns the result with its descriptors. Without a launcher the process
//! does it itself, so there is one piece of code for both.
//!
//! The launcher trusts no request: the kinds are a closed set ([`Handler`]), and each has its
//! checks ([`Request::check`]). A malformed request is dropped, and its descriptors are closed. The
//! launcher ends with the daemon. It can be told to serve only what is named ([`keep_to`]).
//!
//! A request for which it matters ([`Request::IN_NAMESPACE`]) belongs to the network namespace of
//! its thread; see [`crate::netns::within`]. Each is served in a thread of its own, so one that
//! waits delays no other.
//!
//! # Limits
//! A request and its answer have at most [`BYTES_MAX`] bytes and [`FDS_MAX`] descriptors. At most
//! [`THREADS_MAX`] requests run at a time; others wait. An answer that takes longer than
//! [`ANSWER_MAX`] is an error; the launcher may do the work all the same.

mod named;
mod wire;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use named::NOT_NAMED;
pub(crate) use named::check_kinds;
pub use named::{
    Named, PF, check_file, check_index, check_named, check_netns, check_socket, keep_to,
};
pub use wire::{BYTES_MAX, FDS_MAX};
use wire::{Message, receive, send};

/// Most requests that run at a time.
pub const THREADS_MAX: usize = 64;
/// Longest time for an answer: cards take up to a minute to make their VFs.
pub const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Result of a request, with descriptors; or the kernel's error.
pub type Answer<T> = Result<(T, Vec<OwnedFd>), Errno>;

/// A request that may need rights.
pub trait Request: Serialize + DeserializeOwned {
    /// Its name, unique among the requests.
    const NAME: &'static str;
    /// Its purpose, and the checks of its fields, for the documentation.
    const DOES: &'static str;
    /// `true` if it is served in the network namespace of the thread that makes it; otherwise in
    /// the launcher's.
    const IN_NAMESPACE: bool = false;
    /// Result besides descriptors.
    type Reply: Serialize + DeserializeOwned;

    /// Refuses what no daemon asks for. Only a launcher calls it.
    ///
    /// # Errors
    /// `EPERM` for what is refused; the kernel's.
    fn check(&self, _fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        Ok(())
    }

    /// Does it with the rights of the calling process.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for a field that no daemon sends.
    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<Self::Reply>;
}

/// A kind of request that the launcher serves.
#[derive(Debug)]
pub struct Handler {
    /// The request's name.
    pub name: &'static str,
    /// Its purpose and checks.
    pub does: &'static str,
    in_namespace: bool,
    check: fn(Value, &[BorrowedFd<'_>]) -> Result<(), Errno>,
    serve: fn(Value, &[BorrowedFd<'_>]) -> Answer<Value>,
}

impl Handler {
    /// Handler of a kind of request.
    pub const fn of<R: Request>() -> Handler {
        let (name, does, in_namespace) = (R::NAME, R::DOES, R::IN_NAMESPACE);
        Handler { name, does, in_namespace, check: check_as::<R>, serve: serve_as::<R> }
    }
}

/// Reads and checks a request.
fn checked<R: Request>(body: Value, fds: &[BorrowedFd<'_>]) -> Result<R, Errno> {
    let request: R = serde_json::from_value(body).map_err(|_| Errno::INVAL)?;
    request.check(fds)?;
    Ok(request)
}

fn check_as<R: Request>(body: Value, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    checked::<R>(body, fds).map(drop)
}

fn serve_as<R: Request>(body: Value, fds: &[BorrowedFd<'_>]) -> Answer<Value> {
    let (reply, fds) = checked::<R>(body, fds)?.serve(fds)?;
    Ok((serde_json::to_value(reply).map_err(|_| Errno::INVAL)?, fds))
}

/// Socket to the launcher, if there is one.
static LAUNCHER: OnceLock<OwnedFd> = OnceLock::new();
/// Requests that failed for reasons which the operator can change.
static FAILED: Mutex<BTreeSet<Failed>> = Mutex::new(BTreeSet::new());
/// Most of them that are kept until they are told.
const FAILED_MAX: usize = 16;

thread_local! {
    /// Network namespace of this thread's requests, if it is not the process's.
    static NAMESPACE: RefCell<Option<Arc<OwnedFd>>> = const { RefCell::new(None) };
}

/// `true` if this process has a launcher.
pub fn is_present() -> bool {
    LAUNCHER.get().is_some()
}

/// `true` if this process had a launcher, which has ended.
pub fn has_ended() -> bool {
    LAUNCHER.get().is_some_and(|launcher| is_closed(launcher.as_fd()))
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failed {
    /// It was not answered in time.
    Unanswered(&'static str),
    /// It is about what is not [`Named`]: the request, and its fields.
    NotNamed(&'static str, String),
}

/// Requests that failed so since the last call.
pub fn failed() -> BTreeSet<Failed> {
    std::mem::take(&mut FAILED.lock().unwrap_or_else(PoisonError::into_inner))
}

fn is_closed(socket: BorrowedFd<'_>) -> bool {
    let mut socket = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut socket, Some(&none)).is_ok() && socket[0].revents().contains(PollFlags::HUP)
}

/// Runs this program with `arguments` as the launcher, which must call [`serve`] with its standard
/// input. Call this once, before the rights are given up.
///
/// # Errors
/// The program does not start.
pub fn start(arguments: &[&OsStr]) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    set_socket_timeout(&ours, Timeout::Send, Some(ANSWER_MAX))?;
    // The same file, even if it has been replaced since. It ends when the socket closes.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("shunt").args(arguments).stdin(Stdio::from(theirs)).spawn()?;
    let _ = LAUNCHER.set(ours);
    Ok(())
}

/// Makes a request: by the launcher, or without one by this process.
///
/// # Errors
/// The kernel's error; `ECONNRESET` if the launcher has ended, `ETIMEDOUT` after [`ANSWER_MAX`],
/// `EPERM` for what is not [`Named`].
pub fn ask<R: Request>(request: R, fds: &[BorrowedFd<'_>]) -> Answer<R::Reply> {
    let Some(launcher) = LAUNCHER.get() else { return request.serve(fds) };
    let answer = ask_of(launcher.as_fd(), &request, fds, ANSWER_MAX);
    let failed = match answer {
        Err(Errno::TIMEDOUT) => Failed::Unanswered(R::NAME),
        Err(NOT_NAMED) => {
            Failed::NotNamed(R::NAME, serde_json::to_string(&request).unwrap_or_default())
        }
        answer => return answer,
    };
    let mut all = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() < FAILED_MAX {
        all.insert(failed);
    }
    drop(all);
    answer.map_err(|errno| if errno == NOT_NAMED { Errno::PERM } else { errno })
}

/// Makes a request to a launcher.
fn ask_of<R: Request>(
    launcher: BorrowedFd<'_>,
    request: &R,
    fds: &[BorrowedFd<'_>],
    within: Duration,
) -> Answer<R::Reply> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    set_socket_timeout(&ours, Timeout::Recv, Some(within))?;
    let namespace = NAMESPACE.with_borrow(Clone::clone).filter(|_| R::IN_NAMESPACE);
    let body = serde_json::to_value(request).map_err(|_| Errno::INVAL)?;
    let message = Message { name: R::NAME.to_owned(), in_namespace: namespace.is_some(), body };
    let namespace = namespace.iter().map(|namespace| namespace.as_fd());
    let all: Vec<_> =
        std::iter::once(theirs.as_fd()).chain(namespace).chain(fds.iter().copied()).collect();
    let failed = |errno| match errno {
        Errno::PIPE => Errno::CONNRESET, // a launcher that has ended
        Errno::AGAIN => Errno::TIMEDOUT,
        errno => errno,
    };
    send(launcher, &message, &all).map_err(failed)?;
    drop(theirs);
    let answer = receive::<Result<Value, i32>>(ours.as_fd()).map_err(failed)?;
    let (answer, fds) = answer.ok_or(Errno::CONNRESET)?;
    let reply = answer.map_err(Errno::from_raw_os_error)?;
    Ok((serde_json::from_value(reply).map_err(|_| Errno::BADMSG)?, fds))
}

/// As [`ask`], but first tries it with this process's rights, which often suffice.
///
/// # Errors
/// As [`ask`].
pub fn ask_if_refused<R: Request + Clone>(request: R, fds: &[BorrowedFd<'_>]) -> Answer<R::Reply> {
    match request.clone().serve(fds) {
        Err(Errno::PERM | Errno::ACCESS) if is_present() => ask(request, fds),
        done => done,
    }
}

/// Makes the requests of `work`, on this thread, in a namespace.
pub(crate) fn in_namespace<T>(namespace: OwnedFd, work: impl FnOnce() -> T) -> T {
    /// Restores the namespace, also after a panic.
    struct Restore(Option<Arc<OwnedFd>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            NAMESPACE.set(self.0.take());
        }
    }
    let _restore = Restore(NAMESPACE.replace(Some(Arc::new(namespace))));
    work()
}

/// Serves requests until the daemon has ended.
///
/// # Errors
/// The socket is none.
pub fn serve(socket: BorrowedFd<'_>, handlers: &'static [Handler]) -> io::Result<()> {
    // A reference for each thread.
    let running = Arc::new(());
    loop {
        let (message, fds) = match receive::<Message>(socket) {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(()),
            // Its descriptors are closed, which tells the daemon.
            Err(Errno::BADMSG | Errno::MSGSIZE) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let own = running.clone();
        let work = move || {
            answer(message, fds, handlers);
            drop(own);
        };
        // Without a thread the descriptors are closed as well.
        let thread = std::thread::Builder::new().name("request".into()).spawn(work);
        if let (Ok(thread), true) = (thread, Arc::strong_count(&running) > THREADS_MAX) {
            let _ = thread.join(); // a panic is an answer that does not come
        }
    }
}

/// Handler of a request.
fn handler<'a>(message: &Message, handlers: &'a [Handler]) -> Result<&'a Handler, Errno> {
    let found = handlers.iter().find(|handler| handler.name == message.name);
    found.filter(|handler| handler.in_namespace || !message.in_namespace).ok_or(Errno::INVAL)
}

/// Reads and checks a message as a launcher does, but does not serve it; returns the name of the
/// request.
///
/// # Errors
/// `EBADMSG` for a malformed message, `EINVAL` for a malformed request or one of no kind; those of
/// [`Request::check`].
pub fn check(
    message: &[u8],
    fds: &[BorrowedFd<'_>],
    handlers: &[Handler],
) -> Result<&'static str, Errno> {
    let message: Message = serde_json::from_slice(message).map_err(|_| Errno::BADMSG)?;
    let handler = handler(&message, handlers)?;
    (handler.check)(message.body, fds)?;
    Ok(handler.name)
}

/// Answers a request, in a thread of its own.
fn answer(message: Message, fds: Vec<OwnedFd>, handlers: &[Handler]) {
    let mut fds = fds.into_iter();
    let Some(reply) = fds.next() else { return };
    let namespace = if message.in_namespace { fds.next() } else { None };
    let fds: Vec<OwnedFd> = fds.collect();
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let served = (|| {
        let handler = handler(&message, handlers)?;
        if let Some(namespace) = &namespace {
            named::check_namespace(namespace.as_fd())?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        (handler.serve)(message.body, &borrowed)
    })();
    let (text, fds) = match served {
        Ok((value, fds)) => (Ok(value), fds),
        Err(errno) => (Err(errno.raw_os_error()), Vec::new()),
    };
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let _ = send(reply.as_fd(), &text, &fds); // fails if the daemon has ended
}

#[cfg(test)]
mod tests;

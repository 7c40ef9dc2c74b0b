//! Requests over a socket pair, served by a thread.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde::Deserialize;

use super::*;
use crate::netns;

/// Doubles a number, and returns the descriptors that were passed.
#[derive(Serialize, Deserialize)]
struct Double(i32);

impl Request for Double {
    const NAME: &'static str = "double";
    const DOES: &'static str = "";
    type Reply = i32;

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<i32> {
        let fds: std::io::Result<Vec<OwnedFd>> =
            fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
        Ok((self.0.checked_mul(2).ok_or(Errno::RANGE)?, fds.map_err(|_| Errno::MFILE)?))
    }
}

/// A request that the launcher does not know.
#[derive(Serialize, Deserialize)]
struct Unknown;

impl Request for Unknown {
    const NAME: &'static str = "unknown";
    const DOES: &'static str = "";
    type Reply = ();

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        Ok(((), Vec::new()))
    }
}

const HANDLERS: &[Handler] = &[Handler::of::<Double>()];

/// A socket to a launcher in this process, which ends with it.
fn launcher() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    std::thread::spawn(move || serve(theirs.as_fd(), HANDLERS).unwrap());
    ours
}

#[test]
fn a_request_is_answered_with_its_descriptors() {
    let launcher = launcher();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (reply, fds) = ask_of(launcher.as_fd(), Double(21), &[theirs.as_fd()]).unwrap();
    assert_eq!(reply, 42);
    drop(theirs);
    let [passed] = <[OwnedFd; 1]>::try_from(fds).unwrap();
    UnixStream::from(passed).write_all(b"x").unwrap();
    let mut read = [0];
    (&ours).read_exact(&mut read).unwrap();
    assert_eq!(&read, b"x");
    assert_eq!((&ours).read(&mut read).unwrap(), 0, "the launcher has closed its descriptors");
}

#[test]
fn errors_and_unknown_requests_are_told() {
    let launcher = launcher();
    assert_eq!(ask_of(launcher.as_fd(), Double(i32::MAX), &[]).unwrap_err(), Errno::RANGE);
    assert_eq!(ask_of(launcher.as_fd(), Unknown, &[]).unwrap_err(), Errno::INVAL);
    let many = [launcher.as_fd(); FDS_MAX];
    assert_eq!(ask_of(launcher.as_fd(), Double(1), &many).unwrap_err(), Errno::MSGSIZE);
    assert_eq!(ask_of(launcher.as_fd(), Double(1), &[]).unwrap().0, 2, "it serves on");
}

#[test]
fn a_launcher_that_has_ended_is_an_error() {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    drop(theirs);
    assert_eq!(ask_of(ours.as_fd(), Double(1), &[]).unwrap_err(), Errno::CONNRESET);
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let launcher = launcher();
    std::thread::scope(|scope| {
        for number in 0..2 * THREADS_MAX as i32 {
            let launcher = launcher.as_fd();
            scope.spawn(move || {
                assert_eq!(ask_of(launcher, Double(number), &[]).unwrap().0, 2 * number);
            });
        }
    });
}

#[test]
fn the_namespace_of_requests_ends_with_the_work() {
    let path = format!("/proc/{}/ns/net", std::process::id());
    let namespace = || -> OwnedFd { std::fs::File::open(&path).unwrap().into() };
    let has = || NAMESPACE.with_borrow(Option::is_some);
    let inner = in_namespace(namespace(), || in_namespace(namespace(), has) && has());
    assert!(inner);
    let panicked = std::panic::catch_unwind(|| in_namespace(namespace(), || panic!("in it")));
    assert!(panicked.is_err() && !has());
    assert!(!is_present(), "this process serves its requests itself");
    assert!(!netns::within(Some(&path), has).unwrap_or(false), "its thread is moved instead");
}

//! Requests over a socket pair, served by a thread.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde::Deserialize;

use super::*;
use crate::netns;

/// Doubles a number, and returns the descriptors that were passed.
#[derive(Serialize, Deserialize)]
struct Double(i32);

/// Number that makes it panic.
const PANICS: i32 = 1 << 20;

impl Request for Double {
    const NAME: &'static str = "double";
    const DOES: &'static str = "";
    type Reply = i32;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        if self.0 < 0 { Err(Errno::PERM) } else { Ok(()) }
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<i32> {
        let fds: std::io::Result<Vec<OwnedFd>> =
            fds.iter().map(BorrowedFd::try_clone_to_owned).collect();
        assert_ne!(self.0, PANICS);
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
    assert_eq!(ask_of(launcher.as_fd(), Double(-1), &[]).unwrap_err(), Errno::PERM, "checked");
    assert_eq!(Double(-1).serve(&[]).unwrap().0, -2, "but not in the process itself");
    assert_eq!(ask_of(launcher.as_fd(), Double(1), &[]).unwrap().0, 2, "it serves on");
}

#[test]
fn a_malformed_request_or_one_that_panics_is_dropped() {
    let launcher = launcher();
    let malformed: [&[u8]; 4] = [b"{", b"[]", b"\xff", &[b' '; BYTES_MAX + 1]];
    for bytes in malformed {
        rustix::net::send(&launcher, bytes, rustix::net::SendFlags::empty()).unwrap();
    }
    for _ in 0..THREADS_MAX + 1 {
        assert_eq!(ask_of(launcher.as_fd(), Double(PANICS), &[]).unwrap_err(), Errno::CONNRESET);
    }
    assert_eq!(ask_of(launcher.as_fd(), Double(1), &[]).unwrap().0, 2, "it serves on");
}

#[test]
fn a_launcher_that_has_ended_is_an_error() {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    assert!(!is_closed(ours.as_fd()));
    drop(theirs);
    assert!(is_closed(ours.as_fd()));
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

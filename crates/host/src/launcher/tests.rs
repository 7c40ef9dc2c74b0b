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

/// Tells device and inode of its thread's network namespace.
#[derive(Serialize, Deserialize)]
struct Where<const IN_NAMESPACE: bool>;

impl<const IN_NAMESPACE: bool> Request for Where<IN_NAMESPACE> {
    const NAME: &'static str = if IN_NAMESPACE { "where" } else { "at-home" };
    const DOES: &'static str = "";
    const IN_NAMESPACE: bool = IN_NAMESPACE;
    type Reply = (u64, u64);

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<(u64, u64)> {
        let file = rustix::fs::stat("/proc/thread-self/ns/net")?;
        Ok(((file.st_dev, file.st_ino), Vec::new()))
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

const HANDLERS: &[Handler] =
    &[Handler::of::<Double>(), Handler::of::<Where<true>>(), Handler::of::<Where<false>>()];

fn ask_of<R: Request>(
    launcher: BorrowedFd<'_>,
    request: R,
    fds: &[BorrowedFd<'_>],
) -> Answer<R::Reply> {
    super::ask_of(launcher, &request, fds, Duration::from_secs(60))
}

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
fn a_launcher_that_does_not_answer_is_an_error() {
    let flags = SocketFlags::CLOEXEC;
    let (ours, _theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let short = Duration::from_millis(10);
    let asked = super::ask_of(ours.as_fd(), &Double(1), &[], short);
    assert_eq!(asked.unwrap_err(), Errno::TIMEDOUT);
    assert_eq!(failed(), BTreeSet::new(), "this process has no launcher");
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
fn only_requests_for_which_it_matters_are_served_in_a_namespace() {
    let Ok(other) = crate::unshare::network_file() else { return };
    let launcher = launcher();
    let here = Where::<false>.serve(&[]).unwrap().0;
    let inside = in_namespace(other.try_clone().unwrap(), || {
        let at_home = ask_of(launcher.as_fd(), Where::<false>, &[]).unwrap().0;
        (at_home, ask_of(launcher.as_fd(), Where::<true>, &[]).unwrap().0)
    });
    assert_eq!(inside.0, here);
    assert_ne!(inside.1, here);
    // A daemon that has been taken over may ask for another.
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let message = Message { name: "at-home".into(), in_namespace: true, body: Value::Null };
    send(launcher.as_fd(), &message, &[theirs.as_fd(), other.as_fd()]).unwrap();
    drop(theirs);
    let (answer, _) = receive::<Result<Value, i32>>(ours.as_fd()).unwrap().unwrap();
    assert_eq!(answer, Err(Errno::INVAL.raw_os_error()));
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

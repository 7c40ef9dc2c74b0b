//! Threads in the sandbox.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use super::*;

/// Result of `work` on a thread with the filter of lanes.
fn as_lane<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let lane = std::thread::Builder::new().name("lane-test".into());
    let confined = move || {
        confine_calls().unwrap();
        confine_lane();
        work()
    };
    lane.spawn(confined).unwrap().join().unwrap()
}

#[test]
fn a_lane_opens_and_starts_nothing() {
    let opened = as_lane(|| File::open("/dev/null").map(drop).map_err(|error| error.kind()));
    assert_eq!(opened, Err(std::io::ErrorKind::PermissionDenied));
    let executed = as_lane(|| std::process::Command::new("/bin/true").exec().kind());
    assert_eq!(executed, std::io::ErrorKind::PermissionDenied);
    for family in [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::NETLINK] {
        let made = as_lane(move || rustix::net::socket(family, SocketType::DGRAM, None).map(drop));
        assert_eq!(made, Err(Errno::PERM), "{family:?}");
    }
    let moved = as_lane(|| {
        let other = rustix::thread::CpuSet::new();
        rustix::thread::sched_setaffinity(None, &other)
    });
    assert_eq!(moved, Err(Errno::PERM));
    let killed = as_lane(|| {
        let us = rustix::process::getpid();
        rustix::process::kill_process(us, rustix::process::Signal::TERM)
    });
    assert_eq!(killed, Err(Errno::PERM));
    let refused = refused().unwrap();
    assert!(refused.count >= 7, "{refused:?}");
}

#[test]
fn a_refused_process_is_an_error_also_while_signals_are_blocked() {
    // The standard library blocks them while it starts a program.
    let started = as_lane(|| std::process::Command::new("/bin/true").spawn().map(drop));
    assert_eq!(started.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_lane_does_its_work() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let clock = rustix::time::TimerfdClockId::Monotonic;
    let timer = rustix::time::timerfd_create(clock, rustix::time::TimerfdFlags::empty()).unwrap();
    assert!(as_lane(is_lane) && !is_lane());
    let worked = as_lane(move || {
        let soon = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1000 };
        let never = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = rustix::time::Itimerspec { it_interval: never, it_value: soon };
        let flags = rustix::time::TimerfdTimerFlags::empty();
        rustix::time::timerfd_settime(&timer, flags, &time)?;
        rustix::io::read(&timer, &mut [0; 8])?;
        (&ours).write_all(&[7])?;
        let mut read = [0];
        (&theirs).read_exact(&mut read)?;
        let large = vec![read[0]; 64 << 20];
        std::thread::sleep(Duration::from_millis(1));
        let sum: u64 = large.iter().map(|byte| u64::from(*byte)).sum();
        // A closer, for example.
        let helper = std::thread::Builder::new().name("helper".into()).spawn(|| 3)?;
        std::io::Result::Ok((sum, helper.join().unwrap_or_default()))
    });
    assert_eq!(worked.unwrap(), (7 * (64 << 20), 3));
}

#[test]
fn threads_of_a_lane_are_confined_as_well() {
    let opened = as_lane(|| {
        let helper = std::thread::spawn(|| File::open("/dev/null").is_ok());
        helper.join().unwrap()
    });
    assert!(!opened);
}

#[test]
fn threads_started_before_are_not_confined() {
    as_lane(|| ());
    assert!(File::open("/dev/null").is_ok());
}

#[test]
fn files_outside_the_directories_are_not_opened() {
    let [own, other, links] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    for dir in [&own, &other, &links] {
        std::fs::write(dir.path().join("there"), "text").unwrap();
    }
    std::os::unix::fs::symlink(other.path(), own.path().join("to-other")).unwrap();
    let confined = || {
        let (own, other, links) = (own.path(), other.path(), links.path());
        let all = [
            ("/proc".into(), FileRights::Read),
            ("/no-such".into(), FileRights::Read),
            (own.to_owned(), FileRights::Write),
            (links.to_owned(), FileRights::Links),
            (own.join("to-other"), FileRights::Write),
            (own.join("to-other/there"), FileRights::Read),
        ];
        if !confine_files(&all, false).unwrap() {
            return; // no Landlock in this kernel
        }
        let denied = std::io::ErrorKind::PermissionDenied;
        let kind = |result: std::io::Result<()>| result.map_err(|error| error.kind());
        assert_eq!(kind(std::fs::write(own.join("new"), "text")), Ok(()));
        assert_eq!(kind(std::fs::rename(own.join("new"), own.join("there"))), Ok(()));
        assert_eq!(kind(std::fs::read("/proc/self/status").map(drop)), Ok(()));
        assert_eq!(kind(std::fs::read(other.join("there")).map(drop)), Err(denied));
        assert_eq!(kind(std::fs::write(other.join("new"), "text")), Err(denied));
        assert_eq!(kind(std::fs::remove_file(other.join("there"))), Err(denied));
        assert_eq!(kind(std::fs::write("/proc/self/comm", "name")), Err(denied));
        assert_eq!(kind(UnixListener::bind(other.join("socket")).map(drop)), Err(denied));
        let linked = std::os::unix::fs::symlink(own, links.join("link"));
        assert_eq!(kind(linked), Ok(()));
        assert_eq!(kind(std::fs::write(links.join("new"), "text")), Err(denied));
        assert_eq!(kind(std::fs::write(links.join("there"), "text")), Err(denied));
        assert!(std::fs::rename(own.join("there"), links.join("moved")).is_err());
        assert_eq!(kind(std::fs::remove_file(links.join("link"))), Ok(()));
        let linked = std::fs::hard_link(own.join("there"), other.join("link"));
        assert!(linked.is_err());
    };
    std::thread::scope(|scope| scope.spawn(confined).join().unwrap());
}

#[test]
fn links_of_other_directories_are_followed() {
    let [own, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (file, link) = (other.path().join("file"), other.path().join("link"));
    std::fs::write(&file, "text").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let read = || {
        let all = [(own.path().to_owned(), FileRights::Write), (link.clone(), FileRights::Read)];
        confine_files(&all, false).unwrap();
        std::fs::read_to_string(&link).unwrap()
    };
    assert_eq!(std::thread::scope(|scope| scope.spawn(read).join().unwrap()), "text");
}

#[test]
fn abstract_sockets_of_others_are_not_connected_to() {
    use std::os::linux::net::SocketAddrExt;
    let hard = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if hard.scope(Scope::AbstractUnixSocket).is_err() {
        return; // before Linux 6.12
    }
    let name = format!("shunt-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let connect = |abstract_sockets| {
        confine_files(&[], abstract_sockets).unwrap();
        UnixStream::connect_addr(&address).map(drop).map_err(|error| error.kind())
    };
    for (abstract_sockets, result) in
        [(true, Ok(())), (false, Err(std::io::ErrorKind::PermissionDenied))]
    {
        let connected =
            std::thread::scope(|scope| scope.spawn(|| connect(abstract_sockets)).join().unwrap());
        assert_eq!(connected, result);
    }
}

#[test]
fn capabilities_are_dropped() {
    let left = std::thread::spawn(|| {
        drop_capabilities().unwrap();
        rustix::thread::capabilities(None).unwrap().permitted
    });
    assert!((CapabilitySet::IPC_LOCK | CapabilitySet::empty()).contains(left.join().unwrap()));
}

//! File descriptors that a front-end should not send, and some valid ones.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use report::statistics::random::Random;
use rustix::event::epoll;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::hostile::connection::Disconnected;
use crate::hostile::memory::SIZE;

/// Sparse memory of `size` bytes.
pub(super) fn memfd(size: u64) -> Result<OwnedFd, Disconnected> {
    let fd = rustix::fs::memfd_create("shunt-lab-hostile", MemfdFlags::CLOEXEC);
    let fd = fd.map_err(|_| Disconnected)?;
    rustix::fs::ftruncate(&fd, size).map_err(|_| Disconnected)?;
    Ok(fd)
}

/// A descriptor of a random kind, valid or not.
pub(super) fn fd(random: &mut Random) -> Result<OwnedFd, Disconnected> {
    let open = |path: &str, flags| {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(|_| Disconnected)
    };
    match random.below(10) {
        0 => memfd(random.below(SIZE)),
        1 => open("/dev/null", OFlags::RDWR),
        2 => open("/dev/zero", OFlags::RDWR),
        3 => open("/", OFlags::RDONLY | OFlags::DIRECTORY),
        4 => open("/proc/self/exe", OFlags::RDONLY),
        5 => Ok(UnixStream::pair().map_err(|_| Disconnected)?.0.into()),
        6 => {
            let (reads, writes) = rustix::pipe::pipe().map_err(|_| Disconnected)?;
            Ok(if random.one_in(2) { reads } else { writes })
        }
        7 => epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|_| Disconnected),
        8 => ticking(),
        _ => {
            // A full counter: a write blocks unless the file is non-blocking.
            let flags = rustix::event::EventfdFlags::NONBLOCK;
            let event = rustix::event::eventfd(0, flags).map_err(|_| Disconnected)?;
            let _ = rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes());
            Ok(event)
        }
    }
}

/// A timer that is readable every microsecond, like repeated kicks.
fn ticking() -> Result<OwnedFd, Disconnected> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let fd =
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|_| Disconnected)?;
    let often = Timespec { tv_sec: 0, tv_nsec: 1000 };
    let timer = Itimerspec { it_interval: often, it_value: often };
    rustix::time::timerfd_settime(&fd, TimerfdTimerFlags::empty(), &timer)
        .map_err(|_| Disconnected)?;
    Ok(fd)
}

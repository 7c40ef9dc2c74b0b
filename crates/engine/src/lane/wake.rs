//! Sleep and wake-up of a lane.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// Wake-up sources of a lane: kicks, an eventfd and a timer.
#[derive(Debug)]
pub(crate) struct Wake {
    epoll: OwnedFd,
    event: OwnedFd,
    /// Ends a sleep at a time in microseconds; the timeout of epoll is in milliseconds.
    timer: OwnedFd,
}

/// Epoll data of the lane's own eventfd, and of kicks, which need not be told apart.
const OWN: u64 = 1;
const KICK: u64 = 0;

impl Wake {
    pub(crate) fn new() -> Result<Wake, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(OWN), epoll::EventFlags::IN)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(KICK), flags)?;
        Ok(Wake { epoll, event, timer })
    }

    /// Wakes the lane, or prevents its next sleep.
    pub(crate) fn wake(&self) {
        // The only failure is a full counter, which wakes as well.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Watches a guest's kicks, edge-triggered: each write wakes once, so they need not be read.
    pub(crate) fn watch(&self, kick: BorrowedFd<'_>) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        // A front-end may pass a file that cannot be watched. Its ring is then polled when another
        // one wakes the lane: it harms only itself.
        let _ = epoll::add(&self.epoll, kick, epoll::EventData::new_u64(KICK), flags);
    }

    /// Stops watching. Other processes may hold the same file open, so dropping ours is not enough.
    pub(crate) fn forget(&self, kick: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, kick);
    }

    /// Waits for a kick or [`wake`](Self::wake), `longest` at most.
    pub(crate) fn sleep(&self, longest: Option<Duration>) {
        if let Some(longest) = longest
            && !self.set_timer(longest)
        {
            return; // as after a timeout
        }
        let none = epoll::EventFlags::empty();
        let data = epoll::EventData::new_u64(KICK);
        let mut events = [epoll::Event { flags: none, data }; 16];
        // An interrupted or failed wait is a wake-up like any other.
        let Ok(n) = epoll::wait(&self.epoll, &mut events[..], None) else {
            return;
        };
        if events[..n].iter().any(|event| event.data.u64() == OWN) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }

    /// If another event comes first, the timer ends a later sleep: one round without frames.
    fn set_timer(&self, longest: Duration) -> bool {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = longest.max(Duration::from_nanos(1)); // zero disarms the timer
        let Ok(value) = Timespec::try_from(once) else { return false };
        let time = Itimerspec { it_interval: none, it_value: value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).is_ok()
    }
}

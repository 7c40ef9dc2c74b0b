//! Watchdog for system calls that are usually short, but that a peer could make wait.
//!
//! A write to an eventfd waits or not by a flag of the open file, which all holders of a descriptor
//! share. A front-end can clear the flag after our check. The call itself has no such flag
//! (eventfds do not support `RWF_NOWAIT`), and an eventfd cannot be reopened through
//! `/proc/self/fd`. Draining the eventfd instead would not help against a peer that fills it again.
//!
//! Model: a thread marks by one store that it enters such a call, and by another that it has left
//! ([`call`]). One thread of the process, the *watchdog*, polls all of them, and interrupts a
//! thread that is in the same call as at the last poll: the kernel ends the wait with EINTR
//! (`interrupt`). Only waits are interrupted; a call that would not have waited is never ended,
//! however long its thread was without a CPU.
//!
//! Limits: a call lasts [`POLL_INTERVAL`] to twice that while threads are busy, and
//! [`IDLE_POLL_INTERVAL`] more if it is the first after a pause, provided that the watchdog gets a
//! CPU. Other system calls of these threads may return EINTR once, just after such a call.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::interrupt::ThreadInterrupt;

/// Poll interval while threads make such calls.
pub const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Poll interval while they do not: long, so that idle machines sleep.
pub const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// State that a watched thread publishes.
#[derive(Debug)]
struct CallCounter {
    /// Calls entered and left: odd inside one.
    count: AtomicU64,
    /// Count at the last poll.
    seen: AtomicU64,
    interrupt: ThreadInterrupt,
}

impl CallCounter {
    /// Polls the thread; returns `true` if it made a call since the last poll, or is in one.
    fn poll(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let inside = count % 2 == 1;
        let same = self.seen.swap(count, Ordering::Relaxed) == count;
        if same && inside {
            self.interrupt.send();
        }
        inside || !same
    }
}

/// All living threads that have made such calls.
#[derive(Debug)]
struct Watch {
    runs: bool,
    threads: Vec<Arc<CallCounter>>,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { runs: false, threads: Vec::new() });

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A thread's entry in the watchdog's list, for the life of the thread.
struct WatchedThread(Arc<CallCounter>);

impl WatchedThread {
    fn new() -> WatchedThread {
        // Without an earlier start the watchdog starts here, pinned as this thread may be. If that
        // fails, a peer can delay this thread, which must do its work all the same.
        let _ = start();
        let (count, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let thread =
            Arc::new(CallCounter { count, seen, interrupt: ThreadInterrupt::of_this_thread() });
        watch().threads.push(thread.clone());
        WatchedThread(thread)
    }
}

impl Drop for WatchedThread {
    fn drop(&mut self) {
        watch().threads.retain(|thread| !Arc::ptr_eq(thread, &self.0));
    }
}

thread_local! {
    static THIS_THREAD: WatchedThread = WatchedThread::new();
}

/// Starts the watchdog, once in a process. Its thread runs where the caller may, so call this
/// before pinning.
///
/// # Errors
/// The system can start no more threads.
pub fn start() -> io::Result<()> {
    let mut watch = watch();
    if !watch.runs {
        std::thread::Builder::new().name("watch".into()).spawn(keep_watch)?;
        watch.runs = true;
    }
    Ok(())
}

fn keep_watch() {
    loop {
        // No `any`: every thread is polled.
        let calls = watch().threads.iter().filter(|thread| thread.poll()).count();
        let busy = calls + crate::stall::poll();
        std::thread::sleep(if busy > 0 { POLL_INTERVAL } else { IDLE_POLL_INTERVAL });
    }
}

/// Makes a system call that fails with EINTR if it waits for long. The caller must not repeat it
/// then.
#[inline]
pub fn call<T>(system_call: impl FnOnce() -> T) -> T {
    THIS_THREAD.with(|WatchedThread(thread)| {
        // Written by this thread only. It is odd already if the last call ended in a panic.
        let inside = (thread.count.load(Ordering::Relaxed) + 1) | 1;
        thread.count.store(inside, Ordering::Relaxed);
        let result = system_call();
        thread.count.store(inside + 1, Ordering::Relaxed);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::Errno;

    use super::*;

    fn add(event: &OwnedFd, n: u64) -> rustix::io::Result<usize> {
        rustix::io::write(event, &n.to_ne_bytes())
    }

    /// An eventfd whose next write waits.
    fn full() -> OwnedFd {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        add(&event, u64::MAX - 1).unwrap();
        event
    }

    #[test]
    fn a_write_that_waits_is_ended() {
        let event = full();
        for _ in 0..20 {
            assert_eq!(call(|| add(&event, 1)), Err(Errno::INTR));
        }
    }

    #[test]
    fn a_wait_that_begins_late_is_ended_too() {
        let event = full();
        let late = || {
            // No thread waits while this interrupt is sent.
            let begin = Instant::now();
            while begin.elapsed() < 4 * (POLL_INTERVAL + IDLE_POLL_INTERVAL) {
                std::hint::spin_loop();
            }
            add(&event, 1)
        };
        assert_eq!(call(late), Err(Errno::INTR));
    }

    #[test]
    fn a_write_that_need_not_wait_succeeds_however_long_it_takes() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let slow = || {
            let begin = Instant::now();
            while begin.elapsed() < 4 * (POLL_INTERVAL + IDLE_POLL_INTERVAL) {
                std::hint::spin_loop();
            }
            add(&event, 1)
        };
        assert_eq!(call(slow), Ok(8));
        assert_eq!(rustix::io::read(&event, &mut [0; 8]), Ok(8));
    }

    #[test]
    fn threads_are_watched_as_long_as_they_live() {
        let event = Arc::new(full());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let event = event.clone();
                std::thread::spawn(move || {
                    assert_eq!(call(|| add(&event, 1)), Err(Errno::INTR));
                    THIS_THREAD.with(|WatchedThread(thread)| thread.clone())
                })
            })
            .collect();
        let threads: Vec<Arc<CallCounter>> =
            threads.into_iter().map(|t| t.join().unwrap()).collect();
        for thread in threads {
            assert!(!watch().threads.iter().any(|other| Arc::ptr_eq(&thread, other)));
        }
    }
}

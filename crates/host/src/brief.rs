//! System calls that are brief as a rule, and must be so even if a stranger wants them to last.
//!
//! Whether a write to an eventfd may wait is a flag of the open file, which everybody shares who
//! has a descriptor of it, and so a front-end can change its mind after we have looked. No flag of
//! the call itself exists (`RWF_NOWAIT` is not supported by eventfds), nor can an eventfd be opened
//! anew through `/proc/self/fd`. Reading the eventfd in the writer's stead would not help against a
//! stranger who waits to fill it again.
//!
//! Model: a thread says by one store that it enters such a call, and by another that it has left
//! ([`call`]). One thread of the process, the *watch*, looks at all of them again and again, and
//! makes whoever is in the same call as at the last look leave it: the kernel ends the wait with
//! EINTR (`nudge`). A call that would not have waited is never ended so, however long the thread
//! was kept from its CPU: only a wait can be interrupted.
//!
//! Limits: a call lasts [`LOOK`] to twice that while threads are busy, and [`LOOK_SILENT`] more if
//! it is the first after a silence, provided that the watch gets a CPU. Other system calls of these
//! threads may return EINTR once, in the moment after such a call.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::nudge::Nudge;

/// How often the watch looks while threads make such calls.
pub const LOOK: Duration = Duration::from_millis(1);
/// How often it looks while they do not: rarely, for idle machines shall sleep.
pub const LOOK_SILENT: Duration = Duration::from_millis(20);

/// What a thread that makes such calls says of itself.
#[derive(Debug)]
struct Turn {
    /// Calls entered and left: odd within one.
    count: AtomicU64,
    /// What the watch saw last.
    seen: AtomicU64,
    nudge: Nudge,
}

impl Turn {
    /// The watch's look; says whether the thread did anything since the last one, or still does.
    fn look(&self) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let inside = count % 2 == 1;
        let same = self.seen.swap(count, Ordering::Relaxed) == count;
        if same && inside {
            self.nudge.send();
        }
        inside || !same
    }
}

/// All threads that have made such calls and live.
#[derive(Debug)]
struct Watch {
    runs: bool,
    turns: Vec<Arc<Turn>>,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { runs: false, turns: Vec::new() });

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A thread's place in the watch, for as long as the thread lives.
struct Place(Arc<Turn>);

impl Place {
    fn new() -> Place {
        // Who did not start the watch in time gets it here, pinned as this thread may be; if there
        // is none, a stranger can hold up this thread, but that is no reason not to do its work.
        let _ = start();
        let (count, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let turn = Arc::new(Turn { count, seen, nudge: Nudge::of_this_thread() });
        watch().turns.push(turn.clone());
        Place(turn)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        watch().turns.retain(|turn| !Arc::ptr_eq(turn, &self.0));
    }
}

thread_local! {
    static PLACE: Place = Place::new();
}

/// Starts the watch, once for a process. Its thread runs where the caller may, so call this before
/// you pin.
///
/// # Errors
/// The system has no thread left.
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
        // No `any`: every thread is looked at.
        let calls = watch().turns.iter().filter(|turn| turn.look()).count();
        let busy = calls + crate::standing::look();
        std::thread::sleep(if busy > 0 { LOOK } else { LOOK_SILENT });
    }
}

/// Makes a system call that fails with EINTR if it waits for long. It must not be one that is
/// repeated then.
#[inline]
pub fn call<T>(system_call: impl FnOnce() -> T) -> T {
    PLACE.with(|Place(turn)| {
        // Nobody else writes it. It is odd already if the last call ended in a panic.
        let inside = (turn.count.load(Ordering::Relaxed) + 1) | 1;
        turn.count.store(inside, Ordering::Relaxed);
        let result = system_call();
        turn.count.store(inside + 1, Ordering::Relaxed);
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
            // What is sent meanwhile finds nobody waiting.
            let begin = Instant::now();
            while begin.elapsed() < 4 * (LOOK + LOOK_SILENT) {
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
            while begin.elapsed() < 4 * (LOOK + LOOK_SILENT) {
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
                    PLACE.with(|Place(turn)| turn.clone())
                })
            })
            .collect();
        let turns: Vec<Arc<Turn>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        for turn in turns {
            assert!(!watch().turns.iter().any(|other| Arc::ptr_eq(&turn, other)));
        }
    }
}

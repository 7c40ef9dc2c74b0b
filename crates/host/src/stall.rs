//! Detection of bursts that stall on page faults in a peer's memory.
//!
//! A thread that accesses shared memory can be made to wait by a page fault: the memfd's other
//! owner punches holes into it, or its pages are swapped out. No system call can forbid that.
//!
//! # Model
//! Before a thread touches memory of others it publishes the owner by one relaxed store
//! ([`BurstMarker`]). The watchdog thread of [`crate::watchdog`] polls all of them. A burst that
//! lasts [`STALL_MIN`] is reported to a [`StallReport`], with the owners of the memory.
//!
//! A thread without a CPU stalls as well, and then no owner is to blame. The kernel tells the two
//! apart: a thread that waits in a page fault is in state D (uninterruptible), one that waits for a
//! CPU in state R, also if the virtual machine itself is descheduled. Fault counters do not help:
//! they grow only after a fault, and in every burst that touches new pages. So a burst is reported
//! if [`POLLS`] polls in a row found it in state D, or if it used [`SYSTEM_MIN`] of system time (a
//! huge page being cleared).
//!
//! # Limits
//! A burst is reported [`STALL_MIN`] to twice that after its start while threads are busy, and
//! [`crate::watchdog::IDLE_POLL_INTERVAL`] later if it is the first after a pause, provided that
//! the watchdog gets a CPU. The burst itself cannot be ended. A fault that waits for a lock of the
//! kernel, whose holder has no CPU, is reported as well.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::proc_stat;

/// Shortest stall that is reported.
pub const STALL_MIN: Duration = Duration::from_millis(2);
/// Consecutive polls that must find the thread waiting in the kernel.
const POLLS: u32 = 2;
/// System time in one burst that is reported although the thread does not wait.
const SYSTEM_MIN: Duration = Duration::from_millis(50);

/// Mask of the owner in a word, 0 for none; the upper 32 bits count bursts.
const OWNER: u64 = u32::MAX as u64;

/// Owners of the memory that a thread currently touches. Written by one thread, on a cache line of
/// its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct BurstMarker {
    /// Number of the burst, and owner of the memory that it reads; 0 while the thread sleeps.
    burst: AtomicU64,
    /// Number of the burst, and owner of the memory that it writes.
    target: AtomicU64,
    /// Bursts so far.
    count: AtomicU64,
}

impl BurstMarker {
    /// Marks the start of a burst that reads memory of this owner.
    #[inline(always)]
    pub fn begin(&self, owner: u32) {
        let count = self.count.load(Ordering::Relaxed).wrapping_add(OWNER + 1);
        self.count.store(count, Ordering::Relaxed);
        self.burst.store(count | u64::from(owner), Ordering::Relaxed);
    }

    /// Marks that the burst also writes memory of this owner.
    #[inline(always)]
    pub fn touch(&self, owner: u32) {
        let count = self.count.load(Ordering::Relaxed);
        self.target.store(count | u64::from(owner), Ordering::Relaxed);
    }

    /// Marks the end of the burst: no memory of others until the next one.
    #[inline(always)]
    pub fn rest(&self) {
        self.burst.store(0, Ordering::Relaxed);
    }

    fn burst(&self) -> u64 {
        self.burst.load(Ordering::Relaxed)
    }

    /// Owners of the memory that the burst touches. Both words are consistent while the thread
    /// stalls.
    fn stall(&self, burst: u64) -> Stall {
        let target = self.target.load(Ordering::Relaxed);
        let is_now = target & !OWNER == burst & !OWNER;
        let owner = |word: u64| Some((word & OWNER) as u32).filter(|owner| *owner != 0);
        Stall { source: owner(burst), target: owner(target).filter(|_| is_now) }
    }
}

/// Owners of the memory that a stalled burst touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Owner of the memory that the burst reads.
    pub source: Option<u32>,
    /// Owner of the memory that the burst writes, if it got there.
    pub target: Option<u32>,
}

/// Receiver of reports. The watchdog calls it; it must not wait for a watched thread.
pub trait StallReport: fmt::Debug + Send + Sync {
    /// A burst has lasted [`STALL_MIN`], and has not ended.
    fn began(&self, stall: Stall);

    /// The burst has ended, after `stood`.
    fn ended(&self, stall: Stall, stood: Duration);
}

/// A watched thread.
#[derive(Debug)]
struct Watched {
    marker: Arc<BurstMarker>,
    report: Arc<dyn StallReport>,
    /// `/proc/self/task/TID/stat`.
    stat: File,
    seen: Seen,
}

/// Observations of the current burst.
#[derive(Debug)]
struct Seen {
    burst: u64,
    since: Instant,
    /// Consecutive polls that found it waiting.
    waiting: u32,
    /// System time at the first of these polls, in clock ticks.
    system_ticks: Option<u64>,
    reported: Option<Stall>,
}

impl Seen {
    fn first(burst: u64, since: Instant) -> Seen {
        Seen { burst, since, waiting: 0, system_ticks: None, reported: None }
    }

    /// Takes a reading; returns `true` if the kernel holds up the thread.
    fn is_held_up(&mut self, stat: &proc_stat::Stat, now: Instant) -> bool {
        self.waiting = if stat.state == 'D' { self.waiting + 1 } else { 0 };
        let first = *self.system_ticks.get_or_insert(stat.system_ticks);
        let used = stat.system_ticks.saturating_sub(first) as f64;
        let system_s = used / rustix::param::clock_ticks_per_second() as f64;
        let is_long = now.duration_since(self.since) >= STALL_MIN;
        is_long && (self.waiting >= POLLS || system_s >= SYSTEM_MIN.as_secs_f64())
    }
}

impl Watched {
    /// Polls once; returns `true` if the thread is awake.
    fn poll(&mut self, now: Instant) -> bool {
        let burst = self.marker.burst();
        if burst != self.seen.burst {
            let before = std::mem::replace(&mut self.seen, Seen::first(burst, now));
            if let Some(stall) = before.reported {
                self.report.ended(stall, now.duration_since(before.since));
            }
        } else if burst != 0
            && self.seen.reported.is_none()
            && let Some(stat) = self.stat()
            && self.seen.is_held_up(&stat, now)
        {
            let stall = self.marker.stall(burst);
            // The thread may have continued since.
            if self.marker.burst() == burst {
                self.seen.reported = Some(stall);
                self.report.began(stall);
            }
        }
        burst != 0
    }

    fn stat(&self) -> Option<proc_stat::Stat> {
        let mut line = [0; 1024];
        let len = self.stat.read_at(&mut line, 0).ok()?;
        proc_stat::parse(&String::from_utf8_lossy(&line[..len]))
    }
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

fn watched() -> MutexGuard<'static, Vec<Watched>> {
    WATCHED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Polls all threads; returns the number that are awake.
pub(crate) fn poll() -> usize {
    let now = Instant::now();
    // No `any`: every thread is polled.
    watched().iter_mut().filter_map(|thread| thread.poll(now).then_some(())).count()
}

/// Registration of a watched thread, ended by a drop.
#[derive(Debug)]
pub struct StallWatch(Arc<BurstMarker>);

impl Drop for StallWatch {
    fn drop(&mut self) {
        watched().retain(|thread| !Arc::ptr_eq(&thread.marker, &self.0));
    }
}

/// Watches the calling thread, if [`crate::watchdog::start`] was called.
///
/// # Errors
/// The thread's entry in `/proc` cannot be opened.
pub fn watch(marker: Arc<BurstMarker>, report: Arc<dyn StallReport>) -> io::Result<StallWatch> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let stat = File::open(format!("/proc/self/task/{thread}/stat"))?;
    let seen = Seen::first(0, Instant::now());
    watched().push(Watched { marker: marker.clone(), report, stat, seen });
    Ok(StallWatch(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: char, system_ticks: u64) -> proc_stat::Stat {
        proc_stat::Stat { name: "lane0".into(), state, user_ticks: 0, system_ticks }
    }

    #[test]
    fn owners_are_those_of_the_burst_in_hand() {
        let marker = BurstMarker::default();
        let stall = || marker.stall(marker.burst());
        marker.begin(7);
        assert_eq!(stall(), Stall { source: Some(7), target: None });
        marker.touch(9);
        assert_eq!(stall(), Stall { source: Some(7), target: Some(9) });
        marker.begin(7);
        assert_eq!(stall(), Stall { source: Some(7), target: None });
        marker.begin(0);
        marker.touch(9);
        assert_eq!(stall(), Stall { source: None, target: Some(9) });
        marker.rest();
        assert_eq!(marker.burst(), 0);
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_is_not_held_up() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut seen = Seen::first(1, begin);
        for ms in 0..500 {
            assert!(!seen.is_held_up(&stat('R', 3), at(ms)), "preempted");
        }
        // Waits that end are ordinary page faults.
        for ms in 500..600 {
            let state = if ms % 2 == 0 { 'D' } else { 'R' };
            assert!(!seen.is_held_up(&stat(state, 3), at(ms)));
        }
        assert!(seen.is_held_up(&stat('D', 3), at(600)) || seen.is_held_up(&stat('D', 3), at(601)));
    }

    #[test]
    fn a_thread_that_waits_or_works_in_the_kernel_is() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut seen = Seen::first(1, begin);
        let found: Vec<bool> = (1..=3).map(|ms| seen.is_held_up(&stat('D', 0), at(ms))).collect();
        assert_eq!(found, [false, true, true]);
        let mut seen = Seen::first(1, begin);
        let ticks = rustix::param::clock_ticks_per_second();
        assert!(!seen.is_held_up(&stat('R', 0), at(1)));
        assert!(!seen.is_held_up(&stat('R', ticks / 50), at(30)));
        assert!(seen.is_held_up(&stat('R', ticks / 10), at(130)));
    }
}

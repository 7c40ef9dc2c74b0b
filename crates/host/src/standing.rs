//! Bursts in which a thread stands because the kernel has it wait for memory of others.
//!
//! A thread that reads or writes shared memory can be made to wait by a page fault: the other owner
//! of a memfd punches holes into it, or its pages are swapped out. No call can forbid that.
//!
//! # Model
//! A thread says by one relaxed store whose memory it is about to touch ([`Standing`]). The thread
//! that watches over system calls ([`crate::brief`]) looks at all of them. A burst that stands for
//! [`STOOD_MIN`] is reported, with the owners of the memory, to a [`Report`].
//!
//! A thread that lost its CPU stands as well, and nobody is to blame for that. The kernel tells the
//! two apart: a thread that waits in a page fault is in state D (uninterruptible), one that waits
//! for a CPU in state R, also on a machine that lets its virtual CPUs wait. Fault counters do not
//! help: they grow only when a fault has ended, and grow in every burst that touches new pages. So
//! a burst is reported that was found in state D by [`LOOKS`] looks in a row, or that used
//! [`SYSTEM_MIN`] of system time (a huge page that is cleared).
//!
//! # Limits
//! A burst is reported [`STOOD_MIN`] to twice that after it began while threads are busy, and
//! [`crate::brief::LOOK_SILENT`] later if it is the first after a silence, provided that the watch
//! gets a CPU. The burst itself cannot be ended.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::proc_stat;

/// A burst that stands for less is not reported.
pub const STOOD_MIN: Duration = Duration::from_millis(2);
/// Looks in a row that must find the thread waiting in the kernel.
const LOOKS: u32 = 2;
/// System time in one burst that is reported although the thread does not wait.
const SYSTEM_MIN: Duration = Duration::from_millis(50);

/// Owners are numbers of 32 bits, 0 for none; the other half of a word counts bursts.
const OWNER: u64 = u32::MAX as u64;

/// Whose memory a thread touches. One thread writes it, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Standing {
    /// Number of the burst, and the owner of the memory that it comes from; 0 while the thread
    /// sleeps.
    burst: AtomicU64,
    /// Number of the burst, and the owner of the memory that it goes to.
    target: AtomicU64,
    /// Bursts so far.
    count: AtomicU64,
}

impl Standing {
    /// A burst begins, of memory of this owner.
    #[inline(always)]
    pub fn begin(&self, owner: u32) {
        let count = self.count.load(Ordering::Relaxed).wrapping_add(OWNER + 1);
        self.count.store(count, Ordering::Relaxed);
        self.burst.store(count | u64::from(owner), Ordering::Relaxed);
    }

    /// The burst touches memory of this owner, too.
    #[inline(always)]
    pub fn touch(&self, owner: u32) {
        let count = self.count.load(Ordering::Relaxed);
        self.target.store(count | u64::from(owner), Ordering::Relaxed);
    }

    /// The thread touches no memory of others until the next burst.
    #[inline(always)]
    pub fn rest(&self) {
        self.burst.store(0, Ordering::Relaxed);
    }

    fn burst(&self) -> u64 {
        self.burst.load(Ordering::Relaxed)
    }

    /// Owners of what the burst touches. Both words are of one moment if the thread stands.
    fn stall(&self, burst: u64) -> Stall {
        let target = self.target.load(Ordering::Relaxed);
        let is_now = target & !OWNER == burst & !OWNER;
        let owner = |word: u64| Some((word & OWNER) as u32).filter(|owner| *owner != 0);
        Stall { source: owner(burst), target: owner(target).filter(|_| is_now) }
    }
}

/// Owners of the memory that a burst touches which stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Owner of the memory that frames come from.
    pub source: Option<u32>,
    /// Owner of the memory that frames go to, if the burst got there.
    pub target: Option<u32>,
}

/// Receiver of reports. It is called by the watch, and must not wait for a watched thread.
pub trait Report: fmt::Debug + Send + Sync {
    /// A burst has stood for [`STOOD_MIN`], and still does.
    fn began(&self, stall: Stall);

    /// That burst has ended, after so long.
    fn ended(&self, stall: Stall, stood: Duration);
}

/// A thread that is watched.
#[derive(Debug)]
struct Watched {
    standing: Arc<Standing>,
    report: Arc<dyn Report>,
    /// `/proc/self/task/TID/stat`.
    stat: File,
    seen: Seen,
}

/// What the watch has seen of the burst in hand.
#[derive(Debug)]
struct Seen {
    burst: u64,
    since: Instant,
    /// Looks in a row that found it waiting.
    waiting: u32,
    /// System time at the first of these looks, in clock ticks.
    system_ticks: Option<u64>,
    reported: Option<Stall>,
}

impl Seen {
    fn first(burst: u64, since: Instant) -> Seen {
        Seen { burst, since, waiting: 0, system_ticks: None, reported: None }
    }

    /// Takes a reading; says whether the kernel holds the thread up.
    fn is_held_up(&mut self, stat: &proc_stat::Stat, now: Instant) -> bool {
        self.waiting = if stat.state == 'D' { self.waiting + 1 } else { 0 };
        let first = *self.system_ticks.get_or_insert(stat.system_ticks);
        let used = stat.system_ticks.saturating_sub(first) as f64;
        let system_s = used / rustix::param::clock_ticks_per_second() as f64;
        let is_long = now.duration_since(self.since) >= STOOD_MIN;
        is_long && (self.waiting >= LOOKS || system_s >= SYSTEM_MIN.as_secs_f64())
    }
}

impl Watched {
    /// One look; says whether the thread is awake.
    fn look(&mut self, now: Instant) -> bool {
        let burst = self.standing.burst();
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
            let stall = self.standing.stall(burst);
            // The thread may have gone on since.
            if self.standing.burst() == burst {
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

/// Looks at all threads; says how many are awake.
pub(crate) fn look() -> usize {
    let now = Instant::now();
    // No `any`: every thread is looked at.
    watched().iter_mut().filter_map(|thread| thread.look(now).then_some(())).count()
}

/// A watched thread; it is watched until this is dropped.
#[derive(Debug)]
pub struct Watching(Arc<Standing>);

impl Drop for Watching {
    fn drop(&mut self) {
        watched().retain(|thread| !Arc::ptr_eq(&thread.standing, &self.0));
    }
}

/// Watches the calling thread, if [`crate::brief::start`] was called.
///
/// # Errors
/// The thread's entry in `/proc` cannot be opened.
pub fn watch(standing: Arc<Standing>, report: Arc<dyn Report>) -> io::Result<Watching> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let stat = File::open(format!("/proc/self/task/{thread}/stat"))?;
    let seen = Seen::first(0, Instant::now());
    watched().push(Watched { standing: standing.clone(), report, stat, seen });
    Ok(Watching(standing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: char, system_ticks: u64) -> proc_stat::Stat {
        proc_stat::Stat { name: "lane0".into(), state, user_ticks: 0, system_ticks }
    }

    #[test]
    fn owners_are_those_of_the_burst_in_hand() {
        let standing = Standing::default();
        let stall = || standing.stall(standing.burst());
        standing.begin(7);
        assert_eq!(stall(), Stall { source: Some(7), target: None });
        standing.touch(9);
        assert_eq!(stall(), Stall { source: Some(7), target: Some(9) });
        standing.begin(7);
        assert_eq!(stall(), Stall { source: Some(7), target: None });
        standing.begin(0);
        standing.touch(9);
        assert_eq!(stall(), Stall { source: None, target: Some(9) });
        standing.rest();
        assert_eq!(standing.burst(), 0);
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_is_not_held_up() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut seen = Seen::first(1, begin);
        for ms in 0..500 {
            assert!(!seen.is_held_up(&stat('R', 3), at(ms)), "preempted");
        }
        // Waits that end are page faults of the usual kind.
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

//! Interrupts of front-ends whose event file descriptors are slow, sent off the lanes.
//!
//! A write to an eventfd wakes everyone who watches it, and a front-end may have it watched by as
//! many as it has memory for: 20 000 epoll instances make each write last 2 to 3 ms. The write does
//! not wait, so it cannot be ended. So writes are timed ([`Budget`]), and those of a front-end that
//! spent too much are made by one thread of the process.
//!
//! # Limits
//! A thread that loses its CPU in a write, perhaps to the thread that it wakes, looks the same. So
//! a write counts only after another one to the same eventfd that lasted [`SLOW`], and from the
//! second on the CPU time of the thread counts ([`Timer`]). A hypervisor that stops the CPU is not
//! told apart. Front-ends that were moved wait for each other's writes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use host::tsc;
use vhost_user::ForeignFd;

use crate::events::Events;

/// A write that lasts longer is charged; usual ones take 1 to 10 us.
const SLOW: Duration = Duration::from_micros(50);
/// Time that slow writes of a front-end may take in [`PERIOD`].
const ALLOWED: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_secs(1);
/// Time after the last slow write after which the lanes write again.
const QUIET: Duration = Duration::from_secs(60);

/// [`SLOW`] and so on, in cycles.
struct Cycles {
    slow: u64,
    allowed: u64,
    period: u64,
    quiet: u64,
}

fn cycles() -> &'static Cycles {
    static CYCLES: OnceLock<Cycles> = OnceLock::new();
    CYCLES.get_or_init(|| {
        let [slow, allowed, period, quiet] =
            [SLOW, ALLOWED, PERIOD, QUIET].map(tsc::duration_to_cycles);
        Cycles { slow, allowed, period, quiet }
    })
}

/// Time that notifications of one front-end take. All its rings share it, and its next session.
#[derive(Debug, Default)]
pub struct Budget {
    /// Begin of the period, and what was spent in it, in cycles.
    since: AtomicU64,
    spent: AtomicU64,
    /// Time of the last slow write, in cycles.
    slow_at: AtomicU64,
    moved: AtomicBool,
    moves: AtomicU64,
}

impl Budget {
    /// Times that its interrupts were moved off the lanes.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Whether the lanes do not write.
    #[inline]
    pub(crate) fn is_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed) && !self.comes_back()
    }

    #[cold]
    fn comes_back(&self) -> bool {
        let silent = tsc::now().saturating_sub(self.slow_at.load(Ordering::Relaxed));
        let back = silent > cycles().quiet;
        if back {
            self.spent.store(0, Ordering::Relaxed);
            self.moved.store(false, Ordering::Relaxed);
        }
        back
    }

    /// Takes note of a write that ended `now` and cost so many cycles, by a lane or by the
    /// notifier. Rings on several lanes may overwrite each other's sums, which is no more than
    /// late.
    #[inline]
    pub(crate) fn charge(&self, line: &Line, now: u64, cost: u64) {
        if cost >= cycles().slow {
            self.charge_slow(line, now, cost);
        } else if line.slow_in_row.load(Ordering::Relaxed) != 0 {
            line.slow_in_row.store(0, Ordering::Relaxed);
        }
    }

    #[cold]
    fn charge_slow(&self, line: &Line, now: u64, cost: u64) {
        let before = line.slow_in_row.load(Ordering::Relaxed);
        line.slow_in_row.store(before.saturating_add(1), Ordering::Relaxed);
        if before == 0 {
            return; // the thread may have lost its CPU
        }
        self.slow_at.store(now, Ordering::Relaxed);
        let limits = cycles();
        if now.saturating_sub(self.since.load(Ordering::Relaxed)) > limits.period {
            self.since.store(now, Ordering::Relaxed);
            self.spent.store(0, Ordering::Relaxed);
        }
        let spent = self.spent.load(Ordering::Relaxed).saturating_add(cost);
        self.spent.store(spent, Ordering::Relaxed);
        let is_notifier = THREAD.get().is_some();
        if spent > limits.allowed && is_notifier && !self.moved.swap(true, Ordering::Relaxed) {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What is known of writes to one eventfd.
#[derive(Debug, Default)]
pub struct Line {
    slow_in_row: AtomicU32,
    /// Whether the notifier is to write.
    pending: AtomicBool,
}

/// Cost of one write.
pub(crate) struct Timer {
    begin: u64,
    /// CPU time of this thread, if the last write to that eventfd was slow: it costs a system call.
    cpu: Option<Duration>,
}

impl Timer {
    #[inline]
    pub(crate) fn start(line: &Line) -> Timer {
        let is_suspect = line.slow_in_row.load(Ordering::Relaxed) != 0;
        Timer { begin: tsc::now(), cpu: is_suspect.then(thread_cpu_time) }
    }

    /// Time now, and the cost, in cycles.
    #[inline]
    pub(crate) fn stop(self) -> (u64, u64) {
        let now = tsc::now();
        let cost = now.saturating_sub(self.begin);
        match self.cpu {
            None => (now, cost),
            Some(cpu) => {
                let used = thread_cpu_time().saturating_sub(cpu);
                (now, cost.min(tsc::duration_to_cycles(used)))
            }
        }
    }
}

#[cold]
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A write that is to be made.
struct Job {
    event: Arc<ForeignFd>,
    events: Events,
    line: Arc<Line>,
}

static QUEUE: Mutex<Vec<Job>> = Mutex::new(Vec::new());
static THREAD: OnceLock<Thread> = OnceLock::new();

/// Starts the notifier, once for a process. Its thread runs where the caller may, so call this
/// before you pin.
///
/// # Errors
/// The system has no thread left.
pub fn start() -> std::io::Result<()> {
    static START: Mutex<()> = Mutex::new(());
    let _one = START.lock().unwrap_or_else(PoisonError::into_inner);
    if THREAD.get().is_none() {
        let thread = std::thread::Builder::new().name("notifier".into()).spawn(run)?;
        let _ = THREAD.set(thread.thread().clone());
    }
    Ok(())
}

/// Has the notifier write to an eventfd. It takes no time that a front-end could lengthen.
pub(crate) fn hand_over(events: &Events, event: &Arc<ForeignFd>, line: &Arc<Line>) {
    if line.pending.swap(true, Ordering::AcqRel) {
        return; // it has not written yet
    }
    let job = Job { event: event.clone(), events: events.clone(), line: line.clone() };
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner).push(job);
    if let Some(thread) = THREAD.get() {
        thread.unpark();
    }
}

fn run() {
    loop {
        let jobs = std::mem::take(&mut *QUEUE.lock().unwrap_or_else(PoisonError::into_inner));
        if jobs.is_empty() {
            std::thread::park();
        }
        for Job { event, events, line } in jobs {
            // What a lane shows from now on needs another write.
            line.pending.swap(false, Ordering::AcqRel);
            events.write(&event, &line);
        }
    }
}

//! Interrupts for front-ends with slow event file descriptors, sent off the lanes.
//!
//! A write to an eventfd wakes all its watchers, and a front-end may add as many as its memory
//! allows: with 20 000 epoll instances each write lasts 2 to 3 ms. The write does not block, so it
//! cannot be interrupted. So writes are timed ([`WriteBudget`]), and one thread of the process
//! makes those of a front-end that exceeds its budget.
//!
//! # Limits
//! A thread that loses its CPU in a write, perhaps to the thread that it wakes, looks the same. So
//! a write counts only after another write to the same eventfd that lasted [`SLOW`], and from the
//! second on the thread's CPU time counts ([`Timer`]). A hypervisor that stops the CPU cannot be
//! told apart. Front-ends moved to the notifier wait for each other's writes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use host::tsc;
use rustix::io::Errno;
use vhost_user::ForeignFd;

/// Duration above which a write is charged; usual ones take 1 to 10 us.
const SLOW: Duration = Duration::from_micros(50);
/// Time that slow writes of a front-end may take in each [`PERIOD`].
const ALLOWED: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_secs(1);
/// Time after the last slow write until the lanes write again.
const QUIET: Duration = Duration::from_secs(60);

/// The durations above, in TSC cycles.
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

/// Time spent on notifications of one front-end. All its rings share it, and its next session.
#[derive(Debug, Default)]
pub struct WriteBudget {
    /// Start of the period, and the time spent in it, in cycles.
    since: AtomicU64,
    spent: AtomicU64,
    /// Time of the last slow write, in cycles.
    slow_at: AtomicU64,
    moved: AtomicBool,
    moves: AtomicU64,
}

impl WriteBudget {
    /// Number of times that its interrupts were moved off the lanes.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Returns `true` if the notifier writes instead of the lanes.
    #[inline]
    pub(crate) fn is_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed) && !self.comes_back()
    }

    #[cold]
    fn comes_back(&self) -> bool {
        let silent = tsc::now().saturating_sub(self.slow_at.load(Ordering::Relaxed));
        let recovered = silent > cycles().quiet;
        if recovered {
            self.spent.store(0, Ordering::Relaxed);
            self.moved.store(false, Ordering::Relaxed);
        }
        recovered
    }

    /// Charges a write that ended at `now` and cost `cost` cycles, on a lane or the notifier. Rings
    /// on several lanes may overwrite each other's sums; that only delays the move.
    #[inline]
    pub(crate) fn charge(&self, state: &WriteState, now: u64, cost: u64) {
        if cost >= cycles().slow {
            self.charge_slow(state, now, cost);
        } else if state.slow_in_row.load(Ordering::Relaxed) != 0 {
            state.slow_in_row.store(0, Ordering::Relaxed);
        }
    }

    #[cold]
    fn charge_slow(&self, state: &WriteState, now: u64, cost: u64) {
        let before = state.slow_in_row.load(Ordering::Relaxed);
        state.slow_in_row.store(before.saturating_add(1), Ordering::Relaxed);
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

/// State of the writes to one eventfd.
#[derive(Debug, Default)]
pub struct WriteState {
    slow_in_row: AtomicU32,
    /// Set while a write is queued for the notifier.
    pending: AtomicBool,
}

/// Measures the cost of one write.
pub(crate) struct Timer {
    begin: u64,
    /// Thread CPU time at the start, only if the last write to that eventfd was slow: a system
    /// call.
    cpu: Option<Duration>,
}

impl Timer {
    #[inline]
    pub(crate) fn start(state: &WriteState) -> Timer {
        let is_suspect = state.slow_in_row.load(Ordering::Relaxed) != 0;
        Timer { begin: tsc::now(), cpu: is_suspect.then(thread_cpu_time) }
    }

    /// Returns the current time and the cost, in cycles.
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

/// A queued write.
struct Job {
    event: Arc<ForeignFd>,
    state: Arc<WriteState>,
    stalled: Arc<AtomicBool>,
    budget: Arc<WriteBudget>,
}

static QUEUE: Mutex<Vec<Job>> = Mutex::new(Vec::new());
static THREAD: OnceLock<Thread> = OnceLock::new();

/// Starts the notifier, once for a process. Its thread inherits the caller's CPU affinity, so call
/// this before pinning.
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

/// Writes to an eventfd and charges the time. A full counter (EAGAIN) is a pending signal. Any
/// other failure is the front-end's, which chose the file.
pub(crate) fn write(
    event: &ForeignFd,
    state: &WriteState,
    stalled: &AtomicBool,
    budget: &WriteBudget,
) -> bool {
    if stalled.load(Ordering::Relaxed) {
        return false;
    }
    let timer = Timer::start(state);
    let result = host::watchdog::call(|| rustix::io::write(event, &1u64.to_ne_bytes()));
    let (now, cost) = timer.stop();
    budget.charge(state, now, cost);
    if result == Err(Errno::INTR) {
        stalled.store(true, Ordering::Relaxed);
    }
    result.is_ok()
}

/// Queues a write for the notifier. A front-end cannot prolong this call.
pub(crate) fn queue_write(
    event: &Arc<ForeignFd>,
    state: &Arc<WriteState>,
    stalled: &Arc<AtomicBool>,
    budget: &Arc<WriteBudget>,
) {
    if state.pending.swap(true, Ordering::AcqRel) {
        return; // already queued
    }
    let job = Job {
        event: event.clone(),
        state: state.clone(),
        stalled: stalled.clone(),
        budget: budget.clone(),
    };
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
        for Job { event, state, stalled, budget } in jobs {
            // Frames published from now on need another write.
            state.pending.swap(false, Ordering::AcqRel);
            write(&event, &state, &stalled, &budget);
        }
    }
}

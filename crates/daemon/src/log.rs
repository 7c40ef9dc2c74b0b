//! The daemon's log on standard error. Neither a stalled reader nor a full disk blocks the daemon.
//!
//! # Model
//! A line goes into a bounded queue; a thread writes the queue to standard error. Logging never
//! blocks: a line is dropped and counted if the queue is full or the write fails (full disk, pipe
//! without a reader). A notice with the number of dropped lines takes their place in the log as
//! soon as it can be written.
//!
//! # Limits
//! The queue holds [`BYTES_MAX`] bytes. The end of the process and a panic wait up to
//! [`FLUSH_TIME`] for it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Bytes of lines that wait to be written: some 2000 lines.
const BYTES_MAX: usize = 256 << 10;
/// Longest wait for the queue at the end of the process.
const FLUSH_TIME: Duration = Duration::from_millis(200);

/// The log of this process, if it has one.
static LOG: OnceLock<Log> = OnceLock::new();

/// A log; clones share its queue.
#[derive(Debug, Clone)]
pub struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signals a new entry.
    filled: Condvar,
    /// Signals that all entries are written.
    drained: Condvar,
    /// Lines dropped so far.
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Of the lines among them.
    bytes: usize,
    is_writing: bool,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Number of lines dropped here for lack of room.
    Dropped(u64),
}

/// Starts the log of this process on standard error, panics included. Call it once.
///
/// # Errors
/// The system has no descriptor or thread left.
pub fn to_standard_error() -> io::Result<Log> {
    // A separate descriptor: `io::stderr` has a lock, which a blocked write would hold.
    let log = Log::start(File::from(io::stderr().as_fd().try_clone_to_owned()?))?;
    let log = LOG.get_or_init(|| log).clone();
    let panics = log.clone();
    std::panic::set_hook(Box::new(move |panic| panics.tell_panic(panic)));
    Ok(log)
}

/// Waits up to [`FLUSH_TIME`] until the log of this process is written. Call it before the process
/// ends.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(FLUSH_TIME);
    }
}

/// Logs a line that ends with a newline; returns `false` if this process has no log.
pub fn say(line: &str) -> bool {
    LOG.get().map(|log| log.push(line.as_bytes())).is_some()
}

/// Lines dropped so far by the log of this process.
pub fn dropped() -> u64 {
    LOG.get().map_or(0, |log| log.0.dropped.load(Ordering::Relaxed))
}

impl Log {
    /// Starts the thread that writes to `out`.
    fn start(out: impl Write + Send + 'static) -> io::Result<Log> {
        let log = Log(Arc::default());
        let shared = log.0.clone();
        let thread = std::thread::Builder::new().name("log".into());
        thread.spawn(move || Writer { out, missing: 0, failed: false }.run(&shared))?;
        Ok(log)
    }

    /// Queues a line that ends with a newline, or drops it. Never blocks.
    fn push(&self, line: &[u8]) {
        let mut queue = self.0.lock();
        if queue.bytes + line.len() <= BYTES_MAX {
            queue.bytes += line.len();
            queue.entries.push_back(Entry::Line(line.to_vec()));
        } else {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            match queue.entries.back_mut() {
                Some(Entry::Dropped(lines)) => *lines += 1,
                _ => queue.entries.push_back(Entry::Dropped(1)),
            }
        }
        self.0.filled.notify_one();
    }

    /// Waits up to `most` until all is written; returns `true` if it is.
    fn flush(&self, most: Duration) -> bool {
        let waits = |queue: &mut Queue| queue.is_writing || !queue.entries.is_empty();
        let waited = self.0.drained.wait_timeout_while(self.0.lock(), most, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Logs a panic, not through `tracing`, which may have been interrupted by it.
    fn tell_panic(&self, panic: &PanicHookInfo<'_>) {
        let thread = std::thread::current();
        let mut text = format!("thread '{}' {panic}\n", thread.name().unwrap_or("without a name"));
        let backtrace = Backtrace::capture(); // if RUST_BACKTRACE asks for one
        if backtrace.status() == BacktraceStatus::Captured {
            text += &backtrace.to_string();
        }
        self.push(text.as_bytes());
        self.flush(FLUSH_TIME);
    }
}

/// One line per call, as `tracing_subscriber` writes.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // never wait for a line
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next entry; `None` if none waits and a notice of dropped lines is due.
    fn next(&self, something_missing: bool) -> Option<Entry> {
        let mut queue = self.lock();
        queue.is_writing = false;
        if queue.entries.is_empty() && !something_missing {
            self.drained.notify_all();
            let empty = |queue: &mut Queue| queue.entries.is_empty();
            let filled = self.filled.wait_while(queue, empty);
            queue = filled.unwrap_or_else(PoisonError::into_inner);
        }
        queue.is_writing = true;
        let entry = queue.entries.pop_front();
        if let Some(Entry::Line(line)) = &entry {
            queue.bytes -= line.len();
        }
        entry
    }
}

/// State of the thread.
struct Writer<W> {
    out: W,
    /// Dropped lines without a notice yet.
    missing: u64,
    /// The last write failed, and may have written half a line.
    failed: bool,
}

impl<W: Write> Writer<W> {
    /// Writes for as long as the process lives.
    fn run(mut self, shared: &Shared) {
        // This thread is started before the files of the process are restricted.
        host::sandbox::confine_lane();
        loop {
            match shared.next(self.missing > 0 && !self.failed) {
                Some(Entry::Line(line)) => {
                    if !self.tell_missing() || !self.write(&line) {
                        shared.dropped.fetch_add(1, Ordering::Relaxed);
                        self.missing += 1;
                    }
                }
                Some(Entry::Dropped(lines)) => self.missing += lines,
                None => drop(self.tell_missing()),
            }
        }
    }

    /// Writes the notice of dropped lines, if any; returns `false` if that fails.
    fn tell_missing(&mut self) -> bool {
        let (end, lines) = (if self.failed { "\n" } else { "" }, self.missing);
        let text = format!(
            "{end}shunt: {lines} log lines dropped: this log could not be written, or was not read fast enough\n"
        );
        let told = lines == 0 || self.write(text.as_bytes());
        if told {
            self.missing = 0;
        }
        told
    }

    fn write(&mut self, text: &[u8]) -> bool {
        self.failed = self.out.write_all(text).and_then(|()| self.out.flush()).is_err();
        !self.failed
    }
}

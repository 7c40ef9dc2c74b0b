//! Worker thread for requests, which may wait for the disk or the data plane.
//!
//! It starts with the server: the API keeps working when a process gets no more threads
//! (`pids.max`, RLIMIT_NPROC, memory for a stack). One is enough, because requests take turns at
//! the manager. A panic ends its request, not the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Queue of the thread, which ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Worker(Sender<Job>);

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start() -> Result<(Worker, JoinHandle<()>)> {
        let (jobs, work) = channel::<Job>();
        let thread = std::thread::Builder::new().name("api-work".into());
        let thread = thread.spawn(move || work.into_iter().for_each(|job| job()));
        Ok((Worker(jobs), thread.context("the API's worker thread cannot be started")?))
    }

    /// Runs `work` after all earlier work; `None` if it panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        // A panic poisons the manager's lock, which protects any half-done work.
        let job = move || drop(catch_unwind(AssertUnwindSafe(work)).map(|value| done.send(value)));
        self.0.send(Box::new(job)).ok()?;
        result.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_its_own_work_only() {
        let (worker, thread) = Worker::start().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let panics = worker.run(|| -> u32 { panic!("on purpose") });
        assert_eq!(runtime.block_on(panics), None);
        assert_eq!(runtime.block_on(worker.run(|| 7)), Some(7));
        drop(worker);
        thread.join().unwrap();
    }
}

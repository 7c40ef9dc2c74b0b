//! The thread that carries requests out, because that may wait for the disk or the data plane.
//!
//! It is started with the server and kept: where a process gets no more threads (`pids.max`,
//! RLIMIT_NPROC, memory for a stack) the API is served all the same. One is enough, for requests
//! take turns at the manager. A panic ends its request and not the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Where work is handed in; the thread ends with its last clone.
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

    /// Result of `work`, which is done after all that was handed in before; `None` if it panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        // What a panic leaves half done is behind the manager's lock, which is poisoned then.
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

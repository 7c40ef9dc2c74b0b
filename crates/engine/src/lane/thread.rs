//! A lane: one thread that polls transmit rings, and sleeps when they are silent.
//!
//! After the last frame a lane polls for [`IdlePolicy::poll`](crate::IdlePolicy::poll), then polls
//! and yields its CPU for [`IdlePolicy::yielding`](crate::IdlePolicy::yielding). Then it enables
//! notifications, polls once more, and sleeps on the eventfds. While it is awake notifications are
//! disabled. Frames of a sender that is over its limit do not keep it awake: a timer ends that
//! sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use crate::lane::Worker;
use crate::lane::queue_list::QueueList;
use crate::lane::wake::Wake;
use crate::start_error::StartError;

/// A running lane. It stops when dropped.
#[derive(Debug)]
pub struct Lane {
    /// CPU that it is pinned to, if any.
    pub cpu: Option<usize>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) queue_list: Arc<QueueList>,
    stop: Arc<AtomicBool>,
    /// Last change of [`TxPause`](crate::lane::tx_pause::TxPause) that the lane has seen.
    pub(crate) acknowledged: Arc<AtomicU32>,
    /// Starts the work, once.
    go: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts lane `number`, called `name`, on `cpu`. Returns when it is pinned; it then waits for
    /// [`go`](Self::go).
    pub(crate) fn start(
        cpu: Option<usize>,
        number: usize,
        name: String,
        worker: Worker,
    ) -> Result<Lane, StartError> {
        let (stop, wake) = (worker.stop.clone(), worker.wake.clone());
        let acknowledged = worker.acknowledged.clone();
        let queue_list = worker.queue_list.clone();
        let (said, heard) = std::sync::mpsc::channel();
        let (go, begin) = std::sync::mpsc::sync_channel(1);
        let thread = match name.parse::<usize>() {
            Ok(number) => format!("lane{number}"),
            Err(_) => name.clone(),
        };
        let body = move || {
            let pinned = cpu.map_or(Ok(()), host::cpu::pin_this_thread);
            let good = pinned.is_ok();
            let _ = said.send(pinned); // received below
            if good && begin.recv().is_ok() {
                worker.run(&name);
            }
        };
        let thread = std::thread::Builder::new().name(thread).spawn(body);
        let thread = thread.map_err(|source| StartError::Lane { lane: number, source })?;
        if let Ok(Err(source)) = heard.recv() {
            return Err(StartError::Pin { lane: number, source });
        }
        Ok(Lane { cpu, wake, queue_list, stop, acknowledged, go: Some(go), thread: Some(thread) })
    }

    /// Starts the work.
    pub(crate) fn go(&mut self) {
        if let Some(go) = self.go.take() {
            let _ = go.send(()); // the channel has room for one
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.go.take(); // ends a lane that never started
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was printed to standard error
        }
    }
}

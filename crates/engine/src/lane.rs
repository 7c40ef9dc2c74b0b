//! A lane: one thread that polls transmit rings, and sleeps when they are silent.
//!
//! [`Lane`] is the owner's handle of the thread, [`Worker`] the thread's state. The sequence from
//! the last frame to sleep is told in [`sleep`].

pub(crate) mod bounce_buffers;
pub(crate) mod clock;
pub(crate) mod counter;
mod follow;
mod lane_ports;
mod quarantine_lane;
pub(crate) mod queue_list;
pub(crate) mod sender;
mod silence;
mod sleep;
pub(crate) mod spec;
pub(crate) mod stage_clock;
pub(crate) mod stages;
pub(crate) mod tx_pause;
pub(crate) mod wake;
pub(crate) mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use crate::lane::queue_list::QueueList;
use crate::lane::wake::Wake;
use crate::lane::worker::Worker;
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

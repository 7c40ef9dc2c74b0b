//! A lane: one thread that polls transmit rings, and sleeps when they are silent.
//!
//! After the last frame a lane goes on polling for [`IdlePolicy::poll`], then polls and yields its
//! CPU in turn for [`IdlePolicy::yielding`], then asks every guest for a kick, looks once more, and
//! sleeps on the eventfds. While it is awake guests are asked not to kick. Frames that wait since
//! their sender is over its limit do not keep it awake: a timer ends that sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::fabric::StartError;
use crate::queue_list::QueueList;
use crate::stages::Stage;
use crate::wake::Wake;
use crate::worker::Worker;

/// When a lane stops polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// How long it polls after the last frame.
    pub poll: Duration,
    /// How long it then polls and yields.
    pub yielding: Duration,
    /// Whether it then sleeps.
    pub sleep: bool,
}

/// How a lane is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// The CPU it is pinned to, if it is.
    pub cpu: Option<usize>,
    /// When it sleeps.
    pub idle: IdlePolicy,
}

pub(crate) mod slot {
    use crate::stages::Stage;

    pub(crate) const ROUNDS: usize = 0;
    pub(crate) const BUSY_ROUNDS: usize = 1;
    pub(crate) const BUSY_CYCLES: usize = 2;
    pub(crate) const IDLE_CYCLES: usize = 3;
    pub(crate) const FRAMES: usize = 4;
    pub(crate) const BURSTS: usize = 5;
    pub(crate) const BACKLOG_BURSTS: usize = 6;
    pub(crate) const SLEEPS: usize = 7;
    pub(crate) const THREAD_ID: usize = 8;
    pub(crate) const TSC_HZ: usize = 9;
    /// Longest time from one poll round to the next while the lane was awake, ns.
    pub(crate) const POLL_GAP_NS_MAX: usize = 10;
    /// Bursts whose stages were measured, their frames, and what the readings took.
    pub(crate) const SAMPLED_BURSTS: usize = 11;
    pub(crate) const SAMPLED_FRAMES: usize = 12;
    pub(crate) const SAMPLING_CYCLES: usize = 13;
    /// Bursts that were to be measured and took too long.
    pub(crate) const SAMPLED_INTERRUPTED: usize = 14;
    pub(crate) const BURST_LOG2: usize = 16;
    pub(crate) const BURST_BUCKETS: usize = 8;
    pub(crate) const ROUND_LOG2: usize = BURST_LOG2 + BURST_BUCKETS;
    pub(crate) const ROUND_BUCKETS: usize = 32;
    /// Cycles of each stage, in sampled bursts.
    pub(crate) const STAGES: usize = ROUND_LOG2 + ROUND_BUCKETS;
    pub(crate) const END: usize = STAGES + Stage::ALL.len();
}

/// Words that are no sums.
pub(crate) const GAUGES: &[&str] = &["thread_id", "tsc_hz", "poll_gap_ns_max", "-"];

/// The names of a lane's words, in order.
pub(crate) fn schema() -> Vec<String> {
    let mut names: Vec<String> = vec!["-".into(); slot::END];
    for (at, name) in [
        (slot::ROUNDS, "rounds"),
        (slot::BUSY_ROUNDS, "busy_rounds"),
        (slot::BUSY_CYCLES, "busy_cycles"),
        (slot::IDLE_CYCLES, "idle_cycles"),
        (slot::FRAMES, "frames"),
        (slot::BURSTS, "bursts"),
        (slot::BACKLOG_BURSTS, "backlog_bursts"),
        (slot::SLEEPS, "sleeps"),
        (slot::THREAD_ID, "thread_id"),
        (slot::TSC_HZ, "tsc_hz"),
        (slot::POLL_GAP_NS_MAX, "poll_gap_ns_max"),
        (slot::SAMPLED_BURSTS, "sampled_bursts"),
        (slot::SAMPLED_FRAMES, "sampled_frames"),
        (slot::SAMPLING_CYCLES, "sampling_cycles"),
        (slot::SAMPLED_INTERRUPTED, "sampled_interrupted"),
    ] {
        names[at] = name.into();
    }
    for i in 0..slot::BURST_BUCKETS {
        names[slot::BURST_LOG2 + i] = format!("burst_frames_log2_{i}");
    }
    for i in 0..slot::ROUND_BUCKETS {
        names[slot::ROUND_LOG2 + i] = format!("busy_round_cycles_log2_{i}");
    }
    for stage in Stage::ALL {
        names[slot::STAGES + stage as usize] = stage.counter();
    }
    names
}

/// A running lane. It stops when dropped.
#[derive(Debug)]
pub struct Lane {
    /// Where it is pinned, if it is.
    pub cpu: Option<usize>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) queue_list: Arc<QueueList>,
    stop: Arc<AtomicBool>,
    /// What it has seen of [`Held`](crate::fabric::Held).
    pub(crate) knows: Arc<AtomicU32>,
    /// Lets it begin, once.
    go: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts lane `number`, called `name`, on `cpu`; returns when it is there, and waits for
    /// [`go`](Self::go).
    pub(crate) fn start(
        cpu: Option<usize>,
        number: usize,
        name: String,
        worker: Worker,
    ) -> Result<Lane, StartError> {
        let (stop, wake) = (worker.stop.clone(), worker.wake.clone());
        let knows = worker.knows.clone();
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
            let _ = said.send(pinned); // the starter waits for it
            if good && begin.recv().is_ok() {
                worker.run(&name);
            }
        };
        let thread = std::thread::Builder::new().name(thread).spawn(body);
        let thread = thread.map_err(|source| StartError::Lane { lane: number, source })?;
        if let Ok(Err(source)) = heard.recv() {
            return Err(StartError::Pin { lane: number, source });
        }
        Ok(Lane { cpu, wake, queue_list, stop, knows, go: Some(go), thread: Some(thread) })
    }

    /// Lets it begin.
    pub(crate) fn go(&mut self) {
        if let Some(go) = self.go.take() {
            let _ = go.send(()); // there is room for it
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.go.take(); // one that never began ends
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a lane that panicked has said so on standard error
        }
    }
}

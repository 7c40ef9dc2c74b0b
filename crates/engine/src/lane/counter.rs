//! Counters of a lane, by their index in its block.

use crate::lane::stages::Stage;

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
/// Bursts whose stages were measured, their frames, and the cost of the readings.
pub(crate) const SAMPLED_BURSTS: usize = 11;
pub(crate) const SAMPLED_FRAMES: usize = 12;
pub(crate) const SAMPLING_CYCLES: usize = 13;
/// Sampled bursts that took too long.
pub(crate) const SAMPLED_INTERRUPTED: usize = 14;
pub(crate) const BURST_LOG2: usize = 16;
pub(crate) const BURST_BUCKETS: usize = 8;
pub(crate) const ROUND_LOG2: usize = BURST_LOG2 + BURST_BUCKETS;
pub(crate) const ROUND_BUCKETS: usize = 32;
/// Cycles of each stage, in sampled bursts.
pub(crate) const STAGES: usize = ROUND_LOG2 + ROUND_BUCKETS;
pub(crate) const END: usize = STAGES + Stage::ALL.len();

/// Gauges: not added up.
pub(crate) const GAUGES: &[&str] = &["thread_id", "tsc_hz", "poll_gap_ns_max", "-"];

/// Names of a lane's counters, in order.
pub(crate) fn schema() -> Vec<String> {
    let mut names: Vec<String> = vec!["-".into(); END];
    for (at, name) in [
        (ROUNDS, "rounds"),
        (BUSY_ROUNDS, "busy_rounds"),
        (BUSY_CYCLES, "busy_cycles"),
        (IDLE_CYCLES, "idle_cycles"),
        (FRAMES, "frames"),
        (BURSTS, "bursts"),
        (BACKLOG_BURSTS, "backlog_bursts"),
        (SLEEPS, "sleeps"),
        (THREAD_ID, "thread_id"),
        (TSC_HZ, "tsc_hz"),
        (POLL_GAP_NS_MAX, "poll_gap_ns_max"),
        (SAMPLED_BURSTS, "sampled_bursts"),
        (SAMPLED_FRAMES, "sampled_frames"),
        (SAMPLING_CYCLES, "sampling_cycles"),
        (SAMPLED_INTERRUPTED, "sampled_interrupted"),
    ] {
        names[at] = name.into();
    }
    for i in 0..BURST_BUCKETS {
        names[BURST_LOG2 + i] = format!("burst_frames_log2_{i}");
    }
    for i in 0..ROUND_BUCKETS {
        names[ROUND_LOG2 + i] = format!("busy_round_cycles_log2_{i}");
    }
    for stage in Stage::ALL {
        names[STAGES + stage as usize] = stage.counter();
    }
    names
}

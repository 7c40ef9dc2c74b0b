//! Settings of a lane: CPU and idle policy.

use std::time::Duration;

/// Idle policy of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Time of polling after the last frame.
    pub poll: Duration,
    /// Time of polling and yielding after that.
    pub yielding: Duration,
    /// The lane then sleeps; else it goes on yielding.
    pub sleep: bool,
}

/// Settings of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpec {
    /// CPU that it is pinned to, if any.
    pub cpu: Option<usize>,
    /// Idle policy.
    pub idle: IdlePolicy,
}

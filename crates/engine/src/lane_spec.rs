//! Settings of a lane: CPU and idle policy.

use std::time::Duration;

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

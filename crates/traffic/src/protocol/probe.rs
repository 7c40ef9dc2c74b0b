//! Silent guests: task and result.

use std::path::PathBuf;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Task: silent guests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// CPU of the lane, if pinned.
    pub lane_cpu: Option<usize>,
    /// Vhost-user sockets of the daemon, two or more.
    pub sockets: Vec<PathBuf>,
    /// Addresses of the first two guests.
    pub macs: [String; 2],
    /// Frames to send.
    pub frames: u64,
    /// Silence before each frame, in microseconds: minimum and maximum.
    pub silence_us: (u64, u64),
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Result of a probe run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Number of frames.
    pub samples: u64,
    /// Frames that needed a kick: the lane slept, or was about to.
    pub kicks: u64,
    /// Time from publishing a frame until it is in the receive ring.
    pub wake: WakeTimes,
    /// Wake-up time of a thread that only sleeps on an eventfd.
    pub floor: WakeTimes,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WakeTimes {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl WakeTimes {
    /// Times in a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> WakeTimes {
        let us = |ns: u64| ns as f64 / 1e3;
        WakeTimes {
            p50: us(histogram.value_at_quantile(0.5)),
            p99: us(histogram.value_at_quantile(0.99)),
            max: us(histogram.max()),
        }
    }
}

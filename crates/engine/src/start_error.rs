//! Errors of the data plane.

use crate::counters::CountersError;

/// Why the data plane could not start, or a port not be added.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No counter file.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// No lane.
    #[error("cannot start lane {lane}")]
    Lane {
        /// Lane number.
        lane: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A lane cannot be pinned as configured.
    #[error("cannot pin lane {lane}")]
    Pin {
        /// Lane number.
        lane: usize,
        /// Why, and the remedy.
        #[source]
        source: host::cpu::PinError,
    },
    /// No thread that keeps front-ends from holding up lanes.
    #[error("cannot start the watchdog thread of the lanes")]
    Watch(#[source] std::io::Error),
    /// No memory that frames of ports in quarantine are copied to.
    #[error("no memory for the quarantine lane (4.3 MiB); raise the memory limit")]
    BounceBuffers,
    /// No epoll or eventfd.
    #[error("cannot create the epoll, eventfd or timer of a lane")]
    Wake(#[from] rustix::io::Errno),
}

//! Errors of the data plane.

use crate::counters::CountersError;

/// Errors of the start of the data plane, and of a new port.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Counter file.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// A lane cannot be started.
    #[error("cannot start lane {lane}")]
    Lane {
        /// Lane number.
        lane: usize,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A lane cannot be pinned as configured.
    #[error("cannot pin lane {lane}")]
    Pin {
        /// Lane number.
        lane: usize,
        /// Cause and remedy.
        #[source]
        source: host::cpu::PinError,
    },
    /// The watchdog thread, which keeps front-ends from stalling lanes, cannot be started.
    #[error("cannot start the watchdog thread of the lanes")]
    Watch(#[source] std::io::Error),
    /// No memory for the bounce buffers of ports in quarantine.
    #[error("no memory for the quarantine lane (4.3 MiB); raise the memory limit")]
    BounceBuffers,
    /// No epoll, eventfd or timer.
    #[error("cannot create the epoll, eventfd or timer of a lane")]
    Wake(#[from] rustix::io::Errno),
}

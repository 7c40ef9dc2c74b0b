//! Result of opening an interface or a file: halves for the lanes, and a handle for control.
//!
//! Life cycle: control opens the device, attaches the halves to a port of the engine, and polls the
//! [`LinkHealth`]. A half whose device fails sets the failure there and is silent from then on: it
//! takes no frames, and counts frames for the device as without a buffer. Control then detaches the
//! halves, which closes the device, and reopens the device when it is back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use rustix::io::Errno;

use crate::half::{Receive, Transmit};
use crate::handover::PortHandover;

/// Both halves of a queue pair.
pub struct QueuePair {
    /// Frames from the device.
    pub transmit: Box<dyn Transmit>,
    /// Frames to the device.
    pub receive: Box<dyn Receive>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// Periodic work for a device outside the lanes: connections to accept, entries that age.
pub trait Housekeeping: Send {
    /// Does the work that is due. Control calls it several times a second; it must not block.
    fn tick(&mut self, now: Instant);

    /// Sets the carrier as the peer sees it, where the device supports that.
    fn set_carrier(&mut self, _up: bool) {}

    /// Returns `true` if a peer is connected; always `true` where that is unknown.
    fn is_connected(&self) -> bool {
        true
    }

    /// Takes ownership of a device taken over from another process, and of the files to remove at
    /// its end. Until then this process may fail, and the other process continues.
    fn adopt(&mut self) {}

    /// Returns what another process needs to take over the device, after its halves were detached.
    /// `states` are those of the transmit halves ([`Transmit::handover_state`]). `None`: the device
    /// does not support hand-over; the other process must reopen it after this one closed it. To
    /// continue here, resume from the same state.
    fn handover(&mut self, _states: &[Vec<u8>]) -> Option<PortHandover> {
        None
    }
}

/// An open device.
pub struct OpenedDevice {
    /// Halves, one pair for each queue.
    pub pairs: Vec<QueuePair>,
    /// Health of the device.
    pub health: Arc<LinkHealth>,
    /// Periodic work of control, if there is any.
    pub housekeeping: Option<Box<dyn Housekeeping>>,
    /// Notes for the operator on the way it was opened.
    pub notes: Vec<String>,
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpenedDevice { pairs, health, notes, .. } = self;
        let mut shown = f.debug_struct("Opened");
        shown.field("pairs", &pairs.len()).field("health", health).field("notes", notes);
        shown.finish_non_exhaustive()
    }
}

/// Health of a device: healthy, or lost with an errno.
#[derive(Debug, Default)]
pub struct LinkHealth(AtomicI32);

impl LinkHealth {
    /// Marks the device as failed. The first reason stays.
    pub fn lose(&self, reason: Errno) {
        // A second failure follows from the first.
        let _ =
            self.0.compare_exchange(0, reason.raw_os_error(), Ordering::Release, Ordering::Relaxed);
    }

    /// Returns `true` if the device failed.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Errno of the failure, if the device failed.
    pub fn failure(&self) -> Option<Errno> {
        let reason = self.0.load(Ordering::Acquire);
        (reason != 0).then(|| Errno::from_raw_os_error(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let health = LinkHealth::default();
        assert_eq!((health.is_lost(), health.failure()), (false, None));
        health.lose(Errno::NETDOWN);
        health.lose(Errno::NODEV);
        assert_eq!((health.is_lost(), health.failure()), (true, Some(Errno::NETDOWN)));
    }
}

//! What opening an interface or a file gives: the halves for the lanes, and what control keeps.
//!
//! Life: control opens, attaches the halves to a port of the engine, and looks at the
//! [`LinkHealth`] now and then. A half whose device fails says so there and is silent from then on:
//! it takes no frames, and counts those for it as without a buffer. Control then detaches the
//! halves, which closes the device, and opens it again when it is back. Nobody else is concerned.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use rustix::io::Errno;

use crate::{Legacy, Receive, Transmit};

/// The halves of a queue pair.
pub struct Pair {
    /// Frames that come from the device.
    pub transmit: Box<dyn Transmit>,
    /// Frames that go to it.
    pub receive: Box<dyn Receive>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// What is to be done for a device outside the lanes: connections to accept, entries that age.
pub trait Housekeeping: Send {
    /// Does what is due; control calls it several times a second, and it does not wait.
    fn tend(&mut self, now: Instant);

    /// Shows whoever is at the other end that the link is up or down, if it can.
    fn set_carrier(&mut self, _up: bool) {}

    /// Whether somebody is at the other end, where that can be told.
    fn is_connected(&self) -> bool {
        true
    }

    /// What another process had open is this one's from now on, with the files that are to be
    /// removed at its end. Until then this process may fail, and the other go on as if it had not
    /// been.
    fn adopt(&mut self) {}

    /// What another process needs to go on with the device, once no lane has its halves; `remains`
    /// are those of the transmit halves. `None`: it has to open the device anew, when this one has
    /// closed it. This process can go on with the device only as the other would.
    fn legacy(&mut self, _remains: &[Vec<u8>]) -> Option<Legacy> {
        None
    }
}

/// A device that was opened.
pub struct Opened {
    /// One for each queue.
    pub pairs: Vec<Pair>,
    /// How the device is.
    pub condition: Arc<LinkHealth>,
    /// What control does for it, if anything.
    pub tend: Option<Box<dyn Housekeeping>>,
    /// What an operator should know of how it was opened.
    pub notes: Vec<String>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Opened { pairs, condition, notes, .. } = self;
        let mut shown = f.debug_struct("Opened");
        shown.field("pairs", &pairs.len()).field("condition", condition).field("notes", notes);
        shown.finish_non_exhaustive()
    }
}

/// How a device is: well, or lost with the kernel's word for it.
#[derive(Debug, Default)]
pub struct LinkHealth(AtomicI32);

impl LinkHealth {
    /// Says that the device failed. The first reason stays.
    pub fn lose(&self, reason: Errno) {
        // Whoever comes second tells the same story.
        let _ =
            self.0.compare_exchange(0, reason.raw_os_error(), Ordering::Release, Ordering::Relaxed);
    }

    /// Whether it failed.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Why it failed, if it did.
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
        let condition = LinkHealth::default();
        assert_eq!((condition.is_lost(), condition.failure()), (false, None));
        condition.lose(Errno::NETDOWN);
        condition.lose(Errno::NODEV);
        assert_eq!((condition.is_lost(), condition.failure()), (true, Some(Errno::NETDOWN)));
    }
}

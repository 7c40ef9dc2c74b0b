//! Halves of a port: the two traits that every kind implements.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vhost_user::ForeignFd;
use virtq::Position;

use crate::burst::{Burst, Delivered, Polled, VlanEdit};
use crate::burst_buffers::BurstBuffers;

/// Frames that come from the guest.
pub trait Transmit: Send {
    /// Swaps the working buffers, before a poll and after its completion.
    fn swap(&mut self, buffers: &mut BurstBuffers);

    /// Returns `true` if this half accesses guest memory, where an access may block.
    fn touches_guest(&self) -> bool {
        false
    }

    /// Takes up to [`BURST`](crate::BURST) frames. The previous burst must be complete.
    fn poll(&mut self) -> Polled;

    /// Snapshots up to 128 bytes of each frame of the last [`poll`](Self::poll).
    /// [`burst`](Self::burst) lends them as [`Burst::snapshots`] until the next poll. At most one
    /// snapshot is taken a poll.
    fn snapshot_headers(&mut self);

    /// Lends the frames of the last [`poll`](Self::poll).
    fn burst(&self) -> Burst<'_>;

    /// Returns the buffers of the last poll to the guest; returns `true` if the guest was notified.
    fn complete(&mut self) -> bool;

    /// First half of [`complete`](Self::complete), for measurements: returns the buffers. Returns
    /// `true` if [`notify`](Self::notify) must follow.
    fn give_back(&mut self) -> bool {
        self.complete()
    }

    /// Second half: notifies the guest; returns `true` if it was notified.
    fn notify(&self) -> bool {
        true // by `complete`
    }

    /// Enables kicks: the guest kicks at its next frame. Returns `true` if a frame is already
    /// there.
    fn enable_notification(&mut self) -> bool;

    /// Disables kicks, where the guest supports that.
    fn disable_notification(&mut self) {}

    /// Descriptor that is readable after a kick; `None` if this port can only be polled.
    fn kick(&self) -> Option<BorrowedFd<'_>>;

    /// Replaces the call descriptor, which interrupts the guest; only guests' rings have one.
    fn set_call(&mut self, _call: Option<Arc<ForeignFd>>) {}

    /// Replaces the error descriptor, which reports a broken ring; only guests' rings have one.
    fn set_error(&mut self, _error: Option<Arc<ForeignFd>>) {}

    /// Signals a broken ring to the front-end, if there is one.
    fn raise_error(&self) {}

    /// Stops this half; returns the ring position at which the next owner continues.
    fn stop(&mut self) -> Position {
        0
    }

    /// State for a process that takes over: bytes received and not yet forwarded, or a position.
    fn handover_state(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Frames that go to the guest.
pub trait Receive: Send {
    /// Swaps the working buffers, before a delivery and after its publication.
    fn swap(&mut self, buffers: &mut BurstBuffers);

    /// Returns `true` if this half accesses guest memory, where an access may block.
    fn touches_guest(&self) -> bool {
        false
    }

    /// Prefetches what a delivery of `frames` reads first. Takes nothing.
    fn prefetch(&self, _frames: usize) {}

    /// First step of a [`deliver`](Self::deliver) of `frames`, for measurements: takes the guest's
    /// buffers.
    fn stage(&mut self, _frames: usize) {}

    /// Copies the frames of `burst` at `indices`, in that order, and applies `edit` to each. The
    /// guest does not see them before [`publish`](Self::publish).
    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered;

    /// Returns `true` if this half may send a frame to several peers, as a tunnel does.
    fn replicates(&self) -> bool {
        false
    }

    /// Limits the copies, beyond the first of each frame, that the next [`deliver`](Self::deliver)
    /// makes of unknown unicast. The last frame may exceed the limit; further frames are dropped.
    fn allow_copies(&mut self, _copies: u32) {}

    /// Delivers some of the frames parked before this ring (see [`parked`](crate::parked)), as
    /// [`deliver`](Self::deliver) does. Frames without a buffer stay parked. Not on the hot path.
    fn drain_parked(&mut self) -> Delivered {
        Delivered::default()
    }

    /// Publishes the delivered frames to the guest; returns `true` if the guest was notified.
    fn publish(&mut self) -> bool;

    /// First half of [`publish`](Self::publish), for measurements: publishes the delivered frames.
    /// Returns `true` if [`notify`](Self::notify) must follow.
    fn show(&mut self) -> bool {
        self.publish()
    }

    /// Second half: notifies the guest; returns `true` if it was notified.
    fn notify(&self) -> bool {
        true // by `publish`
    }

    /// Replaces the call descriptor, which interrupts the guest; only guests' rings have one.
    fn set_call(&mut self, _call: Option<Arc<ForeignFd>>) {}

    /// Replaces the error descriptor, which reports a broken ring; only guests' rings have one.
    fn set_error(&mut self, _error: Option<Arc<ForeignFd>>) {}

    /// Signals a broken ring to the front-end, if there is one.
    fn raise_error(&self) {}

    /// Stops this half; returns the ring position at which the next owner continues.
    fn stop(&mut self) -> Position {
        0
    }
}

/// Receive half that drops all frames; they count as delivered.
#[derive(Debug)]
pub struct DiscardReceive;

impl Receive for DiscardReceive {
    fn swap(&mut self, _: &mut BurstBuffers) {}

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], _: VlanEdit) -> Delivered {
        let bytes =
            indices.iter().map(|index| u64::from(burst.frames[usize::from(*index)].len)).sum();
        Delivered { frames: indices.len() as u32, bytes, ..Delivered::default() }
    }

    fn publish(&mut self) -> bool {
        false
    }
}

//! Halves of a port: the traits that kinds of ports implement.

use std::os::fd::BorrowedFd;

use virtq::{Fault, Position};

use crate::burst::{Burst, Delivered, Polled, VlanEdit};
use crate::burst_buffers::BurstBuffers;
use crate::events::RingEvents;
use crate::validate::FrameRules;

/// Notification of a guest after buffers were returned to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Notification {
    /// The guest wants none.
    Unneeded,
    /// [`RingEvents::notify`] must follow.
    Needed,
    /// The call that returned this has notified the guest or the kernel.
    Sent,
}

impl Notification {
    /// [`Needed`](Self::Needed) or [`Unneeded`](Self::Unneeded).
    pub(crate) fn needed(is_needed: bool) -> Notification {
        if is_needed { Notification::Needed } else { Notification::Unneeded }
    }
}

/// State of a transmit half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Readiness {
    /// No frame waits: a kick follows the next one.
    Empty,
    /// Frames wait: the caller must not sleep.
    Ready,
}

impl Readiness {
    /// [`Ready`](Self::Ready) or [`Empty`](Self::Empty).
    pub(crate) fn ready(is_ready: bool) -> Readiness {
        if is_ready { Readiness::Ready } else { Readiness::Empty }
    }
}

/// Frames that come from the guest.
pub trait Transmit: Send {
    /// Takes up to [`BURST`](crate::BURST) frames into `buffers`. The previous burst must be
    /// complete.
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled;

    /// Lends the frames of the last [`poll`](Self::poll), which had the same buffers.
    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a>;

    /// Returns the buffers of the last poll to the guest. Must follow a poll that took frames.
    fn complete(&mut self) -> Notification;

    /// Enables kicks: the guest kicks at its next frame.
    fn enable_notification(&mut self) -> Readiness;

    /// Descriptor that is readable after a kick; `None` if this port can only be polled.
    fn kick(&self) -> Option<BorrowedFd<'_>>;

    /// The guest's ring behind this half, if there is one: then frames are in guest memory, where
    /// an access may block.
    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        None
    }

    /// Limits by which polled frames are validated.
    fn frame_rules(&self) -> FrameRules;

    /// State for a process that takes over: bytes received and not yet forwarded, or a position.
    fn handover_state(&self) -> Vec<u8> {
        Vec::new()
    }
}

impl dyn Transmit + '_ {
    /// Stops the guest's ring; returns the position at which the next owner continues, 0 without a
    /// ring.
    pub fn stop(&mut self) -> Position {
        self.guest_ring().map_or(0, |ring| ring.stop())
    }
}

/// Frames that go to the guest.
pub trait Receive: Send {
    /// Copies the frames of `burst` at `indices`, which ascend, and applies `edit` to each. The
    /// guest does not see them before [`publish`](Self::publish). `buffers` are not those of
    /// `burst`.
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered;

    /// Publishes the delivered frames to the guest.
    fn publish(&mut self) -> Notification;

    /// Delivers some of the frames parked before this ring (see [`parked`](crate::parked)), as
    /// [`deliver`](Self::deliver) does. Frames without a buffer stay parked. Not on the hot path.
    fn drain_parked(&mut self, _buffers: &mut BurstBuffers) -> Delivered {
        Delivered::default()
    }

    /// Returns `true` if this half may send a frame to several peers, as a tunnel does.
    fn replicates(&self) -> bool {
        false
    }

    /// Limits the copies, beyond the first of each frame, that the next [`deliver`](Self::deliver)
    /// makes of unknown unicast. The last frame may exceed the limit; further frames are dropped.
    fn allow_copies(&mut self, _copies: u32) {}

    /// The guest's ring behind this half, if there is one: then buffers are in guest memory, where
    /// an access may block.
    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        None
    }
}

impl dyn Receive + '_ {
    /// Stops the guest's ring; returns the position at which the next owner continues, 0 without a
    /// ring.
    pub fn stop(&mut self) -> Position {
        self.guest_ring().map_or(0, |ring| ring.stop())
    }
}

/// A guest's ring behind a half of a port.
pub trait GuestRing {
    /// Its event descriptors: kick, call and error.
    fn events(&mut self) -> &mut RingEvents;

    /// Disables kicks, where the guest supports that.
    fn disable_notification(&mut self);

    /// First step of a [`deliver`](Receive::deliver) of `frames`: takes the guest's buffers. For
    /// measurements, and for a burst that is still to come. Returns the ring's fault, if any.
    fn stage(&mut self, _frames: usize) -> Option<Fault> {
        None
    }

    /// Stops the ring; returns the position at which the next owner continues.
    fn stop(&mut self) -> Position;
}

/// Receive half that drops all frames; they count as delivered.
#[derive(Debug)]
pub struct DiscardReceive;

impl Receive for DiscardReceive {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        _: VlanEdit,
        _: &mut BurstBuffers,
    ) -> Delivered {
        let bytes =
            indices.iter().map(|index| u64::from(burst.frames[usize::from(*index)].len)).sum();
        Delivered { frames: indices.len() as u32, bytes, ..Delivered::default() }
    }

    fn publish(&mut self) -> Notification {
        Notification::Unneeded
    }
}

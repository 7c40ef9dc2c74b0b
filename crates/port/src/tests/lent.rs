//! A half of a port with working buffers of its own, used as a lane uses it.

use std::ops::DerefMut;

use crate::{
    BURST, Burst, BurstBuffers, Delivered, GuestRing, Notification, Polled, Readiness, Receive,
    Transmit, VlanEdit,
};

/// A half, and the buffers that it is lent.
pub(super) struct Lent<P> {
    pub(super) half: P,
    pub(super) buffers: BurstBuffers,
}

impl<P> Lent<P> {
    pub(super) fn new(half: P) -> Lent<P> {
        Lent { half, buffers: BurstBuffers::default() }
    }
}

/// Notifies the guest, if it wants that; returns `true` if it was notified.
fn notify(notification: Notification, ring: Option<&mut dyn GuestRing>) -> bool {
    match notification {
        Notification::Unneeded => false,
        Notification::Needed => ring.map(GuestRing::events).is_some_and(|events| events.notify()),
        Notification::Sent => true,
    }
}

impl<P: DerefMut<Target = T>, T: Transmit + ?Sized> Lent<P> {
    pub(super) fn poll(&mut self) -> Polled {
        self.half.poll(&mut self.buffers)
    }

    pub(super) fn snapshot_headers(&mut self) {
        self.buffers.snapshot_headers(&*self.half);
    }

    pub(super) fn burst<'a>(&'a self) -> Burst<'a>
    where
        T: 'a,
    {
        self.half.burst(&self.buffers)
    }

    /// The bytes of the frames of the last poll.
    pub(super) fn frames(&self) -> Vec<Vec<u8>> {
        let burst = self.half.burst(&self.buffers);
        let bytes = |frame: &guestmem::Buffer<'_>| {
            let mut bytes = vec![0; frame.len as usize];
            frame.read_bytes(burst.arena, 0, &mut bytes);
            bytes
        };
        burst.frames.iter().map(bytes).collect()
    }

    /// Returns `true` if the guest was notified.
    pub(super) fn complete(&mut self) -> bool {
        let notification = self.half.complete();
        notify(notification, self.half.guest_ring())
    }

    /// Returns `true` if frames are there.
    pub(super) fn enable_notification(&mut self) -> bool {
        self.half.enable_notification() == Readiness::Ready
    }
}

impl<P: DerefMut<Target = T>, T: Receive + ?Sized> Lent<P> {
    pub(super) fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
    ) -> Delivered {
        self.half.deliver(burst, indices, edit, &mut self.buffers)
    }

    /// Publishes, and stages buffers for a burst to come, as a lane with few rings does. Returns
    /// `true` if the guest was notified.
    pub(super) fn publish(&mut self) -> bool {
        let notification = self.half.publish();
        let is_notified = notify(notification, self.half.guest_ring());
        if let Some(ring) = self.half.guest_ring() {
            ring.stage(BURST);
        }
        is_notified
    }
}

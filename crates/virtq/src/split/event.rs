//! Event suppression of split rings: virtio 1.2, sections 2.7.7 to 2.7.10.
//!
//! Both sides of a ring do the same two things, with the same code:
//! - after a publication, a side decides on a notification ([`needs_notification`]);
//! - before sleep, a side enables notifications, then reads the ring ([`enable_notification`]).
//!
//! Each is a store followed by a load of the other side's store. Without a full fence in between,
//! both sides could miss each other and sleep for ever. The tests explore every interleaving.
//!
//! [`needs_notification`]: EventSuppression::needs_notification
//! [`enable_notification`]: EventSuppression::enable_notification

use std::sync::atomic::Ordering;

use crate::shared::Shared;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY` have the same value.
const QUIET: u16 = 1;

/// Event suppression of one side of a ring.
pub(crate) struct EventSuppression<'a, W: Shared<u16>> {
    /// Flags of its ring: used without `EVENT_IDX`.
    pub(crate) flags: &'a W,
    /// Event index of its ring: used with `EVENT_IDX`.
    pub(crate) event: &'a W,
    pub(crate) event_idx: bool,
}

impl<W: Shared<u16>> EventSuppression<'_, W> {
    /// Returns `true` if publishing `old..new` requires a notification. Call it after the index was
    /// stored.
    #[inline]
    pub(crate) fn needs_notification(&self, old: u16, new: u16) -> bool {
        W::full_fence();
        if self.event_idx {
            // "vring_need_event": the event index was just passed.
            let event = self.event.load(Ordering::Relaxed);
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.flags.load(Ordering::Relaxed) & QUIET == 0
        }
    }

    /// Enables the notification for the entry at `next`; returns `true` if it is there already (the
    /// caller must not sleep). `idx` reads the other side's index.
    pub(crate) fn enable_notification(&self, next: u16, idx: impl FnOnce() -> u16) -> bool {
        if self.event_idx {
            self.event.store(next, Ordering::Relaxed);
        } else {
            self.flags.store(0, Ordering::Relaxed);
        }
        W::full_fence();
        idx() != next
    }

    /// Disables notifications: a hint that the other side may see late.
    pub(crate) fn disable_notification(&self, next: u16) {
        if self.event_idx {
            // Half the index space away: at worst one notification too many.
            self.event.store(next.wrapping_add(0x8000), Ordering::Relaxed);
        } else {
            self.flags.store(QUIET, Ordering::Relaxed);
        }
    }
}

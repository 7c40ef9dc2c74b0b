//! Who must be notified, and who need not: virtio 1.2, sections 2.7.7 to 2.7.10.
//!
//! Both sides of a ring do the same two things, so both use the same code:
//! - a side that has published decides whether to notify the other ([`needs_notification`]);
//! - a side that wants to sleep asks for a notification, then looks once more
//!   ([`enable_notification`]).
//!
//! Each has a store and then a load of what the other side stores; without a full fence between
//! them both could miss each other and sleep for ever. The tests explore every interleaving.

use std::sync::atomic::Ordering;

use crate::shared::Shared;

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY` have the same value.
const QUIET: u16 = 1;

/// What one side says of when it wants to be notified.
pub(crate) struct EventSuppression<'a, W: Shared<u16>> {
    /// Its ring's flags: used without `EVENT_IDX`.
    pub(crate) flags: &'a W,
    /// Its event index: used with `EVENT_IDX`.
    pub(crate) event: &'a W,
    pub(crate) event_idx: bool,
}

impl<W: Shared<u16>> EventSuppression<'_, W> {
    /// Whether publishing `old..new` obliges to notify. Call it after the index was stored.
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

    /// Asks to be notified of the entry at `next`, then says whether it is there already (and the
    /// caller must not sleep), which is when `idx`, the other side's index, is past it.
    pub(crate) fn enable_notification(&self, next: u16, idx: impl FnOnce() -> u16) -> bool {
        if self.event_idx {
            self.event.store(next, Ordering::Relaxed);
        } else {
            self.flags.store(0, Ordering::Relaxed);
        }
        W::full_fence();
        idx() != next
    }

    /// Asks not to be notified: a hint, which the other side may see late.
    pub(crate) fn disable_notification(&self, next: u16) {
        if self.event_idx {
            // Half the index space away: not passed before we come here again, or once in vain.
            self.event.store(next.wrapping_add(0x8000), Ordering::Relaxed);
        } else {
            self.flags.store(QUIET, Ordering::Relaxed);
        }
    }
}

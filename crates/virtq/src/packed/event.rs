//! Event suppression of packed rings: virtio 1.2, section 2.8.14.
//!
//! As in split rings, a side that has published reads the other side's event suppression. A side
//! that wants to sleep writes its event suppression, then reads the ring. Both have a full fence in
//! between.

use std::sync::atomic::Ordering;

use super::PackedPosition;
use crate::shared::Shared;

/// "Enable events", "Disable events" and "Enable events for a specific descriptor", in bits 16 and
/// 17 of an event area; the descriptor is in bits 0 to 15. Three is reserved.
const ENABLE: u32 = 0 << 16;
const DISABLE: u32 = 1 << 16;
const SPECIFIC: u32 = 2 << 16;
const FLAGS: u32 = 3 << 16;
/// Descriptor bits beside `ENABLE`, where they have no meaning. They tell an area that a device has
/// written from one that a driver has zeroed.
const ASKED: u32 = 0x7fff;

/// Event suppression of one side of a ring.
pub(crate) struct EventSuppression<'a, W: Shared<u32>> {
    pub(crate) area: &'a W,
    pub(crate) event_idx: bool,
}

impl<W: Shared<u32>> EventSuppression<'_, W> {
    /// Returns `true` if publishing the descriptors `old..new` requires a notification. Call it
    /// after they are published.
    #[inline]
    pub(crate) fn needs_notification(
        &self,
        old: PackedPosition,
        new: PackedPosition,
        size: u16,
    ) -> bool {
        W::full_fence();
        let suppression = self.area.load(Ordering::Relaxed);
        match suppression & FLAGS {
            DISABLE => false,
            SPECIFIC if self.event_idx => {
                passed(PackedPosition(suppression as u16), old, new, size)
            }
            _ => true,
        }
    }

    /// Enables the notification for the descriptor at `next`; returns `true` if it is there already
    /// (the caller must not sleep).
    pub(crate) fn enable_notification(
        &self,
        next: PackedPosition,
        is_there: impl FnOnce() -> bool,
    ) -> bool {
        let suppression =
            if self.event_idx { SPECIFIC | u32::from(next.0) } else { ENABLE | ASKED };
        self.area.store(suppression, Ordering::Relaxed);
        W::full_fence();
        is_there()
    }

    /// Disables notifications: a hint that the other side may see late.
    pub(crate) fn disable_notification(&self) {
        self.area.store(DISABLE, Ordering::Relaxed);
    }
}

/// Returns `true` if `event` is in `old..new`, at most a ring apart. For an event outside the ring
/// either answer is harmless.
#[inline]
fn passed(event: PackedPosition, old: PackedPosition, new: PackedPosition, size: u16) -> bool {
    // Indices relative to the lap of `new`; those of the lap before are negative.
    let lap = |place: PackedPosition| {
        let back = if place.wrap() == new.wrap() { 0 } else { i32::from(size) };
        i32::from(place.index()) - back
    };
    (lap(old)..lap(new)).contains(&lap(event))
}

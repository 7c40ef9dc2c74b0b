//! Who must be notified, and who need not: virtio 1.2, section 2.8.14 and its event areas.
//!
//! As in split rings, a side that has published looks at what the other wants after it, and a side
//! that wants to sleep looks at the ring after it has said so, with a full fence in between.

use std::sync::atomic::Ordering;

use super::position::PackedPosition;
use crate::shared::Shared;

/// "Enable events", "Disable events" and "Enable events for a specific descriptor", in bits 16 and
/// 17 of an event area; the descriptor is in bits 0 to 15. Three is reserved.
const ENABLE: u32 = 0 << 16;
const DISABLE: u32 = 1 << 16;
const SPECIFIC: u32 = 2 << 16;
const FLAGS: u32 = 3 << 16;
/// In the place of a descriptor, which means nothing beside `ENABLE`: with it no area that a device
/// has written is as a driver makes it, all zeros.
const ASKED: u32 = 0x7fff;

/// What one side says of when it wants to be notified.
pub(crate) struct EventSuppression<'a, W: Shared<u32>> {
    pub(crate) area: &'a W,
    pub(crate) event_idx: bool,
}

impl<W: Shared<u32>> EventSuppression<'_, W> {
    /// Whether publishing what is from `old` to before `new` obliges to notify. Call it after that
    /// was handed over.
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

    /// Asks to be notified of what comes at `next`, then says whether it is there already (and the
    /// caller must not sleep).
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

    /// Asks not to be notified: a hint, which the other side may see late.
    pub(crate) fn disable_notification(&self) {
        self.area.store(DISABLE, Ordering::Relaxed);
    }
}

/// Whether `event` is one of the descriptors from `old` to before `new`, which are at most a ring
/// apart. An event that is outside the ring is harmless: the answer is one of the two.
#[inline]
fn passed(event: PackedPosition, old: PackedPosition, new: PackedPosition, size: u16) -> bool {
    // As numbers that count on through the lap that `new` is in; the lap before is below zero.
    let lap = |place: PackedPosition| {
        let back = if place.wrap() == new.wrap() { 0 } else { i32::from(size) };
        i32::from(place.index()) - back
    };
    (lap(old)..lap(new)).contains(&lap(event))
}

//! Recovery of a packed ring's position from the record of its last owner.

use std::sync::atomic::Ordering;

use super::{PackedPosition, PackedRing, Pending, show};
use crate::inflight::{InflightRecord, Publication};

/// Position of a ring from the record of its last owner; completes a publication that was cut
/// short. `None` without a record of this ring: a driver may have set it up again since.
pub(crate) fn recover(ring: &PackedRing, inflight: &InflightRecord) -> Option<PackedPosition> {
    let size = ring.size();
    // A device writes the event area first; a driver that sets up a ring zeroes it.
    if ring.device_events().load(Ordering::Relaxed) == 0 {
        return None;
    }
    let Publication { old, new, count } = inflight.last()?;
    let (old, new) = (PackedPosition(old), PackedPosition(new));
    if old.index() >= size || new.index() >= size {
        return None;
    }
    if count == 0 || !ring.word(old.index()).is_available(old) {
        return Some(new); // complete: its first descriptor is written last
    }
    let pending: Vec<_> = (0..count).map(|i| Pending(inflight.entry(i))).collect();
    // Positions must ascend from `old` and stay below `new`: else the record is not valid.
    let mut free = 0;
    for (i, pending) in pending.iter().enumerate() {
        let place = pending.place();
        let at = old.distance(place, size);
        let is_next = if i == 0 { at == 0 } else { at >= free };
        if place.index() >= size || !is_next || at >= old.distance(new, size) {
            return Some(old);
        }
        free = at + 1;
    }
    show(ring, &pending);
    Some(new)
}

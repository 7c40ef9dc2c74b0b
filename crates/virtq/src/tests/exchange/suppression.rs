//! When a side must be notified, in the words of the specification (sections 2.7.7, 2.7.10 and
//! 2.8.14).

use crate::Features;

/// What counts in a ring: the entries of a split ring's indices, or a packed ring's descriptors.
/// Counts go on for ever, and the ring has them in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    pub(super) packed: bool,
    event_idx: bool,
    size: u64,
}

impl Units {
    pub(super) fn new(features: Features, size: u16) -> Units {
        Units {
            packed: features.contains(Features::PACKED),
            event_idx: features.contains(Features::EVENT_IDX),
            size: size.into(),
        }
    }

    /// After how many units the ring says the same again.
    fn period(self) -> u64 {
        if self.packed { 2 * self.size } else { 1 << 16 }
    }

    /// The ring's name for a place.
    pub(super) fn position(self, at: u64) -> u32 {
        if !self.packed {
            return (at % self.period()) as u32;
        }
        let wrap = if (at / self.size).is_multiple_of(2) { 0x8000 } else { 0 };
        let half = (at % self.size) as u32 | wrap;
        half | half << 16
    }
}

/// What one side asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventSuppression {
    Always,
    Never,
    /// When this place is passed.
    At(u64),
}

impl EventSuppression {
    pub(super) fn armed(units: Units, at: u64) -> EventSuppression {
        if units.event_idx { EventSuppression::At(at) } else { EventSuppression::Always }
    }

    pub(super) fn disarmed(units: Units, at: u64) -> EventSuppression {
        let by_place = units.event_idx && !units.packed;
        if by_place { EventSuppression::At(at + 0x8000) } else { EventSuppression::Never }
    }

    /// Whether what is in `old..new` obliges to notify.
    pub(super) fn wants(self, units: Units, old: u64, new: u64) -> bool {
        match self {
            EventSuppression::Always => old != new,
            EventSuppression::Never => false,
            EventSuppression::At(event) => {
                (old..new).any(|at| at % units.period() == event % units.period())
            }
        }
    }
}

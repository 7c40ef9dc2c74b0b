//! Rules of notification in the words of the specification (sections 2.7.7, 2.7.10 and 2.8.14).

use crate::Features;

/// Units of a ring: entries of a split ring's indices, or a packed ring's descriptors. Counts go on
/// for ever; the ring holds them modulo a period.
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

    /// Units after which the ring's values repeat.
    fn period(self) -> u64 {
        if self.packed { 2 * self.size } else { 1 << 16 }
    }

    /// The ring's value for a position.
    pub(super) fn position(self, at: u64) -> u32 {
        if !self.packed {
            return (at % self.period()) as u32;
        }
        let wrap = if (at / self.size).is_multiple_of(2) { 0x8000 } else { 0 };
        let half = (at % self.size) as u32 | wrap;
        half | half << 16
    }
}

/// Request of one side.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventSuppression {
    Always,
    Never,
    /// Once this position is passed.
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

    /// Returns `true` if publishing `old..new` requires a notification.
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

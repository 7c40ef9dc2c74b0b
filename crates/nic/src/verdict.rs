//! What becomes of a frame, in 16 bits, and of a burst.

use crate::port::FIRST_QUEUE;
use crate::{DropReason, PortId};

/// The most frames that are classified together.
pub const BURST: usize = 64;

/// What becomes of one frame.
///
/// Below `0x4000` a port, `0x4000` flood, from `0x8000` a drop and its reason: one comparison of
/// two verdicts tells whether two frames go the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(u16);

/// A [`Verdict`] taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// To one port.
    Port(PortId),
    /// To every port that [`Table::receivers`](crate::Table::receivers) names.
    Flood,
    /// To none.
    Drop(DropReason),
}

impl Verdict {
    /// To every port that [`Table::receivers`](crate::Table::receivers) names.
    pub const FLOOD: Self = Self(0x4000);
    const DROP: u16 = 0x8000;

    /// To one port.
    #[inline]
    pub const fn port(port: PortId) -> Self {
        // Port numbers end far below; the mask keeps a wrong one from looking like a drop.
        Self(port.0 & 0x3fff)
    }

    /// To none, and why.
    #[inline]
    pub const fn drop(reason: DropReason) -> Self {
        Self(Self::DROP | reason as u16)
    }

    /// Takes the verdict apart.
    #[inline]
    pub const fn action(self) -> Action {
        if self.0 < Self::FLOOD.0 {
            Action::Port(PortId(self.0))
        } else if self.0 < Self::DROP {
            Action::Flood
        } else {
            // Only `drop` sets the bit, and each of its numbers is one of these.
            let index = (self.0 & 0xff) as usize;
            Action::Drop(DropReason::ALL[index % DropReason::ALL.len()])
        }
    }

    /// The port, if the frame goes to exactly one.
    #[inline]
    pub const fn as_port(self) -> Option<PortId> {
        if self.0 < Self::FLOOD.0 { Some(PortId(self.0)) } else { None }
    }

    /// Whether the frame goes to a receive queue.
    #[inline]
    pub(crate) const fn is_queue(self) -> bool {
        self.0 >= FIRST_QUEUE && self.0 < Self::FLOOD.0
    }

    /// Whether the frame is flooded.
    #[inline]
    pub const fn is_flood(self) -> bool {
        self.0 == Self::FLOOD.0
    }

    /// Whether the frame is dropped.
    #[inline]
    pub const fn is_drop(self) -> bool {
        self.0 & Self::DROP != 0
    }

    /// The verdict of which [`raw`](Self::raw) gave these bits.
    #[inline]
    pub(crate) const fn from_raw(raw: u16) -> Self {
        Self(raw)
    }

    /// The 16 bits, for sorting and counting.
    #[inline]
    pub const fn raw(self) -> u16 {
        self.0
    }
}

/// What a burst has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summary {
    /// There was no frame.
    Empty,
    /// Every frame has this verdict.
    Uniform(Verdict),
    /// Two frames differ.
    Mixed,
}

impl Summary {
    /// The port to which the whole burst goes, if there is one: the fast path.
    #[inline]
    pub const fn port(self) -> Option<PortId> {
        match self {
            Self::Uniform(verdict) => verdict.as_port(),
            Self::Empty | Self::Mixed => None,
        }
    }
}

/// The verdicts of a burst, in the order of its frames. Made once, used for every burst.
#[derive(Clone, Debug)]
pub struct Verdicts {
    pub(crate) of: [Verdict; BURST],
    pub(crate) len: usize,
    pub(crate) wants_deep: bool,
}

impl Verdicts {
    /// No verdicts yet.
    pub const fn new() -> Self {
        Self { of: [Verdict(0); BURST], len: 0, wants_deep: false }
    }

    /// Returns `true` if a priority-tagged frame was refused because its longer snapshot was
    /// missing. Classify the burst again with longer snapshots: see
    /// [`Table::classify_deep`](crate::Table::classify_deep).
    #[inline]
    pub const fn wants_deep(&self) -> bool {
        self.wants_deep
    }

    /// One verdict for each frame of the burst.
    #[inline]
    pub fn as_slice(&self) -> &[Verdict] {
        // The length is never above 64; `min` spares the check of it.
        &self.of[..self.len.min(BURST)]
    }

    /// Gives `len` frames the same verdict.
    #[inline]
    pub(crate) fn fill(&mut self, len: usize, verdict: Verdict) -> Summary {
        self.len = len.min(BURST);
        self.of = [verdict; BURST];
        if len == 0 { Summary::Empty } else { Summary::Uniform(verdict) }
    }
}

impl Default for Verdicts {
    fn default() -> Self {
        Self::new()
    }
}

impl std::ops::Deref for Verdicts {
    type Target = [Verdict];

    #[inline]
    fn deref(&self) -> &[Verdict] {
        self.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bits_hold_every_verdict() {
        assert_eq!(size_of::<Verdict>(), 2);
        for n in 0..PortId::COUNT as u16 {
            let verdict = Verdict::port(PortId(n));
            assert_eq!(verdict.action(), Action::Port(PortId(n)));
            assert_eq!(verdict.as_port(), Some(PortId(n)));
            assert!(!verdict.is_drop() && !verdict.is_flood());
        }
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            let verdict = Verdict::drop(reason);
            assert_eq!(verdict.action(), Action::Drop(reason));
            assert!(verdict.is_drop() && verdict.as_port().is_none() && !verdict.is_flood());
        }
        assert_eq!(Verdict::FLOOD.action(), Action::Flood);
        assert!(Verdict::FLOOD.is_flood() && Verdict::FLOOD.as_port().is_none());
    }
}

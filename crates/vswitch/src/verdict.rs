//! What becomes of a frame, in 16 bits, and of a burst.

use crate::{DropReason, PortId};

/// The most frames that are classified together.
pub const BURST: usize = 64;

/// What becomes of one frame.
///
/// Below `0x4000` a port, `0x4000` and `0x4001` the two floods, from `0x8000` a drop and its
/// reason: one comparison of two verdicts tells whether two frames go the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(u16);

/// Why a frame is flooded, and with it to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flood {
    /// The destination is a group: to every member of the VLAN.
    Group,
    /// The destination is unknown: to those members that want such frames.
    Unknown,
}

/// A [`Verdict`] taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// To one port.
    Port(PortId),
    /// To what [`Table::flood_ports`](crate::Table::flood_ports) lists, but not back.
    Flood(Flood),
    /// To none.
    Drop(DropReason),
}

impl Verdict {
    /// A frame to a group.
    pub const FLOOD: Self = Self(0x4000);
    /// A frame to an unknown address.
    pub const FLOOD_UNKNOWN: Self = Self(0x4001);
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
            return Action::Port(PortId(self.0));
        }
        match self.0 {
            0x4000 => Action::Flood(Flood::Group),
            0x4001..=0x7fff => Action::Flood(Flood::Unknown),
            _ => {
                // Only `drop` sets the bit, and each of its numbers is one of these.
                let index = (self.0 & 0xff) as usize;
                Action::Drop(DropReason::ALL[index % DropReason::ALL.len()])
            }
        }
    }

    /// The port, if the frame goes to exactly one.
    #[inline]
    pub const fn as_port(self) -> Option<PortId> {
        if self.0 < Self::FLOOD.0 { Some(PortId(self.0)) } else { None }
    }

    /// Whether the frame is flooded.
    #[inline]
    pub const fn is_flood(self) -> bool {
        self.0 & 0xc000 == Self::FLOOD.0
    }

    /// Whether the frame is dropped.
    #[inline]
    pub const fn is_drop(self) -> bool {
        self.0 & Self::DROP != 0
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
    /// Why the frames are refused that a set in [`Table::classify`](crate::Table::classify) names.
    pub(crate) refused: [Verdict; BURST],
    pub(crate) mirrors: [u32; BURST],
    pub(crate) mirrored: bool,
    pub(crate) wants_deep: bool,
}

impl Verdicts {
    /// No verdicts yet.
    pub const fn new() -> Self {
        let none = [Verdict(0); BURST];
        Self {
            of: none,
            len: 0,
            refused: none,
            mirrors: [0; BURST],
            mirrored: false,
            wants_deep: false,
        }
    }

    /// Returns `true` if the burst was not judged: frames are priority-tagged, and
    /// [`Burst::deep`](crate::Burst::deep) was missing. Classify it again with longer snapshots.
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

    /// For each frame of the burst the mirrors that get a copy, mirror 0 in bit 0; an empty slice
    /// if no frame of the burst is mirrored.
    #[inline]
    pub fn mirrors(&self) -> &[u32] {
        if self.mirrored { &self.mirrors[..self.len.min(BURST)] } else { &[] }
    }

    /// Gives all frames the same verdict.
    #[inline]
    pub(crate) fn fill(&mut self, verdict: Verdict) -> Summary {
        self.of = [verdict; BURST];
        if self.len == 0 { Summary::Empty } else { Summary::Uniform(verdict) }
    }

    /// Gives the first frames one verdict and the rest another.
    pub(crate) fn split(&mut self, at: usize, first: Verdict, rest: Verdict) -> Summary {
        if at >= self.len {
            return self.fill(first);
        }
        self.fill(rest);
        self.of[..at].fill(first);
        self.summary()
    }

    #[inline]
    pub(crate) fn refuse(&mut self, index: usize, reason: DropReason) {
        self.refused[index % BURST] = Verdict::drop(reason);
    }

    /// Puts the verdicts of a set of refused frames in place.
    #[inline]
    pub(crate) fn take_refused(&mut self, mut set: u64) {
        while set != 0 {
            let index = set.trailing_zeros() as usize;
            set &= set - 1;
            self.of[index % BURST] = self.refused[index % BURST];
        }
    }

    #[inline]
    pub(crate) fn summary(&self) -> Summary {
        match self.as_slice() {
            [] => Summary::Empty,
            // Frames that differ may still go the same way.
            [first, rest @ ..] if rest.iter().all(|verdict| verdict == first) => {
                Summary::Uniform(*first)
            }
            _ => Summary::Mixed,
        }
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
    use crate::MAX_PORTS;

    #[test]
    fn sixteen_bits_hold_every_verdict() {
        assert_eq!(size_of::<Verdict>(), 2);
        for n in 0..MAX_PORTS as u16 {
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
        assert_eq!(Verdict::FLOOD.action(), Action::Flood(Flood::Group));
        assert_eq!(Verdict::FLOOD_UNKNOWN.action(), Action::Flood(Flood::Unknown));
        for flood in [Verdict::FLOOD, Verdict::FLOOD_UNKNOWN] {
            assert!(flood.is_flood() && flood.as_port().is_none() && !flood.is_drop());
        }
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::HashSet<_> = DropReason::ALL.map(DropReason::name).into();
        assert_eq!(names.len(), DropReason::ALL.len());
    }
}

//! The answer for a frame, in 16 bits, and for a burst.

use crate::{DropReason, PortId};

/// Maximum number of frames classified together.
pub const BURST: usize = 64;

/// The answer for one frame.
///
/// Below `0x4000` a port, `0x4000` and `0x4001` the two floods, from `0x8000` a drop and its
/// reason: one comparison of two verdicts tells whether two frames go the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(u16);

/// Reason of a flood, which decides its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flood {
    /// The destination is a group; on a NIC also unknown unicast: the ports that
    /// [`nic::Table::receivers`](crate::nic::Table::receivers) names.
    Group,
    /// Unknown unicast on the switch: the members of the VLAN that receive such frames.
    Unknown,
}

/// A [`Verdict`] taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// To one port.
    Port(PortId),
    /// To several ports, but not back to the sender's.
    Flood(Flood),
    /// To no port.
    Drop(DropReason),
}

impl Verdict {
    /// Flood to a group.
    pub const FLOOD: Self = Self(0x4000);
    /// Flood of unknown unicast.
    pub const FLOOD_UNKNOWN: Self = Self(0x4001);
    const DROP: u16 = 0x8000;

    /// To one port.
    #[inline]
    pub const fn port(port: PortId) -> Self {
        // Port numbers end far below; the mask keeps a wrong one from looking like a drop.
        Self(port.0 & 0x3fff)
    }

    /// To no port, with the reason.
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

    /// `true` if the frame is flooded.
    #[inline]
    pub const fn is_flood(self) -> bool {
        self.0 & 0xc000 == Self::FLOOD.0
    }

    /// `true` if the frame is dropped.
    #[inline]
    pub const fn is_drop(self) -> bool {
        self.0 & Self::DROP != 0
    }

    /// The verdict with these bits, from [`raw`](Self::raw).
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

/// Common verdict of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summary {
    /// The burst has no frame.
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
    pub(crate) wants_snapshots: bool,
}

impl Verdicts {
    /// No verdicts yet.
    pub const fn new() -> Self {
        Self { of: [Verdict(0); BURST], len: 0, wants_snapshots: false }
    }

    /// `true` if a priority-tagged frame could not be classified because its longer snapshot was
    /// missing. Classify the burst again with longer snapshots.
    #[inline]
    pub const fn wants_snapshots(&self) -> bool {
        self.wants_snapshots
    }

    /// One verdict for each frame of the burst.
    #[inline]
    pub fn as_slice(&self) -> &[Verdict] {
        // The length is never above 64; `min` spares the check of it.
        &self.of[..self.len.min(BURST)]
    }

    /// Gives `len` frames the verdict of the first.
    #[inline]
    pub fn repeat_first(&mut self, len: usize) {
        self.fill(len, self.of[0]);
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
        for n in 0..crate::nic::PORTS.max(crate::switch::MAX_PORTS) as u16 {
            let verdict = Verdict::port(PortId(n));
            assert_eq!(verdict.action(), Action::Port(PortId(n)));
            assert_eq!(verdict.as_port(), Some(PortId(n)));
            assert!(!verdict.is_drop() && !verdict.is_flood());
        }
        for reason in DropReason::ALL {
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
}

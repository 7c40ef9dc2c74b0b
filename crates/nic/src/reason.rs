//! Why the NIC drops a frame.

use std::fmt;

/// A reason of the bridge's own; counted by the engine, one counter each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The source MAC is not one of the function's, and it is checked.
    SpoofedMac = 0,
    /// The source MAC is a group address.
    SourceMulticast = 1,
    /// The frame carries a tag that the function may not send.
    VlanForbidden = 2,
    /// The destination is the function that sent it; or, from the switch, on that switch.
    Hairpin = 3,
    /// From the uplink, for no function of this NIC.
    NoMatch = 4,
    /// The port it came from has no function configured, or is a queue, which sends nothing.
    NoFunction = 5,
    /// The link of its sender is down, or that of everyone it is for.
    LinkDown = 6,
    /// From one function to another, where the bridge keeps functions apart.
    Isolated = 7,
    /// A broadcast or multicast beyond what its sender may send in a second. The classifier has no
    /// clock: who holds the function's [`StormLimit`](crate::StormLimit) gives this reason.
    Storm = 8,
    /// A rule of switchdev mode says so; the rule counts it too.
    Rule = 9,
}

impl DropReason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 10] = [
        Self::SpoofedMac,
        Self::SourceMulticast,
        Self::VlanForbidden,
        Self::Hairpin,
        Self::NoMatch,
        Self::NoFunction,
        Self::LinkDown,
        Self::Isolated,
        Self::Storm,
        Self::Rule,
    ];

    /// The name, as counters and reports show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpoofedMac => "spoofed-mac",
            Self::SourceMulticast => "source-multicast",
            Self::VlanForbidden => "vlan-forbidden",
            Self::Hairpin => "hairpin",
            Self::NoMatch => "no-match",
            Self::NoFunction => "no-function",
            Self::LinkDown => "link-down",
            Self::Isolated => "isolated",
            Self::Storm => "storm",
            Self::Rule => "rule",
        }
    }

    /// The number, to index a table of counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

//! Reasons for which the NIC and the switch drop frames.

use std::fmt;

/// Reason of a drop; the engine has one counter for each bridge and reason.
///
/// The numbers have an order: reasons of the NIC alone, of both, of the switch alone. Explanations
/// are in the engine's table of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The port has no function configured, or is a receive queue, which sends nothing.
    NoFunction,
    /// The sender's link is down, or the link of every receiver. A port of the switch without link
    /// is not in its table: the switch gives this reason too, and it is counted as the NIC's.
    LinkDown,
    /// A broadcast or multicast above the sender's storm limit. The classifier has no clock: the
    /// holder of the function's [`StormLimit`](crate::rate::StormLimit) gives this reason.
    Storm,
    /// A rule of switchdev mode drops the frame; the rule counts it too.
    Rule,
    /// The source MAC is not the sender's: spoof check of a function, or a static entry of another
    /// port of the switch.
    SpoofedMac,
    /// The source MAC is a group address.
    SourceMulticast,
    /// The frame's tag or VLAN is not allowed on the port.
    VlanForbidden,
    /// The destination is behind the port that the frame came from.
    Hairpin,
    /// No port receives the frame.
    NoMatch,
    /// Sender and receiver are isolated from each other.
    Isolated,
    /// The destination is reserved for a single link (IEEE 802.1Q-2022, table 8-1).
    LinkLocal,
    /// A guard or an ACL needs headers that are cut off, malformed or too far back.
    HiddenHeader,
    /// A message of a DHCP server, from a port with a DHCP guard.
    DhcpGuard,
    /// A message of a router, from a port with a router guard.
    RouterGuard,
    /// The port's ACL denies it.
    AclDeny,
    /// The source is unknown, and the port has as many addresses as it may have.
    MacLimit,
    /// More broadcasts than storm control allows.
    StormBroadcast,
    /// More multicasts than storm control allows.
    StormMulticast,
    /// More frames to unknown addresses than storm control allows.
    StormUnknown,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::NoFunction,
        Self::LinkDown,
        Self::Storm,
        Self::Rule,
        Self::SpoofedMac,
        Self::SourceMulticast,
        Self::VlanForbidden,
        Self::Hairpin,
        Self::NoMatch,
        Self::Isolated,
        Self::LinkLocal,
        Self::HiddenHeader,
        Self::DhcpGuard,
        Self::RouterGuard,
        Self::AclDeny,
        Self::MacLimit,
        Self::StormBroadcast,
        Self::StormMulticast,
        Self::StormUnknown,
    ];

    /// Reasons of the NIC: the first ten.
    pub const NIC: &'static [Self] = Self::ALL.split_at(Self::LinkLocal as usize).0;

    /// Reasons of the switch: from [`SpoofedMac`](Self::SpoofedMac) on, besides
    /// [`LinkDown`](Self::LinkDown).
    pub const SWITCH: &'static [Self] = Self::ALL.split_at(Self::SpoofedMac as usize).1;

    /// Name in counters and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoFunction => "no-function",
            Self::LinkDown => "link-down",
            Self::Storm => "storm",
            Self::Rule => "rule",
            Self::SpoofedMac => "spoofed-mac",
            Self::SourceMulticast => "source-multicast",
            Self::VlanForbidden => "vlan-forbidden",
            Self::Hairpin => "hairpin",
            Self::NoMatch => "no-match",
            Self::Isolated => "isolated",
            Self::LinkLocal => "link-local",
            Self::HiddenHeader => "hidden-header",
            Self::DhcpGuard => "dhcp-guard",
            Self::RouterGuard => "router-guard",
            Self::AclDeny => "acl-deny",
            Self::MacLimit => "mac-limit",
            Self::StormBroadcast => "storm-broadcast",
            Self::StormMulticast => "storm-multicast",
            Self::StormUnknown => "storm-unknown",
        }
    }

    /// Index in [`NIC`](Self::NIC).
    #[inline]
    pub const fn nic_index(self) -> usize {
        debug_assert!((self as usize) < Self::NIC.len());
        self as usize
    }

    /// Index in [`SWITCH`](Self::SWITCH).
    #[inline]
    pub const fn switch_index(self) -> usize {
        self as usize - Self::SpoofedMac as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_distinct_and_indices_agree() {
        let names: HashSet<_> = DropReason::ALL.map(DropReason::name).into();
        assert_eq!(names.len(), DropReason::ALL.len());
        for (i, reason) in DropReason::NIC.iter().enumerate() {
            assert_eq!(reason.nic_index(), i);
        }
        for (i, reason) in DropReason::SWITCH.iter().enumerate() {
            assert_eq!(reason.switch_index(), i);
        }
        assert_eq!((DropReason::NIC.len(), DropReason::SWITCH.len()), (10, 15));
    }
}

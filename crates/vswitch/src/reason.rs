//! Why the switch drops a frame.

use std::fmt;

/// A reason of the switch's own; counted by the engine, one counter each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The port it came from is not configured.
    NoPort = 0,
    /// The source MAC is a group address.
    SourceMulticast = 1,
    /// The port is no member of the frame's VLAN, or may not send the tag it carries.
    VlanForbidden = 2,
    /// The destination is reserved for a single link.
    LinkLocal = 3,
    /// The source MAC is a static entry of another port.
    SpoofedMac = 4,
    /// A guard or an ACL has to see headers that are cut off, malformed or too far back.
    HiddenHeader = 5,
    /// What a DHCP server sends, from a port with a DHCP guard.
    DhcpGuard = 6,
    /// What a router sends, from a port with a router guard.
    RouterGuard = 7,
    /// The port's ACL denies it.
    AclDeny = 8,
    /// The source is unknown, and the port has all the addresses that it may have.
    MacLimit = 9,
    /// The destination is behind the port that it came from.
    Hairpin = 10,
    /// Both ports are isolated.
    Isolated = 11,
    /// Nobody else would get it.
    NoMatch = 12,
    /// More broadcasts than storm control allows.
    StormBroadcast = 13,
    /// More multicasts than storm control allows.
    StormMulticast = 14,
    /// More frames to unknown addresses than storm control allows.
    StormUnknown = 15,
}

impl DropReason {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 16] = [
        Self::NoPort,
        Self::SourceMulticast,
        Self::VlanForbidden,
        Self::LinkLocal,
        Self::SpoofedMac,
        Self::HiddenHeader,
        Self::DhcpGuard,
        Self::RouterGuard,
        Self::AclDeny,
        Self::MacLimit,
        Self::Hairpin,
        Self::Isolated,
        Self::NoMatch,
        Self::StormBroadcast,
        Self::StormMulticast,
        Self::StormUnknown,
    ];

    /// The name, as counters and reports show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoPort => "no-port",
            Self::SourceMulticast => "source-multicast",
            Self::VlanForbidden => "vlan-forbidden",
            Self::LinkLocal => "link-local",
            Self::SpoofedMac => "spoofed-mac",
            Self::HiddenHeader => "hidden-header",
            Self::DhcpGuard => "dhcp-guard",
            Self::RouterGuard => "router-guard",
            Self::AclDeny => "acl-deny",
            Self::MacLimit => "mac-limit",
            Self::Hairpin => "hairpin",
            Self::Isolated => "isolated",
            Self::NoMatch => "no-match",
            Self::StormBroadcast => "storm-broadcast",
            Self::StormMulticast => "storm-multicast",
            Self::StormUnknown => "storm-unknown",
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

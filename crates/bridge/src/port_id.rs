//! Port numbers of a NIC or a switch.

use std::fmt;

/// A port of a NIC ([`nic`](crate::nic)) or of a switch ([`switch`](crate::switch)); each bridge
/// numbers its own ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

impl PortId {
    /// The uplink: of a NIC the wire, of a switch the NIC's PF.
    pub const UPLINK: Self = Self(0);

    /// The number, to index a table of ports.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PortId {
    /// Name of a switch's port; a NIC's is a [`PortName`](crate::nic::PortName).
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UPLINK => out.write_str("uplink"),
            Self(n) => write!(out, "port {n}"),
        }
    }
}

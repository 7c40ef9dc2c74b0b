//! Port numbers of a switch.

use std::fmt;

/// The most ports that a switch can have, the uplink included.
pub const MAX_PORTS: usize = 512;

/// A port of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

impl PortId {
    /// The way out of the switch: a NIC's PF.
    pub const UPLINK: Self = Self(0);

    /// The number, to index a table of ports.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UPLINK => out.write_str("uplink"),
            Self(n) => write!(out, "port {n}"),
        }
    }
}

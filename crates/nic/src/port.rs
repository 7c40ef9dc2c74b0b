//! Port numbers of a NIC.

use std::fmt;

use crate::config::MAX_VFS;

/// A port of the NIC: the uplink, the PF or a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

impl PortId {
    /// The wire's side.
    pub const UPLINK: Self = Self(0);
    /// The physical function, on which the switch hangs.
    pub const PF: Self = Self(1);
    /// How many port numbers there are: uplink, PF and every VF.
    pub const COUNT: usize = 2 + MAX_VFS;

    /// The port of VF `n`, counted from 0.
    #[inline]
    pub const fn vf(n: u8) -> Self {
        Self(2 + n as u16)
    }

    /// The number of the VF, counted from 0; `None` of the uplink and the PF.
    pub const fn vf_index(self) -> Option<u16> {
        self.0.checked_sub(2)
    }

    /// The number, to index a table of ports.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.vf_index()) {
            (Self::UPLINK, _) => out.write_str("uplink"),
            (_, Some(n)) => write!(out, "VF {n}"),
            (_, None) => out.write_str("PF"),
        }
    }
}

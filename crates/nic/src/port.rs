//! Port numbers of a NIC.

use std::fmt;

use crate::config::{MAX_QUEUES, MAX_VFS};

/// A port of the NIC: the uplink, the PF, a VF, or a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortId(pub u16);

impl PortId {
    /// The wire's side.
    pub const UPLINK: Self = Self(0);
    /// The physical function, on which the switch hangs.
    pub const PF: Self = Self(1);
    /// How many port numbers there are: uplink, PF, every VF and every queue.
    pub const COUNT: usize = FIRST_QUEUE as usize + MAX_QUEUES;

    /// The port of VF `n`, counted from 0.
    #[inline]
    pub const fn vf(n: u8) -> Self {
        Self(FIRST_VF + n as u16)
    }

    /// The port of receive queue `n`, counted from 0; there are up to 255, so 255 never exists.
    #[inline]
    pub const fn queue(n: u8) -> Self {
        Self(FIRST_QUEUE + n as u16)
    }

    /// The number of the VF, counted from 0; `None` of any other port.
    pub const fn vf_index(self) -> Option<u16> {
        if self.0 < FIRST_QUEUE { self.0.checked_sub(FIRST_VF) } else { None }
    }

    /// The number of the receive queue, counted from 0; `None` of any other port.
    pub const fn queue_index(self) -> Option<u16> {
        self.0.checked_sub(FIRST_QUEUE)
    }

    /// The number, to index a table of ports.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Port numbers: first the uplink and the PF, then VFs, then queues.
const FIRST_VF: u16 = 2;
pub(crate) const FIRST_QUEUE: u16 = FIRST_VF + MAX_VFS as u16;

impl fmt::Display for PortId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.vf_index(), self.queue_index()) {
            (Self::UPLINK, ..) => out.write_str("uplink"),
            (_, Some(n), _) => write!(out, "VF {n}"),
            (_, _, Some(n)) => write!(out, "queue {n}"),
            _ => out.write_str("PF"),
        }
    }
}

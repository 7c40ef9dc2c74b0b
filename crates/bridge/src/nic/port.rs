//! Port numbers of a NIC: first the uplink and the PF, then VFs, then receive queues.

use std::fmt;

use crate::{PortId, Verdict};

/// Maximum number of VFs of a NIC; PCI-SIG's bus number and our port numbers allow 255.
pub const MAX_VFS: usize = 255;
/// Maximum number of receive queues of a NIC.
pub const MAX_QUEUES: usize = 255;

const FIRST_VF: u16 = 2;
pub(crate) const FIRST_QUEUE: u16 = FIRST_VF + MAX_VFS as u16;

/// Number of port numbers of a NIC: uplink, PF, every VF and every queue.
pub const PORTS: usize = FIRST_QUEUE as usize + MAX_QUEUES;

impl PortId {
    /// The physical function of a NIC; a switch is attached to it.
    pub const PF: Self = Self(1);

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
}

impl Verdict {
    /// `true` if the frame goes to a receive queue.
    #[inline]
    pub(crate) const fn is_queue(self) -> bool {
        self.raw() >= FIRST_QUEUE && self.as_port().is_some()
    }
}

/// Name of a NIC's port in messages: `uplink`, `PF`, `VF 3`, `queue 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortName(pub PortId);

impl fmt::Display for PortName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.0.vf_index(), self.0.queue_index()) {
            (PortId::UPLINK, ..) => out.write_str("uplink"),
            (_, Some(n), _) => write!(out, "VF {n}"),
            (_, _, Some(n)) => write!(out, "queue {n}"),
            _ => out.write_str("PF"),
        }
    }
}
